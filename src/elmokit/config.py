"""The shape of a biLM: one flat, validated dataclass, read and written as JSON.

Every part of the model is built from these fields alone, so a `config.json` with the tensors
beside it is a complete model. A wrong value raises with the field's name and what it may be.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any, Literal, NoReturn

from elmokit.errors import InvalidInput

MAX_SIZE = 1 << 22  # A larger dimension means a damaged file.
MAX_WORDS = 1 << 28
MAX_FILTER_WIDTHS = 1000
PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


def _choice(*choices: str) -> Any:
    """Return a field with these values, the first of which is the default."""
    return field(default=choices[0], metadata={"choices": choices})


def _number(
    default: float, low: float, high: float = MAX_SIZE, *, unicode_low: float | None = None
) -> Any:
    """Return a field for integers or, like its default, reals; `unicode_low` is for "unicode"."""
    lows = (low, low if unicode_low is None else unicode_low)
    return field(default=default, metadata={"lows": lows, "high": high})


@dataclass(frozen=True, kw_only=True)
class BiLMConfig:
    """Sizes and switches of a bidirectional language model.

    The defaults are those of the published `small` English model.
    """

    token_encoder: Literal["characters", "words", "unicode"] = _choice(
        "characters", "words", "unicode"
    )
    """Compute token vectors by a CNN over bytes ("characters"), by a table of word vectors
    ("words"), or from Unicode characters and words that dictionaries list ("unicode")."""
    character_dim: int = _number(16, 1, unicode_low=0)
    """Size of a character vector; 0 for no characters, with token_encoder="unicode"."""
    n_characters: int = _number(261, 261, unicode_low=0)
    """Rows of the character table: 256 bytes and 5 marks, or the entries of a dictionary."""
    character_encoder: Literal["cnn", "lstm"] = _choice("cnn", "lstm")
    """Network that reads the characters of a word, with token_encoder="unicode"."""
    word_dim: int = _number(0, 0)
    """Size of a word's own vector beside its characters, with token_encoder="unicode"."""
    max_characters: int = _number(50, 3, 10_000)
    """Maximum number of characters per word, including two boundary marks; the rest is cut."""
    filters: tuple[tuple[int, int], ...] = PUBLISHED_FILTERS
    """Convolutions as (width in characters, number of filters)."""
    activation: Literal["relu", "tanh"] = _choice("relu", "tanh")
    """Activation of each filter's maximum."""
    highway_layers: int = _number(1, 0, 100)
    """Number of highway layers between the convolutions and the projection."""
    project_tokens: bool = True
    """Project the filters to `projection_dim`; False needs exactly that many filters."""
    n_words: int = _number(0, 0, MAX_WORDS)
    """Rows of the word table, with token_encoder="words" or a `word_dim`."""
    lstm_dim: int = _number(1024, 1)
    """Number of cells of an LSTM layer in one direction."""
    projection_dim: int = _number(128, 1)
    """Size of a token vector and of each direction's output."""
    project_state: bool = True
    """Project the LSTM's output to `projection_dim`; False needs lstm_dim of the same size."""
    num_layers: int = _number(2, 1, 100)
    """Number of LSTM layers in each direction."""
    cell_clip: float = _number(3.0, 0.0, 1e6)
    """Bound of the cell state; 0 for none."""
    projection_clip: float = _number(3.0, 0.0, 1e6)
    """Bound of the projected output; 0 for none."""
    skip_connections: bool = True
    """Add a layer's input to its output, from the second layer on."""
    forget_bias: float = _number(1.0, -100.0, 100.0)
    """Constant added to the forget gate; not part of the stored bias."""
    vocabulary_size: int = _number(0, 0, MAX_WORDS)
    """Number of words of the softmax (and lines of vocab.txt); 0 for a model without softmax."""
    dropout: float = _number(0.1, 0.0, 0.99)
    """Dropout of each LSTM layer's input, in training."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "filters", _pairs(self.filters))
        for each in fields(self):
            self._check_field(each)
            if isinstance(each.default, float):
                object.__setattr__(self, each.name, float(getattr(self, each.name)))
        for name, allowed in self._contradictions():
            _refuse(name, getattr(self, name), allowed)

    def _check_field(self, field: Field[Any]) -> None:
        """Raise unless the value of one field is of its type and in its range."""
        value, rule = getattr(self, field.name), field.metadata
        if isinstance(field.default, bool):
            valid, allowed = isinstance(value, bool), "true or false"
        elif "choices" in rule:
            valid = value in rule["choices"]
            allowed = "one of " + ", ".join(map(repr, rule["choices"]))
        elif "lows" in rule:
            whole = isinstance(field.default, int)
            low, high = rule["lows"][self.token_encoder == "unicode"], rule["high"]
            is_number = isinstance(value, int if whole else int | float)
            valid = is_number and not isinstance(value, bool) and low <= value <= high
            allowed = f"{'an integer' if whole else 'a number'} from {low} to {high}"
        else:
            return
        if not valid:
            _refuse(field.name, value, allowed)

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield the fields whose values contradict those of others, and what they may be."""
        if self.token_encoder == "words" and self.n_words < 3:
            yield "n_words", "at least 3 when token_encoder is 'words'"
        if self.token_encoder == "unicode":
            yield from self._unicode_contradictions()
        else:
            for name, default in _UNICODE_ONLY.items():
                if getattr(self, name) != default:
                    yield name, f"{default!r} unless token_encoder is 'unicode'"
        if self.has_filters and self.n_filters > MAX_SIZE:
            yield "filters", f"at most {MAX_SIZE} in all"
        if self.has_filters and max(width for width, _ in self.filters) > self.max_characters:
            yield "filters", f"of width at most {self.max_characters}"
        if self.has_filters and not self.project_tokens and self.n_filters != self.projection_dim:
            yield "project_tokens", f"true unless filters sum to {self.projection_dim}"
        if not self.project_state and self.lstm_dim != self.projection_dim:
            yield "project_state", "true unless lstm_dim equals projection_dim"

    def _unicode_contradictions(self) -> Iterator[tuple[str, str]]:
        if not self.character_dim and not self.word_dim:
            yield "word_dim", "at least 1 when character_dim is 0"
        for size, rows in (("character_dim", "n_characters"), ("word_dim", "n_words")):
            if getattr(self, size) and not getattr(self, rows):
                yield rows, f"at least 1 when {size} is not 0"
        if not self.project_tokens:
            yield "project_tokens", "true when token_encoder is 'unicode'"

    @property
    def has_filters(self) -> bool:
        """Whether convolutions read the characters of a word."""
        if self.token_encoder == "unicode":
            return self.character_dim > 0 and self.character_encoder == "cnn"
        return self.token_encoder == "characters"

    @property
    def n_filters(self) -> int:
        """Number of filters of all widths."""
        return sum(count for _, count in self.filters)

    @property
    def dim(self) -> int:
        """Size of a layer's vector: both directions side by side."""
        return 2 * self.projection_dim

    @classmethod
    def preset(cls, name: str) -> BiLMConfig:
        """Return a named size: tiny, small, medium or original (the last three as published)."""
        if name not in PRESETS:
            raise InvalidInput(f"unknown preset {name!r}; choose one of {', '.join(PRESETS)}")
        return cls(**PRESETS[name])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BiLMConfig:
        """Build from a mapping, as read from JSON or YAML; raise if a field is unknown."""
        known = [each.name for each in fields(cls)]
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise InvalidInput(f"the model configuration has no field {name!r}{hint}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON takes them, without those of other token encoders."""
        values = asdict(self)
        if self.token_encoder != "unicode":
            values = {name: value for name, value in values.items() if name not in _UNICODE_ONLY}
        values["filters"] = [list(pair) for pair in self.filters]
        return values


_UNICODE_ONLY: dict[str, str | int] = {"character_encoder": "cnn", "word_dim": 0}
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"lstm_dim": 512, "filters": ((1, 32), (2, 64), (3, 128), (4, 128), (5, 160))},
    "small": {"lstm_dim": 1024, "projection_dim": 128, "highway_layers": 1},
    "medium": {"lstm_dim": 2048, "projection_dim": 256, "highway_layers": 1},
    "original": {"lstm_dim": 4096, "projection_dim": 512, "highway_layers": 2},
}


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    # reprlib shortens the value: in a damaged file it may be of any length.
    shown = reprlib.repr(value)
    raise InvalidInput(f"the model configuration's {name} must be {allowed}, not {shown}")


def _pairs(filters: object) -> tuple[tuple[int, int], ...]:
    """Return filters as tuples; raise unless they are pairs of positive integers."""
    allowed = f"a list of at most {MAX_FILTER_WIDTHS} [width, count] pairs of positive integers"
    if not isinstance(filters, list | tuple) or not 1 <= len(filters) <= MAX_FILTER_WIDTHS:
        _refuse("filters", filters, allowed)
    for pair in filters:
        values = pair if isinstance(pair, list | tuple) and len(pair) == 2 else [0]
        if not all(type(value) is int and 1 <= value <= MAX_SIZE for value in values):
            _refuse("filters", filters, allowed)
    return tuple((width, count) for width, count in filters)
