"""The names of ELMoForManyLangs: old code changes its import line and nothing else.

    from elmokit.compat.many_langs import Embedder  # was: from elmoformanylangs import Embedder

Every sentence starts afresh, so that its vectors are those that the old program gave in its first
batch; from then on it carried its state from one batch to the next, which were in random order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.layers import Layers
from elmokit.loading import load


class Embedder:
    """A model and its `sents2elmo`."""

    def __init__(
        self, model_dir: str | Path = "zht.model/", batch_size: int = 64, **settings: Any
    ) -> None:
        """Load a model.

        Args:
            model_dir: its folder or archive, or any other model that `elmokit.load` takes.
            batch_size: sentences of a batch, at most.
            **settings: those of `elmokit.load`, such as device="cuda".
        """
        self.model_dir, self.batch_size = model_dir, batch_size
        self.elmo = load(model_dir, **settings)

    def sents2elmo(
        self, sents: Iterable[Sequence[str]], output_layer: int = -1
    ) -> list[NDArray[np.float32]]:
        """Vectors of tokenized sentences, in their order.

        Args:
            sents: lists of tokens; a string is taken as the list of its characters.
            output_layer: 0 for the token vectors, 1 and up for an LSTM layer, -1 for the average
                of all layers, -2 for all of them.

        Returns:
            For each sentence (tokens, dim), with output_layer -2 (layers, tokens, dim).
        """
        if isinstance(sents, str):
            raise ElmokitError("sents is a list of sentences, each a list of tokens, not a string")
        found = self.elmo.stream(
            map(list, sents), self._layers(output_layer), batch_size=self.batch_size
        )
        return [sentence.layers if output_layer == -2 else sentence.vectors for sentence in found]

    def _layers(self, output_layer: int) -> Layers:
        top = self.elmo.config.num_layers
        if isinstance(output_layer, bool) or output_layer not in range(-2, top + 1):
            raise ElmokitError(
                f"output_layer is 0 to {top}, -1 (average) or -2 (all), not {output_layer!r}"
            )
        return {-1: "average", -2: "all"}.get(output_layer, output_layer)
