"""How much the vectors of a sentence depend on the batch that it is computed in.

    python benchmarks/invariance.py [--model MODEL] [--sentences 200] [--seeds 5]

Every sentence is embedded alone and in a batch with all others; the figure is the largest absolute
difference of any value of any layer. Matrix products round differently for another number of rows,
and an LSTM can amplify that, most of all on text that it has never seen: so ordinary sentences and
sentences of random characters are measured apart.
"""

from __future__ import annotations

import argparse
import json
import random
from itertools import islice
from pathlib import Path

import numpy as np
from speed import machine

import elmokit
from elmokit.analysis.uses import read_uses

EXAMPLES = Path(__file__).parent.parent / "examples" / "senses.tsv"
ODD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789.,;:!?()[]{}<>@#$%&*+=äöüßéñçжыюλπσ文字学語"


def ordinary_sentences(count: int) -> list[list[str]]:
    """Return sentences of everyday English."""
    return [list(use.tokens) for use in islice(read_uses(EXAMPLES), count)]


def odd_sentences(count: int, seed: int) -> list[list[str]]:
    """Return sentences of 2 to 80 tokens of random characters."""
    draw = random.Random(seed)
    return [
        ["".join(draw.choices(ODD, k=draw.randint(1, 12))) for _ in range(draw.randint(2, 80))]
        for _ in range(count)
    ]


def largest_difference(elmo: elmokit.Embedder, sentences: list[list[str]]) -> float:
    """Return the largest difference between each sentence alone and all in one batch."""
    together = elmo.embed(sentences)
    alone = (elmo.embed_tokens(sentence) for sentence in sentences)
    return max(
        float(np.abs(one.layers - other.layers).max())
        for one, other in zip(alone, together, strict=True)
    )


def main() -> None:
    """Measure each precision and print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    results = {}
    for precision in ("float32", "float16", "int8"):
        elmo = elmokit.load(options.model, precision=precision)
        odd = [
            largest_difference(elmo, odd_sentences(options.sentences, seed))
            for seed in range(options.seeds)
        ]
        results[precision] = {
            "ordinary": largest_difference(elmo, ordinary_sentences(options.sentences)),
            "odd": max(odd),
        }
        print(precision, results[precision], flush=True)
    result = {"machine": machine(), **vars(options), "difference": results}
    out = Path(__file__).parent / "results" / "invariance.json"
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
