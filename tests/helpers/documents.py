"""Markdown that is run: the code blocks of README and docs, with what they say they print.

```python    runs, all blocks of a page in one namespace; `print(x)  # 3` must print 3
```console   runs in a shell, line by line after `$ `; what stands below must be printed (`...`
             stands for anything, as whole words)
```py        is the code of a script in examples/, which tests/test_examples.py compares and runs
```text     may show messages, lines with `elmokit: ` that a command above has written; the
            rest is only read, as are other blocks: what installs or needs a network

Decimal numbers may differ by 2 percent or by 2 in their last digit, as processors do, and by 40
percent or 15 points where a model was trained before, which amplifies that; in messages, which
also tell of the first steps, they are left open. A figure in
docs/images/PAGE/ is one that the page draws: FOLDER_NAME.png is FOLDER/NAME.png. `make outputs`
writes what is printed into the pages instead, to the last digit and in both languages, and stores
their figures.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import struct
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from elmokit.cli.main import main

ROOT = Path(__file__).parents[2]
# Packages that the code of a page needs beside elmokit[dev] without its heavy parts.
NEEDED = {
    "how-to/datasets.md": ("datasets",),
    "how-to/many-machines.md": ("pyarrow", "fsspec"),
    "how-to/onnx.md": ("onnx", "onnxruntime"),
    "how-to/scikit-learn.md": ("sklearn", "sklearn_crfsuite", "pandas"),
    "how-to/serve.md": ("fastapi", "httptools", "orjson", "prometheus_client"),
    "how-to/search.md": ("duckdb", "faiss", "pandas", "pyarrow", "usearch"),
    "how-to/spacy.md": ("spacy",),
    "how-to/static.md": ("gensim",),
    "how-to/transformers.md": ("transformers", "accelerate", "sentence_transformers"),
    "tutorials/reviews.md": ("sklearn",),
    "tutorials/reviews.zh-CN.md": ("sklearn", "jieba"),
}
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.M | re.S)
DECIMAL = re.compile(r"-?\d+\.\d+")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
TOLERANCE, TRAINED_TOLERANCE = 0.02, 0.4
TRAINED = ("train", "compare", "score", "evaluate", "probe", "plot weights", "convert my-elmo")
ROUNDING = re.compile(r"\d\.\de-\d\d")  # an error of rounding, which depends on the processor
FOLDER = re.compile(r"(?<= )/\S*/")  # of a path in a message
OCCASION = re.compile(r"elmokit: (?:step \d+|epoch \d+/\d+):")
IMAGE = re.compile(r"!\[[^\]]*\]\(((?:\.\./)?images/(\w+)/([\w-]+\.png))\)")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.name}, line {self.line}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match["language"], match["text"])
        for match in FENCE.finditer(text)
    ]


def links(page: Path) -> list[str]:
    """The relative links of a page, outside of its code."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    targets = (link.partition("#")[0] for link in LINK.findall(text))
    return [
        link for link in targets if link and "://" not in link and not link.startswith("mailto:")
    ]


def run_page(page: Path, folder: Path, *, rewrite: bool = False) -> int:
    """Run the blocks of a page in their order, in `folder`; gives how many there were.

    With `rewrite` what they print replaces what the page shows, also in its Chinese version.
    """
    names: dict[str, Any] = {"__name__": page.stem}
    count = 0
    changed, left = {}, []
    runs: list[list[str]] = []  # the messages of each block of commands
    with inside(folder):
        for block in blocks(page):
            if block.language == "python":
                printed = run_python(block, names, exactly=rewrite)
            elif block.language == "console":
                printed = run_console(block, folder, exactly=rewrite)
                runs.append(printed.messages)
            elif block.language == "text":
                printed = compare_messages(block, runs, exactly=rewrite)
            else:
                continue
            count += block.language != "text"
            if not rewrite:
                assert not printed.problems, "\n\n".join(printed.problems)
            elif printed.text != block.text:
                changed[block.text] = printed.text
            else:
                left += printed.problems
    check_figures(page, folder, rewrite=rewrite)
    chinese = page.with_name(f"{page.stem}.zh-CN.md")
    for path in (page, chinese) if changed and chinese.exists() else (page,) if changed else ():
        text = path.read_text(encoding="utf-8")
        for old, new in changed.items():
            text = text.replace(f"\n{old}```", f"\n{new}```")
        path.write_text(text, encoding="utf-8")
    assert not left, "\n\n".join(left)
    return count


