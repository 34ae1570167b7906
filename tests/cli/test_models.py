"""What `elmokit info` says of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reference import make_options, make_reference, make_shapes
from tiny import WORDS

from elmokit.cli.info import info
from elmokit.errors import ElmokitError


def test_parameters_are_counted_by_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = make_reference()
    weights = reference.save(tmp_path)
    info(str(weights), as_json=True)
    found = json.loads(capsys.readouterr().out)
    sizes = {name: array.size for name, array in reference.stored.items()}
    assert found["parameters"] == sum(sizes.values())
    parts = found["parameters_by_part"]
    assert parts["characters"] == 261 * 4
    assert parts["highway layers"] == sum(n for name, n in sizes.items() if "high" in name)
    assert parts["forward LSTMs"] == parts["backward LSTMs"]
    assert sum(parts.values()) == found["parameters"]
    assert (found["format"], found["layers"], found["dim"]) == ("bilm", 2, 12)
    assert found["vocabulary"] is None


def test_the_lines_have_the_sizes_in_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info(str(make_reference().save(tmp_path / "characters")))
    shown = capsys.readouterr().out
    number = sum(a.size for a in make_reference().stored.values())
    for words in ("10 cells, projection 6", "12 columns", "filters 1x4 2x5 3x6, relu", "bilm"):
        assert words in shown
    assert f"parameters   {number:,}" in shown
    options = make_options(words=len(WORDS))
    assert "embedding" in make_shapes(options)
    info(str(make_reference(options, vocabulary=WORDS).save(tmp_path / "words")))
    shown = capsys.readouterr().out
    assert "words        9" in shown
    assert "vocabulary   9 words" in shown


def test_a_broken_model_is_told_of(tmp_path: Path) -> None:
    reference = make_reference()
    reference.stored["char_embed"][0, 0] = float("nan")
    with pytest.raises(ElmokitError, match="not finite"):
        info(str(reference.save(tmp_path)))
