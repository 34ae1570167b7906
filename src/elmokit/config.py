"""The shape of a biLM: one flat, validated dataclass, read and written as JSON.

Every part of the model is built from these fields alone, so a `config.json` with the tensors
beside it is a whole model. A wrong value is refused with the field's name and what it may be.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from elmokit.errors import ElmokitError

LARGEST = 1 << 22  # a dimension beyond this is a damaged file, not a model
MOST_FILTERS = 1000  # pairs of width and number
PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


@dataclass(frozen=True, kw_only=True)
class BiLMConfig:
    """Sizes and switches of a bidirectional language model.

    The defaults are those of the published `small` English model.
    """

    token_encoder: Literal["characters", "words", "unicode"] = "characters"
    """Token vectors from a CNN over bytes, from a table of word vectors, or from the Unicode
    characters and the words of dictionaries."""
    character_dim: int = 16
    """Columns of a character's vector; 0 for no characters, with token_encoder="unicode"."""
    n_characters: int = 261
    """Rows of the character table: 256 bytes and 5 marks, or the entries of a dictionary."""
    character_encoder: Literal["cnn", "lstm"] = "cnn"
    """What reads the characters of a word, with token_encoder="unicode"."""
    word_dim: int = 0
    """Columns of a word's own vector beside its characters, with token_encoder="unicode"."""
    max_characters: int = 50
    """Characters of a word, its two boundary marks included; longer words are cut."""
    filters: tuple[tuple[int, int], ...] = PUBLISHED_FILTERS
    """Convolutions as (width in characters, number of filters)."""
    activation: Literal["relu", "tanh"] = "relu"
    """Applied to the maximum of each filter."""
    highway_layers: int = 1
    """Highway layers between the convolutions and the projection."""
    project_tokens: bool = True
    """Project the filters to `projection_dim`; False needs as many filters as that."""
    n_words: int = 0
    """Rows of the word table, with token_encoder="words" or a `word_dim`."""
    lstm_dim: int = 1024
    """Cells of an LSTM layer in one direction."""
    projection_dim: int = 128
    """Columns of a token vector and of each direction's output."""
    project_state: bool = True
    """Project the LSTM's output to `projection_dim`; False needs lstm_dim of the same size."""
    num_layers: int = 2
    """LSTM layers in each direction."""
    cell_clip: float = 3.0
    """Bound of the cell state; 0 for none."""
    projection_clip: float = 3.0
    """Bound of the projected output; 0 for none."""
    skip_connections: bool = True
    """Add a layer's input to its output, from the second layer on."""
    forget_bias: float = 1.0
    """Added to the forget gate when running; not part of the stored bias."""
    vocabulary_size: int = 0
    """Words of the softmax (and lines of vocab.txt); 0 for a model without softmax."""
    dropout: float = 0.1
    """Dropout of each LSTM layer's input, when training."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "filters", _pairs(self.filters))
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                _refuse(name, getattr(self, name), "one of " + ", ".join(map(repr, allowed)))
        for name, (low, high) in self._whole_numbers().items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                _refuse(name, value, f"a whole number from {low} to {high}")
        for name in ("project_tokens", "project_state", "skip_connections"):
            if not isinstance(getattr(self, name), bool):
                _refuse(name, getattr(self, name), "true or false")
        for name, (least, most) in _NUMBERS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                _refuse(name, value, f"a number from {least} to {most}")
            if not least <= value <= most:
                _refuse(name, value, f"a number from {least} to {most}")
            object.__setattr__(self, name, float(value))
        self._check_together()

    def _check_together(self) -> None:
        if self.token_encoder == "words" and self.n_words < 3:
            _refuse("n_words", self.n_words, "at least 3 when token_encoder is 'words'")
        if self.token_encoder == "unicode":
            self._check_unicode()
        else:
            for name, default in _UNICODE_ONLY.items():
                if (value := getattr(self, name)) != default:
                    _refuse(name, value, f"{default!r} unless token_encoder is 'unicode'")
        if self.has_filters:
            if self.n_filters > LARGEST:
                _refuse("filters", self.filters, f"at most {LARGEST} in all")
            widest = max(width for width, _ in self.filters)
            if widest > self.max_characters:
                _refuse("filters", self.filters, f"of width at most {self.max_characters}")
            if not self.project_tokens and self.n_filters != self.projection_dim:
                _refuse(
                    "project_tokens", False, f"true unless filters sum to {self.projection_dim}"
                )
        if not self.project_state and self.lstm_dim != self.projection_dim:
            _refuse("project_state", False, "true unless lstm_dim equals projection_dim")

    def _check_unicode(self) -> None:
        if not self.character_dim and not self.word_dim:
            _refuse("word_dim", self.word_dim, "at least 1 when character_dim is 0")
        for part, rows in (("character_dim", "n_characters"), ("word_dim", "n_words")):
            if getattr(self, part) and not getattr(self, rows):
                _refuse(rows, getattr(self, rows), f"at least 1 when {part} is not 0")
        if not self.project_tokens:
            _refuse("project_tokens", False, "true when token_encoder is 'unicode'")

    def _whole_numbers(self) -> dict[str, tuple[int, int]]:
        return _WHOLE_NUMBERS | (_OF_DICTIONARIES if self.token_encoder == "unicode" else {})

    @property
    def has_filters(self) -> bool:
        """Whether convolutions read the characters of a word."""
        if self.token_encoder == "unicode":
            return self.character_dim > 0 and self.character_encoder == "cnn"
        return self.token_encoder == "characters"

    @property
    def n_filters(self) -> int:
        """Filters of all widths together."""
        return sum(number for _, number in self.filters)

    @property
    def dim(self) -> int:
        """Columns of a layer's vector: both directions side by side."""
        return 2 * self.projection_dim

    @classmethod
    def preset(cls, name: str) -> BiLMConfig:
        """A named size: tiny, small, medium or original (the last three as published)."""
        if name not in PRESETS:
            raise ElmokitError(f"there is no preset {name!r}; it may be {', '.join(PRESETS)}")
        return cls(**PRESETS[name])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BiLMConfig:
        """Build from a mapping, as read from JSON or YAML; unknown fields are refused."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ElmokitError(f"the model configuration has no field {name!r}{hint}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON takes them, without those of other token encoders."""
        values = asdict(self)
        if self.token_encoder != "unicode":
            values = {name: value for name, value in values.items() if name not in _UNICODE_ONLY}
        values["filters"] = [list(pair) for pair in self.filters]
        return values


