"""TensorFlow Hub's ELMo module under its own names; see `elmokit.compat.tf_hub`."""

from elmokit.compat.tf_hub import Module, load

__all__ = ["Module", "load"]
