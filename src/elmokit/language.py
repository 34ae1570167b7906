"""The biLM as a language model: surprisal of words, perplexity, and words that fit a gap.

The top layer's forward half at a token has read the sentence up to it and predicts the next word;
its backward half has read the rest from the end and predicts the word before. With boundaries:

    position    0     1   ...  n    n+1
    token      <S>   w1   ...  wn   </S>
    forward    w1    w2   ...  </S>             what each position predicts
    backward         <S>  ...  w(n-1)  wn
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from elmokit.errors import ElmokitError
from elmokit.text.vocabulary import SPECIAL, Vocabulary

if TYPE_CHECKING:
    from typing import TypeAlias

    from elmokit.model.bilm import BiLM

Text: TypeAlias = "str | Sequence[str]"
GAP = "___"
ROWS = 256  # rows of logits in memory at once
CANDIDATES = 200  # words that are tried in the whole sentence


class Reader(Protocol):
    """What this module needs of an `Embedder`."""

    model: BiLM
    vocabulary: Vocabulary | None
    source: str
    tokenize: Callable[[str], list[str]]

    @property
    def device(self) -> torch.device: ...

    def stream(
        self, sentences: Iterable[Text], layers: str, *, boundaries: bool
    ) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Surprisal:
    """How unexpected each word of a sentence is, in bits."""

    tokens: list[str]
    forward: NDArray[np.float32]
    """-log2 p(word | what stands before it): (tokens,)."""
    backward: NDArray[np.float32]
    """-log2 p(word | what stands after it): (tokens,)."""
    known: NDArray[np.bool_]
    """False where the word is not in the vocabulary and was counted as `<UNK>`: (tokens,)."""

    @property
    def average(self) -> NDArray[np.float32]:
        """The mean of both directions: (tokens,)."""
        return (self.forward + self.backward) * np.float32(0.5)


@dataclass(frozen=True)
class Perplexity:
    """Of both directions, each sentence's end (or beginning) counted as a word."""

    forward: float
    backward: float
    tokens: int
    """Predictions in one direction: words and sentence ends."""

    @classmethod
    def of(cls, losses: NDArray[np.float64], tokens: int) -> Perplexity:
        """From the summed negative log likelihoods of both directions, (2,)."""
        forward, backward = (_exp(loss / tokens) for loss in losses)
        return cls(forward, backward, tokens)

    @property
    def average(self) -> float:
        """exp of the mean negative log likelihood of both directions."""
        return math.sqrt(self.forward) * math.sqrt(self.backward)

    def to_dict(self) -> dict[str, float]:
        """For logs and metadata."""
        return {
            "forward": round(self.forward, 4),
            "backward": round(self.backward, 4),
            "average": round(self.average, 4),
        }


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


@dataclass(frozen=True)
class Filling:
    """A word for the gap and how well it fits."""

    word: str
    probability: float
    """Among the words that were tried, both directions combined."""


def surprisal(elmo: Reader, sentence: Text) -> Surprisal:
    """Surprisal of every word of a sentence, in both directions."""
    vocabulary = _vocabulary(elmo)
    (found,) = elmo.stream([sentence], "top", boundaries=True)
    tokens = found.tokens[1:-1]
    forward, backward = _halves(found.vectors)
    targets = vocabulary.encode(tokens).astype(np.int64)
    bits = [
        -_log_probabilities(elmo, rows, targets) / np.log(2)
        for rows in (forward[:-2], backward[2:])
    ]
    known = np.array([token in vocabulary for token in tokens], bool)
    return Surprisal(tokens, bits[0], bits[1], known)


