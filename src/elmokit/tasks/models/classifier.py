"""Text classification: sentiment, topics, spam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.data.examples import Example, Labelled
from elmokit.data.labelled import BadLines, read_labelled
from elmokit.errors import ElmokitError
from elmokit.tasks import metrics
from elmokit.tasks.layers.bilstm import BiLSTM, Pooling
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.settings import Settings
from elmokit.tasks.task import Task
from elmokit.text.tokenize import tokenizer


class Classifier(nn.Module):
    """A BiLSTM with pooling over the tokens, or the plain mean of the vectors; then the labels."""

    def __init__(self, inputs: Inputs, settings: Settings, facts: dict[str, Any]) -> None:
        """A new one for the labels that the facts name."""
        super().__init__()
        self.inputs, self.labels = inputs, labels_of(facts)
        self.lstm: BiLSTM | None = None
        if settings.encoder == "lstm":
            self.lstm = BiLSTM(
                inputs.dim, settings.hidden, depth=settings.depth, dropout=settings.dropout
            )
        width = (self.lstm.dim if self.lstm else inputs.dim) + inputs.late_dim
        self.pooling = Pooling(width, settings.pooling if self.lstm else "mean")
        self.top = nn.Sequential(
            nn.Linear(width, settings.hidden),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden, len(self.labels)),
        )

    def forward(self, batch: Sequence[Labelled]) -> Tensor:
        """The scores of all labels: (examples, labels)."""
        encoded = self.inputs([example.texts[0] for example in batch])
        vectors = encoded.vectors
        if self.lstm is not None:
            vectors = self.lstm(vectors, encoded.mask)
        return self.top(self.pooling(encoded.join(vectors), encoded.mask))  # type: ignore[no-any-return]

    def loss(self, batch: Sequence[Labelled]) -> Tensor:
        """Cross entropy of the right labels."""
        return functional.cross_entropy(self(batch), label_ids(batch, self.labels, self.inputs))

    def predict(self, batch: Sequence[Labelled]) -> list[dict[str, Any]]:
        """The most probable label of each text, with its probability."""
        return most_probable(self(batch), self.labels)


def labels_of(facts: dict[str, Any]) -> list[str]:
    """The labels that were learned from the training data."""
    labels = facts.get("labels")
    if not isinstance(labels, list) or len(labels) < 2 or len(set(labels)) < len(labels):
        raise ElmokitError("the model's facts name no labels to choose between")
    return labels


def label_ids(batch: Sequence[Any], labels: list[str], inputs: Inputs) -> Tensor:
    """The number of each example's label: (examples,)."""
    rows = {label: row for row, label in enumerate(labels)}
    return torch.tensor([rows[example.label] for example in batch], device=inputs.device)


def most_probable(scores: Tensor, labels: list[str]) -> list[dict[str, Any]]:
    """The best label of each row of scores (examples, labels), with its probability."""
    best = scores.softmax(-1).max(-1)
    return [
        {"label": labels[row], "probability": round(probability, 6)}
        for probability, row in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def read(path: str, settings: Settings, bad: BadLines, labelled: bool) -> Iterator[Labelled]:
    """Texts of a file, with their labels where it has them; long texts are cut."""
    examples = read_labelled(
        path,
        tokenize=tokenizer(settings.tokenizer),
        text_column=settings.text_column,
        label_column=settings.label_column,
        labelled=labelled,
        bad=bad,
    )
    return (cut(example, settings.longest_text) for example in examples)


def cut(example: Labelled, longest: int) -> Labelled:
    """The same with at most so many tokens of each text; 0 for no bound."""
    return replace(example, texts=tuple(text[: longest or None] for text in example.texts))


def learn_labels(examples: Sequence[Any], settings: Settings) -> dict[str, Any]:
    """All labels of the training examples, sorted."""
    labels = sorted({example.label for example in examples if example.label is not None})
    if len(labels) < 2:
        found = f"only the label {labels[0]!r}" if labels else "no labels"
        raise ElmokitError(f"the training data has {found}: there is nothing to choose between")
    return {"labels": labels}


def label_scores(examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
    """Accuracy and macro F1."""
    gold = [example.label for example in examples]
    found = [prediction["label"] for prediction in predictions]
    return {"accuracy": metrics.accuracy(gold, found), "macro_f1": metrics.macro_f1(gold, found)}


def write_labels(examples: Sequence[Example], predictions: Sequence[Any]) -> Iterator[str]:
    """A line for each text: label, probability, text."""
    for example, found in zip(examples, predictions, strict=True):
        text = "\t".join(" ".join(tokens) for tokens in example.texts)
        yield f"{found['label']}\t{found['probability']:.4f}\t{text}\n"


TASK = Task(
    name="classifier",
    read=read,
    learn=learn_labels,
    model=Classifier,
    score=label_scores,
    write=write_labels,
)
