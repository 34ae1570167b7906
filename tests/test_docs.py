"""The documentation says what is true: code runs, references are complete, links lead on."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import documents
import h5py
import numpy as np
import pytest
import yaml
from bundles import save_module, save_training, with_softmax
from documents import NEEDED, ROOT, blocks, in_english, links, run_page
from many_langs_reference import make_many_langs
from reference import make_reference
from task_models import pack, save_task_model

import elmokit
from elmokit import language
from elmokit.cli.main import COMMANDS
from elmokit.formats import bilm
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.detect import read_checkpoint

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
CHINESE = [page for page in PAGES if page.name.endswith(".zh-CN.md")]
# Pages with code of their own, for Chinese text.
OWN_CODE = [DOCS / "tutorials" / "reviews.zh-CN.md"]
GENERATED = [DOCS / "reference" / "cli.md", DOCS / "reference" / "python.md"]  # English only
README = ROOT / "README.md"


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def section(page: Path, heading: str, level: str = "##") -> str:
    """The text below a heading, up to the next of its level."""
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"^{level} {re.escape(heading)}\n(.*?)(?=^{level} |\Z)", text, re.M | re.S)
    assert found, f"{page.name} has no section {heading!r}"
    return found[1]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """What mkdocs calls: docs/hooks.py."""
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("hooks")
    finally:
        sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An old model in old/, in published/ the same as others publish: without a softmax.

    And one of ELMoForManyLangs, as a folder and packed; one as bilm-tf trains it, in run/; one as
    TensorFlow Hub has it, in elmo_3/; and one inside a task model of AllenNLP, model.tar.gz.
    """
    folder = tmp_path_factory.mktemp("models")
    whole = read_checkpoint("english")
    tensors = {name: value for name, value in whole.tensors.items() if "softmax" not in name}
    bilm.write(whole, folder / "old")
    bilm.write(Checkpoint(replace(whole.config, vocabulary_size=0), tensors), folder / "published")
    make_many_langs().save(folder / "zht.model")
    shutil.make_archive(str(folder / "179"), "zip", folder, "zht.model")
    save_training(with_softmax(make_reference()), folder / "run", "model.ckpt-500")
    save_training(with_softmax(make_reference(seed=1)), folder / "run", "model.ckpt-1000")
    save_module(make_reference(), folder / "elmo_3", weights=np.array([0.2, 0.0, -0.1]))
    save_like_others(folder / "published", folder)
    pack(save_task_model(make_reference(), folder / "task"), folder / "model.tar.gz")
    return folder


def save_like_others(published: Path, folder: Path) -> None:
    """The same weights as a numbered archive, as SeqVec has them, and with token vectors."""
    with zipfile.ZipFile(folder / "217.zip", "w") as file:
        file.write(published / "weights.hdf5", "model.hdf5")
        file.write(published / "options.json", "options.json")
        file.writestr("meta.json", json.dumps({"id": "217", "language": "Norwegian"}))
    shutil.copytree(published, folder / "seqvec")
    shutil.copytree(published, folder / "cached")
    words = ["<S>", "</S>", "<UNK>", "river", "bank"]
    (folder / "cached" / "vocab.txt").write_text("\n".join(words))
    with h5py.File(folder / "cached" / "token_vectors.hdf5", "w") as file:
        elmo = elmokit.load(published)
        vectors = elmo.embed_tokens(words, layers=0).vectors  # the token vector twice
        file["embedding"] = vectors[:, : elmo.config.projection_dim]


