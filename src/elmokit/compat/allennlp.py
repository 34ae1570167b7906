"""Drop-in replacement for AllenNLP's ELMo: old code only changes its import line.

    from elmokit.allennlp import Elmo, ElmoEmbedder, batch_to_ids

Every sentence starts from zero states, so that its vectors are those of AllenNLP's first batch;
with `stateful=True` the states are carried from batch to batch, row by row, as in AllenNLP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.compat.allennlp_bilm import CharacterBiLM, with_rows
from elmokit.embed import Embedder, check_batch_size
from elmokit.errors import InvalidInput, UnsupportedFormat, explained
from elmokit.formats import bilm
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.detect import read_checkpoint
from elmokit.io.atomic import atomic_file
from elmokit.layer import ElmoLayer
from elmokit.model import scalar_mix
from elmokit.model.batch import token_mask
from elmokit.model.bilm import BiLMState
from elmokit.text.characters import CharacterIndexer
from elmokit.text.indexers import refuse_strings
from elmokit.vectors.hdf5 import DeferredErrors

MAX_CHARACTERS = 50
BATCH_SIZE = 64
OUTPUT_FORMATS: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "all": lambda layers: layers,
    "top": lambda layers: layers[-1],
    "average": lambda layers: layers.mean(axis=0),
}


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Return the character ids of tokenized sentences, 0 for padding: (sentences, tokens, 50)."""
    refuse_strings(batch)
    ids = np.zeros((len(batch), max(map(len, batch), default=0), MAX_CHARACTERS), np.int64)
    indexer = CharacterIndexer(MAX_CHARACTERS)
    for i, sentence in enumerate(batch):
        ids[i, : len(sentence)] = indexer.encode(sentence)
    return torch.from_numpy(ids)


# ---------------------------------------------------------------------- the module
class ScalarMix(nn.Module):
    """gamma * sum_j softmax(w)_j h_j, with AllenNLP's parameters."""

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        """Create a mix of `mixture_size` layers, with initial weights before the softmax."""
        super().__init__()
        start = list(initial_scalar_parameters or [0.0] * mixture_size)
        if len(start) != mixture_size:
            raise InvalidInput(f"{mixture_size} layers need as many weights, not {len(start)}")
        self.mixture_size, self.do_layer_norm = mixture_size, do_layer_norm
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(weight)]), requires_grad=trainable) for weight in start
        )
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mix layers of (..., dim); mask (...) is True for tokens and False for padding."""
        if len(tensors) != self.mixture_size:
            raise InvalidInput(f"this mix needs {self.mixture_size} layers, not {len(tensors)}")
        if self.do_layer_norm:
            tensors = [scalar_mix.normalize(layer, mask) for layer in tensors]
        shares = torch.softmax(torch.cat(list(self.scalar_parameters)), dim=0)
        mixed = torch.stack([share * layer for share, layer in zip(shares, tensors, strict=True)])
        return self.gamma * mixed.sum(dim=0)


class Elmo(nn.Module):
    """A biLM on character ids and the scalar mixes of a task."""

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: nn.Module | None = None,
        *,
        stateful: bool = False,
    ) -> None:
        """Load a model and create its mixes.

        Args:
            options_file: JSON file of the model; None if `weight_file` is enough to find it.
            weight_file: HDF5 file of the model; without options, any model on characters that
                `elmokit.load` takes, or None for the shipped one.
            num_output_representations: number of mixes, each with its own weights.
            requires_grad: train the biLM too.
            do_layer_norm: normalize each layer before mixing, including boundaries.
            dropout: dropout of each output, in training.
            vocab_to_cache: words that `word_inputs` refer to by index; the first is padding.
            keep_sentence_boundaries: keep `<S>` and `</S>` in the output.
            scalar_mix_parameters: weights of the mixes before the softmax, which are then fixed.
            module: replacement for the biLM, with `num_layers`; returns `activations` and `mask`.
            stateful: carry the LSTM states from call to call.
        """
        super().__init__()
        if module is not None and (options_file is not None or weight_file is not None):
            raise InvalidInput("give options_file and weight_file, or a module, but not both")
        self._elmo_lstm = module or CharacterBiLM(
            _read(options_file, weight_file), requires_grad, vocab_to_cache, stateful
        )
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(dropout)
        self._scalar_mixes = [f"scalar_mix_{k}" for k in range(num_output_representations)]
        num_layers: int = self._elmo_lstm.num_layers  # type: ignore[assignment]
        fixed = scalar_mix_parameters
        for name in self._scalar_mixes:
            self.add_module(name, ScalarMix(num_layers, do_layer_norm, fixed, fixed is None))

    def get_output_dim(self) -> int:
        """Return the size of a vector."""
        return self._elmo_lstm.get_output_dim()  # type: ignore[operator,no-any-return]

    def reset_states(self) -> None:
        """Forget the carried states, with `stateful=True`."""
        self._elmo_lstm.reset_states()  # type: ignore[operator]

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Mix the layers of a batch of character ids, (sentences, tokens, 50), or of cached words.

        `inputs` may have more leading dimensions. Return `elmo_representations`, a tensor
        (sentences, tokens, dim) for each mix, 0 for padding, and `mask`, (sentences, tokens).
        """
        if not isinstance(inputs, Tensor):
            raise InvalidInput("Elmo takes character ids: pass batch_to_ids(sentences)")
        shape = inputs.shape[:-1] if word_inputs is None else word_inputs.shape
        if len(shape) > 2:
            inputs = inputs.flatten(0, -3)
            word_inputs = None if word_inputs is None else word_inputs.flatten(0, -2)
        bilm_output = self._elmo_lstm(inputs, word_inputs)
        layers, mask = bilm_output["activations"], bilm_output["mask"]
        outputs = [getattr(self, name)(layers, mask) for name in self._scalar_mixes]
        if not self._keep_sentence_boundaries:
            outputs, mask = [output[:, 1:-1] for output in outputs], mask[:, 2:]
        outputs = [self._dropout(output * mask.unsqueeze(-1)) for output in outputs]
        outer = shape[:-1] if len(shape) > 2 else mask.shape[:1]
        outputs = [output.reshape(*outer, *output.shape[1:]) for output in outputs]
        return {"elmo_representations": outputs, "mask": mask.reshape(*outer, mask.shape[1])}


