"""Beam search: the best texts that a decoder can write, word by word, for a batch of examples.

A step extends every hypothesis of every example at the same time. Of each example the `beam` best
unfinished hypotheses continue; one that ends while it is among the `beam` best candidates is kept.
An example is done when `beam` are kept, and leaves the batch. After `max_words` words a hypothesis
must end. Finished hypotheses are compared by their mean log probability: the sum would favor short
texts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MIN_LOG_PROBABILITY = -1e4  # of an end that is required, however improbable it is
Step = Callable[[Tensor, Any], tuple[Tensor, Any]]


@dataclass(frozen=True)
class Hypothesis:
    """A text that has ended."""

    words: tuple[int, ...]  # indices, without the end
    score: float  # the mean log probability of its words and its end


def search(
    step: Step, state: Any, begin: Tensor, *, end: int, beam: int, max_words: int
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each example, from 1 to `beam`, the best first.

    `step` takes the last word of each hypothesis, (rows,), and the state before it, which has
    `beam` rows for each example. It returns the log probabilities of the next word, (rows, words),
    and the state after it. A state's method `take` returns rows of it in another order. `begin`
    stands for the word before the first: (examples,).
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
            only_end = torch.full_like(log_probabilities, -torch.inf)
            only_end[:, end] = log_probabilities[:, end].clamp_min(MIN_LOG_PROBABILITY)
            log_probabilities = only_end
        # Of the 2 * beam best extensions, `beam` are left even if every hypothesis also ends.
        vocabulary = log_probabilities.shape[1]
        extended = totals.unsqueeze(2) + log_probabilities.view(len(live), beam, vocabulary)
        scores, flat = extended.flatten(1).topk(min(2 * beam, beam * vocabulary))
        origins, chosen = flat // vocabulary, flat % vocabulary  # (n, candidates)
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
