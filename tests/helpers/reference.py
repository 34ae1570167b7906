"""The biLM once more, as plainly as it can be said: what the tests compare with.

Written from the description of the published format alone, in float64 NumPy, one word and one
token at a time, with nothing shared between words and nothing taken from elmokit. Slow on purpose.

A model is an `options` dictionary and arrays under the names of the published HDF5 files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

BEGIN, END = "<S>", "</S>"
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260
CELL = "RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{part}"

State = list[list[list[tuple[np.ndarray, np.ndarray]]]]  # [row][way][layer] is (h, c)


class Reference:
    """A biLM that can be read top to bottom."""

    def __init__(
        self,
        options: dict[str, Any],
        tensors: dict[str, np.ndarray],
        vocabulary: list[str] | None = None,
    ) -> None:
        self.options, self.vocabulary = options, vocabulary
        self.stored = tensors
        self.tensors = {name: np.asarray(array, np.float64) for name, array in tensors.items()}
        self.layers = options["lstm"]["n_layers"]
        self.size = options["lstm"]["projection_dim"]
        self.cells = options["lstm"]["dim"]
        self.known: dict[str, np.ndarray] = {}  # each word is computed once: it is slow enough

    # ------------------------------------------------------------------ sentences
    def embed(self, sentence: list[str], *, boundaries: bool = False) -> np.ndarray:
        """All layers of one sentence from zero state: (L + 1, tokens, 2 * size)."""
        framed, _ = self.run(sentence, self.zeros())
        return framed if boundaries else framed[:, 1:-1]

    def embed_batches(self, batches: list[list[list[str]]], rows: int) -> list[list[np.ndarray]]:
        """Batch after batch; row i starts where row i of the batch before it ended."""
        state: State = [self.zeros() for _ in range(rows)]
        results = []
        for batch in batches:
            result = []
            for row, sentence in enumerate(batch):
                framed, state[row] = self.run(sentence, state[row])
                result.append(framed[:, 1:-1])
            results.append(result)
        return results

    def zeros(self) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """What both directions remember before they have read anything."""
        layer = (np.zeros(self.size), np.zeros(self.cells))
        return [[layer] * self.layers, [layer] * self.layers]

    def run(
        self, sentence: list[str], state: list[list[tuple[np.ndarray, np.ndarray]]]
    ) -> tuple[np.ndarray, list[list[tuple[np.ndarray, np.ndarray]]]]:
        """All layers of a sentence with its boundaries, and the state after it."""
        vectors = [self.token_vector(word) for word in [BEGIN, *sentence, END]]
        forward, forward_state = self.direction(0, vectors, state[0])
        backward, backward_state = self.direction(1, vectors[::-1], state[1])
        layers = [[np.concatenate([vector, vector]) for vector in vectors]]
        for layer in range(self.layers):
            pairs = zip(forward[layer], backward[layer][::-1], strict=True)
            layers.append([np.concatenate(pair) for pair in pairs])
        return np.array(layers), [forward_state, backward_state]

    # ------------------------------------------------------------------ words
    def token_vector(self, word: str) -> np.ndarray:
        """The context-independent vector of a word: (size,)."""
        if word not in self.known:
            self.known[word] = self.compute_token_vector(word)
        return self.known[word]

    def compute_token_vector(self, word: str) -> np.ndarray:
        """The table's row, or characters, convolutions, highway layers, projection."""
        if "char_cnn" not in self.options:
            assert self.vocabulary is not None
            known = word if word in self.vocabulary else "<UNK>"
            row: np.ndarray = self.tensors["embedding"][self.vocabulary.index(known)]
            return row
        cnn = self.options["char_cnn"]
        ids = character_ids(word, cnn["max_characters_per_token"])
        x: np.ndarray = np.concatenate([self.maxima(i, ids) for i in range(len(cnn["filters"]))])
        x = np.tanh(x) if cnn["activation"] == "tanh" else np.maximum(x, 0)
        for k in range(cnn["n_highway"]):
            high = {name: self.tensors[f"CNN_high_{k}/{name}"] for name in HIGHWAY}
            gate = sigmoid(x @ high["W_carry"] + high["b_carry"])
            new = np.maximum(x @ high["W_transform"] + high["b_transform"], 0)
            x = gate * new + (1 - gate) * x
        if "CNN_proj/W_proj" in self.tensors:
            x = x @ self.tensors["CNN_proj/W_proj"] + self.tensors["CNN_proj/b_proj"]
        return x

    def maxima(self, number: int, ids: list[int]) -> np.ndarray:
        """The largest value of each filter of one width, over every position of the word."""
        kernel = self.tensors[f"CNN/W_cnn_{number}"][0]  # (width, char_dim, filters)
        bias = self.tensors[f"CNN/b_cnn_{number}"]
        width = len(kernel)
        best = np.full(len(bias), -np.inf)
        for start in range(len(ids) - width + 1):
            value = bias.copy()
            for offset in range(width):
                value += self.tensors["char_embed"][ids[start + offset]] @ kernel[offset]
            best = np.maximum(best, value)
        return best

    # ------------------------------------------------------------------ LSTMs
    def direction(
        self, way: int, vectors: list[np.ndarray], state: list[tuple[np.ndarray, np.ndarray]]
    ) -> tuple[list[list[np.ndarray]], list[tuple[np.ndarray, np.ndarray]]]:
        """Every layer's outputs in one direction, in the order given, and the state after."""
        skip = self.options["lstm"]["use_skip_connections"]
        outputs, after, inputs = [], [], vectors
        for layer in range(self.layers):
            h, c = state[layer]
            result = []
            for x in inputs:
                h, c = self.step(way, layer, x, h, c)
                result.append(h + x if skip and layer > 0 else h)
            outputs.append(result)
            after.append((h, c))
            inputs = result
        return outputs, after

    def step(
        self, way: int, layer: int, x: np.ndarray, h: np.ndarray, c: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """One token through one LSTM."""
        weight = self.tensors[CELL.format(way=way, layer=layer, part="W_0")]
        bias = self.tensors[CELL.format(way=way, layer=layer, part="B")]
        i, j, f, o = np.split(np.concatenate([x, h]) @ weight + bias, 4)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
        c = clip(c, self.options["lstm"]["cell_clip"])
        h = sigmoid(o) * np.tanh(c)
        projection = CELL.format(way=way, layer=layer, part="W_P_0")
        if projection in self.tensors:  # without a projection there is none to clip
            h = clip(h @ self.tensors[projection], self.options["lstm"]["proj_clip"])
        return h, c

    # ------------------------------------------------------------------ files
    def save(self, folder: Path) -> Path:
        """Write the model as it is published, with nothing of elmokit; gives the weights' path."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "options.json").write_text(json.dumps(self.options))
        with h5py.File(folder / "weights.hdf5", "w") as file:
            for name, array in self.stored.items():
                file.create_dataset(name, data=array)
        if self.vocabulary is not None:
            text = "".join(f"{word}\n" for word in self.vocabulary)
            (folder / "vocab.txt").write_text(text, encoding="utf-8", newline="")
        return folder / "weights.hdf5"


HIGHWAY = ("W_carry", "b_carry", "W_transform", "b_transform")


def character_ids(word: str, length: int) -> list[int]:
    """A word's characters, before the shift by one that makes room for padded words."""
    if word == BEGIN:
        middle = [BEGIN_SENTENCE]
    elif word == END:
        middle = [END_SENTENCE]
    else:
        middle = list(word.encode("utf-8", "ignore"))[: length - 2]
    ids = [BEGIN_WORD, *middle, END_WORD]
    return ids + [PADDING] * (length - len(ids))


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), said so that it cannot overflow."""
    return (1 + np.tanh(x / 2)) / 2


def clip(x: np.ndarray, bound: float | None) -> np.ndarray:
    """Between -bound and bound; no bound, no clip."""
    return np.clip(x, -bound, bound) if bound else x


def make_options(
    *,
    layers: int = 2,
    cells: int = 10,
    size: int = 6,
    cell_clip: float = 3,
    proj_clip: float = 3,
    skip: bool = True,
    char_dim: int = 4,
    filters: list[list[int]] | None = None,
    highways: int = 1,
    activation: str = "relu",
    max_characters: int = 50,
    words: int = 0,
) -> dict[str, Any]:
    """Options as the published files have them; `words` makes a model on word ids."""
    lstm = {
        "dim": cells,
        "projection_dim": size,
        "n_layers": layers,
        "cell_clip": cell_clip,
        "proj_clip": proj_clip,
        "use_skip_connections": skip,
    }
    if words:
        return {"lstm": lstm, "n_tokens_vocab": words}
    cnn = {
        "activation": activation,
        "embedding": {"dim": char_dim},
        "filters": filters or [[1, 4], [2, 5], [3, 6]],
        "max_characters_per_token": max_characters,
        "n_characters": 262,
        "n_highway": highways,
    }
    return {"lstm": lstm, "char_cnn": cnn}


def make_shapes(
    options: dict[str, Any], *, project_tokens: bool = True, project_state: bool = True
) -> dict[str, tuple[int, ...]]:
    """The name and the shape of every array that these options need."""
    size, cells = options["lstm"]["projection_dim"], options["lstm"]["dim"]
    shapes: dict[str, tuple[int, ...]] = {}
    if "char_cnn" in options:
        cnn = options["char_cnn"]
        dim, n = cnn["embedding"]["dim"], sum(number for _, number in cnn["filters"])
        shapes["char_embed"] = (261, dim)
        for i, (width, number) in enumerate(cnn["filters"]):
            shapes[f"CNN/W_cnn_{i}"] = (1, width, dim, number)
            shapes[f"CNN/b_cnn_{i}"] = (number,)
        for k in range(cnn["n_highway"]):
            for name in HIGHWAY:
                shapes[f"CNN_high_{k}/{name}"] = (n, n) if name[0] == "W" else (n,)
        if project_tokens:
            shapes["CNN_proj/W_proj"], shapes["CNN_proj/b_proj"] = (n, size), (size,)
    else:
        shapes["embedding"] = (options["n_tokens_vocab"], size)
    for way in (0, 1):
        for layer in range(options["lstm"]["n_layers"]):
            parts = {"W_0": (2 * size, 4 * cells), "B": (4 * cells,)}
            if project_state:
                parts["W_P_0"] = (cells, size)
            for part, shape in parts.items():
                shapes[CELL.format(way=way, layer=layer, part=part)] = shape
    return shapes


def make_reference(
    options: dict[str, Any] | None = None,
    *,
    seed: int = 0,
    scale: float = 1.0,
    project_tokens: bool = True,
    project_state: bool = True,
    vocabulary: list[str] | None = None,
) -> Reference:
    """A model with random weights that keep the activations in a livelier range than zero."""
    options = make_options() if options is None else options
    random = np.random.default_rng(seed)
    tensors = {}
    for name, shape in make_shapes(
        options, project_tokens=project_tokens, project_state=project_state
    ).items():
        fan_in = np.prod(shape[:-1]) if len(shape) > 1 and name not in TABLES else 1.0
        array = random.normal(0.0, scale / np.sqrt(fan_in), shape)
        tensors[name] = array.astype(np.float32)
    return Reference(options, tensors, vocabulary)


TABLES = ("char_embed", "embedding")