class ElmoTokenEmbedder(nn.Module):
    """An Elmo with one mix, perhaps projected to another size."""

    def __init__(
        self,
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
    ) -> None:
        """Load a model; arguments as for `Elmo`, and `projection_dim`, the size of the output."""
        super().__init__()
        words, fixed = vocab_to_cache, scalar_mix_parameters
        files = (options_file, weight_file)
        self._elmo = Elmo(*files, 1, requires_grad, do_layer_norm, dropout, words, False, fixed)
        dim = self._elmo.get_output_dim()
        self.output_dim = projection_dim or dim
        self._projection = nn.Linear(dim, projection_dim) if projection_dim else None

    def get_output_dim(self) -> int:
        """Return the size of a vector."""
        return self.output_dim

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        """Return the vectors of a batch, (sentences, tokens, dim); the arguments are Elmo's."""
        vectors: Tensor = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        return vectors if self._projection is None else self._projection(vectors)


def _read(options_file: str | Path | None, weight_file: str | Path | None) -> Checkpoint:
    """Read the model of two files, or any model that one name refers to."""
    for file in (options_file, weight_file):
        if isinstance(file, str) and file.startswith(("http://", "https://", "s3://")):
            raise InvalidInput(f"elmokit does not download URLs: fetch {file} and give its path")
    if options_file is None:
        return read_checkpoint(weight_file)
    if weight_file is None:
        raise InvalidInput(f"options_file {options_file} needs its weight_file")
    return bilm.read(Path(weight_file).expanduser(), Path(options_file).expanduser())


