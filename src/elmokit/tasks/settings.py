"""How a task model is built and trained: one flat, validated dataclass for all tasks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from elmokit.errors import ElmokitError

# Settings that are None until `completed` gives them the task's own value; after that they never
# are, and so they are not typed as such.
_UNSET: Any = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a task model depends on, besides the data, the biLM and the static vectors.

    Args:
        layers: of the biLM: all (a learned mix), top, average (a fixed mix), or the number of one.
        placement: where ELMo's vectors join: at the input of the task's RNN, at its output, or
            both, each with a mix of its own.
        l2: pulls the weights of the mixes to the average.
        elmo_dropout: of ELMo's vectors.
        layer_norm: normalise each layer before mixing.
        tune_elmo: train the biLM too, not only the mixes.
        word_dim: columns of word vectors that are learned with the task; by itself 0 with
            --vectors and 100 without.
        tune_words: learn a correction to the static vectors of the words that the training text
            has.
        characters: columns of a small character CNN beside the word vectors; 0 for none.
        encoder: of classifier: lstm, or mean for the plain mean of all vectors, which is fast.
        pooling: of classifier and relation: max, mean or attention over the tokens.
        hidden: cells of the task's LSTM in each direction.
        depth: LSTM layers of the task.
        dropout: of word vectors and of what the LSTM gives.
        epochs: times that the training data is read, at most.
        patience: epochs without a better dev score until training ends.
        batch_size: examples of a step.
        lr: learning rate of AdamW.
        elmo_lr: learning rate of a biLM that is trained too.
        weight_decay: of AdamW.
        clip: largest norm of the gradient.
        seed: of weights, order and dropout.
        tokenizer: what splits text that is no list of tokens: elmokit, whitespace or chinese.
        text_column: name or number of the column with the text, of a TSV, CSV or JSONL file.
        second_column: of pair: the column with the second text.
        label_column: name or number of the column with the label or the tag.
        predicate_column: of tagger: the column that marks predicates; each column behind it has
            the roles of one of them.
        scheme: of tagger: how spans are written: auto, iob1, iob2, iobes, bilou, bmes, or plain
            for tags that are no spans.
        crf: of tagger: choose the tags of a sentence together, not one by one.
        longest_answer: of question: tokens.
        target_elmo: of translate and summarize: a model of the target's language, for the
            decoder's input.
        copy: of translate and summarize: copy words out of the source.
        beam: of translate and summarize: hypotheses that are followed.
        longest_target: of translate and summarize: tokens.
        target_words: of translate and summarize: size of the target's vocabulary.
        longest_text: of classifier, pair, question (in training), translate and summarize: tokens
            of a text, the others are cut off; 0 for no bound.
    """

    layers: str = "all"
    placement: Literal["input", "output", "both"] = "input"
    l2: float = 0.001
    elmo_dropout: float = 0.5
    layer_norm: bool = False
    tune_elmo: bool = False
    word_dim: int = _UNSET
    tune_words: bool = False
    characters: int = _UNSET
    encoder: Literal["lstm", "mean"] = "lstm"
    pooling: Literal["max", "mean", "attention"] = "max"
    hidden: int = _UNSET
    depth: int = _UNSET
    dropout: float = _UNSET
    epochs: int = _UNSET
    patience: int = _UNSET
    batch_size: int = _UNSET
    lr: float = _UNSET
    elmo_lr: float = 0.0001
    weight_decay: float = 0.0001
    clip: float = 5.0
    seed: int = 1
    tokenizer: Literal["elmokit", "whitespace", "chinese"] = "elmokit"
    text_column: str | None = None
    second_column: str | None = None
    label_column: str | None = None
    predicate_column: str | None = None
    scheme: Literal["auto", "iob1", "iob2", "iobes", "bilou", "bmes", "plain"] = "auto"
    crf: bool = True
    longest_answer: int = 20
    target_elmo: str | None = None
    copy: bool = _UNSET
    beam: int = 5
    longest_target: int = 60
    target_words: int = 10_000
    longest_text: int = _UNSET

    def __post_init__(self) -> None:
        if self.layers not in ("all", "top", "average") and not re.fullmatch(r"\d+", self.layers):
            raise ElmokitError(
                f"layers must be all, top, average or the number of a layer, not {self.layers!r}"
            )
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not least <= value:
                raise ElmokitError(f"{name} must be at least {least}, not {value}")
        for name in ("lr", "elmo_lr", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ElmokitError(f"{name} must be above 0, not {value}")
        for name in ("dropout", "elmo_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ElmokitError(f"{name} must be at least 0 and below 1, not {value}")

    def completed(self, defaults: Mapping[str, Any], *, has_vectors: bool) -> Settings:
        """The same with a task's own values where none was given."""
        own = {**DEFAULTS, "word_dim": 0 if has_vectors else 100, **defaults}
        return replace(self, **{k: v for k, v in own.items() if getattr(self, k) is None})

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON takes them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """Settings out of a model's folder; fields that are not known are refused."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ElmokitError(f"the settings have a field {unknown[0]!r} that is not known here")
        return cls(**values)

    def changed_from(self, old: Mapping[str, Any]) -> str | None:
        """How these settings differ from those of a run that is to go on; None if they do not.

        A run may become longer or more patient: what it has learned until then is the same.
        """
        for field in fields(self):
            before, now = old.get(field.name, field.default), getattr(self, field.name)
            if field.name not in ("epochs", "patience", "beam") and before != now:
                return f"{field.name} was {before!r} and is now {now!r}"
        return None


# What tasks use that do not say otherwise.
DEFAULTS: dict[str, Any] = {
    "characters": 0,
    "hidden": 200,
    "depth": 1,
    "dropout": 0.5,
    "epochs": 30,
    "patience": 5,
    "batch_size": 32,
    "lr": 0.001,
    "copy": False,
    "longest_text": 0,
}
_LEAST = {
    "l2": 0,
    "word_dim": 0,
    "characters": 0,
    "hidden": 1,
    "depth": 1,
    "epochs": 1,
    "patience": 1,
    "batch_size": 1,
    "weight_decay": 0,
    "seed": 0,
    "longest_answer": 1,
    "beam": 1,
    "longest_target": 1,
    "target_words": 10,
    "longest_text": 0,
}
