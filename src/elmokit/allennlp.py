"""AllenNLP's ELMo under its own names; see `elmokit.compat.allennlp`."""

from elmokit.compat.allennlp import (
    Elmo,
    ElmoEmbedder,
    ElmoTokenEmbedder,
    ScalarMix,
    batch_to_ids,
    scalar_mixes,
    trained_layer,
)

__all__ = [
    "Elmo",
    "ElmoEmbedder",
    "ElmoTokenEmbedder",
    "ScalarMix",
    "batch_to_ids",
    "scalar_mixes",
    "trained_layer",
]
