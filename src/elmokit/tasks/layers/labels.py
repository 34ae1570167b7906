"""What the models that choose a label share: loss, prediction, scores and output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.data.examples import Example
from elmokit.errors import ElmokitError
from elmokit.tasks import metrics
from elmokit.tasks.layers.embedder import Inputs


class LabelModel(nn.Module):
    """A model whose `forward` scores all labels of each example: (examples, labels)."""

    def __init__(self, inputs: Inputs, learned: dict[str, Any]) -> None:
        super().__init__()
        labels = learned.get("labels")
        if not isinstance(labels, list) or len(labels) < 2 or len(set(labels)) < len(labels):
            raise ElmokitError("the model has no labels to choose between")
        self.inputs, self.labels = inputs, labels
        self.indices = {label: index for index, label in enumerate(labels)}

    def make_top(self, columns: int, hidden: int, dropout: float) -> nn.Sequential:
        """Return two layers that score all labels: (examples, columns) to (examples, labels)."""
        first, last = nn.Linear(columns, hidden), nn.Linear(hidden, len(self.labels))
        return nn.Sequential(first, nn.ReLU(), nn.Dropout(dropout), last)

    def loss(self, batch: Sequence[Any]) -> Tensor:
        gold = [self.indices[example.label] for example in batch]
        return functional.cross_entropy(self(batch), torch.tensor(gold, device=self.inputs.device))

    def predict(self, batch: Sequence[Any]) -> list[dict[str, Any]]:
        best = self(batch).softmax(-1).max(-1)
        return [
            {"label": self.labels[index], "probability": round(probability, 6)}
            for probability, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]


def learn_labels(examples: Sequence[Any], settings: Any) -> dict[str, Any]:
    """Return all labels of the training examples, sorted."""
    labels = {example.label for example in examples if example.label is not None}
    return {"labels": check_choices(labels, "label")}


def check_choices(names: set[str], what: str) -> list[str]:
    """Return the sorted labels or tags of the training data; raise if there are fewer than two."""
    if len(names) < 2:
        there = f"only the {what} {min(names)!r}" if names else f"no {what}s"
        raise ElmokitError(f"the training data has {there}: there is nothing to choose between")
    return sorted(names)


def gold_and_predicted(
    examples: Sequence[Any], predictions: Sequence[Any]
) -> tuple[list[str], list[str]]:
    """Return the right labels and the predicted ones."""
    return [example.label for example in examples], [one["label"] for one in predictions]


def label_scores(examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
    """Return accuracy and macro F1."""
    report = metrics.classification(*gold_and_predicted(examples, predictions))
    return {"accuracy": report.micro.f1, "macro_f1": report.macro.f1}


def write_labels(examples: Sequence[Example], predictions: Sequence[Any]) -> Iterator[str]:
    """Yield a line for each example: label, probability, text."""
    for example, prediction in zip(examples, predictions, strict=True):
        text = "\t".join(" ".join(tokens) for tokens in example.texts)
        yield f"{prediction['label']}\t{prediction['probability']:.4f}\t{text}\n"
