"""Options that many commands share, each group a dataclass that cyclopts flattens."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter, validators

from elmokit.errors import ElmokitError
from elmokit.figures import check_figure
from elmokit.io.jsonfile import try_json
from elmokit.io.paths import check_output, is_file
from elmokit.progress import check_threads

if TYPE_CHECKING:
    from elmokit.embed import Embedder
    from elmokit.store import LayerStore

MODEL_GROUP = Group("Model", sort_key=8)
Flag = Annotated[bool, Parameter(negative="")]
Seed = Annotated[int, Parameter(validator=validators.Number(gte=0, lt=2**63))]
FileOrDash = Annotated[str, Parameter(allow_leading_hyphen=True)]  # "-" is not an option.


def split_words(words: str) -> list[str]:
    """Split the comma-separated words of --words; drop repeated ones."""
    result = [word.strip() for word in words.split(",")]
    if not all(result):
        raise ElmokitError(f"--words takes comma-separated words, not {words!r}")
    return list(dict.fromkeys(result))


def model_files(model: str | None) -> list[str | Path | None]:
    """Return what a model is read from: its folder, or its file and those that belong to it."""
    from elmokit.formats.detect import SIDECARS

    if model is None or not is_file(Path(model)):
        return [model]
    names = (*SIDECARS, "vocab*.txt")
    return [model, *(file for name in names for file in Path(model).parent.glob(name))]


def recorded_models(path: str | Path | None) -> list[str]:
    """Return the biLM that a task model, an inventory or an index was made with, if it says so."""
    files = [Path(path or "-") / name for name in ("config.json", "index.json")]
    values = [try_json(file) for file in files]  # Whoever reads the folder says what is wrong.
    values += [own["settings"] for own in values if isinstance(own.get("settings"), dict)]
    names = (own.get(key) for own in values for key in ("elmo", "model"))
    return [name for name in names if isinstance(name, str)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """How a command writes its output."""

    overwrite: Flag = False
    """Replace the output if it exists."""
    quiet: Flag = False
    """Show no progress."""

    def check(
        self,
        *inputs: str | Path | None,
        out: str | None = None,
        file: str | None = None,
        figure: str | None = None,
    ) -> None:
        """Raise before the work if an output cannot be written or would overwrite an input.

        `out` is an output that has its own check, and here must only be apart from the others.
        """
        every = [*inputs]
        recorded = [name for path in every for name in recorded_models(path)]
        every += [file for name in recorded for file in model_files(name)]
        rule: Any = {"inputs": every, "overwrite": self.overwrite}
        json = getattr(self, "json", None)
        check_figure(figure, **rule)
        check_output(file, **rule)
        check_output(json, **rule)
        given = [path for path in (out, file, figure, json) if path is not None]
        places = [Path(os.path.realpath(os.path.expanduser(path))) for path in given]  # noqa: PTH111
        if any(one == other or one in other.parents for one, other in permutations(places, 2)):
            raise ElmokitError(f"{' and '.join(given)} are in one place: choose another name")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ResultOptions(WriteOptions):
    """How a command writes its result, besides printing it."""

    json: str | None = None
    """File to write the result to, as JSON."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How a text file is read."""

    kind: Literal["auto", "text", "jsonl", "conll", "conllu"] = "auto"
    """Kind of the file; auto decides by its extension."""
    split: Flag = False
    """Split running text into sentences."""
    field: str = "text"
    """JSONL field of the text."""
    column: int | None = None
    """CoNLL column of the words, from 0 (default: 0 for conll, 1 for conllu)."""
    errors: Literal["strict", "replace"] = "strict"
    """How to handle bytes that are not UTF-8."""


@Parameter(name="*", group=MODEL_GROUP)
@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """What a model computes on."""

    device: str = "cpu"
    """Device to compute on, such as cpu or cuda."""
    threads: int | None = None
    """Number of threads (default: all cores)."""

    @property
    def inputs(self) -> list[str | Path | None]:
        """What is read because of these options: the files of the model, and the dictionary."""
        model, elmo, jieba_dict = (
            getattr(self, name, None) for name in ("model", "elmo", "jieba_dict")
        )
        return [*model_files(model), *model_files(elmo), jieba_dict]

    def __post_init__(self) -> None:
        check_threads(self.threads)
        if getattr(self, "model", None) == "":
            raise ElmokitError("the name of the model is empty: name one with --model")


@Parameter(name="*", group=MODEL_GROUP)
@dataclass(frozen=True, kw_only=True)
class ComputeOptions(DeviceOptions):
    """How a model computes that is named by an argument."""

    tokenizer: str | None = None
    """Tokenizer of running text: elmokit, whitespace or chinese (default: the model's own)."""
    jieba_dict: str | None = None
    """Dictionary file for the tokenizer chinese, a word per line (default: the model's own)."""

    def load_model(self, model: str) -> Embedder:
        from elmokit.loading import load
        from elmokit.progress import set_threads

        set_threads(self.threads)
        given: Any = {"tokenizer": self.tokenizer, "jieba_dict": self.jieba_dict}
        return load(model, device=self.device, **given)


@Parameter(name="*", group=MODEL_GROUP)
@dataclass(frozen=True, kw_only=True)
class ModelOptions(ComputeOptions):
    """Which model computes, and how."""

    model: str = "english"
    """A model folder, weights file, archive or Hub name; "english" and "chinese" are included."""

    def load(self) -> Embedder:
        return self.load_model(self.model)

    def open_store(self) -> LayerStore:
        """Load the model with the store of layers that it has computed in any run."""
        from elmokit.store import LayerStore

        return LayerStore(self.load())

    def tokenizer_name(self) -> str:
        """Return the tokenizer with its dictionary, without loading the model."""
        from elmokit.formats.detect import own_tokenizer
        from elmokit.text.chinese import with_dictionary

        return with_dictionary(self.tokenizer or own_tokenizer(self.model), self.jieba_dict)


@Parameter(name="*", group=MODEL_GROUP)
@dataclass(frozen=True, kw_only=True)
class RecordedModelOptions(DeviceOptions):
    """Where the model is that a folder of results was made with."""

    model: str | None = None
    """Path of the model, if it has moved (default: the one that the folder names)."""

    def resolve(
        self, recorded: str, tokenizer: str | None = None, jieba_dict: str | None = None
    ) -> ModelOptions:
        """Return the options of the model, which is `recorded` if no other is named."""
        from elmokit.formats.detect import recorded_model

        given = asdict(self) | {"model": self.model or recorded_model(recorded)}
        return ModelOptions(tokenizer=tokenizer, jieba_dict=jieba_dict, **given)
