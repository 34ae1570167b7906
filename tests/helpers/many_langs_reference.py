"""ELMoForManyLangs once more, as plainly as it can be said: what the tests compare with.

Written from the description of the format alone, in float64 NumPy, one word and one token at a
time, with nothing taken from elmokit. A model is its `options`, two dictionaries (entry to id) and
arrays under the names of the state dicts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reference import clip, sigmoid

MARKS = ["<oov>", "<pad>", "<bow>", "<eow>", "<bos>", "<eos>"]
CHARACTERS = ["今", "天", "a", "b", "B", "é", "\u3000", *MARKS, "<", ">", "-", "水"]
WORDS = ["<oov>", "ab", "今天", "<bos>", "\u3000", "B", "<eos>", "b" * 8, "<pad>", "水"]
SENTENCES = [
    ["今天", "ab", "水", "Ab", "AB"],
    ["B", "b", "\u3000", "天", "🙂", "x\u2028y", "", "é"],
    ["b" * 70, "b" * 8, "b" * 9, "ab" * 24, "<bos>", "a<eos>", "\udc80"],
    ["水"],
]
ENCODER, EMBEDDER = "encoder.pkl", "token_embedder.pkl"


class ManyLangs:
    """A model that can be read top to bottom."""

    def __init__(
        self,
        options: dict[str, Any],
        stored: dict[str, dict[str, np.ndarray]],
        characters: dict[str, int] | None,
        words: dict[str, int] | None,
    ) -> None:
        self.options, self.stored = options, stored
        self.characters, self.words = characters, words
        self.tensors = {
            name: array.astype(np.float64)
            for part in stored.values()
            for name, array in part.items()
        }

    # ------------------------------------------------------------------ sentences
    def embed(self, sentence: list[str]) -> np.ndarray:
        """All layers of one sentence from zero state: (L + 1, tokens, 2 * size)."""
        vectors = [self.token_vector(word) for word in ["<bos>", *sentence, "<eos>"]]
        layers = [[np.concatenate([vector, vector]) for vector in vectors]]
        forward, backward = vectors, vectors[::-1]
        for layer in range(self.options["encoder"]["n_layers"]):
            forward = self.lstm(f"forward_layer_{layer}", forward, skip=layer > 0)
            backward = self.lstm(f"backward_layer_{layer}", backward, skip=layer > 0)
            pairs = zip(forward, backward[::-1], strict=True)
            layers.append([np.concatenate(pair) for pair in pairs])
        return np.array(layers)[:, 1:-1]

    def lstm(self, name: str, inputs: list[np.ndarray], *, skip: bool) -> list[np.ndarray]:
        """One layer in one direction, in the order given."""
        parts = {key[len(name) + 1 :]: t for key, t in self.tensors.items() if key.startswith(name)}
        clips = self.options["encoder"]
        h = np.zeros(parts["state_linearity.weight"].shape[1])
        c = np.zeros(len(parts["state_linearity.bias"]) // 4)
        outputs = []
        for x in inputs:
            total = parts["input_linearity.weight"] @ x
            total = total + parts["state_linearity.weight"] @ h + parts["state_linearity.bias"]
            i, f, m, o = np.split(total, 4)
            c = clip(sigmoid(i) * np.tanh(m) + sigmoid(f) * c, clips["cell_clip"])
            h = parts["state_projection.weight"] @ (sigmoid(o) * np.tanh(c))
            h = clip(h, clips["proj_clip"])
            outputs.append(h + x if skip else h)
        return outputs

    # ------------------------------------------------------------------ words
    def token_vector(self, word: str) -> np.ndarray:
        """The word's own vector and what its characters give, projected: (size,)."""
        token = self.options["token_embedder"]
        if token["name"] == "cnn" and word not in ("<bos>", "<eos>"):
            word = word[: token["max_characters_per_token"] - 2]
        parts = []
        if self.words is not None:
            row = self.words.get(word, self.words["<oov>"])
            parts.append(self.tensors["word_emb_layer.embedding.weight"][row])
        if self.characters is not None:
            ids = self.character_ids(word)
            vectors = self.tensors["char_emb_layer.embedding.weight"][ids]
            parts.append(self.convolved(vectors) if token["name"] == "cnn" else self.read(vectors))
        joined = np.concatenate(parts)
        projected: np.ndarray = self.tensors["projection.weight"] @ joined
        return projected + self.tensors["projection.bias"]

    def character_ids(self, word: str) -> list[int]:
        """Between the two marks, which are swapped; padded for the CNN only."""
        known = self.characters
        assert known is not None
        middle = [word] if word in ("<bos>", "<eos>") else list(word)
        inner = [known.get(character, known["<oov>"]) for character in middle]
        ids = [known["<eow>"], *inner, known["<bow>"]]
        token = self.options["token_embedder"]
        if token["name"] == "cnn":
            ids += [known["<pad>"]] * (token["max_characters_per_token"] - len(ids))
        return ids

    def convolved(self, vectors: np.ndarray) -> np.ndarray:
        """The largest value of each filter over all windows, through the highway layers."""
        token = self.options["token_embedder"]
        result = []
        for i, (width, _) in enumerate(token["filters"]):
            weight = self.tensors[f"convolutions.{i}.weight"]  # (filters, char_dim, width)
            windows = [vectors[k : k + width].T for k in range(len(vectors) - width + 1)]
            sums = [(weight * window).sum((1, 2)) for window in windows]
            result.append(np.max(sums, axis=0) + self.tensors[f"convolutions.{i}.bias"])
        x: np.ndarray = np.concatenate(result)
        x = np.tanh(x) if token["activation"] == "tanh" else np.maximum(x, 0)
        for k in range(token["n_highway"]):
            both = self.tensors[f"highways._layers.{k}.weight"] @ x
            new, gate = np.split(both + self.tensors[f"highways._layers.{k}.bias"], 2)
            x = sigmoid(gate) * x + (1 - sigmoid(gate)) * np.maximum(new, 0)
        return x

    def read(self, vectors: np.ndarray) -> np.ndarray:
        """The last states of an LSTM over the characters, forward and backward."""
        ends = []
        for way, sequence in (("", vectors), ("_reverse", vectors[::-1])):
            weights = {
                part: self.tensors[f"char_lstm.{part}_l0{way}"]
                for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            }
            h = c = np.zeros(vectors.shape[1])
            for x in sequence:
                total = weights["weight_ih"] @ x + weights["bias_ih"]
                total = total + weights["weight_hh"] @ h + weights["bias_hh"]
                i, f, g, o = np.split(total, 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
            ends.append(h)
        return np.concatenate(ends)

    # ------------------------------------------------------------------ files
    def save(self, folder: Path, *, old_layout: bool = False) -> Path:
        """Write the folder as it is published, with nothing of elmokit."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text('{"config_path": "/Users/somebody/tiny.json"}')
        (folder / "tiny.json").write_text(json.dumps(self.options))
        for name, known in (("char.dic", self.characters), ("word.dic", self.words)):
            if known is not None:
                lines = "".join(f"{entry}\t{number}\n" for entry, number in known.items())
                (folder / name).write_text(lines, encoding="utf-8", newline="")
        for name, arrays in self.stored.items():
            tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
            path = folder / name
            torch.save(tensors, path, _use_new_zipfile_serialization=not old_layout)
        return folder


def make_many_langs(
    *,
    name: str = "cnn",
    characters: list[str] | None = CHARACTERS,
    words: list[str] | None = WORDS,
    layers: int = 2,
    clips: float = 3,
    activation: str = "relu",
    highways: int = 2,
    longest: int = 20,
    seed: int = 0,
) -> ManyLangs:
    """A tiny model with random weights; without characters or words for None."""
    token = {
        "name": name,
        "activation": activation,
        "filters": [[1, 4], [2, 5], [3, 6]],
        "n_highway": highways,
        "word_dim": 3 if words else 0,
        "char_dim": 4 if characters else 0,
        "max_characters_per_token": longest,
    }
    lstm = {"name": "elmo", "projection_dim": 6, "dim": 10, "n_layers": layers}
    lstm |= {"cell_clip": clips, "proj_clip": clips}
    options = {"encoder": lstm, "token_embedder": token, "dropout": 0.1}
    random = np.random.default_rng(seed)
    stored = {
        part: {
            key: random.normal(0, 1 / np.sqrt(shape[-1]), shape).astype(np.float32)
            for key, shape in shapes.items()
        }
        for part, shapes in make_shapes(options, len(characters or []), len(words or [])).items()
    }
    # Ids in an order of their own: they are not the lines' numbers.
    known = [
        entries and {entry: (7 * i + 3) % len(entries) for i, entry in enumerate(entries)}
        for entries in (characters, words)
    ]
    return ManyLangs(options, stored, known[0] or None, known[1] or None)


def make_shapes(
    options: dict[str, Any], characters: int, words: int
) -> dict[str, dict[str, tuple[int, ...]]]:
    """The name and the shape of every array of both files."""
    token, lstm = options["token_embedder"], options["encoder"]
    size, cells, dim = lstm["projection_dim"], lstm["dim"], token["char_dim"]
    shapes: dict[str, tuple[int, ...]] = {}
    width = token["word_dim"]
    if words:
        shapes["word_emb_layer.embedding.weight"] = (words, width)
    if characters:
        shapes["char_emb_layer.embedding.weight"] = (characters, dim)
    if characters and token["name"] == "cnn":
        for i, (wide, number) in enumerate(token["filters"]):
            shapes[f"convolutions.{i}.weight"] = (number, dim, wide)
            shapes[f"convolutions.{i}.bias"] = (number,)
        n = sum(number for _, number in token["filters"])
        for k in range(token["n_highway"]):
            shapes[f"highways._layers.{k}.weight"] = (2 * n, n)
            shapes[f"highways._layers.{k}.bias"] = (2 * n,)
        width += n
    elif characters:
        for way in ("", "_reverse"):
            for side in ("ih", "hh"):
                shapes[f"char_lstm.weight_{side}_l0{way}"] = (4 * dim, dim)
                shapes[f"char_lstm.bias_{side}_l0{way}"] = (4 * dim,)
        width += 2 * dim
    shapes["projection.weight"], shapes["projection.bias"] = (size, width), (size,)
    cells_of: dict[str, tuple[int, ...]] = {}
    for layer in range(lstm["n_layers"]):
        for way in ("forward", "backward"):
            place = f"{way}_layer_{layer}"
            cells_of[f"{place}.input_linearity.weight"] = (4 * cells, size)
            cells_of[f"{place}.state_linearity.weight"] = (4 * cells, size)
            cells_of[f"{place}.state_linearity.bias"] = (4 * cells,)
            cells_of[f"{place}.state_projection.weight"] = (size, cells)
    return {EMBEDDER: shapes, ENCODER: cells_of}
