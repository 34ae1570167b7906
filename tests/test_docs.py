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
from dataclasses import fields, is_dataclass, replace
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
from elmokit.tasks.settings import DEFAULTS, Settings
from elmokit.tasks.task import TASKS, find_task

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
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
    whole = read_checkpoint("shipped")
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


@pytest.mark.parametrize(  # both languages have the same code: see below
    "page", [page for page in PAGES if page not in CHINESE], ids=name_of
)
def test_the_code_of_a_page_does_what_is_shown(
    page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    run_here = documents.run_here

    def heard(arguments: list[str]) -> tuple[int, str, str]:
        code, out, err = run_here(arguments)
        said.extend(err.splitlines())
        return code, out, err

    monkeypatch.setattr(documents, "run_here", heard)
    run_page(page, workplace, processes=False)
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
        assert block.language in ("python", "console", "text", "yaml"), block.where


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


def parameters(command: str) -> list[inspect.Parameter]:
    """The parameters of a command, without `**options`, which stand for the settings."""
    module, _, name = COMMANDS[command][0].partition(":")
    function = getattr(importlib.import_module(module), name)
    every = inspect.signature(function).parameters.values()
    return [parameter for parameter in every if parameter.kind != inspect.Parameter.VAR_KEYWORD]


def takes_settings(command: str) -> bool:
    module, _, name = COMMANDS[command][0].partition(":")
    every = inspect.signature(getattr(importlib.import_module(module), name)).parameters.values()
    return any(parameter.kind == inspect.Parameter.VAR_KEYWORD for parameter in every)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_described(command: str) -> None:
    text = section(DOCS / "reference" / "cli.md", f"elmokit {command}")
    rows = dict(re.findall(r"^\| `([^`]+)` \| ([^|]*?) ?\|", text, re.M))
    for parameter in parameters(command):
        is_option = parameter.default is not inspect.Parameter.empty
        dashed = "--" + parameter.name.replace("_", "-")
        label = dashed if is_option else parameter.name.upper()
        assert label in rows, f"elmokit {command} has {label}"
        if isinstance(parameter.default, bool):
            assert rows[label] == ("on" if parameter.default else "off")
        elif isinstance(parameter.default, str):
            assert rows[label] == f"`{parameter.default}`"
        elif is_option and parameter.default is not None:
            assert rows[label] == f"{parameter.default:g}"
    known = {"--" + parameter.name.replace("_", "-") for parameter in parameters(command)}
    assert {label for label in rows if label.startswith("--")} <= known


@pytest.mark.parametrize("command", ["train", "compare"])
def test_commands_that_take_settings_say_so(command: str) -> None:
    text = section(DOCS / "reference" / "cli.md", f"elmokit {command}")
    assert takes_settings(command)
    assert re.search(r"^\| `OPTIONS` \|.*\(#settings-of-task-models\)", text, re.M)


def test_no_other_command_takes_settings() -> None:
    assert {command for command in COMMANDS if takes_settings(command)} == {"train", "compare"}


def test_every_setting_of_task_models_is_described_with_its_default() -> None:
    text = section(DOCS / "reference" / "cli.md", "Settings of task models")
    text, _, _ = text.partition("\n| setting |")  # there follow the values of each task
    rows = dict(re.findall(r"^\| `--([\w-]+)` \| ([^|]*?) ?\|", text, re.M))
    assert set(rows) == {field.name.replace("_", "-") for field in fields(Settings)}
    for field in fields(Settings):
        cell = rows[field.name.replace("_", "-")]
        if field.name in DEFAULTS or field.name == "word_dim":
            assert cell == "by the task", field.name
        else:
            assert cell == written(field.default), field.name


def test_the_settings_that_depend_on_the_task_have_its_values() -> None:
    text = section(DOCS / "reference" / "cli.md", "Settings of task models")
    head, *rows = re.findall(r"^\| (?:setting|`--[\w-]+`) \|(?: [^|]* \|){8}$", text, re.M)
    tasks = [cell.strip(" `") for cell in head.strip("|").split("|")[1:]]
    assert set(tasks) == set(TASKS)
    assert len(rows) == len(DEFAULTS) + 1
    for row in rows:
        option, *values = (cell.strip(" `") for cell in row.strip("|").split("|"))
        name = option.removeprefix("--").replace("-", "_")
        for task, value in zip(tasks, values, strict=True):
            own = [
                Settings().completed(find_task(task).defaults, has_vectors=has_vectors)
                for has_vectors in (False, True)
            ]
            without, beside = (written(getattr(settings, name)).strip("`") for settings in own)
            assert value == (without if without == beside else f"{without} or {beside}"), name


def written(value: Any) -> str:
    """A default as the tables have it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "none"
    return f"`{value}`" if isinstance(value, str) else f"{value:g}"


def test_every_command_stands_in_the_list_with_its_anchor() -> None:
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[`([\w ]+)`\]\(#elmokit-([\w-]+)\)", text, re.M)
    assert {name for name, _ in listed} == set(COMMANDS)
    assert all(name.replace(" ", "-") == anchor for name, anchor in listed)


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
