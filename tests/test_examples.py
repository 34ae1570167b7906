"""The scripts in examples/: a page shows the code of each, and it prints what the page says."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from documents import ROOT, blocks, promised, run_page

PAGES = ROOT / "docs" / "how-to"
EXAMPLES = ROOT / "examples"


class Example(NamedTuple):
    """A script, its page, and the library that it needs, which elmokit[dev] does not install."""

    script: str
    page: str
    library: str


SCRIPTS = [
    Example("flair_embeddings.py", "flair.md", "flair"),
    Example("keras_mix.py", "keras.md", "tensorflow"),
    Example("spark_embed.py", "spark.md", "pyspark"),
]
each_script = pytest.mark.parametrize("example", SCRIPTS, ids=lambda example: example.script)


def code_lines(source: str) -> list[str]:
    """The lines of a source that are not empty: a page may break it anywhere between functions."""
    return [line for line in source.splitlines() if line.strip()]


def test_every_script_is_tested() -> None:
    tested = [example.script for example in SCRIPTS]
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"demo.py", *tested}  # test_demo.py


@each_script
def test_a_page_shows_exactly_the_code_of_its_script(example: Example) -> None:
    source = (EXAMPLES / example.script).read_text(encoding="utf-8")
    docstring = ast.parse(source).body[0]
    code = "\n".join(source.splitlines()[docstring.end_lineno :])
    shown = "\n".join(b.text for b in blocks(PAGES / example.page) if b.language == "py")
    assert code_lines(shown) == code_lines(code)


@each_script
def test_every_check_of_a_script_says_what_it_prints(example: Example) -> None:
    assert len(promised((EXAMPLES / example.script).read_text(encoding="utf-8"))) >= 3


def test_only_pages_of_scripts_have_such_code() -> None:
    pages = {
        page.name.replace(".zh-CN", "")
        for page in (ROOT / "docs").glob("**/*.md")
        if any(block.language == "py" for block in blocks(page))
    }
    assert pages == {example.page for example in SCRIPTS}


@pytest.mark.slow
@each_script
def test_a_script_prints_what_its_comments_say(example: Example, tmp_path: Path) -> None:
    if find_spec(example.library) is None:
        pytest.skip(f"{example.library} is not installed: it needs an environment of its own")
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    run_page(PAGES / example.page, tmp_path)  # the commands that write its input
    script = tmp_path / "examples" / example.script
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    printed = iter(done.stdout.splitlines())  # each in its turn, between messages of the library
    expected = (text for _, text in promised(script.read_text(encoding="utf-8")).values())
    assert [line for line in expected if line not in printed] == []
