"""The names of AllenNLP's ELMo: old code changes its import line and nothing else.

    from elmokit.compat.allennlp import Elmo, ElmoEmbedder, batch_to_ids

Arguments, outputs, shapes and the names in a state dict are those of AllenNLP. Every sentence
starts afresh, so that its vectors are those that AllenNLP gave in its first batch; with
`stateful=True` the state goes on from batch to batch, row by row, as it did there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.compat.allennlp_bilm import CharacterBiLM
from elmokit.embed import Embedder
from elmokit.errors import ElmokitError, reason_of
from elmokit.formats import bilm
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.detect import read_checkpoint
from elmokit.io.atomic import atomic_file
from elmokit.layer import ElmoLayer
from elmokit.model import scalar_mix
from elmokit.model.bilm import BiLMState
from elmokit.text.characters import CharacterIndexer
from elmokit.text.indexers import refuse_strings

MAX_CHARACTERS = 50
BATCH_SIZE = 64
OUTPUT_FORMATS = ("all", "top", "average")


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Character ids of tokenized sentences, 0 where one has ended: (sentences, tokens, 50)."""
    refuse_strings(batch)
    longest = max(map(len, batch), default=0)
    ids = np.zeros((len(batch), longest, MAX_CHARACTERS), np.int64)
    indexer = CharacterIndexer(MAX_CHARACTERS)
    for row, sentence in enumerate(batch):
        ids[row, : len(sentence)] = indexer.encode(sentence)
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
        """Make a mix of `mixture_size` layers; the weights are those before the softmax."""
        super().__init__()
        start = list(initial_scalar_parameters or [0.0] * mixture_size)
        if len(start) != mixture_size:
            raise ElmokitError(f"{len(start)} weights were given for {mixture_size} layers")
        self.mixture_size, self.do_layer_norm = mixture_size, do_layer_norm
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(weight)]), requires_grad=trainable) for weight in start
        )
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mix layers of (..., dim); mask (...) is True where there is a token."""
        if len(tensors) != self.mixture_size:
            raise ElmokitError(f"this mix is of {self.mixture_size} layers, not {len(tensors)}")
        if self.do_layer_norm:
            tensors = [scalar_mix.normalised(layer, mask) for layer in tensors]
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
        """Load a model and start its mixes.

        Args:
            options_file: its JSON file; None where `weight_file` alone says which model it is.
            weight_file: its HDF5 file; without options, any model on characters that
                `elmokit.load` takes, and None for the one that ships.
            num_output_representations: number of mixes, each with weights of its own.
            requires_grad: train the biLM too.
            do_layer_norm: normalise each layer before mixing, boundaries included.
            dropout: applied to each output, in training.
            vocab_to_cache: words that `word_inputs` are numbers of; the first is the padding's.
            keep_sentence_boundaries: leave `<S>` and `</S>` in the output.
            scalar_mix_parameters: weights of the mixes before the softmax, which are then kept.
            module: use this instead of a biLM; it has `num_layers`, and gives `activations` and
                `mask` when called.
            stateful: carry the LSTM state from call to call.
        """
        super().__init__()
        if module is not None and (options_file is not None or weight_file is not None):
            raise ElmokitError("give options_file and weight_file, or a module, but not both")
        self._elmo_lstm = module or CharacterBiLM(
            _read(options_file, weight_file), requires_grad, vocab_to_cache, stateful
        )
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(dropout)
        self._scalar_mixes = [f"scalar_mix_{k}" for k in range(num_output_representations)]
        layers: int = self._elmo_lstm.num_layers  # type: ignore[assignment]
        fixed = scalar_mix_parameters
        for name in self._scalar_mixes:
            mix = ScalarMix(layers, do_layer_norm, fixed, trainable=fixed is None)
            self.add_module(name, mix)

    def get_output_dim(self) -> int:
        """Columns of a vector."""
        return self._elmo_lstm.get_output_dim()  # type: ignore[operator,no-any-return]

    def reset_states(self) -> None:
        """Forget what was carried, with `stateful=True`."""
        self._elmo_lstm.reset_states()  # type: ignore[operator]

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Mixed layers of a batch.

        Args:
            inputs: character ids of `batch_to_ids`: (sentences, tokens, 50), or with more
                dimensions in front.
            word_inputs: numbers of words in `vocab_to_cache`, 0 for padding: (sentences, tokens).

        Returns:
            `elmo_representations`, a tensor (sentences, tokens, dim) for each mix, 0 where
            padded; `mask`, True where there is a token: (sentences, tokens).
        """
        shape = inputs.shape[:-1] if word_inputs is None else word_inputs.shape
        if len(shape) > 2:
            inputs = inputs.flatten(0, -3)
            word_inputs = None if word_inputs is None else word_inputs.flatten(0, -2)
        found = self._elmo_lstm(inputs, word_inputs)
        layers, mask = found["activations"], found["mask"]
        outputs = [getattr(self, name)(layers, mask) for name in self._scalar_mixes]
        if not self._keep_sentence_boundaries:
            outputs, mask = [output[:, 1:-1] for output in outputs], mask[:, 2:]
        outputs = [self._dropout(output * mask.unsqueeze(-1)) for output in outputs]
        outer = shape[:-1] if len(shape) > 2 else mask.shape[:1]
        return {
            "elmo_representations": [
                output.reshape(*outer, *output.shape[1:]) for output in outputs
            ],
            "mask": mask.reshape(*outer, mask.shape[1]),
        }


