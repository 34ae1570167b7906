"""`elmokit models`: what exists, by language and domain, the same as the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from documents import ROOT

import elmokit
from elmokit.cli.main import main
from elmokit.errors import ElmokitError
from elmokit.formats.detect import SHIPPED
from elmokit.formats.published import PublishedModel, published_models

PAGES = [ROOT / "docs" / "how-to" / f"published-models{suffix}" for suffix in (".md", ".zh-CN.md")]


def test_every_model_in_the_package_is_listed() -> None:
    included = {path for model in published_models() for path in model.load.values() if path}
    assert set(SHIPPED) <= included
    assert [m.name for m in published_models() if not m.address] == list(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_size_of_an_included_model_is_what_its_files_have(name: str) -> None:
    (model,) = (model for model in published_models() if model.name == name)
    elmo = elmokit.load(name)
    config, count = elmo.config, sum(p.numel() for p in elmo.model.parameters())
    shape = f"{config.num_layers} × {config.lstm_dim}/{config.projection_dim}"
    assert model.size == f"{shape}, {count / 1e6:.1f} M parameters"


def test_a_model_is_shown_with_what_to_download_and_how_to_load_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "models.json"
    assert main(["models", "--language", "FRENCH", "--json", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ELMoForManyLangs: French; Wikipedia and web (ELMoForManyLangs)",
        "  size: 2 × 4096/512; license: MIT (ELMoForManyLangs)",
        "  download 150.zip from http://vectors.nlpl.eu/repository/11/",
        '  elmokit.load("150.zip")',
        "",
    ]
    (model,) = json.loads(file.read_text(encoding="utf-8"))["models"]
    assert (model["load"], model["files"]) == ({"French": "150.zip"}, ["150.zip"])
    assert main(["models", "--json", str(file)]) == 2, "an existing file is kept"


def test_language_and_domain_select() -> None:
    assert {m.name for m in published_models("russian", "twitter")} == {"DeepPavlov"}
    assert {m.name for m in published_models(domain="biomedical")} == {"PubMed"}
    chinese = [language for m in published_models("chinese") for language in m.load]
    assert {"Chinese (simplified)", "Chinese (traditional)"} <= set(chinese)
    (many,) = [m for m in published_models() if len(m.load) == 44]
    assert (many.load["Arabic"], many.load["Chinese (traditional)"]) == ("136.zip", "179.zip")


def test_what_is_unknown_names_what_there_is() -> None:
    with pytest.raises(ElmokitError, match=r"no model for 'klingon' is known; .*Latin"):
        published_models("klingon")
    with pytest.raises(ElmokitError, match=r"no model for 'law' is known; .*proteins"):
        published_models(domain="law")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize(
    "model", [m for m in published_models() if m.address], ids=lambda model: model.name
)
def test_the_page_has_a_row_for_each_model(page: Path, model: PublishedModel) -> None:
    address = f"`{model.address.partition('://')[2]}`"
    license = "" if model.license == "see its page" else model.license  # translated
    rows = [row for row in table_rows(page) if address in row and license in row]
    assert rows, f"{page.name} has no row with {address} and {model.license}"
    size = model.size.removesuffix(" parameters").replace(" columns", "")
    assert any(size in row for row in rows)


def test_every_address_of_the_page_is_known() -> None:
    known = " ".join(f"{m.address} {m.note}" for m in published_models())
    for row in table_rows(PAGES[0]):
        for address in re.findall(r"`([\w.]+\.\w+/[^`\s]*)`", row):
            assert address in known, address


def table_rows(page: Path) -> list[str]:
    """The rows of the tables that have a column of licenses."""
    return re.findall(r"^\|(?:[^|\n]*\|){5}$", page.read_text(encoding="utf-8"), re.M)
