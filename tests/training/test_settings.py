"""Settings of runs: types, ranges, numbers that are none."""

from __future__ import annotations

from typing import Any

import pytest

from elmokit.errors import ElmokitError
from elmokit.pretrain import AdaptSettings, PretrainSettings
from elmokit.tasks.settings import Seq2SeqSettings, TaggerSettings

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("value", [INF, -INF, NAN, 0.0, -1.0, "fast", True, [0.1]], ids=repr)
@pytest.mark.parametrize("settings", [PretrainSettings, AdaptSettings, TaggerSettings])
def test_a_learning_rate_is_a_finite_number_above_zero(settings: Any, value: Any) -> None:
    with pytest.raises(ElmokitError, match=r"^lr must be (finite|above 0|a number), not"):
        settings(lr=value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("l2", INF, "l2 must be finite, not inf"),
        ("weight_decay", NAN, "weight_decay must be finite, not nan"),
        ("weight_decay", -0.1, "weight_decay must be at least 0, not -0.1"),
        ("dropout", 1.0, "dropout must be at least 0 and below 1, not 1.0"),
        ("elmo_dropout", None, "elmo_dropout must be a number, not None"),
        ("hidden", 0, "hidden must be at least 1, not 0"),
        ("hidden", 2.5, "hidden must be a whole number, not 2.5"),
        ("hidden", True, "hidden must be a whole number, not True"),
        ("copy", 1, "copy must be true or false, not 1"),
        ("placement", ["input"], r"placement must be one of input, output, both, not \['input'\]"),
        ("target_elmo", 7, "target_elmo must be a string, not 7"),
        ("layers", 1, "layers must be a string, not 1"),
        ("layers", "²", "layers must be all, top, average or the index of a layer"),
        ("seed", 2**63, "seed must be at most 9223372036854775807"),
        ("word_dim", "x", "word_dim must be a whole number, not 'x'"),
    ],
)
def test_settings_of_a_wrong_type_or_size_are_a_sentence(
    name: str, value: Any, message: str
) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ElmokitError, match=f"^{message}"):
        Seq2SeqSettings(**options)


def test_whole_numbers_are_numbers_and_none_stands_for_the_default() -> None:
    assert TaggerSettings(lr=1, word_dim=None).lr == 1
    assert PretrainSettings(lr=None, valid=("a.txt",), max_steps=None).learning_rate == 0.2
