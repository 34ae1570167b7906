"""Drop-in replacement for simple_elmo: old code only changes its import line.

    from elmokit.simple_elmo import ElmoModel  # was: from simple_elmo import ElmoModel

Every sentence starts from zero states, is read completely, and padding has no effect. simple_elmo
carried its states from batch to batch, and its substitutes depended on one word of context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.embed import Embedder
from elmokit.errors import ElmokitError, InvalidInput, UnsupportedFormat
from elmokit.formats.tensorflow import variables
from elmokit.io.paths import is_folder
from elmokit.loading import load
from elmokit.text.vocabulary import Vocabulary

LAYERS = ("average", "top", "all")
ROWS = 256  # Number of positions whose scores are in memory at once.

Prediction = dict[str, Any]


class ElmoModel:
    """Computes word vectors, sentence vectors and substitutes with the model that `load` loads."""

    def __init__(self) -> None:
        """Create an object without a model; call `load` next."""
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
        """Load a model, any that `elmokit.load` takes, with its other arguments.

        `full` loads the training checkpoint of the folder, which can predict words, instead of the
        weights beside it. `limit` is ignored: all words are cached as long as there is room.
        """
        elmo = load(_find(directory, full), **{"tokenizer": "whitespace", **settings})
        if full and elmo.model.softmax is None:
            raise UnsupportedFormat(f"full=True needs a model with a softmax; {directory} has none")
        self._elmo, self.batch_size = elmo, max_batch_size
        return "The model is now loaded."

    @property
    def elmo(self) -> Embedder:
        """The loaded Embedder."""
        if self._elmo is None:
            raise ElmokitError("no model is loaded: call load first")
        return self._elmo

    @property
    def vector_size(self) -> int:
        """Size of a vector."""
        return self.elmo.dim

    @property
    def n_layers(self) -> int:
        """Number of layers, including the token layer."""
        return self.elmo.config.num_layers + 1

    @property
    def max_chars(self) -> int:
        """Maximum number of characters per word, including its boundary marks."""
        return self.elmo.config.max_characters

    @property
    def vocab(self) -> Vocabulary | None:
        """Words that the model predicts; None without a softmax."""
        return self.elmo.vocabulary

    # ------------------------------------------------------------------ vectors
    def get_elmo_vectors(
        self,
        texts: Iterable[Sequence[str]],
        warmup: bool = True,
        layers: str = "average",
        session: object = None,
    ) -> NDArray[np.float64]:
        """Return the vectors of all words, 0 after the end of a sentence: (sentences, tokens, dim).

        With layers="all", which may also be "average" or "top", (sentences, layers, tokens, dim).
        A string in `texts` counts as the list of its characters; the other arguments are ignored.
        """
        sentences = self._layers(texts, layers)
        longest = max((array.shape[1] for array in sentences), default=0)
        rows = self.n_layers if layers == "all" else 1
        vectors = np.zeros((len(sentences), rows, longest, self.vector_size))
        for row, array in zip(vectors, sentences, strict=True):
            row[:, : array.shape[1]] = array
        return vectors if layers == "all" else vectors[:, 0]

    def get_elmo_vector_average(
        self,
        texts: Iterable[Sequence[str]],
        warmup: bool = True,
        layers: str = "average",
        session: object = None,
    ) -> NDArray[np.float64]:
        """Return the mean vector of each sentence, scaled to length 1.

        The arguments are those of `get_elmo_vectors`. The result is (sentences, dim), or
        (sentences, layers, dim) with layers="all", which are scaled together.
        """
        sentences = self._layers(texts, layers)
        rows = self.n_layers if layers == "all" else 1
        means = np.zeros((len(sentences), rows, self.vector_size))
        for row, array in zip(means, sentences, strict=True):
            if array.shape[1]:
                row[:] = array.mean(axis=1, dtype=np.float64)
                row /= np.linalg.norm(row) or 1
        return means if layers == "all" else means[:, 0]

    def _layers(self, texts: Iterable[Sequence[str]], layers: str) -> list[NDArray[np.float32]]:
        """Return the requested layers of each sentence: (layers, tokens, dim)."""
        if layers not in LAYERS:
            raise InvalidInput(f"layers must be one of {', '.join(LAYERS)}, not {layers!r}")
        if isinstance(texts, str):
            raise InvalidInput("texts must be a list of sentences (lists of tokens), not a string")
        sentences = self.elmo.stream(map(list, texts), layers, batch_size=self.batch_size)
        return [sentence.layers for sentence in sentences]

    # ------------------------------------------------------------------ words
    def get_elmo_substitutes(
        self, data: Iterable[str], topn: int = 3, nodelimiters: bool = True
    ) -> list[list[Prediction]]:
        """Return for every word the `topn` that the model predicts at its position.

        The sentences in `data` are split at white space. `nodelimiters` leaves out `<S>` and
        `</S>`. The result has for every word {"word", "forward", "backward"}; "word" is `<UNK>` if
        it is not in the vocabulary. Each direction is {"candidates": ids, "candidate_words": words,
        "logp": scores before the softmax, as in simple_elmo}.
        """
        vocabulary = self.elmo.vocabulary
        if self.elmo.model.softmax is None or vocabulary is None:
            hint = "load a training checkpoint: full=True"
            raise UnsupportedFormat(f"{self.elmo.source} cannot predict words; {hint}")
        max_words = len(vocabulary) - 2 * nodelimiters
        if not 1 <= topn <= max_words:
            raise InvalidInput(f"topn must be 1 to {max_words}, not {topn!r}")
        sentences = list(data)
        if isinstance(data, str) or not all(isinstance(sentence, str) for sentence in sentences):
            raise InvalidInput("data must be a list of strings: join the tokens of each by spaces")
        excluded = [vocabulary.ids[mark] for mark in ("<S>", "</S>")] if nodelimiters else []
        split = map(str.split, sentences)
        half = self.vector_size // 2
        result = []
        for sentence in self.elmo.stream(split, "top", batch_size=self.batch_size, boundaries=True):
            # The forward state before a word and the backward state after it predict the word.
            forward = self._best(sentence.vectors[:-2, :half], topn, excluded, vocabulary)
            backward = self._best(sentence.vectors[2:, half:], topn, excluded, vocabulary)
            words = [vocabulary.words[i] for i in vocabulary.encode(sentence.tokens[1:-1])]
            rows = zip(words, forward, backward, strict=True)
            result.append([{"word": w, "forward": f, "backward": b} for w, f, b in rows])
        return result

    @torch.inference_mode()
    def _best(
        self, rows: NDArray[np.float32], topn: int, excluded: list[int], vocabulary: Vocabulary
    ) -> list[Prediction]:
        """Return the best words for each output of one direction, (n, dim / 2)."""
        softmax = self.elmo.model.softmax
        assert softmax is not None
        result = []
        for piece in torch.split(torch.from_numpy(np.ascontiguousarray(rows)), ROWS):
            scores = softmax(piece.to(self.elmo.device)).float().cpu()  # (n, words)
            scores[:, excluded] = -torch.inf
            values, ids = scores.topk(topn)
            for best, best_scores in zip(ids.tolist(), values.double().tolist(), strict=True):
                words = [vocabulary.words[i] for i in best]
                logp = [round(value, 4) for value in best_scores]
                result.append({"candidates": best, "candidate_words": words, "logp": logp})
        return result


def _find(directory: str | Path, full: bool) -> str | Path:
    """Return what to load from a folder: its training checkpoint if `full`, else its weights."""
    folder = Path(directory).expanduser()
    if not is_folder(folder):
        return directory
    if full:
        return variables.find_checkpoint(folder) or directory
    named = folder / "model.hdf5"
    weights = [named] if named.is_file() else list(folder.glob("[!.]*.hdf5"))
    return weights[0] if len(weights) == 1 else directory