def _read(options_file: str | Path | None, weight_file: str | Path | None) -> Checkpoint:
    """The model of two files, or whatever one name says."""
    for file in (options_file, weight_file):
        if isinstance(file, str) and file.startswith(("http://", "https://", "s3://")):
            raise ElmokitError(f"elmokit downloads nothing: fetch {file} and give its path")
    if options_file is None:
        return read_checkpoint(weight_file)
    if weight_file is None:
        raise ElmokitError(f"options_file {options_file} was given without its weight_file")
    return bilm.read(Path(weight_file).expanduser(), Path(options_file).expanduser())


# ---------------------------------------------------------------------- sentences to arrays
class ElmoEmbedder:
    """All layers of tokenized sentences as NumPy arrays."""

    def __init__(
        self,
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        cuda_device: int = -1,
        *,
        stateful: bool = False,
    ) -> None:
        """Load a model; without files, the one that ships, as nothing is downloaded.

        Args:
            options_file: its JSON file; None where `weight_file` alone says which model it is.
            weight_file: its HDF5 file; without options, any model that `elmokit.load` takes.
            cuda_device: number of a GPU, or -1 for the CPU.
            stateful: carry the LSTM state from batch to batch.
        """
        self.elmo = Embedder.from_pretrained(_read(options_file, weight_file))
        if cuda_device >= 0:
            self.elmo.to(f"cuda:{cuda_device}")
        self.cuda_device, self.stateful = cuda_device, stateful
        self._state: BiLMState | None = None

    def embed_sentence(self, sentence: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of one sentence: (layers, tokens, dim)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """Vectors of some sentences, each (layers, tokens, dim)."""
        refuse_strings(batch)
        if not self.stateful or not any(map(len, batch)):
            return [sentence.layers for sentence in self.elmo.stream(map(list, batch))]
        rows = 0 if self._state is None else self._state.rows
        more = max(0, len(batch) - rows)
        zeros = BiLMState.zeros(self.elmo.config, more, self.elmo.device)
        state = zeros if self._state is None else BiLMState.cat([self._state, zeros])
        found, self._state = self.elmo.embed_batch(list(map(list, batch)), state=state)
        return [sentence.layers for sentence in found]

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = BATCH_SIZE
    ) -> Iterator[NDArray[np.float32]]:
        """Vectors of any number of sentences, one after the other: (layers, tokens, dim)."""
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ElmokitError(f"batch_size must be a whole number of at least 1: {batch_size!r}")
        waiting = iter(sentences)
        while batch := list(islice(waiting, batch_size)):
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
        """Embed a file of sentences, one a line, its tokens separated by spaces, into HDF5.

        Args:
            input_file: an open file, or lines of text.
            output_file_path: the file to write; one that is there is replaced.
            output_format: "all" layers, (layers, tokens, dim), the "top" one or the "average",
                both (tokens, dim).
            batch_size: sentences of a batch.
            forget_sentences: leave out `sentence_to_index`, a JSON object in a dataset of its own
                that gives each sentence's number.
            use_sentence_keys: name the datasets by the sentences instead of by their numbers.
        """
        import h5py

        if output_format not in OUTPUT_FORMATS:
            wanted = ", ".join(OUTPUT_FORMATS)
            raise ElmokitError(f"output_format must be one of {wanted}, not {output_format!r}")
        sentences = [line.strip() for line in input_file]
        if "" in sentences:
            raise ElmokitError(f"line {sentences.index('') + 1} of the input is empty; remove it")
        keys = sentences if use_sentence_keys else list(map(str, range(len(sentences))))
        found = self.embed_sentences(map(str.split, sentences), batch_size)
        path = Path(output_file_path).expanduser()
        try:
            with atomic_file(path) as target, h5py.File(target.name, "w") as file:
                for key, layers in zip(keys, found, strict=True):
                    _add(file, key, _reduced(layers, output_format))
                if not forget_sentences and not use_sentence_keys:
                    index = dict(zip(sentences, keys, strict=True))
                    text = h5py.string_dtype()
                    file.create_dataset("sentence_to_index", (1,), text, [json.dumps(index)])
        except OSError as error:
            raise ElmokitError(f"cannot write {path}: {reason_of(error)}") from None


