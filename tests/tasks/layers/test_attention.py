"""Attention between two padded texts, compared with loops over single tokens."""

from __future__ import annotations

import math

import pytest
import torch

from elmokit.tasks.layers.attention import TrilinearScores, align, masked_softmax


def mean_by_hand(scores: list[float], vectors: list[list[float]]) -> list[float]:
    """The vectors' mean, weighted by exp(score)."""
    weights = [math.exp(score) for score in scores]
    columns = zip(*vectors, strict=True)
    return [
        sum(w * value for w, value in zip(weights, column, strict=True)) / sum(weights)
        for column in columns
    ]


def test_weights_sum_to_one_over_what_the_mask_allows() -> None:
    scores = torch.tensor([[1.0, 2.0, 50.0], [0.5, -1.0, 3.0]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    weights = masked_softmax(scores, mask)
    whole = math.exp(0.5) + math.exp(-1) + math.exp(3)
    expected = [
        [1 / (1 + math.e), math.e / (1 + math.e), 0],
        [math.exp(0.5) / whole, math.exp(-1) / whole, math.exp(3) / whole],
    ]
    assert weights.tolist() == [pytest.approx(row) for row in expected]


def test_where_nothing_is_allowed_all_weights_and_gradients_are_zero() -> None:
    scores = torch.randn(2, 3, requires_grad=True)
    weights = masked_softmax(scores, torch.tensor([[False, False, False], [True, True, False]]))
    assert weights[0].tolist() == [0, 0, 0]
    weights.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad[0].tolist() == [0, 0, 0]
    assert scores.grad[1].isfinite().all()


def test_weights_can_sum_to_one_along_another_dimension() -> None:
    scores, mask = torch.randn(2, 3, 4), torch.tensor([[True, True, False], [True, False, False]])
    weights = masked_softmax(scores, mask.unsqueeze(2), dim=1)
    torch.testing.assert_close(weights.sum(1), torch.ones(2, 4))
    assert weights[0, 2].tolist() == weights[1, 1].tolist() == [0, 0, 0, 0]


def test_each_token_gets_the_mean_of_the_other_text_that_it_goes_with() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = [(3, 2), (1, 4), (4, 1)]  # tokens of the first text and of the second
    first, second = (torch.randn(3, 4, 5, generator=generator) for _ in range(2))
    lengths = torch.tensor(sizes).T.unsqueeze(-1)  # (2, texts, 1)
    masks = torch.arange(4) < lengths
    beside_first, beside_second = align(first, second, *masks)
    assert beside_first.shape == first.shape
    for text, (m, n) in enumerate(sizes):
        a, b = first[text, :m].tolist(), second[text, :n].tolist()
        dots = [[sum(x * y for x, y in zip(i, j, strict=True)) for j in b] for i in a]
        for i in range(m):
            expected = mean_by_hand(dots[i], b)
            assert beside_first[text, i].tolist() == pytest.approx(expected, abs=1e-5)
        for j in range(n):
            expected = mean_by_hand([row[j] for row in dots], a)
            assert beside_second[text, j].tolist() == pytest.approx(expected, abs=1e-5)


def test_trilinear_scores_are_what_the_formula_says() -> None:
    similarity = TrilinearScores(4)
    for weight in similarity.parameters():
        torch.nn.init.normal_(weight)
    u, v, w = similarity.first.weight[0], similarity.second.weight[0], similarity.product
    first, second = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    scores = similarity(first, second)
    assert scores.shape == (2, 3, 5)
    for text in range(2):
        for i in range(3):
            for j in range(5):
                a, b = first[text, i], second[text, j]
                expected = (u * a).sum() + (v * b).sum() + (w * a * b).sum() + similarity.first.bias
                assert scores[text, i, j].item() == pytest.approx(expected.item(), abs=1e-5)