# ---------------------------------------------------------------------- sentences to arrays
class ElmoEmbedder:
    """Embeds tokenized sentences; returns all layers as NumPy arrays."""

    def __init__(
        self,
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        cuda_device: int = -1,
        *,
        stateful: bool = False,
    ) -> None:
        """Load a model; without files, the shipped one. `stateful` carries states over batches."""
        if cuda_device >= torch.cuda.device_count():
            gpus = f"torch finds {torch.cuda.device_count()} GPUs here"
            raise InvalidInput(f"cuda_device is {cuda_device}, but {gpus}: use -1 for the CPU")
        self.elmo = Embedder.from_pretrained(_read(options_file, weight_file))
        if cuda_device >= 0:
            self.elmo.to(f"cuda:{cuda_device}")
        self.cuda_device, self.stateful = cuda_device, stateful
        self._state: BiLMState | None = None

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """Return layers (sentences, layers, tokens, dim) and a 0/1 mask (sentences, tokens)."""
        lengths = [len(sentence) for sentence in batch]
        shape = (len(batch), self.elmo.config.num_layers + 1, max(lengths, default=0))
        layers = torch.zeros(*shape, self.elmo.dim)
        for row, array in zip(layers, self.embed_batch(batch), strict=True):
            row[:, : array.shape[1]] = torch.from_numpy(array)
        device = self.elmo.device
        mask = token_mask(torch.tensor(lengths, dtype=torch.long), shape[2]).long()
        return layers.to(device), mask.to(device)

    def embed_sentence(self, sentence: Sequence[str]) -> NDArray[np.float32]:
        """Embed one sentence: (layers, tokens, dim)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """Embed a batch of sentences, each (layers, tokens, dim)."""
        refuse_strings(batch)
        if not self.stateful or not any(map(len, batch)):
            return [sentence.layers for sentence in self.elmo.stream(map(list, batch))]
        state = with_rows(self._state, len(batch), self.elmo.config, self.elmo.device)
        sentences, self._state = self.elmo.embed_batch(list(map(list, batch)), state=state)
        return [sentence.layers for sentence in sentences]

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = BATCH_SIZE
    ) -> Iterator[NDArray[np.float32]]:
        """Embed any number of sentences one after the other, each (layers, tokens, dim)."""
        check_batch_size(batch_size)
        remaining = iter(sentences)
        while batch := list(islice(remaining, batch_size)):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: IO[str],
        output_file_path: str | Path,
        output_format: str = "all",
        batch_size: int = BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embed a file with one tokenized sentence per line, and write the vectors as HDF5.

        Args:
            input_file: an open file, or lines of text; tokens are separated by spaces.
            output_file_path: file to write; an existing one is replaced.
            output_format: "all" layers, (layers, tokens, dim), or the "top" one or the "average",
                (tokens, dim).
            batch_size: number of sentences per batch.
            forget_sentences: omit the dataset `sentence_to_index`, a JSON object.
            use_sentence_keys: name the datasets by the sentences instead of their indices.
        """
        import h5py

        if output_format not in OUTPUT_FORMATS:
            allowed = ", ".join(OUTPUT_FORMATS)
            raise InvalidInput(f"output_format must be one of {allowed}, not {output_format!r}")
        sentences = [line.strip() for line in input_file]
        if "" in sentences:
            raise InvalidInput(f"line {sentences.index('') + 1} of the input is empty; remove it")
        keys = sentences if use_sentence_keys else list(map(str, range(len(sentences))))
        embedded = self.embed_sentences(map(str.split, sentences), batch_size)
        path = Path(output_file_path).expanduser()
        with (
            explained(f"cannot write {path}", OSError),
            atomic_file(path) as target,
            DeferredErrors(target.raw) as deferred,
            h5py.File(deferred, "w") as file,
        ):
            for key, layers in zip(keys, embedded, strict=True):
                _add(file, key, OUTPUT_FORMATS[output_format](layers))
            if not forget_sentences and not use_sentence_keys:
                index = dict(zip(sentences, keys, strict=True))
                text = h5py.string_dtype()
                file.create_dataset("sentence_to_index", (1,), text, [json.dumps(index)])


def _add(file: Any, key: str, vectors: NDArray[np.float32]) -> None:
    hint = "leave out use_sentence_keys"
    if key in file:
        raise InvalidInput(f"{key!r} occurs twice; {hint}")
    try:
        file.create_dataset(key, data=vectors)
    except (ValueError, TypeError, RuntimeError):
        raise InvalidInput(f"{key!r} cannot be a key in HDF5; {hint}") from None


# ---------------------------------------------------------------------- trained mixes
def scalar_mixes(elmo: Embedder, *, trainable: bool = True) -> list[scalar_mix.ScalarMix]:
    """Return the trained mixes of a task model of AllenNLP, or of a model converted from one."""
    problem = f"{elmo.source} has no trained scalar mixes"
    kinds = (KeyError, TypeError, ValueError)
    with explained(problem, *kinds, raising=UnsupportedFormat, reason=False):
        return [
            scalar_mix.ScalarMix(
                elmo.config.num_layers + 1,
                layer_norm=bool(mix["layer_norm"]),
                initial=[float(weight) for weight in mix["weights"]],
                gamma=float(mix["gamma"]),
                trainable=trainable,
            )
            for mix in elmo.metadata["scalar_mixes"]
        ]


def trained_layer(elmo: Embedder, *, dropout: float = 0.5, trainable: bool = False) -> ElmoLayer:
    """Return an ElmoLayer that starts with the trained mixes; `trainable` trains the biLM too."""
    mixes = scalar_mixes(elmo)
    if not mixes:
        raise UnsupportedFormat(f"{elmo.source} has no trained scalar mixes")
    layer = ElmoLayer(elmo, outputs=len(mixes), dropout=dropout, trainable=trainable)
    layer.mixes = nn.ModuleList(mixes)
    return layer