@pytest.fixture
def workplace(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with these models and the repository's examples; the pages make all the rest."""
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    work = Path(shutil.copytree(models, tmp_path / "work"))
    shutil.copytree(ROOT / "examples", work / "examples")
    return work


@pytest.mark.usefixtures("curves")
@pytest.mark.parametrize(  # both languages have the same code: see below
    "page", [*(page for page in PAGES if page not in CHINESE), *OWN_CODE], ids=name_of
)
def test_the_code_of_a_page_does_what_is_shown(
    page: Path, workplace: Path, request: pytest.FixtureRequest
) -> None:
    for package in NEEDED.get(name_of(page), ()):
        pytest.importorskip(package, reason=f"{package} is not installed")
    run_page(page, workplace, rewrite=request.config.getoption("--rewrite"))


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a  0.50\n", "a 0.51", True),
        ("a 0.50", "a 0.53", False),
        ("loss 123.4", "loss 121.2", True),
        ("loss 123.4", "loss 118.2", False),
        ("(3, 7, 256)", "(3, 7, 256)", True),
        ("7 words", "8 words", False),  # only decimals may differ
        ("0.5", "0.50", False),
        ("a\n...\nb 0.20\n...", "a x y b 0.21 z", True),
        ("a ... b", "a b", True),
        ("a ... b", "a b c", False),
        ("... c ... d", "a b d", False),
        ("a... b", "a... b", True),
        ("-0.01", "0.01", True),
    ],
)
def test_an_output_may_differ_in_the_last_digits_of_decimals(
    shown: str, printed: str, same: bool
) -> None:
    assert documents.is_shown(shown, printed) is same


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("| 61.95 ± 16.34 | +61.95 | 62 % |", "| 70.00 ± 9.00 | +70.00 | 70 % |", True),
        ("| :----- | ---: |", "| :--- | ----: |", True),
        ("| 0.00 | -0.10 |", "| 14.00 | +1.10 |", True),
        ("f1 20.00", "f1 36.00", False),
        ("weight 0.300", "weight 0.440", False),
        ("layer 1", "level 1", False),
    ],
)
def test_the_scores_of_a_training_may_differ_more(shown: str, printed: str, same: bool) -> None:
    assert documents.is_shown(shown, printed, documents.TRAINED_TOLERANCE) is same


def test_the_outputs_of_a_page_are_written_into_it(tmp_path: Path) -> None:
    page, chinese = tmp_path / "page.md", tmp_path / "page.zh-CN.md"
    code = "```python\nx = 1\nprint(x / 4)  # {}\n```\n\n```console\n$ echo b\n{}\n```\n"
    page.write_text("Text\n" + code.format("0.75", "c"))
    chinese.write_text("文字\n" + code.format("0.75", "c"))
    with pytest.raises(AssertionError, match=r"page.md, line 4 prints '0.25', not '0.75'"):
        run_page(page, tmp_path)
    assert run_page(page, tmp_path, rewrite=True) == 2
    assert page.read_text() == "Text\n" + code.format("0.25", "b")
    assert chinese.read_text() == "文字\n" + code.format("0.25", "b")
    run_page(page, tmp_path)
    page.write_text("Text\n" + code.format("0.26", "b"))  # near enough to be read
    run_page(page, tmp_path)
    run_page(page, tmp_path, rewrite=True)
    assert page.read_text() == "Text\n" + code.format("0.25", "b")


def test_the_messages_of_a_page_are_those_of_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = {
        "train": "step 1: loss 9.0\nstep 2: loss 4.0\n/tmp/x/a is trained: 2 steps",
        "adapt": "step 2: loss 3.0\n/tmp/x/b is trained: 3 steps, 1,234 words",
    }

    def answer(arguments: list[str]) -> tuple[int, str, str]:
        lines = says[arguments[0]].splitlines()
        return 0, "", "".join(f"elmokit: {line}\n" for line in lines)

    monkeypatch.setattr(documents, "run_here", answer)
    page, chinese = tmp_path / "page.md", tmp_path / "page.zh-CN.md"
    code = "```console\n$ elmokit {}\n```\n\n"
    code += "```text\nbar 100%\nelmokit: step 2: loss {}\nelmokit: {}\n```\n"

    def show(loss: str, other_loss: str, end: str) -> str:
        first = code.format("train", loss, "/home/me/a is trained: 2 steps")
        return first + code.format("adapt", other_loss, end)

    true = show("4.0", "3.0", "/home/me/b is trained: 3 steps, 1,234 words")
    page.write_text(true)
    run_page(page, tmp_path)
    other_loss = show("4.1", "8.0", "/home/me/b is trained: 3 steps, 1,234 words")
    page.write_text(other_loss)
    run_page(page, tmp_path)  # on another processor
    other_text = show("9.0", "3.1", "/home/me/b is trained: 3 steps, 1,999 words")
    page.write_text(other_text)
    with pytest.raises(AssertionError, match=r"page.md, line 14 shows .* 1,999 words"):
        run_page(page, tmp_path)
    for wrong in (other_loss, other_text):
        page.write_text(wrong)
        chinese.write_text(wrong)
        run_page(page, tmp_path, rewrite=True)
        assert page.read_text() == true
        assert chinese.read_text() == true
    unsaid = show("4.0", "3.0", "/home/me/b was lost")
    for rewrite in (False, True):
        page.write_text(unsaid)
        with pytest.raises(AssertionError, match=r"no command above says these lines"):
            run_page(page, tmp_path, rewrite=rewrite)
        assert page.read_text() == unsaid


