"""The names of simple_elmo: old code changes its import line and nothing else.

    from elmokit.compat.simple_elmo import ElmoModel  # was: from simple_elmo import ElmoModel

Every sentence starts afresh and is read whole, and padding counts nowhere; simple_elmo carried its
state from batch to batch, and read no more than one word before it named substitutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.formats import bilm
from elmokit.formats.tensorflow import variables
from elmokit.loading import load
from elmokit.text.vocabulary import Vocabulary

LOADED = "The model is now loaded."
LAYERS = ("average", "top", "all")
ROWS = 256  # rows of scores in memory at once

Prediction = dict[str, Any]


class ElmoModel:
    """A model that `load` puts here, its vectors and the words that it expects."""

    def __init__(self) -> None:
        """Make an object without a model: `load` comes next."""
        self.batch_size = 32
        self._elmo: Embedder | None = None

    def load(
        self,
        directory: str | Path,
        max_batch_size: int = 32,
        limit: int = 100,
        full: bool = False,
        **settings: Any,
    ) -> str:
        """Load a model.

        Args:
            directory: its folder or archive, or any other model that `elmokit.load` takes.
            max_batch_size: sentences of a batch, at most.
            limit: has no meaning here: every word that is met is kept as long as there is room.
            full: take the training checkpoint of the folder, which can predict words, and not the
                weights beside it.
            **settings: those of `elmokit.load`, such as device="cuda".

        Returns:
            A sentence that says that it is loaded.
        """
        del limit
        elmo = load(_find(directory, full), **{"tokenizer": "whitespace", **settings})
        if full and elmo.model.softmax is None:
            raise ElmokitError(f"full=True needs a model with a softmax, which {directory} has not")
        self._elmo, self.batch_size = elmo, max_batch_size
        return LOADED

    @property
    def elmo(self) -> Embedder:
        """The Embedder behind it."""
        if self._elmo is None:
            raise ElmokitError("there is no model yet: call load first")
        return self._elmo

    @property
    def vector_size(self) -> int:
        """Columns of a vector."""
        return self.elmo.dim

    @property
    def n_layers(self) -> int:
        """Layers, that of the words alone among them."""
        return self.elmo.config.num_layers + 1

    @property
    def max_chars(self) -> int:
        """Characters of a word, its boundaries among them."""
        return self.elmo.config.max_characters

    @property
    def vocab(self) -> Vocabulary | None:
        """The words that the model predicts, where it does."""
        return self.elmo.vocabulary

    # ------------------------------------------------------------------ vectors
    def get_elmo_vectors(
        self,
        texts: Iterable[Sequence[str]],
        warmup: bool = True,
        layers: str = "average",
        session: object = None,
    ) -> NDArray[np.float64]:
        """Vectors of the words of sentences, 0 behind the end of a sentence.

        Args:
            texts: lists of tokens; a string is taken as the list of its characters.
            warmup: has no meaning here.
            layers: "average", "top" or "all".
            session: has no meaning here.

        Returns:
            (sentences, longest, dim), with layers="all" (sentences, layers, longest, dim).
        """
        del warmup, session
        found = self._layers(texts, layers)
        longest = max((array.shape[1] for array in found), default=0)
        size = (self.n_layers if layers == "all" else 1, longest, self.vector_size)
        vectors = np.zeros((len(found), *size))
        for row, array in zip(vectors, found, strict=True):
            row[:, : array.shape[1]] = array
        return vectors if layers == "all" else vectors[:, 0]

    def get_elmo_vector_average(
        self,
        texts: Iterable[Sequence[str]],
        warmup: bool = True,
        layers: str = "average",
        session: object = None,
    ) -> NDArray[np.float64]:
        """The mean of the vectors of a sentence, scaled to length 1.

        Args:
            texts: lists of tokens; a string is taken as the list of its characters.
            warmup: has no meaning here.
            layers: "average", "top" or "all", which are scaled as one.
            session: has no meaning here.

        Returns:
            (sentences, dim), with layers="all" (sentences, layers, dim).
        """
        del warmup, session
        found = self._layers(texts, layers)
        means = np.zeros((len(found), self.n_layers if layers == "all" else 1, self.vector_size))
        for row, array in zip(means, found, strict=True):
            if array.shape[1]:
                row[:] = array.mean(axis=1, dtype=np.float64)
                row /= np.linalg.norm(row) or 1
        return means if layers == "all" else means[:, 0]

    def _layers(self, texts: Iterable[Sequence[str]], layers: str) -> list[NDArray[np.float32]]:
        """The wanted layers of each sentence: (layers, tokens, dim)."""
        if layers not in LAYERS:
            raise ElmokitError(f"layers must be one of {', '.join(LAYERS)}, not {layers!r}")
        if isinstance(texts, str):
            raise ElmokitError("texts is a list of sentences, each a list of tokens, not a string")
        found = self.elmo.stream(map(list, texts), layers, batch_size=self.batch_size)
        return [sentence.layers for sentence in found]

    # ------------------------------------------------------------------ words
    def get_elmo_substitutes(
        self, data: Iterable[str], topn: int = 3, nodelimiters: bool = True
    ) -> list[list[Prediction]]:
        """For every word, those that the model expects in its place, from either side.

        Args:
            data: sentences as strings, split at white space.
            topn: how many words, the best first.
            nodelimiters: leave out `<S>` and `</S>`.

        Returns:
            For every sentence a list of {"word", "forward", "backward"}, "word" as the vocabulary
            has it (`<UNK>` for others), each direction {"candidates": their ids,
            "candidate_words", "logp": their scores, before the softmax as simple_elmo has them}.
        """
        vocabulary = self.elmo.vocabulary
        if self.elmo.model.softmax is None or vocabulary is None:
            raise ElmokitError(
                f"{self.elmo.source} cannot predict words; a training checkpoint can: full=True"
            )
        most = len(vocabulary) - 2 * nodelimiters
        if not 1 <= topn <= most:
            raise ElmokitError(f"topn must be 1 to {most}, not {topn!r}")
        if isinstance(data, str):
            raise ElmokitError("data is a list of sentences, not a string")
        left_out = [vocabulary.ids[mark] for mark in ("<S>", "</S>")] if nodelimiters else []
        split = (line.split() for line in data)
        half = self.vector_size // 2
        result = []
        for found in self.elmo.stream(split, "top", batch_size=self.batch_size, boundaries=True):
            ahead = self._best(found.vectors[:-2, :half], topn, left_out, vocabulary)
            back = self._best(found.vectors[2:, half:], topn, left_out, vocabulary)
            words = [vocabulary.words[k] for k in vocabulary.encode(found.tokens[1:-1])]
            result.append(
                [
                    {"word": word, "forward": one, "backward": other}
                    for word, one, other in zip(words, ahead, back, strict=True)
                ]
            )
        return result

    @torch.inference_mode()
    def _best(
        self, rows: NDArray[np.float32], topn: int, left_out: list[int], vocabulary: Vocabulary
    ) -> list[Prediction]:
        """The best words for each output of one direction, (n, dim / 2)."""
        softmax = self.elmo.model.softmax
        assert softmax is not None
        result = []
        for piece in torch.split(torch.from_numpy(np.ascontiguousarray(rows)), ROWS):
            scores = softmax(piece.to(self.elmo.device)).float().cpu()  # (n, words)
            scores[:, left_out] = -torch.inf
            values, ids = scores.topk(topn)
            for numbers, found in zip(ids.tolist(), values.double().tolist(), strict=True):
                result.append(
                    {
                        "candidates": numbers,
                        "candidate_words": [vocabulary.words[number] for number in numbers],
                        "logp": [round(value, 4) for value in found],
                    }
                )
        return result


def _find(directory: str | Path, full: bool) -> str | Path:
    """What of a folder to load: its training checkpoint if `full`, else its weights, if any."""
    folder = Path(directory).expanduser()
    if not folder.is_dir():
        return directory
    if full:
        return variables.find_checkpoint(folder) or directory
    named = folder / "model.hdf5"
    weights = [named] if named.is_file() else list(folder.glob(f"[!.]*{bilm.SUFFIXES[0]}"))
    return weights[0] if len(weights) == 1 else directory