def fill(elmo: Reader, sentence: Text, k: int = 10) -> list[Filling]:
    """The words that fit a gap `___` best.

    Both directions propose words from what they read up to the gap. The best of these are put into
    the sentence, and the whole sentence is read in both directions: a word is judged by what it
    makes of its context too. The score is the mean of the two log probabilities.
    """
    vocabulary = _vocabulary(elmo)
    tokens = _with_gap(elmo, sentence)
    gap = tokens.index(GAP)
    (read,) = elmo.stream([tokens], "top", boundaries=True)
    forward, backward = _halves(read.vectors)
    around = np.stack([forward[gap], backward[gap + 2]])  # before and after the gap
    proposed = _log_softmax(elmo, torch.from_numpy(around)).sum(0)  # (words,)
    proposed[[vocabulary.ids[mark] for mark in SPECIAL]] = -torch.inf
    count = min(max(CANDIDATES, k), len(vocabulary) - len(SPECIAL))
    candidates = [vocabulary.words[number] for number in proposed.topk(count).indices.tolist()]
    filled = [[*tokens[:gap], word, *tokens[gap + 1 :]] for word in candidates]
    scores = [-losses.mean() for _, losses in sentence_losses(elmo, filled)]
    shares = torch.softmax(torch.tensor(scores), 0)
    best = shares.topk(min(k, count))
    return [
        Filling(candidates[number], share)
        for number, share in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def perplexity(elmo: Reader, sentences: Iterable[Text]) -> Perplexity:
    """Of some sentences, each read alone."""
    sums, tokens = np.zeros(2), 0
    for words, losses in sentence_losses(elmo, sentences):
        sums += losses
        tokens += len(words) + 1
    if not tokens:
        raise ElmokitError("there are no sentences, and so no perplexity")
    return Perplexity.of(sums, tokens)


def sentence_losses(
    elmo: Reader, sentences: Iterable[Text]
) -> Iterator[tuple[list[str], NDArray[np.float64]]]:
    """Each sentence's tokens and its negative log likelihood in both directions, (2,).

    Every sentence is read alone, with its boundaries.
    """
    vocabulary = _vocabulary(elmo)
    for found in elmo.stream(sentences, "top", boundaries=True):
        targets = vocabulary.encode(found.tokens).astype(np.int64)
        forward, backward = _halves(found.vectors)
        ahead = _log_probabilities(elmo, forward[:-1], targets[1:])
        back = _log_probabilities(elmo, backward[1:], targets[:-1])
        losses = -np.array([ahead.sum(dtype=np.float64), back.sum(dtype=np.float64)])
        yield found.tokens[1:-1], losses


def _halves(top: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    half = top.shape[1] // 2
    return top[:, :half], top[:, half:]


def _log_probabilities(
    elmo: Reader, rows: NDArray[np.float32], targets: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Log probability of each target word, by the full softmax: (rows,)."""
    found = [torch.empty(0)]
    for start in range(0, len(rows), ROWS):
        piece = torch.from_numpy(np.ascontiguousarray(rows[start : start + ROWS]))
        wanted = torch.from_numpy(targets[start : start + ROWS])
        found.append(_log_softmax(elmo, piece).gather(1, wanted[:, None])[:, 0])
    return torch.cat(found).numpy()


@torch.inference_mode()
def _log_softmax(elmo: Reader, rows: Tensor) -> Tensor:
    """Outputs of one direction (n, projection_dim) to log probabilities (n, words)."""
    assert elmo.model.softmax is not None
    return functional.log_softmax(elmo.model.softmax(rows.to(elmo.device)), dim=1).cpu()


def _vocabulary(elmo: Reader) -> Vocabulary:
    if elmo.model.softmax is None or elmo.vocabulary is None:
        raise ElmokitError(
            f"{elmo.source} has no softmax and so cannot predict words: its files hold the layers "
            "only, or no vocabulary"
        )
    return elmo.vocabulary


def _with_gap(elmo: Reader, sentence: Text) -> list[str]:
    if isinstance(sentence, str):
        parts = sentence.split(GAP)
        if len(parts) != 2:
            raise ElmokitError(f"the sentence must have one gap {GAP}, not {len(parts) - 1}")
        return [*elmo.tokenize(parts[0]), GAP, *elmo.tokenize(parts[1])]
    if list(sentence).count(GAP) != 1:
        raise ElmokitError(f"the tokens must have one gap {GAP!r}, not {list(sentence).count(GAP)}")
    return list(sentence)
