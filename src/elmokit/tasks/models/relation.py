"""Relation extraction: how two marked entities of a sentence are related, as in SemEval-2010.

sentence ─► vectors + place of both entities ─► BiLSTM [; ELMo] ─► both entities, with their words,
and the sentence pooled ─► relation with its direction

Texts are never cut: an entity might be in what is left out.

Shapes: B sentences, T tokens of the longest, D columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.data.examples import Related
from elmokit.data.labelled import BadLines
from elmokit.data.marked import read_relations
from elmokit.tasks import metrics
from elmokit.tasks.layers.attention import masked_softmax
from elmokit.tasks.layers.bilstm import BiLSTM, Pooling
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.layers.spans import BUCKETS, buckets, check_span, covered
from elmokit.tasks.models.classifier import label_ids, labels_of, learn_labels, most_probable
from elmokit.tasks.settings import Settings
from elmokit.tasks.task import Task
from elmokit.text.tokenize import tokenizer

PLACE = 20  # columns that say where a token stands from an entity


class EntityAttention(nn.Module):
    """The mean of the tokens, weighted by what each tells of the two entities."""

    def __init__(self, dim: int, entities: int, hidden: int) -> None:
        """For tokens of `dim` columns and both entities together of `entities` columns."""
        super().__init__()
        self.token = nn.Linear(dim, hidden)
        self.entities = nn.Linear(entities, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, states: Tensor, mask: Tensor, entities: Tensor) -> Tensor:
        """States (B, T, D), mask (B, T) and both entities (B, entities) to (B, D)."""
        asked = self.token(states) + self.entities(entities).unsqueeze(1)  # (B, T, hidden)
        weights = masked_softmax(self.score(asked.tanh()).squeeze(-1), mask)  # (B, T)
        return (weights.unsqueeze(1) @ states).squeeze(1)


class RelationClassifier(nn.Module):
    """A BiLSTM that knows where the entities are; then the relations with their directions."""

    def __init__(self, inputs: Inputs, settings: Settings, facts: dict[str, Any]) -> None:
        """A new one for the relations that the facts name."""
        super().__init__()
        self.inputs, self.labels = inputs, labels_of(facts)
        hidden, dropout = settings.hidden, settings.dropout
        self.places = nn.ModuleList(nn.Embedding(BUCKETS, PLACE) for _ in range(2))
        for weight in self.places.parameters():  # not to drown the words before it is learned
            nn.init.uniform_(weight, -0.1, 0.1)
        self.lstm = BiLSTM(inputs.dim + 2 * PLACE, hidden, depth=settings.depth, dropout=dropout)
        width = self.lstm.dim + inputs.late_dim
        self.pooling: EntityAttention | Pooling = Pooling(width, settings.pooling)
        if settings.pooling == "attention":
            self.pooling = EntityAttention(width, 2 * (inputs.dim + width), hidden)
        self.entity = Pooling(inputs.dim + width, "mean")
        self.top = nn.Sequential(
            nn.Linear(2 * inputs.dim + 3 * width, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, len(self.labels)),
        )

    def forward(self, batch: Sequence[Related]) -> Tensor:
        """The scores of all relations: (B, labels)."""
        encoded = self.inputs([example.texts[0] for example in batch])
        mask, tokens = encoded.mask, encoded.mask.shape[1]
        spans = [[example.first for example in batch], [example.second for example in batch]]
        places = [
            table(buckets(some, tokens).to(mask.device))  # (B, T, PLACE)
            for table, some in zip(self.places, spans, strict=True)
        ]
        vectors = torch.cat([encoded.vectors, *places], dim=-1)
        states = encoded.join(self.lstm(vectors, mask))  # (B, T, D)
        known = torch.cat([encoded.vectors, states], dim=-1)  # of entities, also the words alone
        entities = torch.cat(  # (B, 2 * (inputs + D))
            [self.entity(known, covered(some, tokens).to(mask.device)) for some in spans], dim=-1
        )
        if isinstance(self.pooling, EntityAttention):
            pooled = self.pooling(states, mask, entities)  # (B, D)
        else:
            pooled = self.pooling(states, mask)
        return self.top(torch.cat([entities, pooled], dim=-1))  # type: ignore[no-any-return]

    def loss(self, batch: Sequence[Related]) -> Tensor:
        """Cross entropy of the right relations."""
        return functional.cross_entropy(self(batch), label_ids(batch, self.labels, self.inputs))

    def predict(self, batch: Sequence[Related]) -> list[dict[str, Any]]:
        """The most probable relation of each sentence, with its probability."""
        return most_probable(self(batch), self.labels)


def read(path: str, settings: Settings, bad: BadLines, labelled: bool) -> Iterator[Related]:
    """Sentences of a file with their two entities, and their relation where it has one."""
    split = tokenizer(settings.tokenizer)
    return read_relations(path, tokenize=split, labelled=labelled, bad=bad)


def learn(examples: Sequence[Related], settings: Settings) -> dict[str, Any]:
    """All relations of the training examples, sorted."""
    for example in examples:
        for name, span in (("e1", example.first), ("e2", example.second)):
            check_span(span, len(example.texts[0]), name, example.where)
    return learn_labels(examples, settings)


def score(examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
    """The official macro F1, which leaves out Other and counts the direction; and accuracy."""
    gold = [example.label for example in examples]
    found = [prediction["label"] for prediction in predictions]
    return {
        "macro_f1": metrics.relation_f1(gold, found).macro.f1,
        "accuracy": metrics.accuracy(gold, found),
    }


def write(examples: Sequence[Related], predictions: Sequence[Any]) -> Iterator[str]:
    """What the official scorer reads: a line with number and relation for each sentence."""
    for example, found in zip(examples, predictions, strict=True):
        yield f"{example.identifier}\t{found['label']}\n"


TASK = Task(
    name="relation",
    read=read,
    learn=learn,
    model=RelationClassifier,
    score=score,
    write=write,
    defaults={"dropout": 0.3, "batch_size": 16},
)
