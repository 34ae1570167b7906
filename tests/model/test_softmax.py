"""The losses of the softmax against torch's own cross entropy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from elmokit.model import softmax as softmax_module
from elmokit.model.kernels import softmax_loss
from elmokit.model.softmax import Sample, Softmax, choose_softmax

WORDS, SIZE, ROWS = 50, 6, 33


@pytest.fixture(params=[1.0, 40.0], ids=["small logits", "logits that overflow exp"])
def case(request: pytest.FixtureRequest) -> tuple[Softmax, Tensor, Tensor]:
    torch.manual_seed(0)
    softmax = Softmax(WORDS, SIZE).double()
    softmax.bias.data.normal_()
    x = (torch.randn(ROWS, SIZE).double() * request.param).requires_grad_()
    return softmax, x, torch.randint(-1, WORDS, (ROWS,))


def reference(softmax: Softmax, x: Tensor, targets: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    loss = functional.cross_entropy(softmax(x), targets, ignore_index=-1, reduction="sum")
    return loss, torch.autograd.grad(loss * 2, [x, softmax.weight, softmax.bias])


@pytest.mark.parametrize("rows_per_chunk", [1, 7, 1000])
def test_the_chunked_loss_and_its_gradients_are_the_full_ones(
    case: tuple[Softmax, Tensor, Tensor], rows_per_chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    softmax, x, targets = case

    def chunks(rows: int, _: int) -> list[slice]:
        return [slice(k, k + rows_per_chunk) for k in range(0, rows, rows_per_chunk)]

    monkeypatch.setattr(softmax_module, "chunks", chunks)
    monkeypatch.setattr(softmax_loss, "chunks", chunks)
    expected, gradients = reference(softmax, x, targets)
    loss = softmax.loss(x, targets)
    torch.testing.assert_close(loss, expected)
    actual = torch.autograd.grad(loss * 2, [x, softmax.weight, softmax.bias])
    torch.testing.assert_close(actual, gradients)
    torch.testing.assert_close(softmax.losses(x, targets).sum(), expected)


def test_a_sample_of_all_words_gives_the_full_loss(case: tuple[Softmax, Tensor, Tensor]) -> None:
    softmax, x, targets = case
    expected, gradients = reference(softmax, x, targets)
    sample = Sample.draw(WORDS, WORDS, np.random.default_rng(0))
    loss = softmax.sampled_loss(x, targets, sample)
    torch.testing.assert_close(loss, expected)
    actual = torch.autograd.grad(loss * 2, [x, softmax.weight, softmax.bias])
    torch.testing.assert_close(actual, gradients)


def test_the_sampled_loss_has_the_gradients_of_its_definition() -> None:
    torch.manual_seed(0)
    softmax = Softmax(WORDS, SIZE).double()
    x = torch.randn(ROWS, SIZE).double().requires_grad_()
    targets = torch.randint(0, WORDS, (ROWS,))
    sample = Sample.draw(WORDS, 20, np.random.default_rng(0))
    logits = softmax(x)
    corrected = logits - sample.log_expected
    others = corrected[:, sample.ids].masked_fill(sample.ids == targets[:, None], -torch.inf)
    true = corrected.gather(1, targets[:, None])
    expected = (torch.logsumexp(torch.cat([true, others], 1), 1) - true[:, 0]).sum()
    leaves = [x, softmax.weight, softmax.bias]
    loss = softmax.sampled_loss(x, targets, sample)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves)
    )


def test_corrected_samples_estimate_the_normalizer_without_bias() -> None:
    """Dividing by how often a word is expected makes the sum over a sample that over all words."""
    rng = np.random.default_rng(0)
    scores = np.exp(rng.normal(size=WORDS))
    draws = []
    for seed in range(2000):
        sample = Sample.draw(WORDS, 12, np.random.default_rng(seed))
        ids = sample.ids.numpy()
        draws.append((scores[ids] / np.exp(sample.log_expected.numpy()[ids])).sum())
    assert abs(np.mean(draws) - scores.sum()) < 3 * np.std(draws) / np.sqrt(len(draws))


def test_the_gradient_of_the_sampled_loss_nears_the_full_one_as_the_sample_grows() -> None:
    torch.manual_seed(0)
    softmax = Softmax(WORDS, SIZE).double()
    x = torch.randn(ROWS, SIZE).double().requires_grad_()
    targets = torch.randint(0, WORDS, (ROWS,))
    (full,) = torch.autograd.grad(softmax.loss(x, targets), [x])
    errors = []
    for samples in (5, 15, 45):
        grads = [
            torch.autograd.grad(
                softmax.sampled_loss(
                    x, targets, Sample.draw(WORDS, samples, np.random.default_rng(seed))
                ),
                [x],
            )[0]
            for seed in range(60)
        ]
        errors.append(float((torch.stack(grads).mean(0) - full).norm() / full.norm()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.05


def test_a_sample_is_distinct_sorted_and_of_about_the_requested_size() -> None:
    sizes = []
    for seed in range(50):
        sample = Sample.draw(1000, 200, np.random.default_rng(seed))
        assert (sample.ids[1:] > sample.ids[:-1]).all()
        sizes.append(len(sample.ids))
    assert abs(np.mean(sizes) - 200) < 3
    assert sample.log_expected.exp().sum() == pytest.approx(200, abs=1)


def test_auto_samples_only_large_vocabularies() -> None:
    assert choose_softmax("auto", 19_999, 8192) == "full"
    assert choose_softmax("auto", 20_000, 8192) == "sampled"
    assert choose_softmax("auto", 30_000, 50_000) == "full"  # no fewer than all
    assert choose_softmax("full", 800_000, 8192) == "full"
    assert choose_softmax("sampled", 100, 8192) == "sampled"
