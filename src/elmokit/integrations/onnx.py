"""`export`: write a model as ONNX, for runtimes in other languages, and check it.

Two files are written: the graph (`elmo.onnx`, see `onnx_graph.py`), and beside it what a program
needs to make its inputs and to test itself (`elmo.json`). Before that the graph is run in
onnxruntime, and nothing is written if its vectors are not those of elmokit.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.embed import Embedder
from elmokit.errors import ElmokitError, InvalidInput, require
from elmokit.formats.checkpoint import Checkpoint
from elmokit.formats.detect import read_checkpoint
from elmokit.integrations.onnx_graph import INPUTS, OPSET, build
from elmokit.integrations.onnx_nodes import WeightType
from elmokit.io.atomic import write_file
from elmokit.io.paths import check_output
from elmokit.text.characters import (
    BEGIN_SENTENCE,
    BEGIN_WORD_ID,
    END_SENTENCE,
    END_WORD_ID,
    PADDING_ID,
)

FORMAT, FORMAT_VERSION = "elmokit-onnx", 1
MAX_BYTES = (1 << 31) - (1 << 20)  # of a protobuf message, with room for the nodes
TOLERANCE = {"float32": 1e-5, "float16": 2e-2}
TEST_SENTENCES = [["The", "naïve", "bank", "closed", "."], ["中文"], []]
TEXTS = ["Mr. O'Neil doesn't owe $1,234.56 (yet)...", "The well-known U.S. bank closed."]


@dataclass(frozen=True)
class Export:
    """A finished export and its measured difference."""

    graph: Path
    description: Path
    graph_bytes: int
    dtype: WeightType
    outputs: list[str]
    max_difference: float
    """Largest distance of a vector of the test sentences to elmokit's, as a share of its length."""


def export(
    model: str | Path,
    output: str | Path,
    *,
    dtype: WeightType = "float32",
    softmax: bool = False,
    overwrite: bool = False,
) -> Export:
    """Write a model as ONNX, with a JSON file of the same name beside it.

    Args:
        model: What `elmokit.load` takes.
        output: File to write, such as elmo.onnx.
        dtype: Type of the stored matrices; "float16" halves the file. Both compute in float32.
        softmax: Whether the log probabilities of all words are outputs too.
        overwrite: Replace existing files.
    """
    output = Path(output)
    if output.suffix != ".onnx":
        raise InvalidInput(f"the output must have a name that ends in .onnx, not {output}")
    description = output.with_suffix(".json")
    for path in (output, description):
        check_output(path, inputs=[model], overwrite=overwrite)
    checkpoint = read_checkpoint(model)
    elmo = Embedder.from_pretrained(checkpoint)
    content = _graph(elmo, checkpoint, dtype, softmax)
    expected = elmo.layers_of(TEST_SENTENCES).hidden_states.numpy()
    results = run(content, encode(elmo, TEST_SENTENCES))
    difference = largest_distance(results["layers"], expected)
    if not difference <= TOLERANCE[dtype]:
        raise ElmokitError(
            f"{output}: the graph gives different vectors (difference {difference:.1e}); "
            "nothing was written"
        )
    contents = describe(elmo, expected, list(results))
    contents["graph"] = {
        "file": output.name, "opset": OPSET, "weights": dtype,
        "sha256": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip
    write_file(description, [json.dumps(contents, indent=1) + "\n"])
    write_file(output, content)
    return Export(output, description, len(content), dtype, list(results), difference)


def largest_distance(vectors: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest distance of a vector to the expected one, as a share of its length.

    Single values are no measure: where the numbers of a vector are about 1, a value of 0.01 cannot
    be as exact, as it is a sum of such numbers.
    """
    distances = np.linalg.norm(vectors - expected, axis=-1)
    lengths = np.linalg.norm(expected, axis=-1)  # 0 where a sentence has ended
    return float((distances / np.maximum(lengths, 1e-12)).max(initial=0.0))


def _graph(elmo: Embedder, checkpoint: Checkpoint, dtype: WeightType, softmax: bool) -> bytes:
    """Return the graph as the content of a file."""
    if softmax and elmo.model.softmax is None:
        raise InvalidInput(f"{elmo.source} has no softmax: export it without")
    names = [n for n in checkpoint.tensors if softmax or not n.startswith("softmax.")]
    size = sum(checkpoint.tensors[n].size for n in names) * np.dtype(dtype).itemsize
    if size > MAX_BYTES:
        raise ElmokitError(
            f"{elmo.source} has {size / 1e9:.1f} GB of weights, more than an ONNX file can have: "
            "export it as float16 or without its softmax"
        )
    onnx = require("onnx", extra="onnx", purpose="Exporting to ONNX")
    with torch.inference_mode():
        ids = torch.from_numpy(elmo.indexer.encode([BEGIN_SENTENCE, END_SENTENCE]))
        boundaries = elmo.model.token_encoder(ids).numpy()  # (2, projection_dim)
    proto = build(elmo.config, checkpoint.tensors, boundaries, dtype=dtype, softmax=softmax)
    onnx.checker.check_model(proto)
    return bytes(proto.SerializeToString())


def encode(elmo: Embedder, sentences: list[list[str]]) -> dict[str, NDArray[np.int64]]:
    """Return the inputs of the graph for tokenized sentences, padded with 0."""
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    words = [word for sentence in sentences for word in sentence]
    rows = elmo.indexer.encode(words)  # (positions, columns)
    ids = np.zeros((len(sentences), lengths.max(initial=0), rows.shape[1]), np.int64)
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = rows
    name = INPUTS[elmo.config.token_encoder]
    return {name: ids[:, :, 0] if name == "word_ids" else ids, "lengths": lengths}


def run(graph: bytes | str, inputs: dict[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
    """Return the outputs of a graph, or of a file, in onnxruntime."""
    runtime = require("onnxruntime", extra="onnx", purpose="Checking an ONNX graph")
    session = runtime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def describe(elmo: Embedder, layers: NDArray[np.float32], outputs: list[str]) -> dict[str, Any]:
    """Return what a program in another language needs, with sentences and their vectors."""
    words = elmo.vocabulary
    needs_words = elmo.config.token_encoder == "words" or len(outputs) > 1
    result: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "fingerprint": elmo.fingerprint(),
        "model": elmo.config.to_dict(),
        "outputs": outputs,
        "tokenizer": {
            "name": elmo.tokenizer_name,
            "examples": [{"text": text, "tokens": elmo.tokenize(text)} for text in TEXTS],
        },
    }
    if elmo.config.token_encoder == "characters":
        result["characters"] = {
            "max_characters": elmo.config.max_characters, "no_word": 0, "first_byte": 1,
            "begin_word": BEGIN_WORD_ID, "end_word": END_WORD_ID, "padding": PADDING_ID,
        }  # fmt: skip
    if words is not None and needs_words:
        result["vocabulary"] = words.words
    if elmo.dictionaries is not None:
        result["dictionaries"] = asdict(elmo.dictionaries)
    inputs = {name: ids.tolist() for name, ids in encode(elmo, TEST_SENTENCES).items()}
    rounded = [float(f"{value:.7g}") for value in layers.ravel().tolist()]
    result["test"] = {"tokens": TEST_SENTENCES, **inputs, "shape": layers.shape, "layers": rounded}
    return result
