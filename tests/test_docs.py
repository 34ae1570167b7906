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

import documents
import h5py
import numpy as np
import pytest
from bundles import save_module, save_training, with_softmax
from documents import ROOT, blocks, links, run_page
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
# Packages that the code of a page needs beside elmokit[dev] without its heavy parts.
NEEDED = {
    "how-to/datasets.md": ("datasets",),
    "how-to/many-machines.md": ("pyarrow", "fsspec"),
    "how-to/onnx.md": ("onnx", "onnxruntime"),
    "how-to/scikit-learn.md": ("sklearn", "pandas"),
    "how-to/serve.md": ("fastapi", "httptools", "orjson", "prometheus_client"),
    "how-to/search.md": ("duckdb", "faiss", "pandas", "pyarrow", "usearch"),
    "how-to/spacy.md": ("spacy",),
    "how-to/static.md": ("gensim",),
    "how-to/transformers.md": ("transformers", "accelerate", "sentence_transformers"),
}
CHINESE = [page for page in PAGES if page.name.endswith(".zh-CN.md")]


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def section(page: Path, heading: str, level: str = "##") -> str:
    """The text below a heading, up to the next of its level."""
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"^{level} {re.escape(heading)}\n(.*?)(?=^{level} |\Z)", text, re.M | re.S)
    assert found, f"{page.name} has no section {heading!r}"
    return found[1]


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
        file["embedding"] = elmokit.load(published).embed_tokens(words, layers=0).vectors[:, :128]


@pytest.fixture
def workplace(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with these models and the repository's examples; the pages make all the rest."""
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    work = Path(shutil.copytree(models, tmp_path / "work"))
    shutil.copytree(ROOT / "examples", work / "examples")
    return work


@pytest.mark.usefixtures("curves")
@pytest.mark.parametrize(  # both languages have the same code: see below
    "page", [page for page in PAGES if page not in CHINESE], ids=name_of
)
def test_the_code_of_a_page_does_what_is_shown(
    page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in NEEDED.get(name_of(page), ()):
        pytest.importorskip(package, reason=f"{package} is not installed")
    said: list[str] = []
    run_here = documents.run_here

    def heard(arguments: list[str]) -> tuple[int, str, str]:
        code, out, err = run_here(arguments)
        said.extend(err.splitlines())
        return code, out, err

    monkeypatch.setattr(documents, "run_here", heard)
    run_page(page, workplace)
    shown = [line for block in blocks(page) for line in block.text.splitlines()]
    kinds = {without_figures(line) for line in said}
    for line in shown:
        if line.startswith("elmokit: "):
            assert without_figures(line) in kinds, f"nothing says {line!r}"


def without_figures(line: str) -> str:
    """A sentence of a command with its numbers and its folder left open."""
    return re.sub(r"[-+]?\d[\d,.]*", "0", re.sub(r"(?<= )/\S*/", "", line))


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


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_both_languages_have_the_same_code(page: Path) -> None:
    english = page.with_name(page.name.replace(".zh-CN", ""))
    assert [(b.language, b.text) for b in blocks(page)] == [
        (b.language, b.text) for b in blocks(english)
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file(page: Path) -> None:
    missing = [link for link in links(page) if not (page.parent / link).exists()]
    assert not missing


def test_every_page_stands_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [name_of(p) for p in PAGES if f" {name_of(p)}\n" not in navigation + "\n"] == []


# ---- the command line


def test_the_reference_has_every_command_and_every_option_has_a_help_text() -> None:
    sys.path.insert(0, str(DOCS))
    try:
        hooks = importlib.import_module("hooks")
    finally:
        sys.path.remove(str(DOCS))
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
    fetched = re.compile(r"<(?:link|script|img)[^>]*(?:src|href)=\"?https?://[^>]*>")
    for page in (tmp_path / "site").glob("**/*.html"):
        assert not fetched.findall(page.read_text(encoding="utf-8")), page
    reference = (tmp_path / "site" / "reference" / "python" / "index.html").read_text("utf-8")
    for name in FUNCTIONS:
        anchor = name.removesuffix(".__init__")
        assert f'id="{anchor}"' in reference, f"{anchor} is missing: has it a docstring?"
