"""The examples of the tasks: what is to be predicted is None if the file does not have it."""

from __future__ import annotations

from dataclasses import dataclass

Tokens = tuple[str, ...]
Span = tuple[int, int]  # the first token and the one after the last


@dataclass(frozen=True)
class Example:
    """The tokenized texts that get vectors."""

    texts: tuple[Tokens, ...]
    where: str
    """File and line, such as "train.tsv, line 12"."""


@dataclass(frozen=True)
class Labeled(Example):
    """One text, or a pair of texts, with a label."""

    label: str | None


@dataclass(frozen=True)
class Tagged(Example):
    """A sentence with a tag for each token; for semantic roles, of the predicate at a position."""

    tags: Tokens | None
    predicate: int | None = None


@dataclass(frozen=True)
class Related(Example):
    """A sentence with two marked entities and the relation between them."""

    first: Span
    second: Span
    label: str | None
    identifier: str


@dataclass(frozen=True)
class Question(Example):
    """A question and a passage (`texts` in this order) that has the answer in it."""

    identifier: str
    passage: str
    """The original text, from which answers are taken."""
    offsets: tuple[tuple[int, int], ...]
    """First character of each token of the passage, and the one after its last."""
    answers: tuple[str, ...]
    """All right answers; empty if none is given."""
    span: Span | None
    """Tokens of the passage that cover the first answer."""


@dataclass(frozen=True)
class Translated(Example):
    """A text to rewrite: to translate or to summarize."""

    target: Tokens | None
    reference: str | None
    """The original text of the target, for scores."""


@dataclass(frozen=True)
class Pronoun(Example):
    """A passage with a pronoun and two names; the label is A, B or NEITHER."""

    identifier: str
    pronoun: int
    first: Span
    second: Span
    label: str | None
