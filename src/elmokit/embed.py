"""Text in, contextual vectors out: the Embedder that `elmokit.load` gives.

Sentences are gathered in a window, each distinct word goes through the token encoder once (and
stays in a bounded cache), batches are formed by length, and results come back in order. The same
sentence gives the same vectors whatever stands beside it.
"""

from __future__ import annotations

import os
import reprlib
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit import language
from elmokit.config import BiLMConfig
from elmokit.engine import WordVectors, build_model, make_batches
from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Checkpoint, tokenizer_of
from elmokit.language import Filling, Perplexity, Surprisal, Text
from elmokit.layers import Layers, Pooling, check_pooling, combine, layer_weights, pool
from elmokit.model.bilm import (
    BiLM,
    BiLMOutput,
    BiLMState,
    find_representation,
    given_state,
    tensors_of,
    unflatten,
    weights_version,
)
from elmokit.model.fast.inference import FastBiLM
from elmokit.model.fast.linear import PRECISIONS, Precision
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmokit.text.dictionaries import Dictionaries
from elmokit.text.indexers import make_indexer, refuse_strings
from elmokit.text.tokenize import tokenizer as find_tokenizer
from elmokit.text.vocabulary import Vocabulary

WINDOW_BYTES = 128 << 20  # results that one look-ahead window may hold
TOKEN_BYTES = 500  # of a token itself, before it has vectors
LONGEST = 1024  # tokens; a longer sentence is read by the model in windows of this length
LARGEST_IN_MEMORY = 512 << 20  # bytes of one sentence's vectors; more go to a temporary file


@dataclass(frozen=True)
class Sentence:
    """A sentence's tokens and their vectors."""

    tokens: list[str]
    layers: NDArray[Any]
    """The chosen layers: (layers, tokens, dim)."""

    @property
    def vectors(self) -> NDArray[Any]:
        """The vectors, where one layer or one mix was asked for: (tokens, dim)."""
        if len(self.layers) != 1:
            raise ElmokitError(
                f"this sentence has {len(self.layers)} layers; ask for one of them or "
                "layers='average', or take .layers"
            )
        return self.layers[0]  # type: ignore[no-any-return]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A single representation such as "token", "forward_1", "backward_2": (tokens, size)."""
        if len(self.layers) == 1:  # a model has at least two: this is one of them, or a mix
            raise ElmokitError(f"{name!r} is found in all layers only: embed with layers='all'")
        layer, columns = find_representation(name, len(self.layers) - 1, self.layers.shape[-1])
        return self.layers[layer, :, columns]

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        text = reprlib.repr(" ".join(self.tokens))
        return f"Sentence({text}, {self.layers.dtype} {tuple(self.layers.shape)})"


