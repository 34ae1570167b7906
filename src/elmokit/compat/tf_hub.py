"""The calling convention of TensorFlow Hub's `google/elmo`, so that old code changes one line.

    elmo = elmokit.compat.tf_hub.load("elmo_3")
    elmo(["the cat is on the mat", "dogs are in the fog"])["elmo"]     # (2, 6, 1024)

Results are NumPy arrays instead of tensors to be run in a session. Every sentence is read afresh.
Where a sentence is shorter than the longest, all vectors are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.embed import Embedder
from elmokit.errors import ElmokitError

INPUTS = {"default": ("strings",), "tokens": ("tokens", "sequence_len")}

Outputs = dict[str, NDArray[np.float32]]


def load(model: str | Path | None = None, **settings: Any) -> Module:
    """Load a module's folder, or any other model, whose layers are then averaged.

    Args:
        model: as for `elmokit.load`: the module's folder or archive, the native folder that
            `elmokit convert` has made of it, or another model.
        **settings: more settings of `elmokit.load`.
    """
    from elmokit.loading import load as load_embedder

    return Module(load_embedder(model, **settings))


class Module:
    """A model that is called as the module was."""

    def __init__(self, elmo: Embedder) -> None:
        """Wrap an embedder; the weights of the layers are among its metadata if it was a module."""
        self.elmo = elmo
        self.weights, self.scaling = _aggregation(elmo)
        self.signatures: dict[str, Callable[..., Outputs]] = {
            "default": self._of_strings,
            "tokens": self._of_tokens,
        }

    def __call__(self, inputs: Any, signature: str = "default", as_dict: bool = True) -> Any:
        """All outputs by their names, or the `default` one without `as_dict`.

        Args:
            inputs: for the signature `default`, strings, which are split at spaces; for `tokens`,
                a dictionary of `tokens`, (sentences, tokens), and `sequence_len`, (sentences,).
            signature: "default" or "tokens".
            as_dict: give all outputs by their names; else `default` alone.

        Returns:
            `word_emb`, (sentences, tokens, dim / 2), the vectors of the words alone;
            `lstm_outputs1`, `lstm_outputs2`, (sentences, tokens, dim), the layers;
            `elmo`, of the same shape, their weighted sum with the vectors of the words;
            `default`, (sentences, dim), its mean over the tokens of each sentence.
        """
        if signature not in self.signatures:
            raise ElmokitError(f"the signature must be default or tokens, not {signature!r}")
        named = inputs if isinstance(inputs, Mapping) else {INPUTS[signature][0]: inputs}
        if sorted(named) != sorted(INPUTS[signature]):
            wanted = " and ".join(INPUTS[signature])
            raise ElmokitError(f"the inputs of the signature {signature} are {wanted}")
        outputs = self.signatures[signature](**named)
        return outputs if as_dict else outputs["default"]

    def _of_strings(self, strings: Iterable[str | bytes]) -> Outputs:
        """The signature `default`."""
        if isinstance(strings, str | bytes):
            raise ElmokitError("the module takes a list of sentences, not a single string")
        split = [[token for token in _text(line).split(" ") if token] for line in strings]
        return self._outputs(split, max(map(len, split), default=0))

    def _of_tokens(
        self, tokens: Sequence[Sequence[str | bytes]], sequence_len: Sequence[int]
    ) -> Outputs:
        """The signature `tokens`; what stands behind a sentence's length is padding."""
        lengths = np.asarray(sequence_len)
        if lengths.shape != (len(tokens),) or (len(tokens) and lengths.dtype.kind not in "iu"):
            raise ElmokitError(f"sequence_len must be {len(tokens)} whole numbers, one a sentence")
        for row, length in zip(tokens, lengths.tolist(), strict=True):
            if isinstance(row, str | bytes) or not 0 <= length <= len(row):
                raise ElmokitError(f"a sequence_len is {length}, and its tokens are {row!r:.80}")
        split = [[_text(t) for t in row[:n]] for row, n in zip(tokens, lengths, strict=True)]
        return self._outputs(split, max(map(len, tokens), default=0))

    def _outputs(self, sentences: list[list[str]], longest: int) -> Outputs:
        """Every output of tokenized sentences, padded to the same length."""
        elmo = self.elmo
        shape = (elmo.config.num_layers + 1, len(sentences), longest, elmo.dim)
        layers = np.zeros(shape, np.float32)
        for number, sentence in enumerate(elmo.stream(sentences)):
            layers[:, number, : len(sentence.tokens)] = sentence.layers
        lengths = np.array([max(1, len(sentence)) for sentence in sentences], np.float32)
        mixed = np.einsum("l,lstd->std", self.scaling * _softmax(self.weights), layers)
        return {
            "word_emb": layers[0, :, :, : elmo.dim // 2].copy(),
            **{f"lstm_outputs{k}": layers[k] for k in range(1, len(layers))},
            "elmo": mixed,
            "default": mixed.sum(axis=1) / lengths[:, None],
        }


def _aggregation(elmo: Embedder) -> tuple[NDArray[np.float32], np.float32]:
    """The weights before their softmax, and the scale; the plain average where there are none."""
    number = elmo.config.num_layers + 1
    found = elmo.metadata.get("aggregation")
    if found is None:
        return np.zeros(number, np.float32), np.float32(1)
    try:
        weights = np.array(found["weights"], np.float32)
        scaling = np.float32(found["scaling"])
    except (KeyError, TypeError, ValueError):
        weights, scaling = np.zeros(0, np.float32), np.float32(1)
    if weights.shape != (number,) or not np.isfinite([*weights, scaling]).all():
        wanted = f"{number} weights and a scaling"
        raise ElmokitError(f"{elmo.source}: the fact 'aggregation' must be {wanted}")
    return weights, scaling


def _softmax(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    raised: NDArray[np.float32] = np.exp(weights - weights.max())
    shares: NDArray[np.float32] = raised / raised.sum()
    return shares


def _text(token: object) -> str:
    if isinstance(token, bytes):
        return token.decode("utf-8", "replace")
    if not isinstance(token, str):
        raise ElmokitError(f"the module takes strings, not {token!r:.80}")
    return token
