"""README says what is true: its code runs and its tree exists, in both languages.

The files that its commands need and do not make themselves are made in `workplace`, below.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from documents import ROOT, blocks, links, run_page, run_shell

from elmokit.analysis.uses import read_uses
from elmokit.cli.main import COMMANDS
from elmokit.formats import bilm
from elmokit.formats.detect import read_checkpoint

README, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
# What a ```text block may hold: it installs or calls make, or is no command at all.
NOT_RUN = ("pip install ", "make ", "git clone ")


@pytest.fixture
def workplace(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An old model in old/, some running text in text/, and a text of a domain in reports.txt.

    And the repository's examples/; kept vectors go to a folder of the test's own.
    """
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    bilm.write(read_checkpoint("english"), tmp_path / "old")
    (tmp_path / "text").mkdir()
    uses = list(read_uses(ROOT / "examples" / "senses.tsv"))
    lines = [" ".join(use.tokens) for use in uses[::4]]
    (tmp_path / "text" / "a.txt").write_text("\n".join(lines * 4))
    (tmp_path / "text" / "b.txt").write_text("\n".join(lines * 2))
    (tmp_path / "reports.txt").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("curves")
@pytest.mark.parametrize("page", [README, CHINESE], ids=lambda page: page.name)
def test_every_command_and_every_line_of_python_does_what_is_shown(
    page: Path, workplace: Path, request: pytest.FixtureRequest
) -> None:
    assert run_page(page, workplace, rewrite=request.config.getoption("--rewrite")) >= 5


def test_the_program_is_found_by_its_name(tmp_path: Path) -> None:
    code, out, err = run_shell("elmokit --help", tmp_path)
    assert (code, err) == (0, "")
    assert set(re.findall(r"elmokit (\w+)", README.read_text())) & set(COMMANDS) <= set(out.split())


def test_both_languages_have_the_same_sections_and_tree() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (README, CHINESE)]
    assert len({len(re.findall("^## ", text, re.M)) for text in pages}) == 1
    trees = [[b.text for b in blocks(p) if b.text.startswith("src/")] for p in (README, CHINESE)]
    assert names_in_tree(trees[0][0]) == names_in_tree(trees[1][0])


def test_only_what_installs_or_is_no_command_is_left_out() -> None:
    for block in (*blocks(README), *blocks(CHINESE)):
        assert block.language in ("python", "console", "text"), block.where
        if block.language != "text":
            assert not any(line in block.text for line in NOT_RUN), block.where
        else:
            assert "elmokit embed " not in block.text.partition("src/elmokit/")[0], block.where


@pytest.mark.parametrize("page", [README, CHINESE], ids=lambda page: page.name)
def test_the_tree_has_a_line_for_every_folder(page: Path) -> None:
    (tree,) = (b.text for b in blocks(page) if "\nsrc/elmokit/\n" in f"\n{b.text}")
    named = set(names_in_tree(tree))
    package = ROOT / "src" / "elmokit"
    assert all((package / name).exists() for name in named)
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    assert folders <= named


@pytest.mark.parametrize("page", [README, CHINESE], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    result = links(page)
    assert len(result) > 10
    assert [link for link in result if not (ROOT / link).exists()] == []


def test_each_language_links_to_the_other_at_its_top() -> None:
    assert CHINESE.name in "".join(README.read_text(encoding="utf-8").splitlines()[:4])
    assert README.name in "".join(CHINESE.read_text(encoding="utf-8").splitlines()[:4])


def names_in_tree(tree: str) -> list[str]:
    """The files and folders that a tree names, each line `  folder/   what it is`."""
    columns = [line.split("  ")[1] for line in tree.splitlines()[1:]]
    return [name.rstrip(",") for column in columns for name in column.split()]