def test_a_figure_of_a_page_is_one_that_its_code_draws(tmp_path: Path) -> None:
    docs, work = tmp_path / "docs" / "tutorials", tmp_path / "work"
    docs.mkdir(parents=True)
    (work / "ner").mkdir(parents=True)
    page = docs / "page.md"
    page.write_text("![curves](../images/page/ner_curves.png)\n![other](../images/explorer.png)\n")
    with pytest.raises(AssertionError, match=r"page.md shows ner_curves.png, but its code draws"):
        run_page(page, work)
    picture = (DOCS / "images" / "explorer.png").read_bytes()
    (work / "ner" / "curves.png").write_bytes(picture)
    run_page(page, work, rewrite=True)
    stored = tmp_path / "docs" / "images" / "page" / "ner_curves.png"
    assert stored.read_bytes() == picture
    run_page(page, work)
    stored.write_bytes(picture[:16] + (4).to_bytes(4, "big") + picture[20:])
    with pytest.raises(AssertionError, match=r"page.md shows another ner_curves.png"):
        run_page(page, work)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    for block in blocks(page):
        assert block.language in (
            "python",
            "py",
            "console",
            "text",
            "yaml",
            "ini",
            "javascript",
            "csharp",
        ), block.where


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_heading_is_shown_to_its_end(page: Path) -> None:
    """Markdown drops `#` at the end of a heading, as in C#, unless it is written `C\\#`."""
    assert not re.findall(r"^#.*[^\\]#$", prose(page), re.M)


def test_a_formula_that_would_not_be_displayed_is_an_error(hooks: ModuleType) -> None:
    pytest.importorskip("latex2mathml", reason="latex2mathml is not installed")
    lines = hooks.mathml(r"\begin{split} a &= b \\ c &= d \end{split}", "div")
    assert lines.count("<mtr>") == 2
    assert lines.count("text-align: -webkit-right") == 2
    assert "&<" not in lines
    for wrong in (r"\begin{aligned} a &= b \end{aligned}", r"\nothing + 1"):
        with pytest.raises(ValueError, match="cannot be displayed"):
            hooks.mathml(wrong, "div")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file(page: Path) -> None:
    missing = [link for link in links(page) if not (page.parent / link).exists()]
    assert not missing


# ---- both languages


def in_chinese(path: str) -> str:
    return in_english(path).removesuffix(".md") + ".zh-CN.md"


def other_language(page: Path) -> Path:
    turn = in_english if page.name.endswith(".zh-CN.md") else in_chinese
    return page.with_name(turn(page.name))


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return documents.FENCE.sub("", page.read_text(encoding="utf-8"))


def outline(page: Path) -> dict[str, Any]:
    """What both languages of a page have alike: levels of headings, tables, lists, links, names."""
    text = prose(page)
    return {
        "headings": re.findall(r"^#+(?= )", text, re.M),
        "rows of tables": len(re.findall(r"^\|", text, re.M)),
        "items of lists": len(re.findall(r"^ *(?:[-*]|\d+\.) ", text, re.M)),
        "links": {in_english(link.partition("#")[0]) for link in documents.LINK.findall(text)},
        "code": set(re.findall(r"`[^`\n]+`", text)),
    }


@pytest.mark.parametrize("page", [p for p in PAGES if p not in GENERATED], ids=name_of)
def test_a_page_links_to_its_other_language_below_its_heading(page: Path) -> None:
    other = other_language(page)
    assert other in PAGES
    name = "English" if page in CHINESE else "中文"
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert lines[1:4] == ["", f"[{name}]({other.name})", ""]


