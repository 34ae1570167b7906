"""Options that many commands share, each group a dataclass that cyclopts flattens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts import Group, Parameter

from elmokit.progress import check_threads

if TYPE_CHECKING:
    from elmokit.embed import Embedder
    from elmokit.store import LayerStore

MODEL_GROUP = Group("Model", sort_key=8)


@Parameter(name="*", group=MODEL_GROUP)
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model computes, and where."""

    model: str = "shipped"
    """A model folder, weights file, archive or Hub name; "shipped" is elmokit's own."""
    tokenizer: str | None = None
    """Tokenizer of running text: elmokit, whitespace or chinese (default: the model's own)."""
    device: str = "cpu"
    """Device to compute on, such as cpu or cuda."""
    threads: int | None = None
    """Number of threads (default: all cores)."""

    def __post_init__(self) -> None:
        check_threads(self.threads)

    def load(self) -> Embedder:
        """Load the model."""
        from elmokit.loading import load
        from elmokit.progress import set_threads

        set_threads(self.threads)
        return load(self.model, tokenizer=self.tokenizer, device=self.device)

    def open_store(self) -> LayerStore:
        """Load the model with the store of layers that it has computed in any run."""
        from elmokit.store import LayerStore

        return LayerStore(self.load())