_CHOICES: dict[str, tuple[str, ...]] = {
    "token_encoder": ("characters", "words", "unicode"),
    "character_encoder": ("cnn", "lstm"),
    "activation": ("relu", "tanh"),
}
_WHOLE_NUMBERS = {
    "character_dim": (1, LARGEST),
    "n_characters": (261, LARGEST),
    "word_dim": (0, LARGEST),
    "max_characters": (3, 10_000),
    "highway_layers": (0, 100),
    "n_words": (0, 1 << 28),
    "lstm_dim": (1, LARGEST),
    "projection_dim": (1, LARGEST),
    "num_layers": (1, 100),
    "vocabulary_size": (0, 1 << 28),
}
_OF_DICTIONARIES = {"character_dim": (0, LARGEST), "n_characters": (0, LARGEST)}
_UNICODE_ONLY: dict[str, str | int] = {"character_encoder": "cnn", "word_dim": 0}
_NUMBERS = {
    "cell_clip": (0.0, 1e6),
    "projection_clip": (0.0, 1e6),
    "forget_bias": (-100.0, 100.0),
    "dropout": (0.0, 0.99),
}
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "filters": ((1, 32), (2, 64), (3, 128), (4, 128), (5, 160)),
        "lstm_dim": 512,
        "projection_dim": 128,
    },
    "small": {"lstm_dim": 1024, "projection_dim": 128, "highway_layers": 1},
    "medium": {"lstm_dim": 2048, "projection_dim": 256, "highway_layers": 1},
    "original": {"lstm_dim": 4096, "projection_dim": 512, "highway_layers": 2},
}


def _refuse(name: str, value: object, allowed: str) -> None:
    shown = reprlib.repr(value)  # a damaged file's value may be of any length
    raise ElmokitError(f"the model configuration's {name} must be {allowed}, not {shown}")


def _pairs(filters: object) -> tuple[tuple[int, int], ...]:
    wanted = f"a list of at most {MOST_FILTERS} [width, number] pairs of whole numbers from 1"
    if not isinstance(filters, list | tuple) or not 1 <= len(filters) <= MOST_FILTERS:
        _refuse("filters", filters, wanted)
    pairs = []
    for pair in filters:  # type: ignore[attr-defined]
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            _refuse("filters", filters, wanted)
        for value in pair:
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
                _refuse("filters", filters, wanted)
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)
