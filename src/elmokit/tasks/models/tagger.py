"""Sequence tagging: names, parts of speech, chunks, semantic roles of a marked predicate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.data.columns import read_tagged
from elmokit.data.examples import Tagged
from elmokit.data.schemes import PLAIN, scheme_of
from elmokit.tasks import metrics
from elmokit.tasks.layers.bilstm import BiLSTM
from elmokit.tasks.layers.crf import CRF
from elmokit.tasks.layers.embedder import Encoded, Inputs
from elmokit.tasks.layers.labels import check_choices
from elmokit.tasks.settings import TaggerSettings
from elmokit.tasks.task import Learned, Task, reader

PREDICATE_DIM = 10  # size of the vector that marks the predicate


class Tagger(nn.Module):
    """A BiLSTM and a CRF, or a separate choice for each token."""

    def __init__(self, inputs: Inputs, settings: TaggerSettings, learned: Learned) -> None:
        super().__init__()
        self.inputs, self.tags = inputs, learned["tags"]
        self.indices = {tag: index for index, tag in enumerate(self.tags)}
        self.mark = nn.Embedding(2, PREDICATE_DIM) if learned["predicates"] else None
        columns = inputs.dim + (PREDICATE_DIM if self.mark else 0)
        hidden, depth, dropout = settings.hidden, settings.depth, settings.dropout
        self.lstm = BiLSTM(columns, hidden, depth=depth, dropout=dropout)
        self.emissions = nn.Linear(self.lstm.dim + inputs.late_dim, len(self.tags))
        self.crf = CRF(self.tags) if settings.crf else None

    def forward(self, batch: Sequence[Tagged]) -> tuple[Tensor, Tensor]:
        """Score all tags, (texts, tokens, tags); return the scores and the mask (texts, tokens)."""
        encoded = self.inputs([example.texts[0] for example in batch])
        outputs = self.lstm(self._marked(encoded, batch), encoded.mask)
        return self.emissions(encoded.join(outputs)), encoded.mask

    def _marked(self, encoded: Encoded, batch: Sequence[Tagged]) -> Tensor:
        if self.mark is None:
            return encoded.vectors
        marks = torch.zeros_like(encoded.mask, dtype=torch.long)  # (texts, tokens)
        for row, example in enumerate(batch):
            if example.predicate is not None:
                marks[row, example.predicate] = 1
        return torch.cat([encoded.vectors, self.mark(marks)], dim=-1)

    def loss(self, batch: Sequence[Tagged]) -> Tensor:
        emissions, mask = self(batch)
        gold = torch.zeros(mask.shape, dtype=torch.long)  # (texts, tokens)
        for row, example in enumerate(batch):
            assert example.tags is not None
            gold[row, : len(example.tags)] = torch.tensor([self.indices[t] for t in example.tags])
        gold = gold.to(emissions.device)
        if self.crf is None:
            return functional.cross_entropy(emissions[mask], gold[mask])
        losses = self.crf.negative_log_likelihood(emissions, gold, mask)
        return losses.sum() / mask.sum()  # type: ignore[no-any-return]

    def predict(self, batch: Sequence[Tagged]) -> list[list[str]]:
        emissions, mask = self(batch)
        if self.crf is None:
            best, lengths = emissions.argmax(-1).tolist(), mask.sum(1).tolist()
            indices = [row[:length] for row, length in zip(best, lengths, strict=True)]
        else:
            indices = self.crf.decode(emissions, mask)
        return [[self.tags[index] for index in row] for row in indices]


read = reader(read_tagged, "text_column", "label_column", "predicate_column", "scheme")


def learn(examples: Sequence[Tagged], settings: TaggerSettings) -> Learned:
    """Return all tags of the training examples, sorted, and whether predicates are marked."""
    tags = {tag for example in examples for tag in example.tags or ()}
    predicates = any(example.predicate is not None for example in examples)
    return {"tags": check_choices(tags, "tag"), "predicates": predicates}


def score(examples: Sequence[Tagged], predictions: Sequence[list[str]]) -> dict[str, float]:
    """Return F1, precision and recall of spans, and accuracy; only accuracy for plain tags."""
    gold = [list(example.tags or ()) for example in examples]
    accuracy = metrics.tag_accuracy(gold, predictions)
    if scheme_of(gold) == PLAIN:
        return {"accuracy": accuracy}
    spans = metrics.span_f1(gold, predictions).micro
    scores = {"f1": spans.f1, "precision": spans.precision, "recall": spans.recall}
    return {**scores, "accuracy": accuracy}


def write(examples: Sequence[Tagged], predictions: Sequence[list[str]]) -> Iterator[str]:
    """Yield columns of token and tag, with an empty line after each sentence."""
    for example, tags in zip(examples, predictions, strict=True):
        rows = zip(example.texts[0], tags, strict=True)
        yield "".join(f"{token}\t{tag}\n" for token, tag in rows) + "\n"


TASK = Task("tagger", TaggerSettings, read, learn, Tagger, score, write)