def check_figures(page: Path, folder: Path, *, rewrite: bool) -> None:
    """Compare the figures of a page with those that its code has drawn, or store these."""
    for link, name, file in IMAGE.findall(page.read_text(encoding="utf-8")):
        if name != in_english(page.stem):
            continue
        stored, drawn = page.parent / link, folder / file.replace("_", "/")
        assert drawn.is_file(), f"{page.name} shows {file}, but its code draws no {drawn.name}"
        if rewrite:
            stored.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(drawn, stored)
        is_like = np.allclose(png_size(stored), png_size(drawn), rtol=0.05)
        assert is_like, f"{page.name} shows another {file}: make outputs"


def png_size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG file."""
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    return width, height


def in_english(name: str) -> str:
    """The name of a page without its language."""
    return name.replace(".zh-CN", "")


@dataclass(frozen=True)
class Printed:
    """A block with what it really prints, and where it showed something else."""

    text: str
    problems: list[str]
    messages: list[str] = field(default_factory=list)


def is_close(shown: str, printed: str, tolerance: float = TOLERANCE) -> bool:
    """Tell whether two words are the same but for small differences of decimal numbers."""
    if not tolerance:
        return shown == printed
    is_trained = tolerance == TRAINED_TOLERANCE
    pattern = NUMBER if is_trained else DECIMAL
    shown, printed = (re.sub("-{3,}", "---", word) for word in (shown, printed))  # of tables
    for one, other in zip(ROUNDING.findall(shown), ROUNDING.findall(printed), strict=False):
        if not 0.25 < float(one) / float(other) < 4:
            return False
    shown, printed = (ROUNDING.sub("#", word) for word in (shown, printed))
    numbers = [pattern.findall(word) for word in (shown, printed)]
    if pattern.sub("#", shown) != pattern.sub("#", printed):
        return False
    for first, second in zip(*numbers, strict=True):
        digits = len(first.partition(".")[2])
        least = 15 if is_trained and digits in (0, 2) else 2.01 * 10**-digits
        bound = max(tolerance * abs(float(first)), least)
        if len(second.partition(".")[2]) != digits or abs(float(first) - float(second)) > bound:
            return False
    return True


def is_shown(shown: str, printed: str, tolerance: float = TOLERANCE) -> bool:
    """Tell whether an output is what a page shows; the word `...` there stands for any words."""
    words = printed.split()
    first, *others = [part.split() for part in re.split(r"(?:(?<=\s)|^)\.\.\.(?=\s|$)", shown)]

    def fits(part: list[str], start: int) -> bool:
        there = words[start : start + len(part)]
        pairs = zip(part, there, strict=False)
        return len(there) == len(part) and all(is_close(*pair, tolerance) for pair in pairs)

    if not others:
        return len(first) == len(words) and fits(first, 0)
    *between, last = others
    start = len(first)
    if not fits(first, 0):
        return False
    for part in between:
        while not fits(part, start):
            start += 1
            if start > len(words):
                return False
        start += len(part)
    end = len(words) - len(last)
    return end >= start and fits(last, end)


def run_python(block: Block, names: dict[str, Any], *, exactly: bool = False) -> Printed:
    """Run a block, comparing what its calls of print say with the comments behind them."""
    tree = ast.parse(block.text, filename=block.where)
    printed: dict[int, str] = {}

    def note(*values: object) -> None:
        printed[sys._getframe(1).f_lineno] = " ".join(map(str, values))

    names["print"] = note
    exec(compile(tree, block.where, "exec"), names)
    lines = block.text.splitlines(keepends=True)
    problems = []
    for line, (end, expected) in promised(block.text).items():
        got = printed.get(line, "")
        if not is_shown(expected, got, 0 if exactly else TOLERANCE):
            where = f"{block.page.name}, line {block.line + line}"
            problems.append(f"{where} prints {got!r}, not {expected!r}")
            lines[end - 1] = lines[end - 1].removesuffix(f"{expected}\n") + f"{got}\n"
    return Printed("".join(lines), problems)


def promised(source: str) -> dict[int, tuple[int, str]]:
    """The comment behind each call of print that has one and its line, by the line of the call."""
    remarks = comments(source)
    calls = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ]
    return {
        node.lineno: (node.end_lineno, remarks[node.end_lineno])
        for node in sorted(calls, key=lambda node: node.lineno)
        if node.end_lineno in remarks
    }


def comments(source: str) -> dict[int, str]:
    """The comment of each line that has one."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what is shown below it."""
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        lines = part.splitlines(keepends=True)
        end = next(i for i, line in enumerate(lines) if not line.endswith("\\\n")) + 1
        yield "".join(lines[:end]).strip(), "".join(lines[end:])


