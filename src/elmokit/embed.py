"""Text in, contextual vectors out: the `Embedder` that `elmokit.load` returns.

Sentences are collected in a window, each distinct word goes through the token encoder once (and
stays in a bounded cache), batches are formed by length, and results come back in order. The same
sentence gives the same vectors whatever stands beside it.
"""

from __future__ import annotations

import html
import json
import os
import reprlib
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeAlias, overload

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit import language
from elmokit.config import BiLMConfig
from elmokit.engine import Engine, build_model, lengths_of, make_batches
from elmokit.errors import InvalidInput
from elmokit.formats import native
from elmokit.formats.checkpoint import Checkpoint, tokenizer_of
from elmokit.formats.containers import hf_hub
from elmokit.formats.detect import read_checkpoint
from elmokit.io.scratch import scratch_array
from elmokit.language import Filling, Perplexity, Surprisal, Text
from elmokit.layers import Layers, Pooling, check_pooling, combine, layer_weights, pool, unit
from elmokit.model import bilm
from elmokit.model.bilm import BiLM, BiLMOutput, BiLMState
from elmokit.model.kernels.linear import PRECISIONS, Precision
from elmokit.progress import logger
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmokit.text.chinese import with_dictionary
from elmokit.text.dictionaries import Dictionaries
from elmokit.text.indexers import make_indexer, refuse_strings
from elmokit.text.readers import WINDOW_TOKENS
from elmokit.text.tokenize import tokenizer as find_tokenizer
from elmokit.text.vocabulary import Vocabulary

Texts: TypeAlias = "Sequence[str] | Sequence[Sequence[str]]"

WINDOW_BYTES = 128 << 20  # results that one look-ahead window may hold
TOKEN_BYTES = 500  # of a token itself, before it has vectors
# Tokens of a sentence, letters of a token and squares of a vector in a notebook.
MAX_HTML_TOKENS, MAX_HTML_LETTERS, MAX_HTML_SQUARES = 50, 30, 16
# (words, share): a text is foreign to a model if of so many words this share is unknown.
FOREIGN = ((5, 0.8), (30, 0.5))
MAX_MET = 1000  # words that are counted; a text that becomes foreign later is not noticed


@dataclass(frozen=True)
class Sentence:
    """The tokens of a sentence and their vectors."""

    tokens: list[str]
    """The tokens, as the tokenizer or the caller split them."""
    layers: NDArray[Any]
    """The chosen layers: (layers, tokens, dim)."""

    @property
    def vectors(self) -> NDArray[Any]:
        """The vectors, if one layer or one mix was chosen: (tokens, dim)."""
        if len(self.layers) != 1:
            raise InvalidInput(
                f"this sentence has {len(self.layers)} layers: embed with one of them or "
                "layers='average', or use .layers"
            )
        return self.layers[0]  # type: ignore[no-any-return]

    def representation(self, name: str) -> NDArray[Any]:
        """Return one of the 2L + 1 vectors of each token: (tokens, dim / 2).

        Args:
            name: "token", or a direction and a layer such as "forward_1" or "backward_2".
        """
        if len(self.layers) == 1:  # A model has at least two: this is one of them, or a mix.
            raise InvalidInput(f"{name!r} needs all layers: embed with layers='all'")
        layer, columns = bilm.find_representation(name, len(self.layers) - 1, self.layers.shape[-1])
        return self.layers[layer, :, columns]

    def __repr__(self) -> str:
        text = reprlib.repr(" ".join(self.tokens))
        return f"Sentence({text}, {self.layers.dtype} {tuple(self.layers.shape)})"

    def _repr_html_(self) -> str:
        """Return a table for notebooks: a row for each token, with a strip for each layer."""
        head = "".join(f"<th>layer {layer}</th>" for layer in range(len(self.layers)))
        layers = np.nan_to_num(self.layers[:, :MAX_HTML_TOKENS].astype(np.float64))
        layers /= np.abs(layers).max(axis=(1, 2), keepdims=True, initial=1e-9)
        rows = []
        for position, token in enumerate(self.tokens[:MAX_HTML_TOKENS]):
            cells = "".join(f"<td>{_strip(vector)}</td>" for vector in layers[:, position])
            rows.append(f"<tr><th>{html.escape(token[:MAX_HTML_LETTERS])}</th>{cells}</tr>")
        more = max(0, len(self.tokens) - MAX_HTML_TOKENS)
        shape = " × ".join(map(str, self.layers.shape))
        caption = f"{shape} {self.layers.dtype}" + f"; {more:,} more tokens" * bool(more)
        return (
            f"<table><caption>{caption}</caption>"
            f"<tr><th>token</th>{head}</tr>{''.join(rows)}</table>"
        )


