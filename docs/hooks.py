"""Hooks of mkdocs: what pages take from the source, and formulas without a script from the web.

The reference of the command line is generated. A line that is only a link such as

    [`src/elmokit/model/encoders.py`: `Highway.forward`](../../src/elmokit/model/encoders.py)

becomes the code of that function or class as it stands in the source, without its docstring. A
third name, as in `BiLM.forward.packed`, is the statement that assigns a variable. A name that does
not exist stops the build. Formulas between dollars become MathML, which browsers display. The link
to the other language below a heading is for readers of the file: the site has a switch instead.
Each tutorial has a link to a notebook with its text and code, which is written beside its page.
"""

from __future__ import annotations

import ast
import html
import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MARKER = "<!-- the commands -->"
CODE_LINK = re.compile(r"^\[`(?P<file>src/[^`]+\.py)`: `(?P<name>[\w.]+)`\]\([^)\s]*\)$", re.M)
OTHER_LANGUAGE = re.compile(r"(?<=\n)\[(?:English|中文)\]\([\w.-]+\.md\)\n+")
FENCE = re.compile(r"^```(?P<language>python|console)\n(?P<code>.*?)^```$", re.M | re.S)
RELATIVE_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)[^)\s]+\)")
FIGURE = re.compile(r"^!\[[^\]]*\]\(\.\./images/\w+/([\w-]+\.png)\)$", re.M)
NOTEBOOK = {False: "Download this page as a notebook", True: "下载本页的 notebook"}
FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.S
)


def on_page_markdown(markdown: str, page: Any = None, **context: Any) -> str:
    """Replace the markers of a page by what they stand for."""
    if page is not None and page.file.src_uri.startswith("tutorials/"):
        name = Path(page.file.src_uri).stem
        text = NOTEBOOK[name.endswith(".zh-CN")]
        link = f'<a href="{name}.ipynb" download>{text}</a>'
        markdown = markdown.replace("\n", f"\n\n{link}\n", 1)  # below the heading
    if MARKER in markdown:
        markdown = markdown.replace(MARKER, commands())
    markdown = OTHER_LANGUAGE.sub("", markdown, count=1)
    return CODE_LINK.sub(lambda link: code_block(link["file"], link["name"]), markdown)


def on_page_content(content: str, **context: Any) -> str:
    """Replace the formulas that pymdownx.arithmatex has marked by MathML."""
    return FORMULA.sub(lambda found: mathml(html.unescape(found["tex"]), found["tag"]), content)


def on_page_context(context: dict[str, Any], config: Any, **rest: Any) -> dict[str, Any]:
    """Let the language switch of the home page work below any address, not only at its root."""
    for language in getattr(config.extra, "alternate", ()):
        language["link"] = language["link"].lstrip("/")
    return context


def on_post_page(output: str, page: Any, **context: Any) -> str:
    """Write the notebook of a tutorial beside its page."""
    if page.file.src_uri.startswith("tutorials/"):
        source, folder = Path(page.file.abs_src_path), Path(page.file.abs_dest_path).parent
        folder.mkdir(parents=True, exist_ok=True)
        write_notebook(source, folder / f"{source.stem}.ipynb")
    return output


def write_notebook(page: Path, target: Path) -> None:
    """Write a page as a notebook: Python as it is, commands for bash, the rest as text.

    What commands print on the page is left out: running the notebook shows it.
    """
    import nbformat
    from nbformat import v4

    text = page.read_text(encoding="utf-8")
    cells, end = [], 0
    for block in FENCE.finditer(text):
        cells += text_cells(text[end : block.start()])
        code = block["code"].strip()
        if block["language"] == "console":  # `!` would ignore that a command fails
            commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", code, re.M)
            code = "\n".join(["%%bash -e", *commands])
        cells.append(v4.new_code_cell(code))
        end = block.end()
    cells += text_cells(text[end:])
    for number, cell in enumerate(cells):  # The default is random: the same page, the same file.
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), target)


def text_cells(text: str) -> list[Any]:
    """Return the cells of a text, without links to pages that are not beside the notebook.

    A figure that the code of the page draws becomes code that shows it.
    """
    from nbformat import v4

    text = re.sub(r"^\[(?:English|中文|简体中文)\]\([^)]*\)$", "", text, flags=re.M)
    cells = []
    for i, part in enumerate(FIGURE.split(RELATIVE_LINK.sub(r"\1", text))):
        if i % 2:
            code = f'from IPython.display import Image\n\nImage("{part.replace("_", "/")}")'
            cells.append(v4.new_code_cell(code))
        elif part.strip():
            cells.append(v4.new_markdown_cell(part.strip()))
    return cells


def commands() -> str:
    """Return a section for each command, with its arguments and options."""
    from elmokit.cli.main import build_app

    text = build_app().generate_docs(output_format="markdown", heading_level=1)
    sections = text[text.index("## elmokit ") :]
    return re.sub(r"\*\*\[required\]\*\*", "(required)", sections)


def code_block(file: str, name: str) -> str:
    """Return a block with the code of a function, a class or an assignment, and where it is."""
    return f'```python title="{file}: {name}"\n{code_of(file, name)}\n```'


def code_of(file: str, name: str) -> str:
    """Return the lines of a name in a file of the source, without its docstring."""
    source = (ROOT / file).read_text(encoding="utf-8")
    node: Any = ast.parse(source)
    for part in name.split("."):
        found = [child for child in ast.walk(node) if part in names_of(child)]
        if not found:
            raise ValueError(f"{file} has no {name}: correct the page that includes it")
        node = found[0]
    lines = source.splitlines()
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    kept = list(range(first, node.end_lineno + 1))
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
        docstring = node.body[0]
        kept = [n for n in kept if not docstring.lineno <= n <= (docstring.end_lineno or 0)]
    return textwrap.dedent("\n".join(lines[n - 1] for n in kept))


def names_of(node: ast.AST) -> list[str]:
    """Return the names that a definition or an assignment gives."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [
            n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)
        ]
    return []


def mathml(tex: str, tag: str) -> str:
    """Return a formula as MathML, on a line of its own if it is marked by a div.

    What the converter does not know stays in it as text: an error.
    """
    from latex2mathml.converter import convert

    formula = convert(tex.strip(), display="block" if tag == "div" else "inline")
    unknown = re.search(r"<mi>(&|\\\w*)</mi>", formula)
    if unknown:
        raise ValueError(f"a formula with {unknown[1]} cannot be displayed: {tex.strip()}")
    # Chromium, unlike Firefox, aligns the columns of a table of formulas only by this style.
    style = r'\g<0> style="text-align: -webkit-\1"'
    formula = re.sub(r'columnalign="(\w+)"', style, formula)
    line = '<p style="overflow: auto hidden; padding: 0.3em 0">'  # A wide formula can be scrolled.
    return f"{line}{formula}</p>" if tag == "div" else formula
