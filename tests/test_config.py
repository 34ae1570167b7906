"""The configuration: which values it refuses, and with which message."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError, InvalidInput
from elmokit.model.bilm import BiLM

UNICODE: dict[str, Any] = {"token_encoder": "unicode", "n_characters": 6}
FILTERS = r"a list of at most 1000 \[width, count\] pairs of positive integers"
WHOLE = {
    "character_dim": (1, 4194304),
    "n_characters": (261, 4194304),
    "max_characters": (3, 10000),
    "highway_layers": (0, 100),
    "word_dim": (0, 4194304),
    "n_words": (0, 268435456),
    "lstm_dim": (1, 4194304),
    "projection_dim": (1, 4194304),
    "num_layers": (1, 100),
    "vocabulary_size": (0, 268435456),
}
NUMBERS = {
    "cell_clip": (0.0, 1e6),
    "projection_clip": (0.0, 1e6),
    "forget_bias": (-100.0, 100.0),
    "dropout": (0.0, 0.99),
}
NEVER_WHOLE: list[Any] = [10**30, 1.5, 5.0, "5", None, True, [5], math.nan]
NEVER_NUMBERS: list[Any] = [10**400, "1", None, True, [1.0], math.nan, math.inf, -math.inf]
NEVER_FLAGS: list[Any] = [0, 1, "true", None, []]
NEVER_ACTIVATIONS: list[Any] = ["gelu", "", None, 0, {}]
REFUSED: list[tuple[str, Any, str]] = [
    *((n, v, f"an integer from {a} to {b}") for n, (a, b) in WHOLE.items()
      for v in (a - 1, b + 1, *NEVER_WHOLE)),
    *((n, v, f"a number from {a} to {b}") for n, (a, b) in NUMBERS.items()
      for v in (a - 1, b + 1, *NEVER_NUMBERS)),
    *((n, v, "true or false") for n in ("project_tokens", "project_state", "skip_connections")
      for v in NEVER_FLAGS),
    *(("token_encoder", v, "one of 'characters', 'words', 'unicode'")
      for v in ("Words", None, 1, ["words"])),
    *(("character_encoder", v, "one of 'cnn', 'lstm'") for v in ("CNN", None, 1, ["cnn"])),
    *(("activation", v, "one of 'relu', 'tanh'") for v in NEVER_ACTIVATIONS),
    *(("filters", v, FILTERS) for v in (
        [], (), None, 5, "12", [1, 2], [[1]], [[1, 2, 3]], [[0, 4]], [[1, 0]], [[1, 2.0]],
        [[True, 4]], [["1", 4]], [[1, 4194305]], {"1": 4}, [None], [[1, 4]] * 1001)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "allowed"), REFUSED)
def test_a_wrong_value_is_refused_with_the_fields_name_and_what_it_may_be(
    name: str, value: object, allowed: str
) -> None:
    with pytest.raises(InvalidInput, match=f"configuration's {name} must be {allowed}, not "):
        BiLMConfig(**{name: value})  # type: ignore[arg-type]


def test_every_field_is_among_those_that_were_tried() -> None:
    assert {name for name, _, _ in REFUSED} == {field.name for field in fields(BiLMConfig)}


def test_a_refusal_stays_a_sentence_however_long_the_value_is() -> None:
    for value in ([[1, 1]] * 200_000, "x" * 10**6, [["y" * 10**6, 1]]):
        with pytest.raises(ElmokitError) as caught:
            BiLMConfig(filters=value)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"token_encoder": "words"}, "n_words must be at least 3 when token_encoder is 'words'"),
        ({"filters": [[51, 4]]}, "filters must be of width at most 50"),
        ({"filters": [[1, 4194304], [2, 1]]}, "filters must be at most 4194304 in all"),
        ({"project_tokens": False}, "project_tokens must be true unless filters sum to 128"),
        ({"project_state": False}, "project_state must be true unless lstm_dim equals proj"),
        ({"word_dim": 5}, "word_dim must be 0 unless token_encoder is 'unicode', not 5"),
        ({"character_encoder": "lstm"}, "character_encoder must be 'cnn' unless token_encoder is"),
        (UNICODE | {"character_dim": 0}, "word_dim must be at least 1 when character_dim is 0"),
        (UNICODE | {"n_characters": 0}, "n_characters must be at least 1 when character_dim is"),
        (UNICODE | {"word_dim": 5}, "n_words must be at least 1 when word_dim is not 0"),
        (UNICODE | {"project_tokens": False}, "project_tokens must be true when token_encoder is"),
        (UNICODE | {"filters": [[51, 4]]}, "filters must be of width at most 50"),
        (UNICODE | {"character_dim": -1}, "character_dim must be an integer from 0 to"),
    ],
)
def test_fields_that_do_not_fit_together_are_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ElmokitError, match=sentence):
        BiLMConfig(**values)


def test_the_ends_of_every_range_are_allowed() -> None:
    for name, ends in (WHOLE | NUMBERS).items():
        for end in ends:
            if (name, end) in (("max_characters", 3), ("word_dim", 4194304)):
                continue  # too short for the filters of the published models; for Unicode only
            assert getattr(BiLMConfig.from_dict({name: end}), name) == end
    assert BiLMConfig(max_characters=3, filters=((3, 1),)).max_characters == 3
    assert BiLMConfig(project_tokens=False, filters=((1, 100), (2, 28))).n_filters == 128
    assert not BiLMConfig(project_state=False, lstm_dim=128).project_state


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "token_encoder": st.just("words"),
            "character_dim": st.integers(1, 64),
            "max_characters": st.integers(7, 99),
            "filters": st.lists(st.tuples(st.integers(1, 7), st.integers(1, 99)), min_size=1),
            "activation": st.sampled_from(["relu", "tanh"]),
            "highway_layers": st.integers(0, 3),
            "lstm_dim": st.integers(1, 9999),
            "num_layers": st.integers(1, 9),
            "cell_clip": st.floats(0, 10) | st.integers(0, 9),
            "projection_clip": st.floats(0, 10),
            "skip_connections": st.booleans(),
            "forget_bias": st.floats(-2, 2),
            "vocabulary_size": st.integers(0, 10**6),
            "dropout": st.floats(0, 0.9),
        },
    )
)
def test_a_configuration_comes_back_from_json(values: dict[str, Any]) -> None:
    config = BiLMConfig(n_words=7, **values)
    text = json.dumps(config.to_dict())
    again = BiLMConfig.from_dict(json.loads(text))
    assert again == config
    assert hash(again) == hash(config)
    assert json.dumps(again.to_dict()) == text
    for name, value in values.items():
        expected = tuple(value) if name == "filters" else value
        assert getattr(config, name) == expected


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"character_encoder": "lstm", "max_characters": 500, "filters": [[99, 1]]},
        {"word_dim": 100, "n_words": 7},
        {"character_dim": 0, "n_characters": 0, "word_dim": 4194304, "n_words": 1},
    ],
)
def test_a_configuration_of_dictionaries_comes_back_from_json(values: dict[str, Any]) -> None:
    config = BiLMConfig(**UNICODE | values)
    assert BiLMConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_fields_of_dictionaries_are_left_out_of_other_models() -> None:
    assert {"word_dim", "character_encoder"} <= set(BiLMConfig(**UNICODE).to_dict())
    for encoder in ("characters", "words"):
        written = BiLMConfig.from_dict({"token_encoder": encoder, "n_words": 3}).to_dict()
        assert not {"word_dim", "character_encoder"} & set(written)


def test_an_unknown_field_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(ElmokitError, match=r"no field 'lstm_dims'; did you mean 'lstm_dim'\?"):
        BiLMConfig.from_dict({"lstm_dims": 5})
    with pytest.raises(ElmokitError, match=r"no field 'zzzzzz'$"):
        BiLMConfig.from_dict({"zzzzzz": 5})
    with pytest.raises(ElmokitError, match="no field 5"):
        BiLMConfig.from_dict({5: 5})  # type: ignore[dict-item]


@pytest.mark.parametrize(("name", "millions"), [("small", 13.6), ("medium", 28.0),
                                                ("original", 93.6)])  # fmt: skip
def test_the_presets_have_the_published_numbers_of_parameters(name: str, millions: float) -> None:
    with torch.device("meta"):
        model = BiLM(BiLMConfig.preset(name))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert round(count / 1e6, 1) == millions


def test_the_defaults_are_the_published_small_model_and_an_unknown_preset_is_refused() -> None:
    assert BiLMConfig() == BiLMConfig.preset("small")
    assert BiLMConfig.preset("original").dim == 1024
    with pytest.raises(ElmokitError, match="'large'; choose one of tiny, small, medium, original"):
        BiLMConfig.preset("large")


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        BiLMConfig().num_layers = 3  # type: ignore[misc]
