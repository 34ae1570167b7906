"""Training, seen from inside: order, early stopping, skipped steps, the optimizer."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from elmokit.errors import ElmokitError
from elmokit.tasks.fit import Progress, Trainer, epoch_batches, make_optimizer
from elmokit.tasks.folder import TrainedTask, mean_loss
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.settings import TrainSettings


def settings(**given: Any) -> TrainSettings:
    return TrainSettings(**given).with_word_dim(has_vectors=False)


def examples(count: int) -> list[Any]:
    return [SimpleNamespace(texts=(("w",) * (1 + n * 7 % 50),), number=n) for n in range(count)]


def test_an_epoch_reads_every_example_once_in_an_order_of_its_own() -> None:
    made, own = examples(205), settings(batch_size=10)
    first, second = (epoch_batches(made, own, epoch) for epoch in (0, 1))
    for batches in (first, second):
        assert Counter(n for batch in batches for n in batch) == Counter(range(205))
    assert first != second
    assert first == epoch_batches(made, own, 0)
    assert first != epoch_batches(made, settings(batch_size=10, seed=2), 0)


def test_texts_of_similar_length_run_together() -> None:
    made = examples(400)
    for batch in epoch_batches(made, settings(batch_size=8), 3):
        lengths = [len(made[n].texts[0]) for n in batch]
        assert max(lengths) - min(lengths) <= 2  # of 1 to 50


def test_training_ends_when_the_dev_score_has_not_risen_for_long() -> None:
    progress, own = Progress(), settings(epochs=50, patience=3)
    scores = iter([0.1, 0.5, 0.4, 0.5, 0.3, 0.9])
    kept = []
    while not progress.ended(own):
        progress.losses = [1.0, 2.0]
        if progress.end_epoch({"f1": next(scores), "other": 1.0}):
            kept.append(progress.epoch)
    assert kept == [1, 2]
    assert (progress.epoch, progress.best, progress.best_epoch) == (5, 0.5, 2)
    assert progress.factor == 0.5  # slower after two epochs without a better score
    assert progress.history[0]["loss"] == 1.5


def test_patience_begins_with_the_first_score_above_zero() -> None:
    progress, own = Progress(), settings(epochs=50, patience=2)
    for value in (0.0, 0.0, 0.0, 0.2, 0.1, 0.0):
        assert not progress.ended(own)
        progress.end_epoch({"f1": value})
    assert progress.ended(own)
    assert progress.best_epoch == 4


def test_of_equal_scores_the_one_with_the_lower_dev_loss_is_the_best() -> None:
    progress, own = Progress(), settings(epochs=50, patience=3)
    losses = iter([0.5, 0.3, 0.4, 0.3, math.nan, 0.1])
    kept = []
    while not progress.ended(own):
        if progress.end_epoch({"accuracy": 1.0}, next(losses)):
            kept.append(progress.epoch)
    assert kept == [1, 2]
    assert (progress.best, progress.best_loss, progress.best_epoch) == (1.0, 0.3, 2)
    lines = [line["dev_loss"] for line in progress.history]
    assert lines == [0.5, 0.3, 0.4, 0.3, None]
    assert progress.end_epoch({"accuracy": 1.0}, 0.1)


def test_the_dev_loss_is_the_mean_over_the_examples() -> None:
    batches: list[list[Any]] = []

    def loss(batch: list[Any]) -> torch.Tensor:
        batches.append(batch)
        return torch.tensor([float(example.number) for example in batch]).mean()

    model = SimpleNamespace(eval=lambda: None, loss=loss)
    assert mean_loss(model, examples(23), 4) == pytest.approx(11)
    assert [len(batch) for batch in batches] == [4, 4, 4, 4, 4, 3]


def test_training_ends_after_its_last_epoch() -> None:
    progress, own = Progress(), settings(epochs=2)
    for value in (0.1, 0.2):
        assert not progress.ended(own)
        progress.end_epoch({"f1": value})
    assert progress.ended(own)


class Line(nn.Module):
    """y = a x, with inputs as the tasks' models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = Inputs(settings(word_dim=0), [])
        self.a = nn.Parameter(torch.tensor(1.0))

    def loss(self, batch: list[float]) -> torch.Tensor:
        return (self.a * torch.tensor(batch) - 3).square().mean()

    def predict(self, batch: list[Any]) -> list[int]:
        return [example.number * 2 for example in batch]


def test_a_loss_that_is_not_finite_never_reaches_the_weights() -> None:
    model, own = Line(), settings(lr=0.1)
    trainer = Trainer(model, own, make_optimizer(model, own), Progress())
    trainer.learn([1.0])
    after = model.a.item()
    assert after != 1.0
    trainer.learn([float("nan")])
    assert model.a.item() == after
    assert trainer.progress.dropped == 1
    for _ in range(23):
        trainer.learn([float("inf")])
    with pytest.raises(ElmokitError, match="not finite for 25 steps"):
        trainer.learn([float("inf")])
    assert model.a.item() == after


def test_predictions_come_back_in_the_order_of_the_examples() -> None:
    made = examples(23)
    trained: Any = SimpleNamespace(model=Line(), settings=settings(batch_size=4))
    assert TrainedTask.predict(trained, made) == [2 * n for n in range(23)]


def test_a_bilm_that_is_trained_along_has_its_own_learning_rate() -> None:
    import elmokit

    own = settings(tune_elmo=True, lr=0.01, elmo_lr=0.0002)
    model = Line()
    model.inputs = Inputs(own, [], elmo=elmokit.load())
    groups = make_optimizer(model, own).param_groups
    assert [group["initial"] for group in groups] == [0.01, 0.0002]
    inside = {id(p) for p in model.inputs.elmo.bilm.parameters()}  # type: ignore[union-attr]
    assert {id(p) for p in groups[1]["params"]} == inside
    assert len(groups[0]["params"]) + len(inside) == len(list(model.parameters()))
