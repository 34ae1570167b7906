"""Drop-in replacement for ELMoForManyLangs: old code only changes its import line.

    from elmokit.manylangs import Embedder  # was: from elmoformanylangs import Embedder

Every sentence starts from zero states, so that its vectors are those of the original's first batch;
the original carried its states from each batch to the next, in random order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InvalidInput
from elmokit.layers import Layers
from elmokit.loading import load


class Embedder:
    """Embeds tokenized sentences with `sents2elmo`."""

    def __init__(
        self, model_dir: str | Path = "zht.model/", batch_size: int = 64, **settings: Any
    ) -> None:
        """Load a model: any that `elmokit.load` takes, with its other arguments."""
        self.model_dir, self.batch_size = model_dir, batch_size
        self.elmo = load(model_dir, **settings)

    def sents2elmo(
        self, sents: Iterable[Sequence[str]], output_layer: int = -1
    ) -> list[NDArray[np.float32]]:
        """Embed tokenized sentences: (tokens, dim) each, or (layers, tokens, dim).

        `output_layer` is 0 for the token vectors, 1 and up for an LSTM layer, -1 for the average
        of all layers, -2 for all layers. A string counts as the list of its characters.
        """
        if isinstance(sents, str):
            raise InvalidInput("sents must be a list of sentences (lists of tokens), not a string")
        top = self.elmo.config.num_layers
        if isinstance(output_layer, bool) or output_layer not in range(-2, top + 1):
            allowed = f"0 to {top}, -1 (average) or -2 (all)"
            raise InvalidInput(f"output_layer must be {allowed}, not {output_layer!r}")
        layers: Layers = {-1: "average", -2: "all"}.get(output_layer, output_layer)
        sentences = self.elmo.stream(map(list, sents), layers, batch_size=self.batch_size)
        return [each.layers if output_layer == -2 else each.vectors for each in sentences]
