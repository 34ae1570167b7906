"""What do static vectors know that are averages of contextual ones? Beside GloVe, and by layer.

    python benchmarks/static.py --text wiki.txt.xz --vectors glove.txt --train ewt.train.conllu \
        --dev ewt.dev.conllu [--tokens 400000]

The beginning of a text is embedded with the shipped model, and the uses of each word are averaged
by layer, as `elmokit static --lowercase --min-count 1` does. Nearest words are looked for among the
10,000 most frequent words of each file. Parts of speech are those of `elmokit probe --vectors`: its
classifier on static vectors does not depend on the model, so that a tiny one with random weights
takes the place of the shipped one, which probe.py measures.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from neighbours import cut
from parsers import described_parser
from speed import machine

import elmokit
from elmokit import BiLM, BiLMConfig
from elmokit.analysis import Corpus, TaggedText, average_uses, probe_layers, read_tagged_text
from elmokit.embed import Embedder
from elmokit.vectors.static.table import StaticVectors, read_static_vectors

HERE = Path(__file__).parent
WORDS = "walking london government bank good three quickly".split()
NEAREST_AMONG = 10_000
NEAREST = 5
TRAINING: Any = {"epochs": 5, "batch_size": 256}


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--text", required=True, help="running text, also .gz, .xz, .zst")
    parser.add_argument("--vectors", required=True, help="static word vectors to compare with")
    parser.add_argument("--train", required=True, help="CoNLL-U, also .xz")
    parser.add_argument("--dev", required=True, help="CoNLL-U, also .xz")
    parser.add_argument("--tokens", type=int, default=400_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", default=str(HERE / "results" / "static.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    texts = [read_tagged_text(path, column="UPOS") for path in (arguments.train, arguments.dev)]
    result: dict[str, Any] = {"machine": machine(), "among": NEAREST_AMONG, "training": TRAINING}
    result["rows"] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cut(arguments.text, arguments.tokens, folder / "text.txt", 0)
        corpus = Corpus(folder / "text.txt", case_sensitive=False, split=True, quiet=False)
        elmo = elmokit.load()
        for layer in range(elmo.config.num_layers + 1):
            start, out = time.process_time(), folder / f"layer{layer}.bin"
            made = average_uses(elmo, corpus, out, layer=str(layer), min_count=1)
            seconds = round(time.process_time() - start, 1)
            result["tokens"] = made.uses
            result["rows"][f"layer {layer}"] = {"cpu_seconds": seconds, **measure(out, texts)}
        glove = measure(Path(arguments.vectors), texts)
    result["rows"][Path(arguments.vectors).name.partition(".")[0]] = glove
    print(json.dumps(result, indent=1, ensure_ascii=False))
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    Path(arguments.out).write_text(text, encoding="utf-8")


def measure(path: Path, texts: list[TaggedText]) -> dict[str, Any]:
    """Return the nearest words, and the parts of speech that a classifier finds."""
    vectors = read_static_vectors(path, quiet=True)
    frequent = read_static_vectors(path, limit=NEAREST_AMONG, quiet=True)
    nearest = {word: [near for near, _ in frequent.most_similar(word, NEAREST)] for word in WORDS}
    return {"words": len(vectors), "dim": vectors.dim, "nearest": nearest, **pos(vectors, texts)}


def pos(vectors: StaticVectors, texts: list[TaggedText]) -> dict[str, Any]:
    """Return accuracies in percent on the dev text, and how many of its tokens have a vector."""
    sizes: Any = {"filters": ((1, 4),), "character_dim": 4, "lstm_dim": 4, "projection_dim": 2}
    torch.manual_seed(0)
    tiny = Embedder(BiLM(BiLMConfig(**sizes)).eval())
    score = probe_layers(tiny, *texts, static=vectors, **TRAINING, quiet=False).static
    assert score is not None
    assert score.unseen is not None
    known = (vectors.rows(texts[1].words()) >= 0).mean()
    percents = {"accuracy": score.accuracy, "unseen": score.unseen, "coverage": float(known)}
    return {name: round(100 * share, 1) for name, share in percents.items()}


if __name__ == "__main__":
    main()