def _strip(vector: NDArray[Any]) -> str:
    """Return a vector of numbers up to 1 as colored squares: red is positive, blue negative.

    Each square is the mean of neighboring columns.
    """
    squares = []
    parts = np.array_split(vector, min(len(vector), MAX_HTML_SQUARES))
    for i, part in enumerate(parts):
        value = float(part.mean())
        # The mean of many columns is small: the root makes the differences visible.
        pale = f"{round(255 * (1 - abs(value) ** 0.5)):02x}"
        color = f"ff{pale}{pale}" if value > 0 else f"{pale}{pale}ff"
        squares.append(f'<rect x="{8 * i}" width="8" height="14" fill="#{color}"/>')
    return f'<svg width="{8 * len(parts)}" height="14">{"".join(squares)}</svg>'


class Embedder:
    """A biLM with everything that turns text into vectors."""

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
            model: The biLM.
            vocabulary: Words of its softmax or word table.
            dictionaries: Characters and words of a model with token_encoder="unicode".
            tokenizer: Tokenizer of strings: "elmokit", "whitespace" or "chinese".
            precision: Precision of the weights at inference: "float32", "float16" or "int8".
            metadata: What is known about its training.
            source: Where it comes from, for messages.
            batch_tokens: Approximate number of tokens in a batch.
            cache_bytes: Memory for the vectors of words met before.
        """
        if precision not in PRECISIONS:
            raise InvalidInput(f"precision must be one of {', '.join(PRECISIONS)}")
        if batch_tokens < 1:
            raise InvalidInput(f"batch_tokens must be at least 1, not {batch_tokens}")
        self.model, self.vocabulary, self.dictionaries = model, vocabulary, dictionaries
        self.tokenizer_name, self.tokenize = tokenizer, find_tokenizer(tokenizer)
        self.precision: Precision = precision
        self.metadata, self.source = metadata or {}, source
        self.batch_tokens = batch_tokens
        self.indexer = make_indexer(model.config, vocabulary, dictionaries)
        self._met = [0, 0]  # words of all texts so far, and unknown ones among them
        self.engine = Engine(model, self.indexer, precision=precision, cache_bytes=cache_bytes)

    # ------------------------------------------------------------------ files
    @classmethod
    def from_pretrained(
        cls,
        model: str | Path | Checkpoint | None = None,
        *,
        tokenizer: str | None = None,
        jieba_dict: str | Path | None = None,
        device: str = "cpu",
        **settings: Any,
    ) -> Embedder:
        """Load a model of any format; `elmokit.load` is the short name.

        Args:
            model: What `elmokit.load` takes, or a checkpoint that was read already.
            tokenizer: Tokenizer of strings (default: the one the model was trained with).
            jieba_dict: Dictionary file for the tokenizer "chinese".
            device: Device to compute on, such as "cpu" or "cuda".
            **settings: Other arguments of `Embedder`.
        """
        checkpoint = model if isinstance(model, Checkpoint) else read_checkpoint(model)
        check_device(device)
        words = checkpoint.vocabulary
        embedder = cls(
            build_model(checkpoint),
            vocabulary=None if words is None else Vocabulary(words),
            dictionaries=checkpoint.dictionaries,
            tokenizer=with_dictionary(tokenizer or tokenizer_of(checkpoint.metadata), jieba_dict),
            metadata=checkpoint.metadata,
            source=checkpoint.source,
            **settings,
        )
        return embedder if device == "cpu" else embedder.to(device)

    def save_pretrained(
        self,
        folder: str | Path,
        *,
        dtype: Literal["float32", "float16"] = "float32",
        overwrite: bool = False,
    ) -> None:
        """Write the model as a folder that `elmokit.load` reads.

        Args:
            folder: Folder to create.
            dtype: Type of the stored weights.
            overwrite: Replace a model that is there already.
        """
        native.write(self.checkpoint(copy=False), Path(folder), dtype=dtype, overwrite=overwrite)

    def push_to_hub(self, repository: str, **settings: Any) -> str:
        """Upload the model to the Hugging Face Hub as `owner/name` and return its address."""
        return hf_hub.push(self.checkpoint(), repository, **settings)

    def checkpoint(self, *, copy: bool = True) -> Checkpoint:
        """Return what a format writes; without `copy` it changes when the model is trained."""
        tensors = bilm.tensors_of(self.model, copy=copy)
        words = None if self.vocabulary is None else self.vocabulary.words
        return Checkpoint(
            self.config, tensors, words, self.metadata, self.source, dictionaries=self.dictionaries
        )

    def fingerprint(self) -> str:
        """Return a hash of the configuration and of all weights that determine the vectors."""
        return self.checkpoint(copy=False).fingerprint()

    # ------------------------------------------------------------------ properties
    @property
    def config(self) -> BiLMConfig:
        """The configuration of the model."""
        return self.model.config

    @property
    def dim(self) -> int:
        """Number of columns of a vector."""
        return self.config.dim

    @property
    def device(self) -> torch.device:
        """The device that the model is on."""
        return next(self.model.parameters()).device

    def to(self, device: torch.device | str) -> Embedder:
        """Move the model to a device."""
        self.model.to(device)
        return self

    def __repr__(self) -> str:
        config = self.config
        return (
            f"Embedder({self.source}: {config.num_layers} layers of "
            f"{config.lstm_dim}/{config.projection_dim}, dim {config.dim}, {self.precision})"
        )

    # ------------------------------------------------------------------ embedding
    @overload
    def embed(  # type: ignore[overload-overlap]
        self,
        text: str,
        layers: Layers = ...,
        *,
        batch_size: int | None = ...,
        boundaries: bool = ...,
        dtype: str = ...,
    ) -> Sentence: ...

    @overload
    def embed(
        self,
        text: Texts,
        layers: Layers = ...,
        *,
        batch_size: int | None = ...,
        boundaries: bool = ...,
        dtype: str = ...,
    ) -> list[Sentence]: ...

    def embed(
        self,
        text: str | Texts,
        layers: Layers = "all",
        *,
        batch_size: int | None = None,
        boundaries: bool = False,
        dtype: str = "float32",
    ) -> Sentence | list[Sentence]:
        """Return the vectors of a text, or of each text of a list.

        Args:
            text: A string gives one `Sentence`. A list gives a list of Sentences; each of its
                items is a string or, if the text is tokenized already, a list of tokens.
            layers: "all", "top", "average", an index from 0, or a weight for each layer.
            batch_size: Maximum number of sentences in a batch.
            boundaries: Keep `<S>` and `</S>` as first and last token.
            dtype: "float32" or "float16", of the result.
        """
        texts = [text] if isinstance(text, str) else text
        sentences = self.stream(
            texts, layers, batch_size=batch_size, boundaries=boundaries, dtype=dtype
        )
        return next(sentences) if isinstance(text, str) else list(sentences)

    def embed_tokens(
        self,
        tokens: Sequence[str],
        layers: Layers = "all",
        *,
        boundaries: bool = False,
        dtype: str = "float32",
    ) -> Sentence:
        """Return the vectors of one tokenized sentence; arguments as for `embed`."""
        refuse_strings([tokens])
        return next(self.stream([tokens], layers, boundaries=boundaries, dtype=dtype))

    def stream(
        self,
        texts: Iterable[Text],
        layers: Layers = "all",
        *,
        batch_size: int | None = None,
        boundaries: bool = False,
        dtype: str = "float32",
    ) -> Iterator[Sentence]:
        """Yield the vectors of any number of texts, in order and in bounded memory.

        Each text is a string or a list of tokens; arguments as for `embed`.
        """
        weights = layer_weights(layers, self.config.num_layers)
        if dtype not in ("float32", "float16"):
            raise InvalidInput(f"dtype must be float32 or float16, not {dtype!r}")
        check_batch_size(batch_size)
        for window in self.windows(texts, kept=len(weights)):
            self.warn_if_foreign(window)
            yield from self._embed_window(window, weights, batch_size, boundaries, dtype)

    def windows(self, texts: Iterable[Text], kept: int = 1) -> Iterator[list[list[str]]]:
        """Tokenize texts and yield them in look-ahead windows of bounded size."""
        limit = max(4 * self.batch_tokens, WINDOW_BYTES // (TOKEN_BYTES + 4 * kept * self.dim))
        window: list[list[str]] = []
        tokens = 0
        for sentence in self._split(texts):
            if window and tokens + len(sentence) > limit:
                yield window
                window, tokens = [], 0
            window.append(sentence)
            tokens += len(sentence) + 1  # Empty sentences count too.
        if window:
            yield window

    def sentence_vectors(
        self,
        text: str | Texts,
        layers: Layers = "average",
        *,
        pooling: Pooling = "mean",
        normalize: bool = False,
        batch_size: int | None = None,
    ) -> NDArray[np.float32]:
        """Return one vector for a string: (dim,), or for each text of a list: (texts, dim).

        Args:
            text: As for `embed`.
            layers: As for `embed`; "all" puts the layers side by side.
            pooling: "mean", "max", "min" or "sum" over the tokens, the "first" or "last" token,
                or "ends": the forward half of the last and the backward half of the first.
            normalize: Scale every vector to length 1; zero vectors stay zero.
            batch_size: Maximum number of sentences in a batch.
        """
        check_pooling(pooling)
        texts = [text] if isinstance(text, str) else text
        sentences = self.stream(texts, layers, batch_size=batch_size)
        columns = len(layer_weights(layers, self.config.num_layers)) * self.dim
        pooled = [pool(sentence.layers, pooling).reshape(columns) for sentence in sentences]
        vectors = np.array(pooled, np.float32).reshape(-1, columns)  # (texts, columns)
        vectors = unit(vectors) if normalize else vectors
        return vectors[0] if isinstance(text, str) else vectors

    def embed_batch(
        self, texts: Sequence[Text], *, state: BiLMState | Literal["carry"] | None = None
    ) -> tuple[list[Sentence], BiLMState | None]:
        """Embed one batch in the given order, carrying the LSTM state as the original systems did.

        Pass `state="carry"` first and the returned state from then on; row i of a batch continues
        row i of the batch before.
        """
        if state is None:
            return list(self.stream(texts)), None
        sentences = list(self._split(texts))
        framed = [[BEGIN_SENTENCE, *sentence, END_SENTENCE] for sentence in sentences]
        with self.engine.lock, torch.inference_mode():
            layers, after = self.engine.framed_layers(framed, bilm.given_state(state))
            array = layers.cpu().numpy()
            ends = np.cumsum([len(sentence) for sentence in framed])
            result = [
                Sentence(tokens, array[:, end - len(tokens) - 1 : end - 1].copy())
                for tokens, end in zip(sentences, ends, strict=True)
            ]
        return result, after

    def layers_of(self, sentences: Sequence[Sequence[str]]) -> BiLMOutput:
        """Return the layers of tokenized sentences as one padded batch, without gradients."""
        refuse_strings(sentences)
        with self.engine.lock, torch.inference_mode():
            flat = self.engine.layers(sentences).clone()  # (L + 1, positions, dim)
        lengths = lengths_of(sentences).to(self.device)
        padded = bilm.unflatten(flat, lengths, max(map(len, sentences), default=0))
        return BiLMOutput(padded, lengths)

    def skip(self, window: Sequence[Sequence[str]], *, forget: bool = False) -> None:
        """Leave out tokenized sentences that were embedded before; their words are cached again.

        With `forget`, the cache is emptied first.
        """
        with self.engine.lock, torch.inference_mode():
            if forget:
                self.engine.forget_words()
            self.engine.warm(chain.from_iterable(window))

    def warm_up(self, words: Iterable[str] | None = None, *, file: str | Path | None = None) -> int:
        """Compute the token vectors of words in advance, so that the first texts are fast too.

        Args:
            words: Words to expect (default: those of the model's vocabulary, the most frequent
                first, as many as the cache has room for).
            file: Where to keep the vectors: read if it exists, else written.

        Returns:
            The number of words in the cache.
        """
        vectors = None
        if file is not None:
            identity = {"fingerprint": self.fingerprint(), "precision": self.precision}
        if file is not None and os.path.lexists(file):
            tensors, metadata = native.read_tensors(Path(file))
            if not identity.items() <= metadata.items():
                raise InvalidInput(f"{file} does not have the word vectors of {self.source}")
            words, vectors = json.loads(metadata["words"]), torch.from_numpy(tensors["vectors"])
        elif words is None:
            if self.vocabulary is None:
                raise InvalidInput(f"{self.source} has no vocabulary: give the words to expect")
            words = self.vocabulary.words
        with self.engine.lock, torch.inference_mode():
            cached, table = self.engine.fill_cache(words, vectors)
            if file is not None and vectors is None:
                content = {"words": json.dumps(cached), **identity}
                native.write_tensors(Path(file), {"vectors": table.cpu().numpy()}, content)
        return len(cached)

    def clear_cache(self) -> None:
        """Forget the vectors of words met before, and the weights as packed for inference.

        Changed weights are noticed without this, unless they were changed through `.data`.
        """
        with self.engine.lock:
            self.engine.clear()

    # ------------------------------------------------------------------ language model
    @overload
    def surprisal(self, text: str) -> Surprisal: ...  # type: ignore[overload-overlap]

    @overload
    def surprisal(self, text: Texts) -> list[Surprisal]: ...

    def surprisal(self, text: str | Texts) -> Surprisal | list[Surprisal]:
        """Return the bits of each word given what precedes it, and given what follows it.

        Args:
            text: As for `embed`.
        """
        if isinstance(text, str):
            return language.surprisal(self, text)
        return [language.surprisal(self, item) for item in text]

    def perplexity(self, text: str | Iterable[Text]) -> Perplexity:
        """Return how well both directions predict the texts, each read alone."""
        return language.perplexity(self, [text] if isinstance(text, str) else text)

    @overload
    def fill(self, text: str, k: int = ...) -> list[Filling]: ...  # type: ignore[overload-overlap]

    @overload
    def fill(self, text: Texts, k: int = ...) -> list[list[Filling]]: ...

    def fill(self, text: str | Texts, k: int = 10) -> list[Filling] | list[list[Filling]]:
        """Return the `k` words that best fit the gap `___`, the best first.

        Args:
            text: As for `embed`, with one gap in each text.
            k: Number of words.
        """
        if isinstance(text, str):
            return language.fill(self, text, k)
        return [language.fill(self, item, k) for item in text]

    # ------------------------------------------------------------------ inside
    def _split(self, texts: Iterable[Text]) -> Iterator[list[str]]:
        """Yield the tokens of each text."""
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise InvalidInput(f"texts must be a list of strings, not {reprlib.repr(texts)}")
        for text in texts:
            yield self.tokenize(text) if isinstance(text, str) else _check_tokens(text)

    @cached_property
    def _known_words(self) -> Container[str] | None:
        """The words of the model's vocabulary or dictionary; None if it has neither."""
        words = None if self.dictionaries is None else self.dictionaries.words
        if words is not None:
            return frozenset(words)
        return None if self.vocabulary is None else self.vocabulary.ids

    def warn_if_foreign(self, window: Sequence[Sequence[str]]) -> None:
        """Log a warning, once, if most words of a text are not in the model's vocabulary."""
        known = self._known_words
        if known is None or self._met[0] > MAX_MET:
            return
        for word in islice(chain.from_iterable(window), MAX_MET):
            if any(map(str.isalpha, word)):
                self._met[0] += 1
                self._met[1] += word not in known and word.lower() not in known
        words, unknown = self._met
        if any(words >= least and unknown >= share * words for least, share in FOREIGN):
            logger.warning(
                "%d of the first %d words are not in the vocabulary of %s: its vectors say little "
                "about a text in another language or field",
                unknown, words, self.source,
            )  # fmt: skip
            self._met[0] = MAX_MET + 1

    def _embed_window(
        self,
        window: list[list[str]],
        weights: NDArray[np.float32],
        batch_size: int | None,
        boundaries: bool,
        dtype: str,
    ) -> Iterator[Sentence]:
        """Yield all sentences of a window, in order."""
        edge = int(boundaries)  # columns that a boundary takes at either end
        before, after = ([BEGIN_SENTENCE], [END_SENTENCE]) if boundaries else ([], [])
        results = [
            scratch_array((len(weights), len(tokens) + 2 * edge, self.dim), np.dtype(dtype))
            for tokens in window
        ]
        # Long sentences are cut; with boundaries, an empty sentence is a piece too.
        pieces = [
            (sentence, start, tokens[start : start + WINDOW_TOKENS])
            for sentence, tokens in enumerate(window)
            for start in range(0, len(tokens) or edge, WINDOW_TOKENS)
        ]
        lengths = [len(tokens) for _, _, tokens in pieces]
        with self.engine.lock, torch.inference_mode():
            # All distinct words at once: the token encoder is fastest in large batches.
            self.engine.warm(chain(before, after, *window))
            for indices in make_batches(lengths, self.batch_tokens, batch_size):
                texts = [[*before, *pieces[index][2], *after] for index in indices]
                if boundaries:
                    layers, _ = self.engine.framed_layers(texts)
                else:
                    layers = self.engine.layers(texts)
                arrays = combine(layers, weights).cpu().numpy()  # (K, positions, dim)
                ends = np.cumsum([len(text) for text in texts])[:-1]
                for index, vectors in zip(indices, np.split(arrays, ends, axis=1), strict=True):
                    sentence, start, _ = pieces[index]
                    result, end = results[sentence], start + vectors.shape[1]
                    # Of the boundaries only those of the whole sentence count.
                    left, right = edge * (start > 0), edge * (end < result.shape[1])
                    inner = vectors[:, left : vectors.shape[1] - right]
                    result[:, start + left : end - right] = inner
        results.reverse()
        for tokens in window:  # Each result is released as soon as it is taken.
            yield Sentence([*before, *tokens, *after], results.pop())


def check_device(device: str) -> None:
    """Raise if torch cannot compute on `device` here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: built without CUDA
        reason = str(error).splitlines()[0]
        if reason.startswith("Expected one of"):  # a list of twenty, most of them unknown to users
            reason = "torch has no such device; it has cpu, cuda, mps and others"
        raise InvalidInput(f"the device {device!r} cannot be used here: {reason}") from None


def check_batch_size(size: int | None) -> None:
    """Raise if there is a maximum number of sentences that is not a positive integer."""
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise InvalidInput(f"batch_size must be an integer of at least 1, not {size!r}")


def _check_tokens(sentence: object) -> list[str]:
    """Return the tokens of a tokenized sentence."""
    tokens: list[Any] = list(sentence) if isinstance(sentence, Iterable) else [None]
    if not all(isinstance(token, str) for token in tokens):
        raise InvalidInput(f"a text is a string or a list of tokens, not {reprlib.repr(sentence)}")
    return tokens