def run_console(block: Block, folder: Path, *, exactly: bool = False) -> Printed:
    """Run the commands of a block; what they show must be printed.

    A plain `elmokit …` or `python -m …` runs in this process, which saves the time to import torch.
    """
    text, problems, messages = block.text, [], []
    for command, shown in commands(block):
        where = f"{block.where}: $ {command}"
        words = [] if set(command) & set("|<>;&$") else shlex.split(command.replace("\\\n", " "))
        if words[:1] == ["elmokit"]:
            code, out, err = run_here(words[1:])
            messages += err.splitlines()
        elif words[:2] == ["python", "-m"]:
            code, out, err = run_module(words[2:])
        else:
            code, out, err = run_shell(command, folder)
        assert code == 0, f"{where}\n{err}"
        trained = command.removeprefix("elmokit ").startswith(TRAINED)
        tolerance = 0 if exactly else TRAINED_TOLERANCE if trained else TOLERANCE
        if shown.strip() and not is_shown(shown, out, tolerance):
            problems.append(f"{where}\nprints\n{out}\nnot\n{shown}")
            before, prompt, after = text.partition(f"$ {command}\n")
            text = before + prompt + after.replace(shown, out, 1)
    return Printed(text, problems, messages)


def compare_messages(block: Block, runs: list[list[str]], *, exactly: bool = False) -> Printed:
    """Compare the messages that a block shows with the last of `runs` that has them all."""
    shown = [line for line in block.text.splitlines() if line.startswith("elmokit: ")]
    said = next((lines for run in reversed(runs) if (lines := in_order(shown, run))), shown[:0])
    if len(said) < len(shown):
        return Printed(block.text, [f"{block.where}: no command above says these lines in a row"])
    text, problems = block.text, []
    for line, message in zip(shown, said, strict=True):
        one, other = without_folder(line), without_folder(message)
        if not exactly:
            one, other = (DECIMAL.sub("#", s.removesuffix(" (best)")) for s in (one, other))
        if not is_shown(one, other, 0 if exactly else TRAINED_TOLERANCE):
            problems.append(f"{block.where} shows {line!r}, not {message!r}")
            text = text.replace(f"{line}\n", f"{FOLDER.sub('/home/me/', message)}\n", 1)
    return Printed(text, problems)


def in_order(shown: list[str], said: list[str]) -> list[str]:
    """Return the messages for the same steps or of the same kind, as many as are found."""
    rest = iter(said)
    found = (next((s for s in rest if occasion(s) == occasion(line)), None) for line in shown)
    messages = [message for message in found if message is not None]
    return messages if len(messages) == len(shown) else []


def occasion(line: str) -> str:
    """The step or epoch of a message; its words, if it has none."""
    step = OCCASION.match(line)
    return step[0] if step else re.sub(r"[-+]?\d[\d,.]*", "0", without_folder(line))


def without_folder(line: str) -> str:
    """A message without the folder of its path."""
    return FOLDER.sub("", line)


def run_shell(command: str, folder: Path) -> tuple[int, str, str]:
    """Run a command in a shell, with this Python's programs first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def run_here(arguments: list[str]) -> tuple[int, str, str]:
    """Run the command line of elmokit in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def run_module(arguments: list[str]) -> tuple[int, str, str]:
    """Run a module as `python -m` does, in this process."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", arguments),
    ):
        try:
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code
    return int(code or 0), out.getvalue(), err.getvalue()


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder for the length of the block (contextlib.chdir needs Python 3.11)."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
