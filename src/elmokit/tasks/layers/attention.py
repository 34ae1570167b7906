"""Attention between two padded texts: which tokens of one go with which tokens of the other."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmokit.data.examples import Tokens

MATCHES = 2  # of a word with the other text: as it is written, and in lower case


def masked_softmax(scores: Tensor, mask: Tensor, *, dim: int = -1) -> Tensor:
    """Weights that sum to 1 over the places of `dim` where the mask is True, and are 0 elsewhere.

    Args:
        scores: of any shape.
        mask: of the same shape, or one that broadcasts to it.
        dim: along which the weights sum to 1.

    Returns:
        Weights in the shape of the scores; all 0 where the mask allows nothing.
    """
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(dim) * mask


def dot_scores(first: Tensor, second: Tensor) -> Tensor:
    """The dot product of each pair of tokens.

    (texts, first tokens, dim), (texts, second tokens, dim) to (texts, first tokens, second tokens)
    """
    return first @ second.transpose(1, 2)


class TrilinearScores(nn.Module):
    """A learned similarity of each pair of tokens a, b: u·a + v·b + w·(a*b)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(dim, 1)
        self.second = nn.Linear(dim, 1, bias=False)
        self.product = nn.Parameter(torch.full((dim,), dim**-0.5))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """As `dot_scores` takes and gives them."""
        alone = self.first(first) + self.second(second).transpose(1, 2)
        return alone + dot_scores(first * self.product, second)  # type: ignore[no-any-return]


def align(
    first: Tensor,
    second: Tensor,
    first_mask: Tensor,
    second_mask: Tensor,
    scores: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """For each token the mean of the other text's tokens, weighted by how well they go with it.

    Args:
        first: (texts, first tokens, dim).
        second: (texts, second tokens, dim).
        first_mask: True where there is a token: (texts, first tokens).
        second_mask: (texts, second tokens).
        scores: of each pair of tokens: (texts, first tokens, second tokens); dot products if none
            are given.

    Returns:
        What stands beside each token of the first text, in the shape of `first`, and beside each
        token of the second, in the shape of `second`. Rows of padding mean nothing.
    """
    if scores is None:
        scores = dot_scores(first, second)
    of_second = masked_softmax(scores, second_mask.unsqueeze(1), dim=2)
    of_first = masked_softmax(scores, first_mask.unsqueeze(2), dim=1)
    return of_second @ second, of_first.transpose(1, 2) @ first


def matches(text: Tokens, other: Tokens) -> Tensor:
    """Which tokens the other text has too, as written and in lower case: (tokens, MATCHES)."""
    written, lower = set(other), {word.lower() for word in other}
    return torch.tensor([[float(w in written), float(w.lower() in lower)] for w in text])
