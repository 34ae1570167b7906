"""Sequence tagging: names, parts of speech, chunks, semantic roles of a marked predicate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.data.columns import read_tagged
from elmokit.data.examples import Tagged
from elmokit.data.labelled import BadLines
from elmokit.data.schemes import are_spans
from elmokit.errors import ElmokitError
from elmokit.tasks import metrics
from elmokit.tasks.layers.bilstm import BiLSTM
from elmokit.tasks.layers.crf import CRF
from elmokit.tasks.layers.embedder import Encoded, Inputs
from elmokit.tasks.settings import Settings
from elmokit.tasks.task import Task
from elmokit.text.tokenize import tokenizer

MARK = 10  # columns that say which token is the predicate


class Tagger(nn.Module):
    """A BiLSTM and a CRF, or a choice for each token alone."""

    def __init__(self, inputs: Inputs, settings: Settings, facts: dict[str, Any]) -> None:
        """A new one for the tags that the facts name."""
        super().__init__()
        self.inputs, self.tags = inputs, facts["tags"]
        self.rows = {tag: row for row, tag in enumerate(self.tags)}
        self.mark = nn.Embedding(2, MARK) if facts["predicates"] else None
        self.lstm = BiLSTM(
            inputs.dim + (MARK if self.mark else 0),
            settings.hidden,
            depth=settings.depth,
            dropout=settings.dropout,
        )
        self.emissions = nn.Linear(self.lstm.dim + inputs.late_dim, len(self.tags))
        self.crf = CRF(self.tags, constrained=True) if settings.crf else None

    def forward(self, batch: Sequence[Tagged]) -> tuple[Tensor, Tensor]:
        """Scores of all tags (texts, tokens, tags), and the mask (texts, tokens)."""
        encoded = self.inputs([example.texts[0] for example in batch])
        outputs = self.lstm(self._marked(encoded, batch), encoded.mask)
        return self.emissions(encoded.join(outputs)), encoded.mask

    def _marked(self, encoded: Encoded, batch: Sequence[Tagged]) -> Tensor:
        """The input vectors, with the predicate's place beside them if there are predicates."""
        if self.mark is None:
            return encoded.vectors
        places = torch.zeros_like(encoded.mask, dtype=torch.long)
        for row, example in enumerate(batch):
            if example.predicate is not None:
                places[row, example.predicate] = 1
        return torch.cat([encoded.vectors, self.mark(places)], dim=-1)

    def loss(self, batch: Sequence[Tagged]) -> Tensor:
        """The negative log likelihood of the right tags, a mean over tokens."""
        emissions, mask = self(batch)
        gold = torch.zeros(mask.shape, dtype=torch.long)
        for row, example in enumerate(batch):
            assert example.tags is not None
            gold[row, : len(example.tags)] = torch.tensor([self.rows[t] for t in example.tags])
        gold = gold.to(emissions.device)
        if self.crf is None:
            return functional.cross_entropy(emissions[mask], gold[mask])
        losses = self.crf.negative_log_likelihood(emissions, gold, mask)
        return losses.sum() / mask.sum()  # type: ignore[no-any-return]

    def predict(self, batch: Sequence[Tagged]) -> list[list[str]]:
        """The best tags of each sentence."""
        emissions, mask = self(batch)
        if self.crf is None:
            best, lengths = emissions.argmax(-1).tolist(), mask.sum(1).tolist()
            found = [row[:length] for row, length in zip(best, lengths, strict=True)]
        else:
            found = self.crf.decode(emissions, mask)
        return [[self.tags[tag] for tag in row] for row in found]


def read(path: str, settings: Settings, bad: BadLines, labelled: bool) -> Iterator[Tagged]:
    """Sentences of a file of columns with their tags, spans in IOB2; or plain text without tags."""
    return read_tagged(
        path,
        column=settings.label_column,
        token_column=settings.text_column,
        predicate_column=settings.predicate_column,
        scheme=settings.scheme,
        tokenize=tokenizer(settings.tokenizer),
        labelled=labelled,
        bad=bad,
    )


def learn(examples: Sequence[Tagged], settings: Settings) -> dict[str, Any]:
    """All tags of the training examples, sorted, and whether predicates are marked."""
    tags = sorted({tag for example in examples for tag in example.tags or ()})
    if len(tags) < 2:
        found = f"only the tag {tags[0]!r}" if tags else "no tags"
        raise ElmokitError(f"the training data has {found}: there is nothing to choose between")
    return {"tags": tags, "predicates": any(e.predicate is not None for e in examples)}


def score(examples: Sequence[Tagged], predictions: Sequence[list[str]]) -> dict[str, float]:
    """F1 of spans with precision and recall, and accuracy; accuracy alone for tags of tokens."""
    gold = [list(example.tags or ()) for example in examples]
    accuracy = metrics.tag_accuracy(gold, predictions)
    if not are_spans(tag for tags in gold for tag in tags):
        return {"accuracy": accuracy}
    spans = metrics.span_f1(gold, predictions).micro
    return {
        "f1": spans.f1,
        "precision": spans.precision,
        "recall": spans.recall,
        "accuracy": accuracy,
    }


def write(examples: Sequence[Tagged], predictions: Sequence[list[str]]) -> Iterator[str]:
    """Columns of token and tag, an empty line after each sentence."""
    for example, tags in zip(examples, predictions, strict=True):
        rows = zip(example.texts[0], tags, strict=True)
        yield "".join(f"{token}\t{tag}\n" for token, tag in rows) + "\n"


TASK = Task(
    name="tagger",
    read=read,
    learn=learn,
    model=Tagger,
    score=score,
    write=write,
    defaults={"characters": 50, "batch_size": 32},
)
