"""Beam search: the best texts that a decoder can write, word by word, for a batch of examples.

A step extends every hypothesis of every example at the same time. Of each example the `beam` best
unfinished hypotheses go on; one that ends while it is among the `beam` best candidates is kept. An
example is done when `beam` are kept, and leaves the batch. After `longest` words a hypothesis has
to end. Candidates of a step are compared by their log probability. What is kept is compared by the
mean of it over the words, the end counted as one: the sum would favour short texts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

LEAST = -1e4  # log probability of an end where there has to be one, however improbable


class Rows(Protocol):
    """What a decoder remembers: a row for each hypothesis, those of an example side by side."""

    def take(self, rows: Tensor) -> Any:
        """The same of some hypotheses, in this order; `beam` of each example that is left."""
        ...


R = TypeVar("R", bound=Rows)


@dataclass(frozen=True)
class Hypothesis:
    """A text that came to its end."""

    words: tuple[int, ...]
    """Without the end."""
    score: float
    """The mean log probability of its words and its end."""


def search(
    step: Callable[[Tensor, R], tuple[Tensor, R]],
    state: R,
    begin: Tensor,
    *,
    end: int,
    beam: int,
    longest: int,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each example, at least one and at most `beam`, the best first.

    Args:
        step: takes the last word of each hypothesis, (rows,), and the state before it; gives the
            log probabilities of the next word, (rows, words), and the state after it.
        state: before the first word, with `beam` rows for each example.
        begin: what stands for the word before the first: (examples,).
        end: the word after the last.
        beam: hypotheses that are followed; 1 is a greedy search.
        longest: words of a text, at most.
    """
    kept: list[list[Hypothesis]] = [[] for _ in begin]
    live = list(range(len(begin)))  # the n examples that are not done
    words = begin.repeat_interleave(beam).unsqueeze(1)  # (n * beam, steps)
    totals = torch.full((len(begin), beam), -torch.inf, device=begin.device)
    totals[:, 0] = 0.0  # the other places are empty at first
    for length in range(1, longest + 2):  # counted with the end
        if not live:
            break
        log_probabilities, state = step(words[:, -1], state)
        if length > longest:
            log_probabilities = only_end(log_probabilities, end)
        scores, places, chosen = best_candidates(totals, log_probabilities)  # (n, candidates)
        ended = chosen == end
        for row, column in (ended & scores.isfinite())[:, :beam].nonzero().tolist():
            found = kept[live[row]]
            if len(found) < beam:
                text = words[row * beam + int(places[row, column]), 1:].tolist()
                found.append(Hypothesis(tuple(text), float(scores[row, column]) / length))
        totals, order = scores.masked_fill(ended, -torch.inf).topk(beam)  # (n, beam)
        left = [
            row
            for row, possible in enumerate(totals.isfinite().any(1).tolist())
            if possible and len(kept[live[row]]) < beam
        ]
        rows = (places.gather(1, order) + beam * torch.arange(len(live)).to(order)[:, None])[left]
        following = chosen.gather(1, order)[left].view(-1, 1)
        words = torch.cat([words[rows.flatten()], following], dim=1)
        totals, live = totals[left], [live[row] for row in left]
        state = state.take(rows.flatten())
    return [sorted(found, key=lambda one: -one.score) for found in kept]


def best_candidates(totals: Tensor, log_probabilities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The 2 * beam best ways to extend an example's hypotheses by a word, the best first.

    So many that `beam` are left if every hypothesis also ends.

    Args:
        totals: log probabilities of the hypotheses: (n, beam).
        log_probabilities: of the next word: (n * beam, words).

    Returns:
        Log probability, place of the hypothesis and word of each: (n, candidates).
    """
    n, beam = totals.shape
    vocabulary = log_probabilities.shape[1]
    extended = totals.unsqueeze(2) + log_probabilities.view(n, beam, vocabulary)
    scores, flat = extended.flatten(1).topk(min(2 * beam, beam * vocabulary))
    return scores, flat // vocabulary, flat % vocabulary


def only_end(log_probabilities: Tensor, end: int) -> Tensor:
    """The same with all words but the end forbidden."""
    result = torch.full_like(log_probabilities, -torch.inf)
    result[:, end] = log_probabilities[:, end].clamp_min(LEAST)
    return result
