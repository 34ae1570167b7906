"""Drop-in replacement for TensorFlow Hub's `google/elmo`: old code changes one line.

    elmo = elmokit.hub.load("elmo_3")
    elmo(["the cat is on the mat", "dogs are in the fog"])["elmo"]     # (2, 6, 1024)

Results are NumPy arrays instead of tensors to run in a session. Every sentence starts from zero
states. Vectors after the end of a sentence are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.embed import Embedder
from elmokit.errors import InvalidInput, UnsupportedFormat
from elmokit.loading import load as load_embedder
from elmokit.progress import logger

INPUTS = {"default": ("strings",), "tokens": ("tokens", "sequence_len")}

Outputs = dict[str, NDArray[np.float32]]


def load(model: str | Path | None = None, **settings: Any) -> Module:
    """Load a module, or any other model that `elmokit.load` takes, whose layers are averaged.

    An address of TensorFlow Hub means the archive that was downloaded from there.
    """
    return Module(load_embedder(_local_copy(model), **settings))


def _local_copy(model: str | Path | None) -> str | Path | None:
    """Return where the module of an address is in the current folder; all else is returned."""
    if not isinstance(model, str) or "://" not in model:
        return model
    address = model.partition("?")[0].rstrip("/")
    name = "_".join(address.split("/")[-2:])  # elmo_3
    for path in (Path(name), Path(f"{name}.tar.gz")):
        if path.exists():
            return path
    raise InvalidInput(
        f"elmokit does not download {model}: save {address}?tf-hub-format=compressed as "
        f"{path.absolute()}, or give the path of its folder or archive"
    )


class Module:
    """A model that is called like the module."""

    def __init__(
        self, spec: Embedder | str | Path | None, trainable: bool = False, name: str = "module"
    ) -> None:
        """Wrap an embedder, or load what `load` takes; only `elmokit.ElmoLayer` is trainable."""
        if trainable:
            logger.warning("trainable has no effect: train the layer weights with ElmoLayer")
        self.elmo: Embedder = spec if isinstance(spec, Embedder) else load(spec).elmo
        self.weights, self.scaling = _aggregation(self.elmo)
        self.signatures: dict[str, Callable[..., Outputs]] = {
            "default": self._of_strings,
            "tokens": self._of_tokens,
        }

    def __call__(self, inputs: Any, signature: str = "default", as_dict: bool = True) -> Any:
        """Return all outputs of the module by name, or `default` alone without `as_dict`.

        With the signature "default", `inputs` are strings, which are split at spaces; with
        "tokens", a dictionary of `tokens`, (sentences, tokens), and `sequence_len`, (sentences,).
        """
        if signature not in self.signatures:
            raise InvalidInput(f"signature must be default or tokens, not {signature!r}")
        named = inputs if isinstance(inputs, Mapping) else {INPUTS[signature][0]: inputs}
        if sorted(named) != sorted(INPUTS[signature]):
            names = " and ".join(INPUTS[signature])
            raise InvalidInput(f"the signature {signature} needs the inputs {names}")
        outputs = self.signatures[signature](**named)
        return outputs if as_dict else outputs["default"]

    def _of_strings(self, strings: Iterable[str | bytes]) -> Outputs:
        if isinstance(strings, str | bytes):
            raise InvalidInput("the module takes a list of sentences, not a single string")
        split = [[token for token in _text(line).split(" ") if token] for line in strings]
        return self._outputs(split, max(map(len, split), default=0))

    def _of_tokens(
        self, tokens: Sequence[Sequence[str | bytes]], sequence_len: Sequence[int]
    ) -> Outputs:
        """Compute the signature `tokens`; what follows a sentence's length is padding."""
        lengths = np.asarray(sequence_len)
        if lengths.shape != (len(tokens),) or (len(tokens) and lengths.dtype.kind not in "iu"):
            raise InvalidInput(f"sequence_len must be {len(tokens)} integers, one per sentence")
        for row, length in zip(tokens, lengths.tolist(), strict=True):
            if isinstance(row, str | bytes) or not 0 <= length <= len(row):
                raise InvalidInput(f"a sequence_len is {length}, but its tokens are {row!r:.80}")
        split = [[_text(t) for t in row[:n]] for row, n in zip(tokens, lengths, strict=True)]
        return self._outputs(split, max(map(len, tokens), default=0))

    def _outputs(self, sentences: list[list[str]], longest: int) -> Outputs:
        elmo = self.elmo
        shape = (elmo.config.num_layers + 1, len(sentences), longest, elmo.dim)
        layers = np.zeros(shape, np.float32)
        for i, sentence in enumerate(elmo.stream(sentences)):
            layers[:, i, : sentence.layers.shape[1]] = sentence.layers
        lengths = np.array([max(1, len(sentence)) for sentence in sentences], np.float32)
        powers = np.exp(self.weights - self.weights.max())
        mixed = np.einsum("l,lstd->std", self.scaling * (powers / powers.sum()), layers)
        return {
            "word_emb": layers[0, :, :, : elmo.dim // 2].copy(),
            **{f"lstm_outputs{k}": layers[k] for k in range(1, len(layers))},
            "elmo": mixed,
            "default": mixed.sum(axis=1) / lengths[:, None],
        }


def _aggregation(elmo: Embedder) -> tuple[NDArray[np.float32], np.float32]:
    """Return the weights before the softmax and the scale; without any, those of the average."""
    layers = elmo.config.num_layers + 1
    aggregation = elmo.metadata.get("aggregation")
    if aggregation is None:
        return np.zeros(layers, np.float32), np.float32(1)
    try:
        weights = np.array(aggregation["weights"], np.float32)
        scaling = np.float32(aggregation["scaling"])
    except (KeyError, TypeError, ValueError):
        weights, scaling = np.zeros(0, np.float32), np.float32(1)
    if weights.shape != (layers,) or not np.isfinite([*weights, scaling]).all():
        needed = f"{layers} weights and a scaling"
        raise UnsupportedFormat(f"{elmo.source}: the metadata 'aggregation' must be {needed}")
    return weights, scaling


def _text(token: object) -> str:
    if not isinstance(token, str | bytes):
        raise InvalidInput(f"the module takes strings, not {token!r:.80}")
    return token if isinstance(token, str) else token.decode("utf-8", "replace")
