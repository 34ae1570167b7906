"""Coreference in the form of GAP: which of two names does a pronoun refer to, or neither.

sentences of a passage ─► vectors ─► joined again ─► BiLSTM [; ELMo] ─► pronoun with each name,
and features of both ─► A, B or NEITHER

A biLM was trained on single sentences, so it gets them one by one; the task's own BiLSTM reads the
whole passage, which is never cut.

Shapes: B passages, T tokens of the longest, D columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from elmokit.data.examples import Pronoun, Span, Tokens
from elmokit.data.labeled import Reading
from elmokit.data.marked import read_gap
from elmokit.errors import ElmokitError
from elmokit.io.lines import FilePath
from elmokit.tasks import metrics
from elmokit.tasks.layers.bilstm import BiLSTM, Pooling
from elmokit.tasks.layers.embedder import Encoded, Inputs
from elmokit.tasks.layers.labels import LabelModel, gold_and_predicted, learn_labels
from elmokit.tasks.layers.spans import BUCKETS, bucket, covered, distance
from elmokit.tasks.settings import CoreferenceSettings
from elmokit.tasks.task import Learned, Task, reader
from elmokit.text.tokenize import split_sentences

LABELS = ["A", "B", "NEITHER"]
FEATURE_DIM = 10  # size of the vector of a feature of a name
NUM_VALUES = (BUCKETS, 7, 4, 4, 2, 2)  # of each feature that `name_features` returns


class PronounResolver(LabelModel):
    """Score each name for a pronoun, by the same weights, and that it refers to neither."""

    def __init__(self, inputs: Inputs, settings: CoreferenceSettings, learned: Learned) -> None:
        if learned.get("labels") != LABELS:
            raise ElmokitError(f"the model's labels must be {', '.join(LABELS)}")
        super().__init__(inputs, learned)
        hidden = settings.hidden
        self.lstm = BiLSTM(inputs.dim, hidden, depth=settings.depth, dropout=settings.dropout)
        width = self.lstm.dim + inputs.late_dim
        self.mean = Pooling(width, "mean")
        self.pronoun = nn.Linear(width, hidden)
        self.name = nn.Linear(3 * width, hidden)
        self.features = nn.Embedding(sum(NUM_VALUES), FEATURE_DIM)
        nn.init.uniform_(self.features.weight, -0.1, 0.1)
        self.pair = nn.Linear(4 * hidden + len(NUM_VALUES) * FEATURE_DIM, hidden)
        self.dropout = nn.Dropout(settings.dropout)
        self.refers = nn.Linear(hidden, 1)
        self.neither = nn.Linear(3 * hidden, 1)

    def forward(self, batch: Sequence[Pronoun]) -> Tensor:
        """Score A, B and NEITHER: (B, 3)."""
        encoded = read_passages(self.inputs, batch)
        states = encoded.join(self.lstm(encoded.vectors, encoded.mask))  # (B, T, D)
        rows = torch.arange(len(batch))
        at_pronoun = states[rows, [example.pronoun for example in batch]]  # (B, D)
        pronoun = self.dropout(self.pronoun(at_pronoun).relu())  # (B, hidden)
        spans = [[example.first for example in batch], [example.second for example in batch]]
        names = torch.stack([self._names(states, name) for name in spans], dim=1)
        pairs = self._pairs(pronoun.unsqueeze(1).expand_as(names), names, batch)  # (B, 2, hidden)
        both = torch.cat([pronoun, pairs.amax(1), pairs.mean(1)], dim=-1)  # (B, 3 * hidden)
        return torch.cat([self.refers(pairs).squeeze(-1), self.neither(both)], dim=-1)

    def _names(self, states: Tensor, spans: Sequence[Span]) -> Tensor:
        """Encode a name of each passage by its first and last token and the mean: (B, hidden)."""
        rows, inside = torch.arange(len(spans)), covered(spans, states.shape[1]).to(states.device)
        first, last = states[rows, [s[0] for s in spans]], states[rows, [s[1] - 1 for s in spans]]
        parts = [first, last, self.mean(states, inside)]  # (B, D) each
        return self.dropout(self.name(torch.cat(parts, dim=-1)).relu())  # type: ignore[no-any-return]

    def _pairs(self, pronouns: Tensor, names: Tensor, batch: Sequence[Pronoun]) -> Tensor:
        """Combine the pronoun, (B, 2, hidden), with each name, (B, 2, hidden): (B, 2, hidden)."""
        starts = torch.tensor([0, *accumulate(NUM_VALUES[:-1])])
        values = starts + torch.tensor([name_features(e) for e in batch])  # (B, 2, features)
        features = self.dropout(self.features(values.to(names.device)).flatten(2))
        parts = [pronouns, names, pronouns * names, (pronouns - names).abs(), features]
        return self.dropout(self.pair(torch.cat(parts, dim=-1)).relu())  # type: ignore[no-any-return]


def read_passages(inputs: Inputs, batch: Sequence[Pronoun]) -> Encoded:
    """Return the vectors of passages, whose sentences are embedded one by one."""
    encoded = inputs([sentence for example in batch for sentence in example.texts])
    lengths = [sum(map(len, example.texts)) for example in batch]

    def joined(vectors: Tensor) -> Tensor:  # (sentences, tokens, columns) to (B, T, columns)
        return pad_sequence(list(torch.split(vectors[encoded.mask], lengths)), batch_first=True)

    late = None if encoded.late is None else joined(encoded.late)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)  # (B, T)
    return Encoded(joined(encoded.vectors), late, mask.to(encoded.mask.device))


def name_features(example: Pronoun) -> list[list[int]]:
    """Describe both names by numbers below NUM_VALUES: (2, features).

    The features are the distance to the pronoun, in tokens and in sentences; the token of its
    sentence at which the name begins; how often its words occur elsewhere in the passage; whether
    it is nearer to the pronoun than the other name; and whether it precedes the other name.
    """
    tokens = [*chain(*example.texts)]
    starts = list(accumulate(map(len, example.texts[:-1]), initial=0))
    described = []
    for name, other in ((example.first, example.second), (example.second, example.first)):
        tokens_on = distance(example.pronoun, name)
        sentence, of_pronoun = (bisect_right(starts, i) - 1 for i in (name[0], example.pronoun))
        words = {word for word in tokens[name[0] : name[1]] if word[:1].isupper()}
        elsewhere = sum(word in words for word in tokens[: name[0]] + tokens[name[1] :])
        described.append(
            [
                bucket(tokens_on),
                3 + max(-3, min(3, of_pronoun - sentence)),
                min(3, name[0] - starts[sentence]),
                min(3, elsewhere),
                int(abs(tokens_on) < abs(distance(example.pronoun, other))),
                int(name < other),
            ]
        )
    return described


def cut_sentences(tokens: Tokens) -> tuple[Tokens, ...]:
    """Split a tokenized text into sentences that together have all of its tokens.

    >>> cut_sentences(("Dr.", "Ito", "left", ".", "She", "ran", "."))
    (('Dr.', 'Ito', 'left', '.'), ('She', 'ran', '.'))
    """
    # Sentences end at characters; only where a token ends too can the text be split.
    ends = {length: i for i, length in enumerate(accumulate(map(len, tokens)), start=1)}
    sizes = (len(s.replace(" ", "")) for s in split_sentences(" ".join(tokens)))
    cuts = [0, *(ends[length] for length in accumulate(sizes) if length in ends)]
    return tuple(tokens[i:j] for i, j in pairwise(cuts))


def read_sentences(path: FilePath, reading: Reading) -> Iterator[Pronoun]:
    """Read the passages of a file as sentences; positions count the tokens of all of them."""
    for example in read_gap(path, reading):
        yield replace(example, texts=cut_sentences(example.texts[0]))


def learn(examples: Sequence[Pronoun], settings: CoreferenceSettings) -> Learned:
    """Return the labels, which are always the same; raise if fewer than two occur."""
    learn_labels(examples, settings)
    return {"labels": LABELS}


def score(examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
    """Return GAP's F1 of all, of masculine and of feminine pronouns, and accuracy."""
    pronouns = [[*chain(*example.texts)][example.pronoun] for example in examples]
    return metrics.gap_scores(*gold_and_predicted(examples, predictions), pronouns)


def write(examples: Sequence[Pronoun], predictions: Sequence[Any]) -> Iterator[str]:
    """Yield what GAP's own scorer reads: identifier, and TRUE or FALSE for A and for B."""
    for example, prediction in zip(examples, predictions, strict=True):
        answers = "\t".join(str(prediction["label"] == name).upper() for name in "AB")
        yield f"{example.identifier}\t{answers}\n"


read = reader(read_sentences)
TASK = Task("coreference", CoreferenceSettings, read, learn, PronounResolver, score, write)
