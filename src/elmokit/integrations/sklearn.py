"""ELMo in scikit-learn: texts to vectors, and sentences to the features of a CRF.

Both transformers hold the name of a model, not the model: clones and pickles are small, and all of
them share one loaded model (see `integrations/models.py`).
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InvalidInput, require
from elmokit.integrations.models import ModelSettings, recorded_model, shared_model
from elmokit.layers import Layers, Pooling, check_pooling, layer_weights
from elmokit.model.kernels.linear import Precision
from elmokit.text.indexers import refuse_strings

require("sklearn", extra="sklearn", purpose="elmokit.integrations.sklearn")
from sklearn.base import (  # noqa: E402
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted  # noqa: E402


class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Transforms texts into one vector each, like `Embedder.sentence_vectors`.

    `fit` does not train anything: it loads the model and notes its fingerprint. A pickle has the
    name of the model, and after unpickling a different model with that name is rejected. Only
    `fit` downloads a model from the Hub; `transform` never does.
    """

    def __init__(
        self,
        model: str = "english",
        *,
        layers: Layers = "average",
        pooling: Pooling = "mean",
        precision: Precision = "float32",
        tokenizer: str | None = None,
        device: str = "cpu",
        batch_size: int | None = None,
    ) -> None:
        """Store the settings; `fit` loads the model.

        Args:
            model: What `elmokit.load` takes: a folder, a file or a name on the Hub.
            layers: "top", "average", an index from 0, a weight for each layer, or "all" to put the
                layers side by side.
            pooling: "mean", "max", "min", "sum", "first", "last" or "ends".
            precision: Precision of the weights: "float32", "float16" or "int8".
            tokenizer: Tokenizer of strings (default: the one the model was trained with).
            device: Device to compute on, such as "cpu" or "cuda".
            batch_size: Maximum number of texts in a batch.
        """
        self.model = model
        self.layers = layers
        self.pooling = pooling
        self.precision = precision
        self.tokenizer = tokenizer
        self.device = device
        self.batch_size = batch_size

    def fit(self, X: Iterable[Any], y: object = None) -> ElmoVectorizer:
        """Load the model and check the settings.

        Args:
            X: Texts: a list, an array or a Series of strings, or of lists of tokens.
            y: Ignored.
        """
        check_texts(X)
        check_pooling(self.pooling)
        embedder, self.fingerprint_ = shared_model(_settings(self))
        rows = layer_weights(self.layers, embedder.config.num_layers)
        self._n_features_out = len(rows) * embedder.dim
        return self

    def transform(self, X: Iterable[Any]) -> NDArray[np.float32]:
        """Return the vectors of texts: (texts, columns).

        Args:
            X: Texts: a list, an array or a Series of strings, or of lists of tokens.
        """
        check_is_fitted(self, "fingerprint_")
        embedder, _ = recorded_model(_settings(self), self.fingerprint_)
        return embedder.sentence_vectors(
            check_texts(X), self.layers, pooling=self.pooling, batch_size=self.batch_size
        )

    def __sklearn_tags__(self) -> Any:
        return _text_tags(super().__sklearn_tags__())


class ElmoTokenFeatures(TransformerMixin, BaseEstimator):
    """Transforms tokenized sentences into feature dicts, as sklearn-crfsuite takes them.

    Each token has one feature for each column of its vector: `{"elmo_0": 0.31, "elmo_1": …}`.
    """

    def __init__(
        self,
        model: str = "english",
        *,
        layers: Layers = "average",
        precision: Precision = "float32",
        device: str = "cpu",
        batch_size: int | None = None,
    ) -> None:
        """Store the settings; `fit` loads the model.

        Args:
            model: What `elmokit.load` takes: a folder, a file or a name on the Hub.
            layers: "top", "average", an index from 0, a weight for each layer, or "all" to put the
                layers side by side.
            precision: Precision of the weights: "float32", "float16" or "int8".
            device: Device to compute on, such as "cpu" or "cuda".
            batch_size: Maximum number of sentences in a batch.
        """
        self.model = model
        self.layers = layers
        self.precision = precision
        self.device = device
        self.batch_size = batch_size

    def fit(self, X: Iterable[Any], y: object = None) -> ElmoTokenFeatures:
        """Load the model and check the settings.

        Args:
            X: Sentences: lists of tokens.
            y: Ignored.
        """
        refuse_strings(check_texts(X))
        embedder, self.fingerprint_ = shared_model(_settings(self))
        layer_weights(self.layers, embedder.config.num_layers)  # Raises for a wrong selector.
        return self

    def transform(self, X: Iterable[Any]) -> list[list[dict[str, float]]]:
        """Return a list of feature dicts for each sentence, one dict for each token.

        Args:
            X: Sentences: lists of tokens.
        """
        check_is_fitted(self, "fingerprint_")
        sentences = check_texts(X)
        refuse_strings(sentences)
        embedder, _ = recorded_model(_settings(self), self.fingerprint_)
        results = []
        for sentence in embedder.stream(sentences, self.layers, batch_size=self.batch_size):
            vectors = np.concatenate(list(sentence.layers), axis=1)  # (tokens, columns)
            names = [f"elmo_{column}" for column in range(vectors.shape[1])]
            results.append([dict(zip(names, row, strict=True)) for row in vectors.tolist()])
        return results

    def __sklearn_tags__(self) -> Any:
        return _text_tags(super().__sklearn_tags__())


def check_texts(X: Iterable[Any]) -> Sequence[Any]:
    """Return texts as a list; raise for one string, a table or anything that is not a list."""
    if isinstance(X, str | bytes) or not isinstance(X, Iterable) or getattr(X, "ndim", 1) != 1:
        kind = f"a {type(X).__name__}: {reprlib.repr(X)}"
        raise InvalidInput(
            f"texts must be a list, an array or a Series with one dimension, not {kind}"
        )
    return list(X)


def _settings(estimator: ElmoVectorizer | ElmoTokenFeatures) -> ModelSettings:
    """Return the settings of an estimator's model; token features need no tokenizer."""
    tokenizer = getattr(estimator, "tokenizer", None)
    return ModelSettings(str(estimator.model), estimator.precision, tokenizer, estimator.device)


def _text_tags(tags: Any) -> Any:
    """Declare that X is a list of texts, not a table of numbers."""
    tags.input_tags.string = True
    tags.input_tags.one_d_array = True
    tags.input_tags.two_d_array = False
    tags.no_validation = True
    return tags
