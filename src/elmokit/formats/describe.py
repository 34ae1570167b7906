"""What a checkpoint is: sizes, parameters by part, fingerprint and metadata."""

from __future__ import annotations

from typing import Any

from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.native import split_dictionary

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


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """Describe a checkpoint whose tensors have been checked, as JSON takes it."""
    by_part = dict.fromkeys(PARTS.values(), 0)
    for name, tensor in checkpoint.tensors.items():
        part = next(label for prefix, label in PARTS.items() if name.startswith(prefix))
        by_part[part] += tensor.size
    words = checkpoint.vocabulary
    return {
        "model": checkpoint.source,
        "format": checkpoint.format,
        "num_layers": checkpoint.config.num_layers,
        "dim": checkpoint.config.dim,
        "parameters": sum(by_part.values()),
        "parameters_by_part": {part: count for part, count in by_part.items() if count},
        "vocabulary_size": None if words is None else len(words),
        "fingerprint": checkpoint.fingerprint(),
        "config": checkpoint.config.to_dict(),
        "metadata": split_dictionary(checkpoint.metadata)[0],
    }
