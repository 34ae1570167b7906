"""Relation extraction: how two marked entities of a sentence are related, as in SemEval-2010.

sentence ─► vectors + distance to both entities ─► BiLSTM [; ELMo] ─► both entities, with their
words, and the sentence pooled ─► relation with its direction

Texts are never cut, because an entity might be in what is left out.

Shapes: B sentences, T tokens of the longest, D columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.data.examples import Related
from elmokit.data.marked import read_relations
from elmokit.tasks import metrics
from elmokit.tasks.layers.attention import masked_softmax
from elmokit.tasks.layers.bilstm import BiLSTM, Pooling
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.layers.labels import LabelModel, gold_and_predicted, learn_labels
from elmokit.tasks.layers.spans import BUCKETS, buckets, covered
from elmokit.tasks.settings import RelationSettings
from elmokit.tasks.task import Learned, Task, reader

DISTANCE_DIM = 20  # size of the vector of a token's distance to an entity


class EntityAttention(nn.Module):
    """The mean of the tokens, weighted by their relevance to the two entities."""

    def __init__(self, dim: int, entities: int, hidden: int) -> None:
        """Take tokens of size `dim` and both entities together of size `entities`."""
        super().__init__()
        self.token = nn.Linear(dim, hidden)
        self.entities = nn.Linear(entities, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, states: Tensor, mask: Tensor, entities: Tensor) -> Tensor:
        """Map states (B, T, D), mask (B, T) and both entities (B, entities) to (B, D)."""
        queries = self.token(states) + self.entities(entities).unsqueeze(1)  # (B, T, hidden)
        weights = masked_softmax(self.score(queries.tanh()).squeeze(-1), mask)  # (B, T)
        return (weights.unsqueeze(1) @ states).squeeze(1)


class RelationClassifier(LabelModel):
    """A BiLSTM that knows where the entities are; then the relations with their directions."""

    def __init__(self, inputs: Inputs, settings: RelationSettings, learned: Learned) -> None:
        super().__init__(inputs, learned)
        hidden, dropout = settings.hidden, settings.dropout
        self.distances = nn.ModuleList(nn.Embedding(BUCKETS, DISTANCE_DIM) for _ in range(2))
        for weight in self.distances.parameters():  # small beside the word vectors at first
            nn.init.uniform_(weight, -0.1, 0.1)
        columns = inputs.dim + 2 * DISTANCE_DIM
        self.lstm = BiLSTM(columns, hidden, depth=settings.depth, dropout=dropout)
        width = self.lstm.dim + inputs.late_dim
        self.pooling: EntityAttention | Pooling = Pooling(width, settings.pooling)
        if settings.pooling == "attention":
            self.pooling = EntityAttention(width, 2 * (inputs.dim + width), hidden)
        self.entity = Pooling(inputs.dim + width, "mean")
        self.top = self.make_top(2 * inputs.dim + 3 * width, hidden, dropout)

    def forward(self, batch: Sequence[Related]) -> Tensor:
        encoded = self.inputs([example.texts[0] for example in batch])
        mask, tokens = encoded.mask, encoded.mask.shape[1]
        spans = [[example.first for example in batch], [example.second for example in batch]]
        distances = [
            table(buckets(entity, tokens).to(mask.device))  # (B, T, DISTANCE_DIM)
            for table, entity in zip(self.distances, spans, strict=True)
        ]
        vectors = torch.cat([encoded.vectors, *distances], dim=-1)
        states = encoded.join(self.lstm(vectors, mask))  # (B, T, D)
        both = torch.cat([encoded.vectors, states], dim=-1)  # entities: also the words alone
        entities = torch.cat(  # (B, 2 * (inputs + D))
            [self.entity(both, covered(entity, tokens).to(mask.device)) for entity in spans], dim=-1
        )
        if isinstance(self.pooling, EntityAttention):
            pooled = self.pooling(states, mask, entities)  # (B, D)
        else:
            pooled = self.pooling(states, mask)
        return self.top(torch.cat([entities, pooled], dim=-1))  # type: ignore[no-any-return]


def score(examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
    """Return the official macro F1, which ignores Other and counts the direction, and accuracy."""
    labels = gold_and_predicted(examples, predictions)
    macro = metrics.relation_f1(*labels).macro
    return {"macro_f1": macro.f1, "accuracy": metrics.accuracy(*labels)}


def write(examples: Sequence[Related], predictions: Sequence[Any]) -> Iterator[str]:
    """Yield what the official scorer reads: a line with number and relation for each sentence."""
    for example, prediction in zip(examples, predictions, strict=True):
        yield f"{example.identifier}\t{prediction['label']}\n"


read = reader(read_relations)
TASK = Task("relation", RelationSettings, read, learn_labels, RelationClassifier, score, write)
