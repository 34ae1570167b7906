"""`elmokit embed --workers` writes what one process writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from embed_command import Run, content_of, long_text, names_in, refuse, stop_after

import elmokit.cli.embed
import elmokit.embed
import elmokit.embed_file


@pytest.mark.parametrize(
    "options", [(), ("--pooling=mean", "--layers=top", "--dtype=float16"), ("--shard=2/2",)]
)
def test_workers_write_the_bytes_of_one_process(
    embed: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 14)
    Path("text.txt").write_text(long_text(1400), encoding="utf-8")
    options = ("--threads=1", "--batch-tokens=32", "--tokenizer=whitespace", *options)
    embed("text.txt", "whole.npy", *options)
    embed("text.txt", "vectors.npy", *options, "--workers=2")
    assert len(names_in(Path("whole.npy"))) > 20
    assert content_of(Path("vectors.npy")) == content_of(Path("whole.npy"))


def test_workers_resume_what_one_process_began(embed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 13)
    Path("text.txt").write_text(long_text(1000), encoding="utf-8")
    options = ("--threads=1", "--batch-tokens=32", "--tokenizer=whitespace")
    embed("text.txt", "whole.h5", *options)
    stop_after(monkeypatch, embed, 15, "text.txt", "vectors.h5", *options)
    embed("text.txt", "vectors.h5", *options, "--workers=2", "--resume")
    assert content_of(Path("vectors.h5")) == content_of(Path("whole.h5"))


def test_an_error_in_a_worker_is_the_sentence_of_one_process(embed: Run) -> None:
    said = refuse(embed, "text.txt", "vectors.h5", "--batch-size=0", "--workers=2")
    assert said.endswith("batch_size must be an integer of at least 1, not 0\n")
