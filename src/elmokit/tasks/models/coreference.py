"""Coreference in the form of GAP: which of two names does a pronoun mean, or neither.

sentences of a passage ─► vectors ─► joined again ─► BiLSTM [; ELMo] ─► pronoun with each name,
and facts about both ─► A, B or NEITHER

A biLM has learned from single sentences, so it gets them one by one; the task's own BiLSTM reads
the whole passage. The names are treated alike: if they change places, so do their scores. There
is no need to show a model each passage twice for that. Passages are never cut.

Shapes: B passages, T tokens of the longest, D columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from elmokit.data.examples import Pronoun, Span, Tokens
from elmokit.data.labelled import BadLines
from elmokit.data.marked import read_gap
from elmokit.errors import ElmokitError
from elmokit.tasks import metrics
from elmokit.tasks.layers.bilstm import BiLSTM, Pooling
from elmokit.tasks.layers.embedder import Encoded, Inputs
from elmokit.tasks.layers.spans import BUCKETS, bucket, check_span, covered, distance
from elmokit.tasks.models.classifier import label_ids, learn_labels, most_probable
from elmokit.tasks.settings import Settings
from elmokit.tasks.task import Task
from elmokit.text.tokenize import split_sentences, tokenizer

LABELS = ["A", "B", "NEITHER"]
FACT = 10  # columns of a fact about a name
# How many values the facts of `facts_of` can have.
VALUES = (BUCKETS, 7, 4, 4, 2, 2)


class PronounResolver(nn.Module):
    """Scores each name for a pronoun, by the same weights, and that it means neither."""

    def __init__(self, inputs: Inputs, settings: Settings, facts: dict[str, Any]) -> None:
        """A new one; its labels are always the same."""
        super().__init__()
        if facts.get("labels") != LABELS:
            raise ElmokitError(f"the model's labels must be {', '.join(LABELS)}")
        self.inputs, self.labels = inputs, LABELS
        hidden = settings.hidden
        self.lstm = BiLSTM(inputs.dim, hidden, depth=settings.depth, dropout=settings.dropout)
        width = self.lstm.dim + inputs.late_dim
        self.mean = Pooling(width, "mean")
        self.pronoun = nn.Linear(width, hidden)
        self.name = nn.Linear(3 * width, hidden)
        self.facts = nn.Embedding(sum(VALUES), FACT)
        nn.init.uniform_(self.facts.weight, -0.1, 0.1)
        self.pair = nn.Linear(4 * hidden + len(VALUES) * FACT, hidden)
        self.dropout = nn.Dropout(settings.dropout)
        self.means = nn.Linear(hidden, 1)
        self.neither = nn.Linear(3 * hidden, 1)

    def forward(self, batch: Sequence[Pronoun]) -> Tensor:
        """The scores of A, B and NEITHER: (B, 3)."""
        encoded = read_passages(self.inputs, batch)
        states = encoded.join(self.lstm(encoded.vectors, encoded.mask))  # (B, T, D)
        at_pronoun = states[_rows(batch), [example.pronoun for example in batch]]  # (B, D)
        pronoun = self.dropout(self.pronoun(at_pronoun).relu())  # (B, hidden)
        spans = [[example.first for example in batch], [example.second for example in batch]]
        names = torch.stack([self._names(states, some) for some in spans], dim=1)
        pairs = self._pairs(pronoun.unsqueeze(1).expand_as(names), names, batch)  # (B, 2, hidden)
        both = torch.cat([pronoun, pairs.amax(1), pairs.mean(1)], dim=-1)  # (B, 3 * hidden)
        return torch.cat([self.means(pairs).squeeze(-1), self.neither(both)], dim=-1)

    def _names(self, states: Tensor, spans: Sequence[Span]) -> Tensor:
        """A name of each passage, by its first and last token and the mean: (B, hidden)."""
        rows, inside = _rows(spans), covered(spans, states.shape[1]).to(states.device)
        first, last = states[rows, [s[0] for s in spans]], states[rows, [s[1] - 1 for s in spans]]
        parts = [first, last, self.mean(states, inside)]  # (B, D) each
        return self.dropout(self.name(torch.cat(parts, dim=-1)).relu())  # type: ignore[no-any-return]

    def _pairs(self, pronouns: Tensor, names: Tensor, batch: Sequence[Pronoun]) -> Tensor:
        """The pronoun, (B, 2, hidden), with each name, (B, 2, hidden): (B, 2, hidden)."""
        starts = torch.tensor([0, *accumulate(VALUES[:-1])])
        values = starts + torch.tensor([facts_of(example) for example in batch])  # (B, 2, facts)
        facts = self.dropout(self.facts(values.to(names.device)).flatten(2))
        parts = [pronouns, names, pronouns * names, (pronouns - names).abs(), facts]
        return self.dropout(self.pair(torch.cat(parts, dim=-1)).relu())  # type: ignore[no-any-return]

    def loss(self, batch: Sequence[Pronoun]) -> Tensor:
        """Cross entropy of the right answers."""
        return functional.cross_entropy(self(batch), label_ids(batch, self.labels, self.inputs))

    def predict(self, batch: Sequence[Pronoun]) -> list[dict[str, Any]]:
        """The most probable of A, B and NEITHER for each pronoun, with its probability."""
        return most_probable(self(batch), self.labels)


def _rows(batch: Sequence[Any]) -> list[int]:
    return list(range(len(batch)))


def read_passages(inputs: Inputs, batch: Sequence[Pronoun]) -> Encoded:
    """The vectors of passages, whose sentences get theirs one by one."""
    encoded = inputs([sentence for example in batch for sentence in example.texts])
    lengths = [sum(map(len, example.texts)) for example in batch]

    def joined(vectors: Tensor) -> Tensor:  # (sentences, tokens, columns) to (B, T, columns)
        return pad_sequence(list(torch.split(vectors[encoded.mask], lengths)), batch_first=True)

    late = None if encoded.late is None else joined(encoded.late)
    places = torch.arange(max(lengths), device=encoded.mask.device)
    mask = places < torch.tensor(lengths, device=encoded.mask.device).unsqueeze(1)  # (B, T)
    return Encoded(joined(encoded.vectors), late, mask)


def facts_of(example: Pronoun) -> list[list[int]]:
    """Numbers below VALUES that describe both names: (2, facts).

    How far the pronoun is, in tokens and in sentences; at which token of its sentence the name
    begins; how often words of it stand elsewhere in the passage; whether it is nearer to the
    pronoun than the other name, and whether it comes before that.
    """
    tokens = [token for sentence in example.texts for token in sentence]
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
    """The sentences of a tokenized text, together all of its tokens.

    >>> cut_sentences(("Dr.", "Ito", "left", ".", "She", "ran", "."))
    (('Dr.', 'Ito', 'left', '.'), ('She', 'ran', '.'))
    """
    # Sentences end at characters. Only where these are also the end of a token can a cut be.
    ends = {length: i for i, length in enumerate(accumulate(map(len, tokens)), start=1)}
    sizes = (len(s.replace(" ", "")) for s in split_sentences(" ".join(tokens)))
    cuts = [0, *(ends[length] for length in accumulate(sizes) if length in ends)]
    return tuple(tokens[i:j] for i, j in pairwise(cuts))


def read(path: str, settings: Settings, bad: BadLines, labelled: bool) -> Iterator[Pronoun]:
    """Passages of a file, cut into sentences; places of tokens are counted over all of them."""
    split = tokenizer(settings.tokenizer)
    for example in read_gap(path, tokenize=split, labelled=labelled, bad=bad):
        yield replace(example, texts=cut_sentences(example.texts[0]))


def learn(examples: Sequence[Pronoun], settings: Settings) -> dict[str, Any]:
    """The labels, which are always the same; at least two must be there."""
    for example in examples:
        tokens = sum(map(len, example.texts))
        spans = {"A": example.first, "B": example.second}
        spans["the pronoun"] = (example.pronoun, example.pronoun + 1)
        for what, span in spans.items():
            check_span(span, tokens, what, example.where)
        if example.label not in LABELS:
            raise ElmokitError(f"{example.where}: the label must be A, B or NEITHER")
    learn_labels(examples, settings)
    return {"labels": LABELS}


def score(examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
    """F1 as GAP has it, of all, of masculine and of feminine pronouns; and accuracy."""
    tokens = [[token for sentence in e.texts for token in sentence] for e in examples]
    pronouns = [text[e.pronoun] for text, e in zip(tokens, examples, strict=True)]
    gold = [example.label for example in examples]
    scores = metrics.gap_scores(gold, [found["label"] for found in predictions], pronouns)
    return {"f1": scores.pop("f1"), **scores}


def write(examples: Sequence[Pronoun], predictions: Sequence[Any]) -> Iterator[str]:
    """What GAP's own scorer reads: identifier, and TRUE or FALSE for A and for B."""
    for example, found in zip(examples, predictions, strict=True):
        answers = "\t".join(str(found["label"] == name).upper() for name in "AB")
        yield f"{example.identifier}\t{answers}\n"


TASK = Task(
    name="coreference",
    read=read,
    learn=learn,
    model=PronounResolver,
    score=score,
    write=write,
    defaults={"hidden": 100, "dropout": 0.5, "batch_size": 32, "patience": 8},
)
