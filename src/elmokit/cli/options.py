"""Options that many commands share, each group a dataclass that cyclopts flattens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from elmokit.errors import ElmokitError
from elmokit.progress import check_threads

if TYPE_CHECKING:
    from elmokit.embed import Embedder
    from elmokit.store import LayerStore

MODEL_GROUP = Group("Model", sort_key=8)
Flag = Annotated[bool, Parameter(negative="")]
FileOrDash = Annotated[str, Parameter(allow_leading_hyphen=True)]  # "-" is not an option.
TextKind = Literal["auto", "text", "jsonl", "conll", "conllu"]
DecodingErrors = Literal["strict", "replace"]


def split_words(words: str) -> list[str]:
    """Split the comma-separated words of --words; drop repeated ones."""
    result = [word.strip() for word in words.split(",")]
    if not all(result):
        raise ElmokitError(f"--words takes comma-separated words, not {words!r}")
    return list(dict.fromkeys(result))


@Parameter(name="*", group=MODEL_GROUP)
@dataclass(frozen=True, kw_only=True)
class ComputeOptions:
    """How a model computes that is named by an argument."""

    tokenizer: str | None = None
    """Tokenizer of running text: elmokit, whitespace or chinese (default: the model's own)."""
    device: str = "cpu"
    """Device to compute on, such as cpu or cuda."""
    threads: int | None = None
    """Number of threads (default: all cores)."""

    def __post_init__(self) -> None:
        check_threads(self.threads)

    def load_model(self, model: str) -> Embedder:
        """Load a model."""
        from elmokit.loading import load
        from elmokit.progress import set_threads

        set_threads(self.threads)
        return load(model, tokenizer=self.tokenizer, device=self.device)


@Parameter(name="*", group=MODEL_GROUP)
@dataclass(frozen=True, kw_only=True)
class ModelOptions(ComputeOptions):
    """Which model computes, and how."""

    model: str = "shipped"
    """A model folder, weights file, archive or Hub name; "shipped" is elmokit's own."""

    def load(self) -> Embedder:
        """Load the model."""
        return self.load_model(self.model)

    def open_store(self) -> LayerStore:
        """Load the model with the store of layers that it has computed in any run."""
        from elmokit.store import LayerStore

        return LayerStore(self.load())

    def tokenizer_name(self) -> str:
        """Return the name of the tokenizer, without loading the model."""
        from elmokit.formats.detect import own_tokenizer

        return self.tokenizer or own_tokenizer(self.model)


@Parameter(name="*", group=MODEL_GROUP)
@dataclass(frozen=True, kw_only=True)
class RecordedModelOptions:
    """Where the model is that a folder of results was made with."""

    model: str | None = None
    """Path of the model, if it has moved (default: the one that the folder names)."""
    device: str = "cpu"
    """Device to compute on, such as cpu or cuda."""
    threads: int | None = None
    """Number of threads (default: all cores)."""

    def __post_init__(self) -> None:
        check_threads(self.threads)

    def resolve(self, recorded: str, tokenizer: str | None = None) -> ModelOptions:
        """Return the options of the model, which is `recorded` if no other is named."""
        from elmokit.formats.detect import recorded_model

        return ModelOptions(
            model=self.model or recorded_model(recorded),
            tokenizer=tokenizer,
            device=self.device,
            threads=self.threads,
        )
