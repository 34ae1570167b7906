"""Attention between two padded texts: which tokens of one match which tokens of the other."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmokit.data.examples import Tokens

MATCHES = 2  # of a word with the other text: as it is written, and in lower case


def masked_softmax(scores: Tensor, mask: Tensor, *, dim: int = -1) -> Tensor:
    """Return weights that sum to 1 along `dim` where the mask is True, and are 0 elsewhere.

    Args:
        scores: Tensor of any shape.
        mask: Tensor of the same shape, or one that broadcasts to it.
        dim: Dimension along which the weights sum to 1.

    Returns:
        Weights in the shape of the scores; all 0 where the mask is False everywhere.
    """
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(dim) * mask


def dot_scores(first: Tensor, second: Tensor) -> Tensor:
    """Return the dot product of each pair of tokens.

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
        """Map the same shapes as `dot_scores`."""
        alone = self.first(first) + self.second(second).transpose(1, 2)
        return alone + dot_scores(first * self.product, second)  # type: ignore[no-any-return]


def align(
    first: Tensor,
    second: Tensor,
    first_mask: Tensor,
    second_mask: Tensor,
    scores: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return for each token the mean of the other text's tokens, weighted by their scores.

    Args:
        first: Vectors of the first text: (texts, first tokens, dim).
        second: Vectors of the second text: (texts, second tokens, dim).
        first_mask: True where there is a token: (texts, first tokens).
        second_mask: True where there is a token: (texts, second tokens).
        scores: Scores of each pair of tokens: (texts, first tokens, second tokens) (default: dot
            products).

    Returns:
        The means for the tokens of the first text, in the shape of `first`, and for those of the
        second, in the shape of `second`. Rows of padding are meaningless.
    """
    if scores is None:
        scores = dot_scores(first, second)
    of_second = masked_softmax(scores, second_mask.unsqueeze(1), dim=2)  # (texts, first, second)
    of_first = masked_softmax(scores, first_mask.unsqueeze(2), dim=1)  # (texts, first, second)
    return of_second @ second, of_first.transpose(1, 2) @ first


def matches(text: Tokens, other: Tokens) -> Tensor:
    """Return which tokens the other text has too, as written and in lower case: (tokens, 2)."""
    written, lower = set(other), {word.lower() for word in other}
    return torch.tensor([[float(w in written), float(w.lower() in lower)] for w in text])
