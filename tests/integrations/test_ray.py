"""Bulk embedding with a real Ray: every row once, whoever is killed."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import HANGS
from documents import ROOT, blocks
from reference import make_reference
from tiny import difference

import elmokit
from elmokit.cli.main import main
from elmokit.embed_file import EmbedOptions
from elmokit.integrations.ray import embed_with_ray

pytest.importorskip("ray", reason="ray is not installed: elmokit[ray]")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: elmokit[ray]")

import pyarrow as arrow
import ray
from pyarrow import parquet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]

ROWS = 480
TEXTS = [" ".join(f"word{(i * 7 + j) % 300}" for j in range(60 + i % 40)) for i in range(ROWS)]

OPTIONS = EmbedOptions(layers="average", pooling="mean", tokenizer="whitespace")
RUN = """
import json, sys
from elmokit.embed_file import EmbedOptions
from elmokit.integrations.ray import embed_with_ray

pattern, out, options, settings = map(json.loads, sys.argv[1:])
embed_with_ray(pattern, out, EmbedOptions(**options), **settings)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray session of this process, which all tests use: starting one takes seconds."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    ray.init(address="local", num_cpus=3, include_dashboard=False, **quiet)
    yield
    with warnings.catch_warnings():  # Ray does not wait for the processes that it has ended.
        warnings.simplefilter("ignore", ResourceWarning)
        ray.shutdown()
        gc.collect()


def write_texts(folder: Path, count: int) -> None:
    """Write two Parquet files with the first texts."""
    folder.mkdir()
    for k in range(2):
        rows = range(k * count // 2, (k + 1) * count // 2)
        table = arrow.table({"id": list(rows), "text": [TEXTS[i] for i in rows]})
        parquet.write_table(table, folder / f"{k}.parquet", row_group_size=90)


def check_rows(table: Any, model: str, count: int) -> None:
    """Raise if a text is missing, is there twice or has another vector than the library gives."""
    assert table.column("id").to_pylist() == list(range(count))
    vectors = np.array(table.column("vector").to_pylist(), np.float32)
    elmo = elmokit.load(model, tokenizer="whitespace")
    assert difference(vectors, elmo.sentence_vectors(TEXTS[:count])) < 1e-5


def actors_of(mark: str) -> list[int]:
    """Return the actors of a run, by the environment that they inherit from it."""
    result = []
    for process in Path("/proc").iterdir():
        try:
            title = (process / "cmdline").read_bytes()
            is_ours = process.name.isdecimal() and title.startswith(b"ray::")
            if (
                is_ours
                and b"EmbedBlocks" in title
                and mark.encode() in (process / "environ").read_bytes()
            ):
                result.append(int(process.name))
        except OSError:
            continue
    return result


def parts_in(folder: Path) -> int:
    return len(list(folder.glob("part-*.parquet")))


def wait_for_parts(folder: Path, count: int, child: subprocess.Popen[str]) -> None:
    while parts_in(folder) < count:
        assert child.poll() is None, child.communicate()
        time.sleep(0.002)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")
def test_a_killed_actor_and_a_killed_driver_lose_and_repeat_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model = str(make_reference().save(tmp_path / "model"))
    write_texts(tmp_path / "in", ROWS)
    out, mark = tmp_path / "out", f"ELMOKIT_TEST_MARK={tmp_path.name}-{os.getpid()}"
    name, _, value = mark.partition("=")
    environment = {**os.environ, name: value, "OMP_NUM_THREADS": "1"}
    pattern = str(tmp_path / "in" / "*.parquet")
    settings: dict[str, Any] = {"model": model, "workers": 2, "block_rows": 4, "resume": True}
    given = [json.dumps(each) for each in (pattern, str(out), asdict(OPTIONS), settings)]
    command = [sys.executable, "-c", RUN, *given]
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as driver:
        wait_for_parts(out, 3, driver)
        victims = actors_of(mark)
        assert victims
        os.kill(victims[0], signal.SIGKILL)
        wait_for_parts(out, parts_in(out) + 10, driver)
        driver.kill()
    before = parts_in(out)
    assert 10 < before < ROWS // 4
    assert not (out / "_SUCCESS").exists()
    end = time.monotonic() + HANGS
    while actors_of(mark) and time.monotonic() < end:  # They end when they miss the driver.
        time.sleep(0.1)

    request.getfixturevalue("cluster")
    result = embed_with_ray(pattern, str(out), OPTIONS, **settings)
    assert result.rows == ROWS
    assert 0 < result.new_rows < ROWS
    files = sorted(out.glob("part-*.parquet"))
    rows = arrow.concat_tables([parquet.read_table(file) for file in files])
    check_rows(rows, model, ROWS)


def test_the_command_embeds_every_row_once(
    cluster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(make_reference().save(tmp_path / "model"))
    write_texts(tmp_path / "in", 20)
    out = tmp_path / "out"
    url = out.as_uri()  # file://, as others are s3:// or hdfs://
    command = ["embed", f"{(tmp_path / 'in').as_uri()}/*.parquet", url, "--engine", "ray"]
    command += ["--workers", "1", "--layers", "average", "--pooling", "mean"]
    command += ["--model", model, "--tokenizer", "whitespace"]
    assert main(command) == 0
    assert f"{url}: 20 rows; 20 rows embedded in " in capsys.readouterr().err
    assert (out / "_SUCCESS").exists()
    files = sorted(out.glob("part-*.parquet"))
    check_rows(arrow.concat_tables([parquet.read_table(file) for file in files]), model, 20)
    assert main(command) == 2
    assert f"{url} is complete: start again with --overwrite" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 2
    assert "there is nothing to resume" in capsys.readouterr().err


def test_the_pipeline_of_the_documentation_embeds_every_row_once(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(make_reference().save(tmp_path / "model"))
    write_texts(tmp_path / "texts", 20)
    page = ROOT / "docs" / "how-to" / "many-machines.md"
    (code,) = (block.text for block in blocks(page) if "map_batches" in block.text)
    for shown, tested in (
        ("ray.init(num_cpus=3)\n", ""),  # The session of the tests is like it.
        ('{"column"', f'{{"model": {model!r}, "tokenizer": "whitespace", "column"'),
        ("size=2", "size=1"),
        ('"texts/"', repr(f"{tmp_path}/texts/")),  # Ray was started in another folder.
        ('"vectors/"', repr(f"{tmp_path}/vectors/")),
    ):
        assert code.count(shown) == 1
        code = code.replace(shown, tested)
    monkeypatch.setattr(ray.data.DataContext.get_current(), "enable_progress_bars", False)
    exec(compile(code, str(page), "exec"), {})
    table = parquet.read_table(tmp_path / "vectors").sort_by("id")
    assert table.column_names == ["id", "text", "vector"]
    check_rows(table, model, 20)
