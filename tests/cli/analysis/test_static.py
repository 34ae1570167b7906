"""`elmokit static`: a corpus in, a file of word2vec out, which `elmokit probe` takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import tiny_elmo

from elmokit.cli.main import main
from elmokit.vectors.static.table import read_static_vectors


def test_the_command_writes_vectors_that_a_probe_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    tiny_elmo().save_pretrained("model")
    Path("text.txt").write_text("The bank opens. The Bank was steep.\nA river!\n")
    Path("words.txt").write_text("bank\nThe\nriver\n")
    command = ["static", "text.txt", "vectors.bin", "--model", "model", "--split", "--lowercase"]
    assert main([*command, "--min-count", "2", "--vocabulary", "words.txt"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("vectors.bin: 2 words of 12 columns, averages of 4 uses\n")
    assert read_static_vectors("vectors.bin").words == ["bank", "the"]
    assert main([*command, "--resume"]) == 2
    assert "vectors.bin is complete" in capsys.readouterr().err
    assert main([*command, "--overwrite", "--quiet", "--min-count", "1", "--layer", "0"]) == 0
    assert capsys.readouterr().err == ""
    assert read_static_vectors("vectors.bin").dim == 6
    Path("tags.conll").write_text("the D\nbank N\nopens V\n. P\n\na D\nriver N\n! P\n")
    probe = ["probe", "tags.conll", "tags.conll", "--vectors", "vectors.bin", "--model", "model"]
    assert main([*probe, "--quiet", "--epochs", "40", "--lr", "0.1"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    accuracies = {row[0]: float(row[2]) for row in rows if row[:1] in (["majority"], ["static"])}
    assert accuracies["static"] > 2 * accuracies["majority"]
