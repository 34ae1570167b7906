"""`elmokit info` and `elmokit convert`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from bundles import save_training, with_softmax
from reference import make_options, make_reference, make_shapes
from tiny import WORDS

from elmokit.cli.main import main
from elmokit.cli.models import convert, info
from elmokit.errors import ElmokitError


def test_parameters_are_counted_by_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = make_reference()
    weights = reference.save(tmp_path)
    assert main(["info", str(weights), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    sizes = {name: array.size for name, array in reference.stored.items()}
    assert found["parameters"] == sum(sizes.values())
    parts = found["parameters_by_part"]
    assert parts["characters"] == 261 * 4
    assert parts["highway layers"] == sum(n for name, n in sizes.items() if "high" in name)
    assert parts["forward LSTMs"] == parts["backward LSTMs"]
    assert sum(parts.values()) == found["parameters"]
    assert (found["format"], found["num_layers"], found["dim"]) == ("bilm", 2, 12)
    assert found["vocabulary_size"] is None


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


def test_a_damaged_model_is_reported(tmp_path: Path) -> None:
    reference = make_reference()
    reference.stored["char_embed"][0, 0] = float("nan")
    with pytest.raises(ElmokitError, match="not finite"):
        info(str(reference.save(tmp_path)))


def test_convert_prints_the_source_and_the_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = save_training(with_softmax(make_reference()), tmp_path / "run")
    assert main(["convert", str(source), str(tmp_path / "native"), "--dtype", "float16"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    summary = "tensorflow format, 2 layers of 10/6, on characters, a softmax over 9 words"
    assert first == f"{source}: {summary}"
    pattern = r"native: native format, float16; vectors differ by at most \S+, perplexity "
    assert re.search(pattern + r"[\d.]+ and [\d.]+$", second)
    words = make_reference(make_options(words=len(WORDS)), vocabulary=WORDS)
    convert(str(words.save(tmp_path / "words")), str(tmp_path / "more"))
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("bilm format, 2 layers of 10/6, on 9 words, no softmax")
    assert second.endswith("vectors differ by at most 0.0e+00")


def test_convert_refuses_an_unknown_format_and_keeps_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = str(make_reference().save(tmp_path / "a")), str(tmp_path / "b")
    assert main(["convert", source, target, "--to", "onnx"]) == 2
    assert "onnx" in capsys.readouterr().err
    assert main(["convert", source, target]) == 0
    assert main(["convert", source, target]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["convert", source, target, "--overwrite"]) == 0
