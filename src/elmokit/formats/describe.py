"""What a checkpoint is: sizes, parameters by part, fingerprint and metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elmokit.config import BiLMConfig
from elmokit.formats.checkpoint import Checkpoint

PARTS = {  # How the names of the tensors of a part begin.
    "token_encoder.characters": "characters",
    "token_encoder.words": "words",
    "token_encoder.character_lstm": "character LSTM",
    "token_encoder.convolutions": "convolutions",
    "token_encoder.highways": "highway layers",
    "token_encoder.projection": "token projection",
    "forward_layers": "forward LSTMs",
    "backward_layers": "backward LSTMs",
    "softmax": "softmax",
}


@dataclass(frozen=True)
class ModelInfo:
    """Description of a checkpoint, without its tensors."""

    source: str
    """Path or name of the model."""
    format: str
    config: BiLMConfig
    parameters_by_part: dict[str, int]
    """Number of parameters of each part that the model has."""
    vocabulary_size: int | None
    """Number of words in the vocabulary; None without one."""
    fingerprint: str
    """Hash of everything that determines the vectors."""
    metadata: dict[str, Any]

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(self.parameters_by_part.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON takes it."""
        return {
            "model": self.source,
            "format": self.format,
            "num_layers": self.config.num_layers,
            "dim": self.config.dim,
            "parameters": self.parameters,
            "parameters_by_part": self.parameters_by_part,
            "vocabulary_size": self.vocabulary_size,
            "fingerprint": self.fingerprint,
            "config": self.config.to_dict(),
            "metadata": self.metadata,
        }


def describe(checkpoint: Checkpoint) -> ModelInfo:
    """Describe a checkpoint whose tensors have been checked."""
    by_part = dict.fromkeys(PARTS.values(), 0)
    for name, tensor in checkpoint.tensors.items():
        part = next(label for prefix, label in PARTS.items() if name.startswith(prefix))
        by_part[part] += tensor.size
    words = checkpoint.vocabulary
    return ModelInfo(
        source=checkpoint.source,
        format=checkpoint.format,
        config=checkpoint.config,
        parameters_by_part={part: count for part, count in by_part.items() if count},
        vocabulary_size=None if words is None else len(words),
        fingerprint=checkpoint.fingerprint(),
        metadata=checkpoint.metadata,
    )