class Embedder:
    """A biLM with everything needed to turn text into vectors."""

    def __init__(
        self,
        model: BiLM,
        *,
        vocabulary: Vocabulary | None = None,
        dictionaries: Dictionaries | None = None,
        tokenizer: str = "elmokit",
        precision: Precision = "float32",
        metadata: dict[str, Any] | None = None,
        source: str = "memory",
        batch_tokens: int = 2048,
        cache_bytes: int = 128 << 20,
    ) -> None:
        """Wrap a model.

        Args:
            model: the biLM.
            vocabulary: the words of its softmax or word table.
            dictionaries: the characters and words of a model with token_encoder="unicode".
            tokenizer: what splits strings: "elmokit", "whitespace" or "chinese".
            precision: of the weights at inference: "float32", "float16" or "int8".
            metadata: what is known of its training.
            source: where it comes from, for messages.
            batch_tokens: tokens of a batch, about; 16 long sentences may be up to 8 times that.
            cache_bytes: memory for the vectors of words met before.
        """
        if precision not in PRECISIONS:
            raise ElmokitError(f"precision must be one of {', '.join(PRECISIONS)}")
        if batch_tokens < 1:
            raise ElmokitError(f"batch_tokens must be at least 1, not {batch_tokens}")
        self.model, self.vocabulary, self.dictionaries = model, vocabulary, dictionaries
        self.tokenizer_name, self.tokenize = tokenizer, find_tokenizer(tokenizer)
        self.precision: Precision = precision
        self.metadata, self.source = metadata or {}, source
        self.batch_tokens, self.cache_bytes = batch_tokens, cache_bytes
        self.indexer = make_indexer(model.config, vocabulary, dictionaries)
        self._lock = threading.Lock()
        self._versions: tuple[int, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or pickled: not the lock, nor what can be computed from the weights."""
        made_here = ("_lock", "_versions", "_fast", "_words")
        return {name: value for name, value in self.__dict__.items() if name not in made_here}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._versions = ()

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, *, tokenizer: str | None = None, **settings: Any
    ) -> Embedder:
        """An Embedder of what a format has read; settings as in the constructor.

        Without a `tokenizer`, it is the one that the model's metadata ask for.
        """
        words = checkpoint.vocabulary
        return cls(
            build_model(checkpoint),
            vocabulary=None if words is None else Vocabulary(words),
            dictionaries=checkpoint.dictionaries,
            tokenizer=tokenizer or tokenizer_of(checkpoint.metadata),
            metadata=checkpoint.metadata,
            source=checkpoint.source,
            **settings,
        )

    # ------------------------------------------------------------------ metadata
    @property
    def config(self) -> BiLMConfig:
        """The model's sizes."""
        return self.model.config

    @property
    def dim(self) -> int:
        """Columns of a vector."""
        return self.config.dim

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def __repr__(self) -> str:
        config = self.config
        return (
            f"Embedder({self.source}: {config.num_layers} layers of "
            f"{config.lstm_dim}/{config.projection_dim}, dim {config.dim}, {self.precision})"
        )

    def to(self, device: torch.device | str) -> Embedder:
        """Move the model to a device."""
        self.model.to(device)
        return self

    def fingerprint(self) -> str:
        """A hash of the configuration and of all weights that decide the vectors."""
        return self.checkpoint(copy=False).fingerprint()

    def checkpoint(self, *, copy: bool = True) -> Checkpoint:
        """What a format writes; without `copy` it changes when the model is trained."""
        return Checkpoint(
            config=self.config,
            tensors=tensors_of(self.model, copy=copy),
            vocabulary=None if self.vocabulary is None else self.vocabulary.words,
            metadata=self.metadata,
            source=self.source,
            dictionaries=self.dictionaries,
        )

    def save(
        self,
        folder: str | Path,
        *,
        dtype: Literal["float32", "float16"] = "float32",
        overwrite: bool = False,
    ) -> None:
        """Write the model as a native folder."""
        from elmokit.formats import native

        native.write(self.checkpoint(copy=False), Path(folder), dtype=dtype, overwrite=overwrite)

    def push(self, repository: str, **settings: Any) -> str:
        """Upload the model to the Hugging Face Hub as `owner/name`; gives its address."""
        from elmokit.formats.containers import hf_hub as hub

        return hub.push(self.checkpoint(), repository, **settings)

    # ------------------------------------------------------------------ embedding
    def embed(
        self,
        text: Text | Sequence[Text],
        layers: Layers = "all",
        *,
        batch_size: int | None = None,
        boundaries: bool = False,
        dtype: str = "float32",
    ) -> Any:
        """Vectors of a sentence, or of many.

        Args:
            text: a string, or a list of tokens: one Sentence. A list of those: a list of
                Sentences. (A list of strings is one tokenized sentence, unless a string in it
                has a space: then each is a sentence.)
            layers: "all", "top", "average", an index from 0, or a weight for each layer.
            batch_size: sentences of a batch, at most.
            boundaries: keep `<S>` and `</S>` as first and last token.
            dtype: "float32" or "float16" of the result.
        """
        sentences, one = _as_sentences(text)
        found = list(
            self.stream(
                sentences, layers, batch_size=batch_size, boundaries=boundaries, dtype=dtype
            )
        )
        return found[0] if one else found

    def stream(
        self,
        sentences: Iterable[Text],
        layers: Layers = "all",
        *,
        batch_size: int | None = None,
        boundaries: bool = False,
        dtype: str = "float32",
    ) -> Iterator[Sentence]:
        """Vectors of any number of sentences, in order and in bounded memory.

        A string is a sentence to be tokenized, a list of strings a tokenized one.
        """
        weights = layer_weights(layers, self.config.num_layers)
        kind = float_type(dtype)
        _check_batch_size(batch_size)
        for window in self.windows(sentences, kept=len(weights)):
            yield from self._embed_window(window, weights, batch_size, boundaries, kind)

    def windows(self, sentences: Iterable[Text], kept: int = 1) -> Iterator[list[list[str]]]:
        """Tokenize and gather sentences into look-ahead windows of bounded size."""
        limit = max(4 * self.batch_tokens, WINDOW_BYTES // (TOKEN_BYTES + 4 * kept * self.dim))
        window: list[list[str]] = []
        tokens = 0
        for sentence in sentences:
            split = self.tokenize(sentence) if isinstance(sentence, str) else _tokens(sentence)
            if window and tokens + len(split) > limit:
                yield window
                window, tokens = [], 0
            window.append(split)
            tokens += len(split) + 1  # empty sentences count too
        if window:
            yield window

    def sentence_vectors(
        self,
        sentences: Text | Sequence[Text],
        layers: Layers = "average",
        *,
        pooling: Pooling = "mean",
        batch_size: int | None = None,
    ) -> NDArray[np.float32]:
        """One vector for each sentence: (sentences, dim), or (dim,) for a single string.

        Args:
            sentences: strings, or lists of tokens.
            layers: as for `embed`, but one layer or mix ("all" gives them side by side).
            pooling: "mean", "max", "min" or "sum" over the tokens, the "first" or "last" token,
                or "ends": the forward half of the last and the backward half of the first.
            batch_size: sentences of a batch, at most.
        """
        check_pooling(pooling)
        one = isinstance(sentences, str)
        many: Iterable[Text] = [sentences] if isinstance(sentences, str) else sentences
        found = [
            pool(sentence.layers, pooling).reshape(-1)
            for sentence in self.stream(many, layers, batch_size=batch_size)
        ]
        if one:
            return found[0]
        columns = len(layer_weights(layers, self.config.num_layers)) * self.dim
        return np.stack(found) if found else np.zeros((0, columns), np.float32)

    def embed_batch(
        self, sentences: Sequence[Text], *, state: BiLMState | Literal["carry"] | None = None
    ) -> tuple[list[Sentence], BiLMState | None]:
        """One batch, in the order given, with the LSTM state carried as the original systems did.

        Pass `state="carry"` first and the returned state from then on; row i of a batch continues
        row i of the one before.
        """
        split = [self.tokenize(s) if isinstance(s, str) else _tokens(s) for s in sentences]
        if state is None:
            found = self._embed_window(
                split,
                layer_weights("all", self.config.num_layers),
                None,
                False,
                np.dtype("float32"),
            )
            return list(found), None
        framed = [[BEGIN_SENTENCE, *sentence, END_SENTENCE] for sentence in split]
        with self._lock, torch.inference_mode():
            engine = self._engine()
            vectors, lengths = self._vectors(framed, engine), _lengths(framed)
            layers, after = engine.run_with_state(vectors, lengths, given_state(state))
        pieces = layers.cpu().numpy()
        result = [
            Sentence(tokens, pieces[:, end - len(tokens) - 1 : end - 1].copy())
            for tokens, end in zip(split, np.cumsum(lengths.numpy()), strict=True)
        ]
        return result, after

    def layers_of(self, sentences: Sequence[Sequence[str]]) -> BiLMOutput:
        """Tokenized sentences as one padded batch of tensors, without gradients."""
        refuse_strings(sentences)
        with self._lock, torch.inference_mode():
            lengths = _lengths(sentences)
            engine = self._engine()
            flat = engine.run(self._vectors(sentences, engine), lengths)
        longest = int(lengths.max()) if len(lengths) else 0
        on_device = lengths.to(self.device)
        return BiLMOutput(unflatten(flat.clone(), on_device, longest), on_device)

    def warm(self, window: Sequence[Sequence[str]]) -> None:
        """Put a window's words into the cache, as embedding it would."""
        with self._lock, torch.inference_mode():
            self._vectors(window, self._engine())

    # ------------------------------------------------------------------ language model
    def surprisal(self, sentence: Text) -> Surprisal:
        """Bits of each word given what stands before it, and given what stands after it."""
        return language.surprisal(self, sentence)

    def perplexity(self, sentences: Iterable[Text]) -> Perplexity:
        """How well both directions predict some sentences, each read alone."""
        return language.perplexity(self, sentences)

    def fill(self, sentence: Text, k: int = 10) -> list[Filling]:
        """The `k` words that fit the gap `___` in a sentence best."""
        return language.fill(self, sentence, k)

    # ------------------------------------------------------------------ inside
    def _engine(self) -> FastBiLM:
        """The packed weights; made anew when a parameter has changed or moved."""
        versions = weights_version(self.model)
        if versions != self._versions:
            boundaries = torch.from_numpy(self.indexer.encode([BEGIN_SENTENCE, END_SENTENCE]))
            self._fast = FastBiLM(self.model, boundaries, self.precision)
            size = self.config.projection_dim
            limit = max(1000, self.cache_bytes // (4 * size))
            self._words = WordVectors(size, limit, self.device)
            self._versions = versions
        return self._fast

    def clear_cache(self) -> None:
        """Forget the vectors of words met before, and the weights as packed for inference.

        Changed weights are noticed without this, unless they were changed through `.data`.
        """
        with self._lock:
            self._versions = ()

    def _vectors(self, sentences: Sequence[Sequence[str]], engine: FastBiLM) -> Tensor:
        """Token vectors, sentence after sentence: (positions, projection_dim)."""
        self._words.lookup(dict.fromkeys(chain.from_iterable(sentences)), engine, self.indexer)
        rows = self._words.rows
        flat = [rows[word] for sentence in sentences for word in sentence]
        return self._words.table[torch.tensor(flat, dtype=torch.long, device=engine.device)]

    def _embed_window(
        self,
        window: list[list[str]],
        weights: NDArray[np.float32],
        batch_size: int | None,
        boundaries: bool,
        dtype: np.dtype[Any],
    ) -> Iterator[Sentence]:
        """All sentences of a window, in order."""
        edge = int(boundaries)  # columns that a boundary takes at either end
        before, after = ([BEGIN_SENTENCE], [END_SENTENCE]) if boundaries else ([], [])
        results = [_room(len(weights), len(s) + 2 * edge, self.dim, dtype) for s in window]
        pieces = [
            (number, slice(start, min(start + LONGEST, len(sentence))))
            for number, sentence in enumerate(window)
            for start in range(0, len(sentence) or edge, LONGEST)
        ]
        with self._lock, torch.inference_mode():
            engine = self._engine()
            # all distinct words at once: the token encoder likes large batches
            words = dict.fromkeys(chain(before, after, *window))
            self._words.lookup(words, engine, self.indexer)
            sizes = [place.stop - place.start for _, place in pieces]
            for numbers in make_batches(sizes, self.batch_tokens, batch_size):
                batch = [pieces[number] for number in numbers]
                texts = [[*before, *window[sentence][place], *after] for sentence, place in batch]
                lengths, vectors = _lengths(texts), self._vectors(texts, engine)
                if boundaries:
                    layers, _ = engine.run_with_state(vectors, lengths, None)
                else:
                    layers = engine.run(vectors, lengths)
                arrays = combine(layers, weights).cpu().numpy()
                ends = np.cumsum(lengths.numpy())
                for (sentence, place), text, end in zip(batch, texts, ends, strict=True):
                    found, result = arrays[:, end - len(text) : end], results[sentence]
                    if boundaries and place.start == 0:
                        result[:, 0] = found[:, 0]
                    if boundaries and place.stop == len(window[sentence]):
                        result[:, -1] = found[:, -1]
                    inner = found[:, edge : len(text) - edge]
                    result[:, place.start + edge : place.stop + edge] = inner
        results.reverse()
        for tokens in window:
            # nothing is kept longer than needed
            yield Sentence([*before, *tokens, *after], results.pop())


def _check_batch_size(size: int | None) -> None:
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise ElmokitError(f"batch_size must be a whole number of at least 1, not {size!r}")


def float_type(name: str) -> np.dtype[Any]:
    """float32 or float16."""
    if name not in ("float32", "float16"):
        raise ElmokitError(f"dtype must be float32 or float16, not {name!r}")
    return np.dtype(name)


def _room(layers: int, tokens: int, dim: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Memory for a sentence's vectors; on disk where a single one would fill the memory."""
    shape = (layers, tokens, dim)
    if layers * tokens * dim * dtype.itemsize <= LARGEST_IN_MEMORY:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="elmokit-") as file:  # the map keeps it open
        _allocate(file.fileno(), layers * tokens * dim * dtype.itemsize)
        return np.memmap(file, dtype, "w+", shape=shape)


def _allocate(handle: int, size: int) -> None:
    """Take the space now: a full disk is an error here, but kills the process in a memory map."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        raise ElmokitError(
            f"a sentence's vectors need {size:,} bytes in {tempfile.gettempdir()}: "
            f"{error.strerror}; TMPDIR names another place"
        ) from None


def _lengths(sentences: Sequence[Sequence[str]]) -> Tensor:
    return torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long)


def _tokens(sentence: object) -> list[str]:
    """The tokens of a tokenized sentence."""
    tokens: list[Any] = list(sentence) if isinstance(sentence, Iterable) else [None]
    if not all(isinstance(token, str) for token in tokens):
        raise ElmokitError(
            f"a sentence is a string or a list of strings, not {reprlib.repr(sentence)}"
        )
    return tokens


def _as_sentences(text: Text | Sequence[Text]) -> tuple[Sequence[Text], bool]:
    """The sentences of `text`, and whether it was a single one."""
    if isinstance(text, str):
        return [text], True
    if not isinstance(text, Iterable):
        raise ElmokitError(f"text is a string, a list of tokens or a list of those, not {text!r}")
    items = list(text)
    if items and all(isinstance(item, str) and len(item.split()) < 2 for item in items):
        return [items], True  # type: ignore[list-item]
    return items, False
