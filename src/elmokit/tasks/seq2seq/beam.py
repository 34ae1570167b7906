"""Beam search: the best texts that a decoder can write, word by word, for a batch of examples.

A step extends every hypothesis of every example at the same time. Of each example the `beam` best
unfinished hypotheses continue; one that ends while it is among the `beam` best candidates is kept.
An example is done when `beam` are kept, and leaves the batch. After `max_words` words a hypothesis
must end. Candidates of a step are compared by their log probability. Finished hypotheses are
compared by its mean over the words, including the end: the sum would favor short texts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

MIN_LOG_PROBABILITY = -1e4  # of an end that is required, however improbable it is


class Rows(Protocol):
    """The state of a decoder: a row for each hypothesis, those of an example side by side."""

    def take(self, rows: Tensor) -> Any:
        """Return these rows in this order; `beam` of each example that is left."""
        ...


R = TypeVar("R", bound=Rows)


@dataclass(frozen=True)
class Hypothesis:
    """A text that has ended."""

    words: tuple[int, ...]
    """Indices of its words, without the end."""
    score: float
    """The mean log probability of its words and its end."""


def search(
    step: Callable[[Tensor, R], tuple[Tensor, R]],
    state: R,
    begin: Tensor,
    *,
    end: int,
    beam: int,
    max_words: int,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each example, from 1 to `beam`, the best first.

    `step` takes the last word of each hypothesis, (rows,), and the state before it, which has
    `beam` rows for each example. It returns the log probabilities of the next word, (rows, words),
    and the state after it. `begin` stands for the word before the first: (examples,).
    """
    kept: list[list[Hypothesis]] = [[] for _ in begin]
    live = list(range(len(begin)))  # indices of the n examples that are not done
    words = begin.repeat_interleave(beam).unsqueeze(1)  # (n * beam, steps)
    totals = torch.full((len(begin), beam), -torch.inf, device=begin.device)
    totals[:, 0] = 0.0  # There is one hypothesis at first.
    for length in range(1, max_words + 2):  # including the end
        if not live:
            break
        log_probabilities, state = step(words[:, -1], state)
        if length > max_words:
            log_probabilities = only_end(log_probabilities, end)
        scores, origins, chosen = best_candidates(totals, log_probabilities)  # (n, candidates)
        ended = chosen == end
        for row, column in (ended & scores.isfinite())[:, :beam].nonzero().tolist():
            finished = kept[live[row]]
            if len(finished) < beam:
                text = words[row * beam + int(origins[row, column]), 1:].tolist()
                finished.append(Hypothesis(tuple(text), float(scores[row, column]) / length))
        totals, order = scores.masked_fill(ended, -torch.inf).topk(beam)  # (n, beam)
        left = [
            row
            for row, possible in enumerate(totals.isfinite().any(1).tolist())
            if possible and len(kept[live[row]]) < beam
        ]
        rows = (origins.gather(1, order) + beam * torch.arange(len(live)).to(order)[:, None])[left]
        following = chosen.gather(1, order)[left].view(-1, 1)
        words = torch.cat([words[rows.flatten()], following], dim=1)
        totals, live = totals[left], [live[row] for row in left]
        state = state.take(rows.flatten())
    return [sorted(finished, key=lambda text: -text.score) for finished in kept]


def best_candidates(totals: Tensor, log_probabilities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the 2 * beam best extensions of an example's hypotheses by a word, the best first.

    With that many, `beam` are left even if every hypothesis also ends. Of each candidate return the
    log probability, the index of the hypothesis, and the word, (n, candidates) each, from the log
    probabilities of the hypotheses, (n, beam), and of the next word, (n * beam, words).
    """
    n, beam = totals.shape
    vocabulary = log_probabilities.shape[1]
    extended = totals.unsqueeze(2) + log_probabilities.view(n, beam, vocabulary)
    scores, flat = extended.flatten(1).topk(min(2 * beam, beam * vocabulary))
    return scores, flat // vocabulary, flat % vocabulary


def only_end(log_probabilities: Tensor, end: int) -> Tensor:
    """Return the same with all words but the end forbidden."""
    result = torch.full_like(log_probabilities, -torch.inf)
    result[:, end] = log_probabilities[:, end].clamp_min(MIN_LOG_PROBABILITY)
    return result
