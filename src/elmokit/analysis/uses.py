"""Words in their sentences: how they are read, and their vectors in every layer.

    sentence with a marked word ─► Use ─► layers 0..L of the biLM and average ─► (L + 2, uses, dim)

What all tokens have in common hides how they differ, so callers subtract the mean of all tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.geometry import Array
from elmokit.data.labeled import BadLines
from elmokit.data.lines import good_lines
from elmokit.errors import ElmokitError, explained, plural
from elmokit.io.lines import FilePath

if TYPE_CHECKING:
    from elmokit.embed import Embedder
    from elmokit.store import LayerStore

Model: TypeAlias = "Embedder | LayerStore"
CONTEXT = 12  # tokens shown on each side of a word


@dataclass(frozen=True)
class Use:
    """One word, or several that belong together, in one sentence."""

    tokens: tuple[str, ...]
    """The sentence."""
    start: int
    end: int
    """The word is `tokens[start:end]`."""
    lemma: str
    """Uses of the same lemma are grouped together."""
    sense: str = ""
    """Name of its sense; empty if unknown."""

    @property
    def word(self) -> str:
        """The word as it is written in the sentence."""
        return " ".join(self.tokens[self.start : self.end])

    @property
    def position(self) -> str:
        """The position as `read_uses` reads it: "2", or "2-4" for a word of three tokens."""
        return f"{self.start}-{self.end - 1}" if self.end - self.start > 1 else f"{self.start}"

    def marked(self) -> str:
        """Return the sentence with the word in brackets."""
        before, after = self.tokens[: self.start], self.tokens[self.end :]
        return " ".join([*before, f"[{self.word}]", *after])

    def shortened(self, context: int = CONTEXT) -> Use:
        """Keep `context` tokens on each side of the word, with "…" in place of the others."""
        first, last = max(0, self.start - context), self.end + context
        before = ("…",) if first else ()
        after = ("…",) if last < len(self.tokens) else ()
        shift = len(before) - first
        tokens = (*before, *self.tokens[first:last], *after)
        return replace(self, tokens=tokens, start=self.start + shift, end=self.end + shift)


def read_uses(path: FilePath) -> Iterator[Use]:
    """Yield the uses of a tab-separated file: sentence, position, sense and optionally lemma.

    The sentence is tokenized, with a space between tokens; positions count from 0, and "2-4" is a
    word of three tokens. Without a lemma it is the word in lower case. A header line is skipped.
    The file may be compressed: .gz, .xz, .zst.
    """
    for i, (where, text) in enumerate(good_lines(path, BadLines())):
        cells = text.split("\t")
        if not text.strip() or (i == 0 and cells[1:2] == ["position"]):
            continue
        if len(cells) not in (3, 4):
            raise ElmokitError(
                f"{where}: the line has {plural(len(cells), 'column')}; expected a sentence, a "
                "position, a sense and optionally a lemma, separated by tabs"
            )
        use = use_at(where, cells[0], cells[1], "".join(cells[3:]).strip(), cells[2].strip())
        if not use.sense:
            raise ElmokitError(f"{where}: the sense is empty")
        yield use


def use_at(where: str, text: str, position: str, lemma: str = "", sense: str = "") -> Use:
    """Return the use at a position such as "2" or "2-4" of a text with spaces between tokens."""
    tokens = tuple(text.split())
    first, _, last = position.partition("-")
    with explained(f"{where}: {position!r} is not a position", ValueError, reason=False):
        start, end = int(first), int(last or first) + 1
    if not 0 <= start < end <= len(tokens):
        count = plural(len(tokens), "token")
        raise ElmokitError(f"{where}: the sentence has {count}, none at {position}")
    return Use(tokens, start, end, lemma or " ".join(tokens[start:end]).lower(), sense)


def marked_use(text: str, tokenize: Callable[[str], Iterable[str]], sense: str = "") -> Use:
    """Return the use that a text marks with asterisks: "She sat on the river *bank* .".

    Args:
        text: The sentence with one marked word.
        tokenize: Function that splits the text before, in and after the mark.
        sense: Name of the word's sense.
    """
    parts = text.split("*")
    if len(parts) != 3 or not parts[1].strip():
        raise ElmokitError(
            f'mark exactly one word with asterisks, e.g. "the river *bank* ."; got {text!r}'
        )
    before, word, after = (list(tokenize(part)) for part in parts)
    start, end = len(before), len(before) + len(word)
    return Use((*before, *word, *after), start, end, " ".join(word).lower(), sense)


def as_store(model: Model) -> LayerStore:
    """Return the LayerStore of a model, which keeps layers on disk for a second pass."""
    from elmokit.store import LayerStore

    return model if isinstance(model, LayerStore) else LayerStore(model)


def with_average(layers: Array) -> Array:
    """Append the average of layers (L + 1, n, dim) as the last layer: (L + 2, n, dim)."""
    return np.concatenate([layers, layers.mean(axis=0, keepdims=True)])


def span_vector(layers: NDArray[Any], start: int, end: int) -> Array:
    """Return the mean of tokens start:end of layers (L + 1, tokens, dim): (L + 1, dim)."""
    return layers[:, start:end].mean(axis=1, dtype=np.float32)  # type: ignore[no-any-return]


class TokenMean:
    """The mean of all tokens of the sentences that are added, in each layer: (L + 1, dim)."""

    def __init__(self, elmo: Embedder) -> None:
        self.total = np.zeros((elmo.config.num_layers + 1, elmo.dim))
        self.count = 0

    def add(self, layers: NDArray[Any]) -> None:
        """Add the tokens of a sentence: (L + 1, tokens, dim)."""
        self.total += layers.sum(axis=1, dtype=np.float64)
        self.count += layers.shape[1]

    @property
    def value(self) -> Array:
        return (self.total / max(self.count, 1)).astype(np.float32)


def embed_uses(model: Model, uses: Sequence[Use]) -> tuple[Array, Array]:
    """Return the vectors of uses in layers 0..L and their average, and the mean of all tokens.

    Args:
        model: The model; a LayerStore keeps the layers on disk in float16.
        uses: Words in their sentences.

    Returns:
        Vectors (L + 2, uses, dim), and the mean of all tokens of all sentences (L + 2, 1, dim).
    """
    from elmokit.store import LayerStore

    texts = [use.tokens for use in uses]
    stream: Iterator[NDArray[Any]]
    if isinstance(model, LayerStore):
        elmo, stream = model.elmo, model.stream(texts)
    else:
        elmo, stream = model, (sentence.layers for sentence in model.stream(texts, "all"))
    vectors = np.empty((elmo.config.num_layers + 2, len(uses), elmo.dim), np.float32)
    mean = TokenMean(elmo)
    for i, layers in enumerate(stream):
        vectors[:-1, i] = span_vector(layers, uses[i].start, uses[i].end)
        mean.add(layers)
    vectors[-1] = vectors[:-1].mean(axis=0)
    return vectors, with_average(mean.value[:, None])


def mean_vector(store: LayerStore, texts: Iterable[Sequence[str]]) -> Array:
    """Return the mean of all tokens of texts in each layer and the average: (L + 2, 1, dim)."""
    mean = TokenMean(store.elmo)
    for layers in store.stream(texts):
        mean.add(layers)
    return with_average(mean.value[:, None])