def _reduced(layers: NDArray[np.float32], output_format: str) -> NDArray[np.float32]:
    """What is written of a sentence's layers."""
    found: dict[str, NDArray[np.float32]] = {
        "all": layers,
        "top": layers[-1],
        "average": layers.mean(axis=0),
    }
    return found[output_format]


def _add(file: Any, key: str, vectors: NDArray[np.float32]) -> None:
    """A dataset under a key that is new."""
    if key in file:
        raise ElmokitError(f"{key!r} is there twice; without use_sentence_keys that is no matter")
    try:
        file.create_dataset(key, data=vectors)
    except (ValueError, TypeError, RuntimeError):
        raise ElmokitError(
            f"{key!r} cannot be a key in HDF5; leave out use_sentence_keys"
        ) from None


# ---------------------------------------------------------------------- trained mixes
def scalar_mixes(elmo: Embedder, *, trainable: bool = True) -> list[scalar_mix.ScalarMix]:
    """The trained mixes of a task model's ELMo, which are among its metadata.

    Args:
        elmo: what `elmokit.load` gave for a task model, or for what was converted from one.
        trainable: go on training them.
    """
    try:
        return [
            scalar_mix.ScalarMix(
                elmo.config.num_layers + 1,
                layer_norm=bool(found["layer_norm"]),
                initial=[float(weight) for weight in found["weights"]],
                gamma=float(found["gamma"]),
                trainable=trainable,
            )
            for found in elmo.metadata["scalar_mixes"]
        ]
    except (KeyError, TypeError, ValueError):
        raise ElmokitError(f"{elmo.source} has no trained scalar mixes") from None


def trained_layer(elmo: Embedder, *, dropout: float = 0.5, trainable: bool = False) -> ElmoLayer:
    """An ElmoLayer that starts with the trained mixes of a task model.

    Args:
        elmo: as for `scalar_mixes`.
        dropout: applied to each output, in training.
        trainable: train the biLM too.
    """
    mixes = scalar_mixes(elmo)
    if not mixes:
        raise ElmokitError(f"{elmo.source} has no trained scalar mixes")
    layer = ElmoLayer(elmo, outputs=len(mixes), dropout=dropout, trainable=trainable)
    layer.mixes = nn.ModuleList(mixes)
    return layer
