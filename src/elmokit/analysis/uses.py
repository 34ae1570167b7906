"""Words in their sentences: where they stand, their vectors in every layer, how alike these are.

    sentence with a marked word ─► Use ─► layers of the biLM ─► (L + 2, uses, dim) ─► cosines

Behind layers 0..L stands their average, so that every table has a column for it. What all tokens
have in common hides what they differ in: the mean vector of all tokens comes along, to be taken
off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elmokit.data.lines import decoded_lines
from elmokit.errors import ElmokitError
from elmokit.io.lines import FilePath, name_of

if TYPE_CHECKING:
    from elmokit.store import LayerStore

Array = NDArray[np.float32]

MARK = "*"
SAME = 1e-4  # similarities closer than this are a tie


@dataclass(frozen=True)
class Use:
    """One word, or several that belong together, in one sentence."""

    tokens: tuple[str, ...]
    start: int
    end: int
    """The word is `tokens[start:end]`."""
    lemma: str
    """What its uses are gathered under."""
    sense: str = ""

    def marked(self) -> str:
        """The sentence with the word in brackets."""
        before, after = self.tokens[: self.start], self.tokens[self.end :]
        return " ".join([*before, f"[{' '.join(self.tokens[self.start : self.end])}]", *after])


# ---------------------------------------------------------------------- reading
def read_uses(path: FilePath, *, lemmas: Iterable[str] | None = None) -> Iterator[Use]:
    """Uses from a table with tabs: sentence, position, sense and, if it is there, lemma.

    The sentence is tokenized, with a space between tokens; positions count from 0, and "2-4" is a
    word of three tokens. Without a lemma it is the word in lower case. A first line of names is
    passed over.

    Args:
        path: the file, also .gz, .xz, .zst.
        lemmas: only uses of these.
    """
    wanted = None if lemmas is None else set(lemmas)
    for number, text, trouble in decoded_lines(path):
        if trouble:
            raise ElmokitError(f"{name_of(path)}, line {number}: {trouble}")
        cells = text.split("\t")
        if not text.strip() or (number == 1 and cells[1:2] == ["position"]):
            continue
        use = _use_of(f"{name_of(path)}, line {number}", cells)
        if wanted is None or use.lemma in wanted:
            yield use


def _use_of(where: str, cells: Sequence[str]) -> Use:
    if len(cells) not in (3, 4):
        raise ElmokitError(
            f"{where}: the line has {len(cells)} columns; there must be a sentence, a position, a "
            "sense and perhaps a lemma, with tabs between them"
        )
    tokens = tuple(cells[0].split())
    first, _, last = cells[1].partition("-")
    try:
        start = int(first)
        end = int(last or first) + 1
    except ValueError:
        raise ElmokitError(f"{where}: {cells[1]!r} is no position") from None
    if not 0 <= start < end <= len(tokens):
        raise ElmokitError(f"{where}: the sentence has {len(tokens)} tokens, none at {cells[1]}")
    if not cells[2].strip():
        raise ElmokitError(f"{where}: the sense is empty")
    given = cells[3].strip() if len(cells) == 4 else ""
    lemma = given or " ".join(tokens[start:end]).lower()
    return Use(tokens, start, end, lemma, cells[2].strip())


def marked_use(text: str, tokenize: object, sense: str = "") -> Use:
    """The use that a text marks with asterisks: "She sat on the river *bank* ."

    `tokenize` makes tokens of the parts.
    """
    assert callable(tokenize)
    parts = text.split(MARK)
    if len(parts) != 3 or not parts[1].strip():
        raise ElmokitError(
            f'one word of a sentence must stand between asterisks, as in "the river *bank* ."; '
            f"not so in {text!r}"
        )
    before, word, after = (list(tokenize(part)) for part in parts)
    start, end = len(before), len(before) + len(word)
    return Use((*before, *word, *after), start, end, " ".join(word).lower(), sense)


# ---------------------------------------------------------------------- vectors
def layer_names(layers: int) -> list[str]:
    """Names of layers 0..L, where L is `layers`, and of their average."""
    return [f"layer {number}" for number in range(layers + 1)] + ["average"]


def with_average(layers: Array) -> Array:
    """Layers (L + 1, n, dim) and behind them their average: (L + 2, n, dim)."""
    return np.concatenate([layers, layers.mean(axis=0, keepdims=True)])


def span_vectors(layers: NDArray[np.float16], spans: Iterable[tuple[int, int]]) -> Array:
    """The mean vector of each span of a sentence's layers (L + 1, tokens, dim), and the average's.

    Shape (L + 2, spans, dim).
    """
    means = [layers[:, start:end].mean(axis=1, dtype=np.float32) for start, end in spans]
    return with_average(np.stack(means, axis=1))


def embed_uses(store: LayerStore, uses: Sequence[Use]) -> tuple[Array, Array]:
    """The vectors of uses, (L + 2, uses, dim), and the mean of all tokens read: (L + 2, 1, dim)."""
    shape = (store.elmo.config.num_layers + 2, len(uses), store.elmo.dim)
    vectors = np.empty(shape, np.float32)
    total = np.zeros((shape[0] - 1, shape[2]))
    tokens = 0
    for number, layers in enumerate(store.stream(use.tokens for use in uses)):
        use = uses[number]
        vectors[:, number] = span_vectors(layers, [(use.start, use.end)])[:, 0]
        total += layers.sum(axis=1, dtype=np.float64)
        tokens += layers.shape[1]
    mean = (total / max(tokens, 1)).astype(np.float32)[:, None]
    return vectors, with_average(mean)


# ---------------------------------------------------------------------- how alike they are
def unit(vectors: Array) -> Array:
    """Vectors of length 1; those without a length stay 0."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(length, 1e-12)  # type: ignore[no-any-return]


