"""How long does one sentence of 20 tokens take? Median and 99th percentile of the shipped models.

    python benchmarks/latency.py --text news.txt [--model english] [--threads 1]

Sentences with 18 to 22 tokens are embedded one by one, all layers. *cold* keeps no
vectors of words, *warm* has met all of them. The share of Python, with torch's own overhead, is
the median time of a warm sentence in a model of as many layers but of 4 cells, which runs the same
lines and multiplies hardly anything.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from parsers import described_parser
from speed import machine, read_sentences

import elmokit
from elmokit.embed import Embedder
from elmokit.formats.detect import SHIPPED
from elmokit.model.bilm import BiLM

HERE = Path(__file__).parent
MIN_TOKENS, MAX_TOKENS = 18, 22


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--text", required=True, help="tokenized sentences, one per line")
    parser.add_argument("--model", nargs="+", default=list(SHIPPED))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--out", default=str(HERE / "results" / "latency.json"))
    arguments = parser.parse_args()
    every = read_sentences(arguments.text, 100_000)
    sentences = [own for own in every if MIN_TOKENS <= len(own) <= MAX_TOKENS]
    sentences = sentences[: arguments.sentences]
    rows = []
    for model in arguments.model:
        for threads in arguments.threads:
            torch.set_num_threads(threads)
            rows.append({"model": model, "threads": threads, **measure(model, sentences)})
            print(json.dumps(rows[-1]))
    result = {"machine": machine(), "sentences": len(sentences), "rows": rows}
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")


def measure(model: str, sentences: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the times of a model in milliseconds, and the share of Python."""
    without_cache, elmo = elmokit.load(model, cache_bytes=0), elmokit.load(model)
    for own in sentences:
        elmo.embed_tokens(own)
    for own in sentences[:20]:
        without_cache.embed_tokens(own)
    cold, warm = milliseconds(without_cache, sentences), milliseconds(elmo, sentences)
    empty = without_arithmetic(elmo)
    milliseconds(empty, sentences)  # The words are met, as they are for `warm`.
    share = np.median(milliseconds(empty, sentences)) / np.median(warm)
    return {
        "cold_p50": round(float(np.median(cold)), 2),
        "cold_p99": round(float(np.percentile(cold, 99)), 2),
        "warm_p50": round(float(np.median(warm)), 2),
        "warm_p99": round(float(np.percentile(warm, 99)), 2),
        "python_share": round(float(share), 2),
    }


def milliseconds(elmo: Embedder, sentences: Sequence[Sequence[str]]) -> np.ndarray:
    """Return the time of each sentence."""
    times = []
    for own in sentences:
        begin = time.perf_counter()
        elmo.embed_tokens(own)
        times.append(time.perf_counter() - begin)
    return 1000 * np.array(times)


def without_arithmetic(elmo: Embedder) -> Embedder:
    """Return a model with as many layers and steps, but hardly anything to multiply."""
    small = replace(elmo.config, lstm_dim=4, projection_dim=4, vocabulary_size=0)
    return Embedder(BiLM(small).eval())


if __name__ == "__main__":
    main()
