"""Padding, packing and turning round: where each token stands in each layout.

Three orders of the same tokens:
  sentence-major  sentence after sentence, as texts stand; what callers get
  packed          time-major, longest sentence first; what the LSTM layers run on
  padded          (sentences, tokens) with gaps; what task models take
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Index vectors that lead from one order of the tokens to another."""

    sizes: list[int]
    """Sentences at each step, falling."""
    order: Tensor
    """The sentences by falling length: (sentences,)."""
    sentence_major: Tensor
    """The sentence-major position of each packed token: (positions,)."""
    packed: Tensor
    """The packed position of each sentence-major token: (positions,)."""
    turned: Tensor
    """Packed position of the token at the same step from the sentence's end; its own inverse."""


def pack(lengths: Tensor) -> Packing:
    """Lay out sentences of the given lengths (on the CPU), (sentences,)."""
    order = torch.argsort(lengths, descending=True, stable=True)
    by_length = lengths[order]
    longest = int(by_length[0]) if len(lengths) else 0
    steps = torch.arange(longest)
    alive = steps[:, None] < by_length[None, :]  # (tokens, sentences), sorted
    starts = torch.cumsum(lengths, 0) - lengths
    step, row = alive.nonzero(as_tuple=True)
    sentence_major = starts[order][row] + step
    packed = torch.empty_like(sentence_major)
    packed[sentence_major] = torch.arange(len(packed))
    turned = packed[starts[order][row] + by_length[row] - 1 - step]
    return Packing(alive.sum(1).tolist(), order, sentence_major, packed, turned)