def similarities(vectors: Array) -> Array:
    """Cosines between vectors (layers, n, dim): (layers, n, n)."""
    directions = unit(vectors)
    return directions @ directions.swapaxes(-1, -2)


def same_label(labels: Sequence[str]) -> NDArray[np.bool_]:
    """Which have the same label: (n, n)."""
    names = np.array(labels)
    return names[:, None] == names[None, :]  # type: ignore[no-any-return]


def purity(cosines: Array, labels: Sequence[str]) -> Array:
    """How often the nearest other has the same label, for each layer: (layers,).

    Where several are equally near, it is the share of them that have it: what a fair draw would
    find. So a layer that has one vector for all uses gets what guessing gets.
    """
    same = same_label(labels)
    others = np.where(np.eye(len(same), dtype=bool), -np.inf, cosines)  # (layers, n, n)
    nearest = others >= others.max(axis=2, keepdims=True) - SAME
    shares = (nearest & same).sum(axis=2) / nearest.sum(axis=2)  # (layers, n)
    return shares.mean(axis=1)  # type: ignore[no-any-return]


def silhouette(cosines: Array, labels: Sequence[str]) -> Array:
    """Mean silhouette of the labels by cosine distance, for each layer: (layers,).

    With a the mean distance to those of the same label and b that to the nearest other label, it
    is (b - a) / max(a, b); 0 for one that is alone with its label. Distances that are rounding only
    count as none, so that a layer with one vector for all uses gets 0.
    """
    names, numbers = np.unique(np.array(labels), return_inverse=True)
    if len(names) < 2:
        raise ElmokitError("a silhouette needs at least two labels")
    member = np.eye(len(names), dtype=np.float32)[numbers]  # (n, labels)
    distances = np.where(cosines > 1 - SAME, 0, 1 - cosines)  # (layers, n, n)
    sums = distances @ member  # (layers, n, labels)
    count = member.sum(axis=0)
    own = member.astype(bool)
    alone = count[numbers] == 1
    inside = sums[:, own] / np.maximum(count[numbers] - 1, 1)  # (layers, n)
    outside = np.where(own, np.inf, sums / count).min(axis=2)  # (layers, n)
    largest = np.maximum(np.maximum(inside, outside), 1e-12)
    return np.where(alone, 0, (outside - inside) / largest).mean(axis=1)  # type: ignore[no-any-return]


def principal_components(vectors: Array) -> tuple[Array, Array]:
    """The first two components of vectors (n, dim), (n, 2), and their shares of the variance."""
    left, scale, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    total = max(float((scale**2).sum()), 1e-12)
    shares: Array = (scale[:2] ** 2 / total).astype(np.float32)
    return left[:, :2] * scale[:2], shares