@pytest.mark.parametrize("page", [*PAGES, README, other_language(README)], ids=lambda p: p.name)
def test_other_links_stay_in_the_language(page: Path) -> None:
    below = [link for link in links(page) if page.parent / link != other_language(page)]
    if page.name.endswith(".zh-CN.md"):
        left = [n for n in below if (page.parent / in_chinese(n)).exists() and n != in_chinese(n)]
    else:
        left = [link for link in below if link.endswith(".zh-CN.md")]
    assert not left


@pytest.mark.parametrize("page", sorted({*CHINESE} - {*OWN_CODE}), ids=name_of)
def test_both_languages_have_the_same_code(page: Path) -> None:
    english = other_language(page)
    assert [(b.language, b.text) for b in blocks(page)] == [
        (b.language, b.text) for b in blocks(english)
    ]


@pytest.mark.parametrize("page", sorted({*CHINESE} - {*OWN_CODE}), ids=name_of)
def test_both_languages_say_the_same(page: Path) -> None:
    def without_switch(page: Path) -> dict[str, Any]:
        found = outline(page)
        return found | {"links": found["links"] - {"", in_english(page.name)}}

    assert without_switch(page) == without_switch(other_language(page))


# ---- the navigation


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without what it names in Python."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda *_: None)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def entries(navigation: list[Any]) -> Iterator[tuple[str | None, str | None]]:
    """Yield title and page of each entry of the navigation; a section has no page."""
    for entry in navigation:
        ((title, rest),) = entry.items() if isinstance(entry, dict) else [(None, entry)]
        if isinstance(rest, list):
            yield title, None
            yield from entries(rest)
        else:
            yield title, rest


def test_every_page_stands_in_the_navigation_once() -> None:
    """The Chinese page of a name is found by mkdocs-static-i18n."""
    pages = sorted(page for _, page in entries(SITE["nav"]) if page)
    assert pages == sorted(name_of(page) for page in PAGES if page not in CHINESE)


def test_every_title_in_the_navigation_is_translated() -> None:
    """An entry without a title has that of the page's heading, in each language."""
    (plugin,) = (p["i18n"] for p in SITE["plugins"] if "i18n" in p)
    (chinese,) = (each for each in plugin["languages"] if each["locale"] == "zh-CN")
    assert set(chinese["nav_translations"]) == {title for title, _ in entries(SITE["nav"]) if title}


# ---- the command line


def test_the_reference_has_every_command_and_every_option_has_a_help_text(
    hooks: ModuleType,
) -> None:
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    text = hooks.on_page_markdown(page)
    assert hooks.MARKER in page
    assert hooks.MARKER not in text
    for command in COMMANDS:
        assert re.search(rf"^##+ elmokit {command}$", text, re.M), command
    options = re.findall(r"^\* `([^`]+)`(.*)$", text, re.M)
    assert len(options) > 400
    assert [name for name, rest in options if not re.match(r": [A-Z]", rest)] == []


# ---- Python

PYTHON = DOCS / "reference" / "python.md"
PUBLIC_MODULES = ["pretrain", "tasks", "analysis", *elmokit.SUBMODULES]


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every public function and method with its dotted name."""
    for module in (elmokit, *(importlib.import_module(f"elmokit.{m}") for m in PUBLIC_MODULES)):
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            where = f"{module.__name__}.{name}"
            if inspect.isfunction(thing):
                yield where, thing
            elif inspect.isclass(thing):
                yield from ((f"{where}.{n}", f) for n, f in methods(thing))


def methods(thing: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the constructor and the public methods that a class defines."""
    for name, value in vars(thing).items():
        function = getattr(value, "__func__", value)  # what a class method wraps
        is_shown = not name.startswith("_") or name in ("__init__", "__call__")
        if is_shown and inspect.isfunction(function) and not is_generated(thing, name):
            yield name, function


def is_generated(thing: type, name: str) -> bool:
    """Tell whether a dataclass made the constructor: its fields describe it."""
    return name == "__init__" and is_dataclass(thing)


def described_parameters(docstring: str) -> set[str]:
    """Return the names in the `Args:` section of a docstring."""
    _, _, rest = inspect.cleandoc(docstring).partition("Args:\n")
    return set(re.findall(r"^    \*{0,2}(\w+):", re.split(r"^\S", rest, flags=re.M)[0], re.M))


