"""Bulk embedding with a real Ray: every row once, whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import make_reference
from tiny import difference

import elmokit
from elmokit.embed_file import EmbedOptions
from elmokit.integrations.ray import embed_with_ray

pytest.importorskip("ray", reason="ray is not installed: elmokit[ray]")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: elmokit[ray]")

import pyarrow as arrow
from pyarrow import parquet

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


def actors_of(mark: str) -> list[int]:
    """Return the actors of a run, by the environment that they inherit from it."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            title = (process / "cmdline").read_bytes()
            is_ours = process.name.isdecimal() and title.startswith(b"ray::")
            if (
                is_ours
                and b"EmbedBlocks" in title
                and mark.encode() in (process / "environ").read_bytes()
            ):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def parts_in(folder: Path) -> int:
    return len(list(folder.glob("part-*.parquet")))


def wait_for_parts(folder: Path, count: int, child: subprocess.Popen[str]) -> None:
    while parts_in(folder) < count:
        assert child.poll() is None, child.communicate()
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")
def test_a_killed_actor_and_a_killed_driver_lose_and_repeat_nothing(tmp_path: Path) -> None:
    model = str(make_reference().save(tmp_path / "model"))
    (tmp_path / "in").mkdir()
    for k in range(2):
        rows = range(k * ROWS // 2, (k + 1) * ROWS // 2)
        table = arrow.table({"id": list(rows), "text": [TEXTS[i] for i in rows]})
        parquet.write_table(table, tmp_path / "in" / f"{k}.parquet", row_group_size=90)
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
    end = time.monotonic() + 60
    while actors_of(mark) and time.monotonic() < end:  # They end when they miss the driver.
        time.sleep(0.1)

    result = embed_with_ray(pattern, str(out), OPTIONS, **settings)
    assert result.rows == ROWS
    assert 0 < result.new_rows < ROWS
    files = sorted(out.glob("part-*.parquet"))
    rows = arrow.concat_tables([parquet.read_table(file) for file in files])
    assert rows.column("id").to_pylist() == list(range(ROWS))
    vectors = np.array(rows.column("vector").to_pylist(), np.float32)
    elmo = elmokit.load(model, tokenizer="whitespace")
    assert difference(vectors, elmo.sentence_vectors(TEXTS)) < 1e-5
