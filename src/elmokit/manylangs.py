"""ELMoForManyLangs under its own names; see `elmokit.compat.many_langs`."""

from elmokit.compat.many_langs import Embedder

__all__ = ["Embedder"]
