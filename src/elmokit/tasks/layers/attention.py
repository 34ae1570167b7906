"""Attention between two padded texts: which tokens of one match which tokens of the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from elmokit.data.examples import Tokens

MATCHES = 2  # of a word with the other text: as it is written, and in lower case


def masked_softmax(scores: Tensor, mask: Tensor, *, dim: int = -1) -> Tensor:
    """Return weights that sum to 1 along `dim` where the mask is True, and are 0 elsewhere."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim) * mask


class TrilinearScores(nn.Module):
    """A learned similarity of each pair of tokens a, b: u·a + v·b + w·(a*b)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(dim, 1)
        self.second = nn.Linear(dim, 1, bias=False)
        self.product = nn.Parameter(torch.full((dim,), dim**-0.5))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Map (texts, first, dim) and (texts, second, dim) to (texts, first, second)."""
        alone = self.first(first) + self.second(second).transpose(1, 2)
        return alone + (first * self.product) @ second.transpose(1, 2)  # type: ignore[no-any-return]


def align(
    first: Tensor, second: Tensor, first_mask: Tensor, second_mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Return for each token the mean of the other text's tokens, weighted by their dot products.

    The means have the shapes of `first`, (texts, first tokens, dim), and of `second`.
    """
    scores = first @ second.transpose(1, 2)  # (texts, first tokens, second tokens)
    of_second = masked_softmax(scores, second_mask.unsqueeze(1), dim=2)
    of_first = masked_softmax(scores, first_mask.unsqueeze(2), dim=1)
    return of_second @ second, of_first.transpose(1, 2) @ first


def with_matches(vectors: Tensor, texts: Sequence[Tokens], others: Sequence[Tokens]) -> Tensor:
    """Add to the vectors (texts, tokens, dim) which tokens the other text has: MATCHES columns."""
    matched = pad_sequence(list(map(matches, texts, others)), batch_first=True)
    return torch.cat([vectors, matched.to(vectors)], dim=-1)


def matches(text: Tokens, other: Tokens) -> Tensor:
    """Return which tokens the other text has too, as written and in lower case: (tokens, 2)."""
    written, lower = set(other), {word.lower() for word in other}
    return torch.tensor([[float(w in written), float(w.lower() in lower)] for w in text])
