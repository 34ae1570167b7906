"""`elmokit info MODEL`: what a model is, read off its files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from elmokit.formats.checkpoint import Checkpoint, check_tensors
from elmokit.formats.detect import read_checkpoint
from elmokit.model.bilm import expected_shapes

PARTS = {
    "token_encoder.characters": "characters",
    "token_encoder.words": "words",
    "token_encoder.character_lstm": "character LSTM",
    "token_encoder.convolutions": "convolutions",
    "token_encoder.highways": "highway layers",
    "token_encoder.projection": "token projection",
    "forward_layers": "forward LSTMs",
    "backward_layers": "backward LSTMs",
    "softmax": "softmax",
}


def info(model: str, *, as_json: bool = False) -> None:
    """Show sizes, parameters by part, layers, characters, training metadata and format of a model.

    Args:
        model: a model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        as_json: print JSON for programs.
    """
    checkpoint = read_checkpoint(model)
    check_tensors(checkpoint, expected_shapes(checkpoint.config))
    metadata = describe(checkpoint)
    shown = [json.dumps(metadata, indent=2, ensure_ascii=False)] if as_json else _lines(metadata)
    for line in shown:
        print(line.encode("utf-8", "backslashreplace").decode("utf-8"))  # lone surrogates, too


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """Everything that `info` shows."""
    config = checkpoint.config
    by_part = dict.fromkeys(PARTS.values(), 0)
    for name, tensor in checkpoint.tensors.items():
        part = next(label for prefix, label in PARTS.items() if name.startswith(prefix))
        by_part[part] += tensor.size
    return {
        "model": checkpoint.source,
        "format": checkpoint.format,
        "layers": config.num_layers,
        "dim": config.dim,
        "lstm": f"{config.lstm_dim} cells, projection {config.projection_dim}",
        "parameters": sum(by_part.values()),
        "parameters_by_part": {part: number for part, number in by_part.items() if number},
        "vocabulary": None if checkpoint.vocabulary is None else len(checkpoint.vocabulary),
        "fingerprint": checkpoint.fingerprint(),
        "config": config.to_dict(),
        "metadata": checkpoint.metadata,
    }


def _lines(metadata: dict[str, Any]) -> Iterator[str]:
    config = metadata["config"]
    yield f"model        {metadata['model']} ({metadata['format']} format)"
    yield f"layers       0 (token) to {metadata['layers']}, {metadata['dim']} columns each"
    clips = f"clips {config['cell_clip']:g} and {config['projection_clip']:g}"
    yield f"lstm         {metadata['lstm']}, {clips}"
    yield from _token_lines(config)
    if metadata["vocabulary"]:
        yield f"vocabulary   {metadata['vocabulary']:,} words"
    yield f"parameters   {metadata['parameters']:,}"
    for part, number in metadata["parameters_by_part"].items():
        share = number / metadata["parameters"]
        yield f"  {part:<18} {number:>12,}  {share:6.1%}"
    yield f"fingerprint  {metadata['fingerprint']}"
    for name, value in metadata["metadata"].items():
        if name == "meta" and isinstance(value, dict):  # a lot, from those who published it
            for key, entry in value.items():
                yield f"meta         {key}: {json.dumps(entry, ensure_ascii=False)}"
        elif name != "options":  # the bilm options say again what stands above
            yield f"{name:<12} {json.dumps(value, ensure_ascii=False)}"


def _token_lines(config: dict[str, Any]) -> Iterator[str]:
    """What token vectors are made of."""
    if config["token_encoder"] == "words":
        yield f"words        {config['n_words']:,}"
        return
    filters = " ".join(f"{width}x{number}" for width, number in config["filters"])
    reader = f"filters {filters}, {config['activation']}; {config['highway_layers']} highway"
    if config.get("character_encoder") == "lstm":
        reader = "an LSTM in both directions"
    if config["character_dim"]:
        yield (
            f"characters   {config['n_characters']} of {config['character_dim']} columns, "
            f"{config['max_characters']} a word; {reader}"
        )
    if config.get("word_dim"):
        yield f"words        {config['n_words']:,} of {config['word_dim']} columns"
