"""`import elmokit` is light, and everything it promises is there."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import elmokit
from elmokit.errors import ElmokitError, require


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter holds after running `code`."""
    listing = "\nimport sys; print('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code + listing], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_importing_elmokit_alone_imports_neither_torch_nor_numpy() -> None:
    loaded = modules_after(
        "import elmokit; dir(elmokit); elmokit.__version__; elmokit.ElmokitError"
    )
    assert "elmokit.errors" in loaded
    assert not loaded & {"torch", "numpy", "h5py", "jsonargparse"}


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"]])
def test_the_overview_of_commands_imports_no_library(arguments: list[str]) -> None:
    loaded = modules_after(f"from elmokit.cli.main import main; main({arguments})")
    assert not loaded & {"torch", "numpy", "jsonargparse", "yaml", "elmokit.embed"}


def test_embedding_imports_no_library_of_an_integration() -> None:
    loaded = modules_after("import elmokit; elmokit.load().embed('The bank closed.')")
    assert {"torch", "elmokit.embed"} <= loaded
    libraries = {"datasets", "onnx", "onnxruntime", "pyarrow", "ray", "sklearn", "spacy"}
    assert not loaded & {*libraries, "fastapi", "sentence_transformers", "transformers"}
    assert not [name for name in loaded if name.startswith("elmokit.integrations")]


@pytest.mark.parametrize("name", elmokit.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(elmokit, name) is not None
    assert name in dir(elmokit)


def test_a_public_name_is_the_one_of_its_module() -> None:
    assert elmokit.ElmokitError is ElmokitError
    for module, names in elmokit.MODULES.items():
        for name in names.split():
            result = getattr(importlib.import_module(f"elmokit.{module}"), name)
            assert getattr(elmokit, name) is result


def test_the_table_and_the_promised_names_agree() -> None:
    assert {*" ".join(elmokit.MODULES.values()).split(), "__version__"} == set(elmokit.__all__)


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="'elmokit' has no attribute 'Embeder'"):
        _ = elmokit.Embeder  # type: ignore[attr-defined]  # codespell:ignore


def test_a_missing_extra_says_what_to_install() -> None:
    with pytest.raises(ElmokitError) as caught:
        require("no_such_package.part", extra="chinese", purpose="Segmenting Chinese")
    assert str(caught.value) == (
        "Segmenting Chinese needs the package no_such_package: pip install 'elmokit[chinese]'"
    )
    assert isinstance(caught.value, ImportError)


def test_a_broken_package_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_package.py").write_text("import no_such_part_of_it\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_part_of_it"):
        require("broken_package", extra="chinese", purpose="Segmenting Chinese")
