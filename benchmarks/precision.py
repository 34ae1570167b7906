"""How close are the vectors of float16 and int8 weights to those of float32?

    python benchmarks/precision.py --text news.txt

Cosine of the vector of every token in each layer with the float32 one, for random weights of the
published sizes and real sentences.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from speed import machine, make_checkpoint, read_sentences, stand_in_text

import elmokit
from elmokit.model.kernels.linear import Precision

HERE = Path(__file__).parent
LOWER: tuple[Precision, ...] = ("float16", "int8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", help="tokenized sentences, one per line")
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--out", default=str(HERE / "results" / "precision.json"))
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        sentences = read_sentences(
            arguments.text or stand_in_text(Path(folder)), arguments.sentences
        )
        for size in ("small", "original"):
            make_checkpoint(size, Path(folder) / size)
            exact = vectors(Path(folder) / size, "float32", sentences)
            for precision in LOWER:
                lower = vectors(Path(folder) / size, precision, sentences)
                cosines = (exact * lower).sum(-1) / np.sqrt((exact**2).sum(-1) * (lower**2).sum(-1))
                rows.append(
                    {
                        "size": size,
                        "precision": precision,
                        "mean": float(cosines.mean()),
                        "lowest": float(cosines.min()),
                        "lowest_by_layer": [round(float(x), 6) for x in cosines.min(1)],
                    }
                )
    result = {"machine": machine(), "rows": rows}
    print(json.dumps(result, indent=1))
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")


def vectors(folder: Path, precision: Precision, sentences: list[list[str]]) -> np.ndarray:
    """Return the vectors of all sentences in float64: (layers, tokens, dim)."""
    elmo = elmokit.load(folder, precision=precision)
    return np.concatenate([s.layers for s in elmo.embed(sentences)], axis=1).astype(np.float64)


if __name__ == "__main__":
    main()