def test_every_public_name_is_on_the_page() -> None:
    shown = re.findall(r"^::: (\S+)$", PYTHON.read_text(encoding="utf-8"), re.M)
    names = [name for name in elmokit.__all__ if name != "__version__"]
    assert {f"elmokit.{name}" for name in [*names, *PUBLIC_MODULES]} <= set(shown)
    results = {type_of(language, name) for name in ("Surprisal", "Perplexity", "Filling")}
    assert results <= set(shown)


def type_of(module: ModuleType, name: str) -> str:
    """Return the dotted name of a class, which must exist."""
    assert inspect.isclass(getattr(module, name))
    return f"{module.__name__}.{name}"


def test_the_list_of_names_is_that_of_the_package() -> None:
    table = PYTHON.read_text(encoding="utf-8").partition("\n## ")[0]
    assert set(re.findall(r"`(\w+)`(?=\]|\ \|)", table)) >= set(elmokit.__all__)


FUNCTIONS = dict(public_functions())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_list_of_parameters_in_a_docstring_is_complete(name: str) -> None:
    function = FUNCTIONS[name]
    is_constructor = name.endswith(".__init__")  # the docstring of its class is shown as well
    assert function.__doc__ or is_constructor, f"{name} has no docstring"
    described = described_parameters(function.__doc__ or "")
    if described:
        assert described == set(inspect.signature(function).parameters) - {"self", "cls"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_with_many_parameters_describe_them(name: str) -> None:
    docstring = FUNCTIONS[name].__doc__ or ""
    if len(inspect.signature(FUNCTIONS[name]).parameters) > 6 and "as for `" not in docstring:
        assert described_parameters(docstring), f"{name} needs an Args section"


# ---- the built pages


@pytest.mark.slow
def test_the_pages_are_built_without_warnings_and_fetch_nothing(tmp_path: Path) -> None:
    pytest.importorskip("material")
    command = ["build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *command, "--site-dir", str(tmp_path / "site")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    built = {page: page.read_text(encoding="utf-8") for page in site.glob("**/*.html")}
    fetched = re.compile(r"<(?:link|script|img)[^>]*(?:src|href)=\"?https?://[^>]*>")
    for page, text in built.items():
        assert not fetched.findall(text), page
        assert page.name == "404.html" or not lost_links(page, text, site)
    reference = built[site / "reference" / "python" / "index.html"]
    for name in FUNCTIONS:
        anchor = name.removesuffix(".__init__")
        assert f'id="{anchor}"' in reference, f"{anchor} is missing: has it a docstring?"
    check_chinese(built, site)


def lost_links(page: Path, text: str, site: Path) -> list[str]:
    """The links and images of a built page that lead to no file of the site."""
    lost = []
    for link in re.findall(r"<(?:a|link|img|script)\b[^>]*? (?:href|src)=\"?([^\"\s>]+)", text):
        target = unquote(link.partition("#")[0])
        if not target or re.match(r"\w+:", target) or target.endswith("/explorer/"):
            continue  # web/build_explorer.py makes the explorer
        path = page.parent / target
        if not (path / "index.html" if path.is_dir() else path).is_file():
            lost.append(link)
    return lost


def check_chinese(built: dict[Path, str], site: Path) -> None:
    """Every page has its place in Chinese, the switch leads there, and the search has words."""
    english = {page for page in built if not page.is_relative_to(site / "zh-CN")}
    for page in english - {site / "404.html"}:
        chinese = site / "zh-CN" / page.relative_to(site)
        assert '<html lang="en"' in built[page]
        assert '<html lang="zh"' in built[chinese]
        assert switch(page, built[page], "zh-CN") == chinese
        assert switch(chinese, built[chinese], "en") == page
    navigation = built[site / "zh-CN" / "index.html"]
    for title in ("教程", "从文本到向量", "术语表", "命令行", "搜索"):
        assert title in navigation
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    (adapt,) = (e for e in index["docs"] if e["location"] == "zh-CN/how-to/adapt/")
    assert adapt["title"].split("\u200b") == ["领域", "适应"]


def switch(page: Path, text: str, language: str) -> Path:
    """The page that the language switch of a built page leads to."""
    (link,) = re.findall(rf'<a href="([^"]+)" hreflang="{language}"', text)
    return (page.parent / link / "index.html").resolve()
