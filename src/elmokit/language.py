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
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from elmokit.errors import InvalidInput
from elmokit.model.bilm import BiLM
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmokit.text.vocabulary import SPECIAL, Vocabulary

Text: TypeAlias = "str | Sequence[str]"
GAP = "___"
CANDIDATES = 100  # Words that are tried in the whole sentence.
FREQUENCY_WEIGHT = 0.5  # How far a word fits a gap is its probability / frequency ** this.


class Reader(Protocol):
    """The parts of an `Embedder` that this module uses."""

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
    """-log2 p(word | words before it): (tokens,)."""
    backward: NDArray[np.float32]
    """-log2 p(word | words after it): (tokens,)."""
    known: NDArray[np.bool_]
    """False where a word is outside the vocabulary and was scored as `<UNK>`: (tokens,)."""

    @property
    def average(self) -> NDArray[np.float32]:
        """Mean of both directions: (tokens,)."""
        return (self.forward + self.backward) * np.float32(0.5)


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of both directions, with the end (or beginning) of a sentence as a word."""

    forward: float
    backward: float
    tokens: int
    """Number of predictions in one direction: words and sentence ends."""

    @classmethod
    def of(cls, losses: NDArray[np.float64], tokens: int) -> Perplexity:
        """Return the perplexity for summed negative log likelihoods of both directions, (2,)."""
        means = (losses / tokens).tolist()
        forward, backward = (math.exp(mean) if mean < 700 else math.inf for mean in means)
        return cls(forward, backward, tokens)

    @property
    def average(self) -> float:
        """Exponential of the mean negative log likelihood of both directions."""
        return math.sqrt(self.forward) * math.sqrt(self.backward)

    def to_dict(self) -> dict[str, float]:
        """Return rounded values for logs and metadata."""
        return {name: round(getattr(self, name), 4) for name in ("forward", "backward", "average")}


@dataclass(frozen=True)
class Filling:
    """A word for the gap and how well it fits."""

    word: str
    probability: float
    """Share among the words that were tried, with both directions combined."""
    fit: float
    """The same share after each probability is divided by the square root of the word's frequency,
    so that a word counts for more if it is the sentence that makes it likely."""


def surprisal(elmo: Reader, sentence: Text) -> Surprisal:
    """Return the surprisal of each word of a sentence, in both directions."""
    vocabulary = vocabulary_of(elmo)
    (read,) = elmo.stream([sentence], "top", boundaries=True)
    tokens = read.tokens[1:-1]
    forward, backward = np.split(read.vectors, 2, axis=-1)
    targets = vocabulary.encode(tokens)
    bits = [_losses(elmo, rows, targets) / np.log(2) for rows in (forward[:-2], backward[2:])]
    known = np.array([token in vocabulary for token in tokens], bool)
    return Surprisal(tokens, bits[0], bits[1], known)


def fill(elmo: Reader, sentence: Text, k: int = 10) -> list[Filling]:
    """Return the `k` words that best fit a gap `___`.

    Both directions propose words from what they read up to the gap. The best of these are put into
    the sentence, which is scored in both directions: so a word is also judged by how well it
    predicts its context. The order is that of `Filling.fit`, which takes the frequency of a word
    from its rank in the vocabulary: the nth word of a language has about 1/n of the first one's.
    """
    if k < 1:
        raise InvalidInput(f"k must be at least 1, not {k}")
    vocabulary = vocabulary_of(elmo)
    tokens = _with_gap(elmo, sentence)
    gap = tokens.index(GAP)
    (read,) = elmo.stream([tokens], "top", boundaries=True)
    forward, backward = np.split(read.vectors, 2, axis=-1)
    around = np.stack([forward[gap], backward[gap + 2]])  # Before and after the gap.
    assert elmo.model.softmax is not None
    with torch.no_grad():
        logits = elmo.model.softmax(torch.from_numpy(around).to(elmo.device)).cpu()  # (2, words)
        proposed = functional.log_softmax(logits, dim=1).sum(0)
    proposed[[vocabulary.ids[mark] for mark in SPECIAL]] = -torch.inf  # (words,)
    count = min(max(CANDIDATES, k), len(vocabulary) - len(SPECIAL))
    at_gap, ids = proposed.topk(count)
    candidates = [vocabulary.words[index] for index in ids.tolist()]
    filled = [[*tokens[:gap], word, *tokens[gap + 1 :]] for word in candidates]
    scores = (at_gap + _context_scores(elmo, filled, gap)) / 2
    fits = scores + FREQUENCY_WEIGHT * (ids + 1).log()
    shares, fits = torch.softmax(scores, 0).tolist(), torch.softmax(fits, 0)
    best = fits.topk(min(k, count))
    return [
        Filling(candidates[index], shares[index], fit)
        for index, fit in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _context_scores(elmo: Reader, filled: list[list[str]], gap: int) -> Tensor:
    """Return the log probability of the words around a gap, for each filled sentence: (sentences,).

    Only the forward direction after the gap and the backward one before it depend on the filling.
    """
    top = np.stack([read.vectors for read in elmo.stream(filled, "top", boundaries=True)])
    forward, backward = np.split(top, 2, axis=-1)  # (sentences, n + 2, projection_dim)
    words = vocabulary_of(elmo).encode([BEGIN_SENTENCE, *filled[0], END_SENTENCE])
    position = gap + 1  # The first token is <S>.
    rows = np.concatenate([forward[:, position:-1], backward[:, 1 : position + 1]], axis=1)
    targets = np.concatenate([words[position + 1 :], words[:position]])  # (n + 1,)
    flat = rows.reshape(-1, rows.shape[-1])
    losses = _losses(elmo, flat, np.tile(targets, len(filled)))
    return torch.from_numpy(-losses.reshape(len(filled), -1).sum(1))


def perplexity(elmo: Reader, sentences: Iterable[Text]) -> Perplexity:
    """Return the perplexity of sentences, each read alone."""
    sums, tokens = np.zeros(2), 0
    for words, losses in sentence_losses(elmo, sentences):
        sums += losses
        tokens += len(words) + 1
    if not tokens:
        raise InvalidInput("cannot compute the perplexity: there are no sentences")
    return Perplexity.of(sums, tokens)


def sentence_losses(
    elmo: Reader, sentences: Iterable[Text]
) -> Iterator[tuple[list[str], NDArray[np.float64]]]:
    """Yield tokens and negative log likelihood in both directions, (2,), of sentences alone."""
    vocabulary = vocabulary_of(elmo)
    for read in elmo.stream(sentences, "top", boundaries=True):
        targets = vocabulary.encode(read.tokens)
        forward, backward = np.split(read.vectors, 2, axis=-1)
        next_words = _losses(elmo, forward[:-1], targets[1:])
        previous_words = _losses(elmo, backward[1:], targets[:-1])
        sums = [values.sum(dtype=np.float64) for values in (next_words, previous_words)]
        yield read.tokens[1:-1], np.array(sums)


def _losses(
    elmo: Reader, rows: NDArray[np.float32], targets: NDArray[np.int32]
) -> NDArray[np.float32]:
    """Return -log p of each target word by the full softmax, after outputs of one direction."""
    assert elmo.model.softmax is not None
    outputs, words = (torch.from_numpy(np.ascontiguousarray(array)) for array in (rows, targets))
    losses = elmo.model.softmax.losses(outputs.to(elmo.device), words.long().to(elmo.device))
    return losses.cpu().numpy()


def vocabulary_of(elmo: Reader) -> Vocabulary:
    """Return the words that a model predicts; raise if it cannot predict words."""
    if elmo.model.softmax is None:
        raise InvalidInput(f"{elmo.source} has no softmax and so cannot predict words")
    if elmo.vocabulary is None:
        raise InvalidInput(f"{elmo.source} has no vocabulary and so cannot predict words")
    return elmo.vocabulary


def _with_gap(elmo: Reader, sentence: Text) -> list[str]:
    if isinstance(sentence, str):
        parts = sentence.split(GAP)
        if len(parts) != 2:
            raise InvalidInput(f"the sentence must have one gap {GAP}, not {len(parts) - 1}")
        return [*elmo.tokenize(parts[0]), GAP, *elmo.tokenize(parts[1])]
    if list(sentence).count(GAP) != 1:
        raise InvalidInput(f"the tokens must have one gap {GAP!r}, not {list(sentence).count(GAP)}")
    return list(sentence)
