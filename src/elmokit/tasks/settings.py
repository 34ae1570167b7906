"""How a task model is built and trained: validated dataclasses.

Each task adds to `TrainSettings` the fields that only it uses and its own defaults. The docstrings
of the fields are the help of the command line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from elmokit.errors import ElmokitError
from elmokit.text.readers import Tokenize
from elmokit.text.tokenize import tokenizer as find_tokenizer
from elmokit.training.settings import check_settings

if TYPE_CHECKING:
    from typing_extensions import Self

TaskName: TypeAlias = Literal[
    "classifier", "tagger", "pair", "relation", "question", "coreference", "translate", "summarize"
]
# A run may become longer or more patient: what it has learned until then is the same.
MAY_CHANGE = ("epochs", "patience", "beam")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run reads and what it computes on, besides the settings of its task."""

    train: str
    """File of examples to learn from; also .gz, .xz, .zst."""
    dev: str | None = None
    """File of examples for early stopping (default: a part of the training data)."""
    dev_fraction: float = 0.1
    """Fraction of the training data to measure on, without --dev."""
    skip_bad: bool = False
    """Skip bad lines and count them, instead of stopping at the first."""
    jieba_dict: str | None = None
    """Dictionary file for the tokenizer chinese, a word per line (default: the biLM's own)."""
    elmo: str | None = "english"
    """A biLM folder, weights file, archive or Hub name; "english" and "chinese" are included."""
    cache: str | None = None
    """Folder of the vectors of a frozen biLM (default: ~/.cache/elmokit)."""
    cache_gb: float = 8.0
    """Maximum size of that folder."""
    vectors: str | None = None
    """Static word vectors: GloVe, word2vec (text or binary) or fastText .vec."""
    device: str = "cpu"
    """Device to compute on, such as cpu or cuda."""
    threads: int | None = None
    """Number of threads (default: all cores)."""
    quiet: bool = False
    """Show no progress and no messages."""

    def __post_init__(self) -> None:
        if not 0 < self.dev_fraction < 1:
            raise ElmokitError(f"dev_fraction must be above 0 and below 1, not {self.dev_fraction}")
        if not 0 <= self.cache_gb < math.inf:
            raise ElmokitError(f"cache_gb must be at least 0 and finite, not {self.cache_gb}")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """The settings of all tasks."""

    layers: str = "all"
    """Layers of the biLM to use: all (a learned mix), top, average (a fixed mix) or an index."""
    placement: Literal["input", "output", "both"] = "input"
    """Where the ELMo vectors enter the task's LSTM; both has two mixes."""
    l2: float = 0.001
    """Strength of the penalty that pulls the weights of a mix to the average."""
    elmo_dropout: float = 0.5
    """Dropout of the ELMo vectors."""
    layer_norm: bool = False
    """Normalize each layer before mixing."""
    tune_elmo: bool = False
    """Train the biLM too, not only the mixes."""
    elmo_lr: float = 0.0001
    """Learning rate of the biLM with --tune-elmo."""
    word_dim: int | None = None
    """Size of the learned word vectors (default: 0 with --vectors, else 100)."""
    tune_words: bool = False
    """Learn a correction to the static vectors of the words in the training data."""
    char_dim: int = 0
    """Size of the output of a small character CNN beside the word vectors; 0 for none."""
    hidden: int = 200
    """Number of cells of the task's LSTM in each direction."""
    depth: int = 1
    """Number of LSTM layers of the task."""
    dropout: float = 0.5
    """Dropout of the word vectors and of the output of the LSTM."""
    epochs: int = 30
    """Maximum number of epochs."""
    patience: int = 5
    """Number of epochs without a better dev score after which training ends."""
    batch_size: int = 32
    """Number of examples per step."""
    lr: float = 0.001
    """Learning rate of AdamW."""
    weight_decay: float = 0.0001
    """Weight decay of AdamW."""
    clip: float = 5.0
    """Maximum norm of the gradient."""
    seed: int = 1
    """Seed of the weights, the order of the examples, and dropout."""
    tokenizer: str | None = None
    """Tokenizer of text: elmokit, whitespace or chinese (default: the biLM's own, else elmokit)."""

    def __post_init__(self) -> None:
        positive, fractions = ("lr", "elmo_lr", "clip"), ("dropout", "elmo_dropout")
        check_settings(self, _MINIMUM, positive=positive, fractions=fractions)
        if self.layers not in ("all", "top", "average") and not re.fullmatch("[0-9]+", self.layers):
            raise ElmokitError(
                f"layers must be all, top, average or the index of a layer, not {self.layers!r}"
            )

    @property
    def tokenize(self) -> Tokenize:
        return find_tokenizer(self.tokenizer or "elmokit")

    def with_word_dim(self, *, has_vectors: bool) -> Self:
        """Return the same settings with the default of `word_dim` filled in."""
        default = 0 if has_vectors else 100
        return replace(self, word_dim=default if self.word_dim is None else self.word_dim)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return settings with the given values; raise if the task does not have one of them."""
        names = list(cls.__dataclass_fields__)
        for name in options:
            if name not in names:
                close = get_close_matches(name, names, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(names)}"
                raise ElmokitError(f"this task has no option {name!r}: {hint}")
        return cls(**options)


@dataclass(frozen=True, kw_only=True)
class TextSettings(TrainSettings):
    """The settings of tasks that read texts from tables."""

    text_column: str | None = None
    """Name or number of the column of the (first or source) text, in a TSV, CSV or JSONL file."""
    label_column: str | None = None
    """Name or number of the column of the label or target."""
    max_tokens: int = 0
    """Maximum number of tokens of a text, which is cut there; 0 for no limit."""


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings(TextSettings):
    """The settings of `classifier`."""

    encoder: Literal["lstm", "mean"] = "lstm"
    """Encoder of the text; mean is the plain mean of all vectors, which is fast."""
    pooling: Literal["max", "mean", "attention"] = "max"
    """How the outputs of the LSTM become one vector."""


@dataclass(frozen=True, kw_only=True)
class TaggerSettings(TrainSettings):
    """The settings of `tagger`."""

    char_dim: int = 50
    text_column: str | None = None
    """Name or number of the column of the token (default: the first, FORM in CoNLL-U)."""
    label_column: str | None = None
    """Name or number of the column of the tag (default: the last, UPOS in CoNLL-U)."""
    predicate_column: str | None = None
    """Column that marks predicates; each column after it has the roles of one of them."""
    scheme: Literal["auto", "iob1", "iob2", "iobes", "bilou", "bmes", "plain"] = "auto"
    """How the tags mark spans; plain for tags that mark none."""
    crf: bool = True
    """Choose the tags of a sentence together with a CRF, not one by one."""


@dataclass(frozen=True, kw_only=True)
class PairSettings(TextSettings):
    """The settings of `pair`."""

    dropout: float = 0.3
    batch_size: int = 16
    second_column: str | None = None
    """Name or number of the column of the second text."""


@dataclass(frozen=True, kw_only=True)
class RelationSettings(TrainSettings):
    """The settings of `relation`."""

    dropout: float = 0.3
    batch_size: int = 16
    pooling: Literal["max", "mean", "attention"] = "max"
    """How the outputs of the LSTM become one vector; attention weighs them by the entities."""


@dataclass(frozen=True, kw_only=True)
class QuestionSettings(TrainSettings):
    """The settings of `question`."""

    hidden: int = 100
    dropout: float = 0.2
    epochs: int = 20
    patience: int = 3
    max_tokens: int = 400
    """Maximum number of tokens of a passage in training, cut around the answer; 0 for no limit."""
    max_answer_tokens: int = 20
    """Maximum number of tokens of an answer."""


@dataclass(frozen=True, kw_only=True)
class CoreferenceSettings(TrainSettings):
    """The settings of `coreference`."""

    hidden: int = 100
    patience: int = 8


@dataclass(frozen=True, kw_only=True)
class Seq2SeqSettings(TextSettings):
    """The settings of `translate` and `summarize`."""

    hidden: int = 256
    dropout: float = 0.3
    epochs: int = 20
    patience: int = 3
    target_elmo: str | None = None
    """Model of the target's language for the input of the decoder (default: none)."""
    target_tokenizer: str | None = None
    """Tokenizer of targets (default: --tokenizer, else that of --target-elmo, else elmokit for
    translate and that of the text for summarize)."""
    copy: bool = False
    """Copy words from the source."""
    beam: int = 5
    """Number of hypotheses of the beam search."""
    max_target_tokens: int = 60
    """Maximum number of tokens of a target."""
    target_vocab_size: int = 10_000
    """Maximum number of words in the vocabulary of the target."""

    @property
    def tokenize_target(self) -> Tokenize:
        return find_tokenizer(self.target_tokenizer or self.tokenizer or "elmokit")


@dataclass(frozen=True, kw_only=True)
class TranslateSettings(Seq2SeqSettings):
    """The settings of `translate`."""

    word_dim: int | None = 256
    """Size of the learned word vectors."""
    batch_size: int = 64


@dataclass(frozen=True, kw_only=True)
class SummarizeSettings(Seq2SeqSettings):
    """The settings of `summarize`."""

    word_dim: int | None = 128
    """Size of the learned word vectors."""
    max_tokens: int = 100
    copy: bool = True


_FROM_0 = ("l2", "word_dim", "char_dim", "weight_decay", "seed", "max_tokens")
_FROM_1 = """hidden depth epochs patience batch_size max_answer_tokens beam
max_target_tokens""".split()
_MINIMUM = {**dict.fromkeys(_FROM_0, 0), **dict.fromkeys(_FROM_1, 1), "target_vocab_size": 10}

SETTINGS: dict[TaskName, type[TrainSettings]] = {
    "classifier": ClassifierSettings,
    "tagger": TaggerSettings,
    "pair": PairSettings,
    "relation": RelationSettings,
    "question": QuestionSettings,
    "coreference": CoreferenceSettings,
    "translate": TranslateSettings,
    "summarize": SummarizeSettings,
}
