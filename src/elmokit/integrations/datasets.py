"""ELMo in Hugging Face datasets: a callable for `Dataset.map` that adds a column of vectors.

    embed = EmbedColumn("text", pooling="mean")
    vectors = dataset.map(embed, batched=True, num_proc=4, features=embed.features(dataset))

datasets names its cache files by a hash of the callable's pickle. The pickle has the settings and
the fingerprint of the model: it is the same in every run, and another one for another model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elmokit.errors import InvalidInput, require
from elmokit.integrations.models import ModelSettings, recorded_model, shared_model
from elmokit.layers import Layers, Pooling, check_pooling, layer_weights
from elmokit.model.kernels.linear import Precision


class EmbedColumn:
    """Adds the vectors of a column of texts to a batch of examples."""

    def __init__(
        self,
        column: str = "text",
        *,
        output: str = "vector",
        model: str = "english",
        layers: Layers = "average",
        pooling: Pooling | None = "mean",
        precision: Precision = "float32",
        tokenizer: str | None = None,
        device: str = "cpu",
    ) -> None:
        """Load the model, so that wrong settings are reported before `map` starts processes.

        Args:
            column: Column of texts: strings, or lists of tokens.
            output: Name of the new column.
            model: What `elmokit.load` takes: a folder, a file or a name on the Hub.
            layers: "top", "average", an index from 0, a weight for each layer, or "all" to put the
                layers side by side.
            pooling: "mean", "max", "min", "sum", "first", "last" or "ends", for one vector per
                text; None for one per token.
            precision: Precision of the weights: "float32", "float16" or "int8".
            tokenizer: Tokenizer of strings (default: the one the model was trained with).
            device: Device to compute on, such as "cpu" or "cuda".
        """
        if pooling is not None:
            check_pooling(pooling)
        self.column, self.output = column, output
        self.layers, self.pooling = layers, pooling
        self.settings = ModelSettings(str(model), precision, tokenizer, device)
        embedder, self.fingerprint = shared_model(self.settings)
        self.dim = len(layer_weights(layers, embedder.config.num_layers)) * embedder.dim

    def __call__(self, examples: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Return the new column of a batch.

        Args:
            examples: Columns of a batch, as `map(batched=True)` passes them.
        """
        if self.column not in examples:
            names = ", ".join(examples)
            raise InvalidInput(f"the dataset has no column {self.column!r}: it has {names}")
        texts = examples[self.column]
        if isinstance(texts, str):
            raise InvalidInput("EmbedColumn takes batches of examples: pass batched=True to map")
        return {self.output: self._vectors(list(texts))}

    def _vectors(self, texts: list[Any]) -> list[Any]:
        embedder, _ = recorded_model(self.settings, self.fingerprint)
        if self.pooling is not None:
            return list(embedder.sentence_vectors(texts, self.layers, pooling=self.pooling))
        sentences = embedder.stream(texts, self.layers)
        return [list(np.concatenate(list(sentence.layers), axis=1)) for sentence in sentences]

    def features(self, dataset: Any = None) -> Any:
        """Return the features of the result, with vectors as lists of fixed size.

        Args:
            dataset: Dataset to map, whose columns are kept; None for the new column alone, with
                `remove_columns`.
        """
        datasets = require("datasets", extra="datasets", purpose="Embedding a dataset")
        vector = datasets.List(datasets.Value("float32"), length=self.dim)
        if dataset is not None and dataset.features is None:
            raise InvalidInput(
                "the columns of a streamed dataset are unknown: map without features"
            )
        columns = {} if dataset is None else dict(dataset.features)
        columns[self.output] = vector if self.pooling is not None else datasets.List(vector)
        return datasets.Features(columns)
