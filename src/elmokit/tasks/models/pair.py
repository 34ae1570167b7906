"""Sentence pairs: does one follow from the other, do both say the same; after ESIM.

both texts ─► vectors + matches ─► shared BiLSTM [; ELMo] ─► aligned with each other ─► compared
─► BiLSTM ─► maximum and mean of both ─► label

Matches tell which words the other text has too, which a model hardly learns from a small data set.

Shapes: B pairs, T tokens of the longest text, D columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmokit.data.examples import Labeled
from elmokit.data.labeled import read_pairs
from elmokit.tasks.layers.attention import MATCHES, align, with_matches
from elmokit.tasks.layers.bilstm import BiLSTM, Pooling
from elmokit.tasks.layers.embedder import Inputs
from elmokit.tasks.layers.labels import LabelModel, label_scores, learn_labels, write_labels
from elmokit.tasks.settings import PairSettings
from elmokit.tasks.task import Learned, Task, reader


class PairClassifier(LabelModel):
    """Aligns two texts, compares each token with what it is aligned to, and chooses a label."""

    def __init__(self, inputs: Inputs, settings: PairSettings, learned: Learned) -> None:
        super().__init__(inputs, learned)
        hidden, dropout = settings.hidden, settings.dropout
        self.encoder = BiLSTM(inputs.dim + MATCHES, hidden, depth=settings.depth, dropout=dropout)
        compared = nn.Linear(4 * (self.encoder.dim + inputs.late_dim), hidden)
        self.compare = nn.Sequential(compared, nn.ReLU(), nn.Dropout(dropout))
        self.composition = BiLSTM(hidden, hidden, dropout=dropout)
        self.poolings = nn.ModuleList(Pooling(2 * hidden, kind) for kind in ("max", "mean"))
        self.top = self.make_top(4 * self.composition.dim, hidden, dropout)

    def forward(self, batch: Sequence[Labeled]) -> Tensor:
        firsts, seconds = ([example.texts[i] for example in batch] for i in (0, 1))
        encoded = self.inputs([*firsts, *seconds])  # 2B texts
        vectors = with_matches(encoded.vectors, [*firsts, *seconds], [*seconds, *firsts])
        states = encoded.join(self.encoder(vectors, encoded.mask))  # (2B, T, D)
        other = torch.cat(align(*states.chunk(2), *encoded.mask.chunk(2)))  # (2B, T, D)
        compared = torch.cat([states, other, states - other, states * other], dim=-1)
        composed = self.composition(self.compare(compared), encoded.mask)  # (2B, T, 2 * hidden)
        pooled = [pooling(composed, encoded.mask) for pooling in self.poolings]
        both = [half for part in pooled for half in part.chunk(2)]  # (B, 2 * hidden) each
        return self.top(torch.cat(both, dim=-1))  # type: ignore[no-any-return]


read = reader(read_pairs, "text_column", "second_column", "label_column", cut=True)
TASK = Task("pair", PairSettings, read, learn_labels, PairClassifier, label_scores, write_labels)
