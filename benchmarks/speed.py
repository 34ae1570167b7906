"""How fast is embedding compared with older ELMo systems? Tokens in, NumPy layers out.

    python benchmarks/speed.py --text news.txt --peers ../shared/bench/run_peers.py \
        --peer bilm=/venvs/tf/bin/python --peer allennlp=/venvs/allennlp/bin/python

Each system runs in its own process on the same random-weight checkpoint and the same sentences;
the systems take turns, round after round, and the median of the rounds counts. Without --peer
only elmokit is measured, and without --text on the help texts that come with Python.

elmokit is measured in three ways. "same batches" gets the sentences in batches in the given
order, one call per batch, like the older systems. "look-ahead" gets all sentences in one call,
with the same batch size, and sorts them into batches by length, as `elmokit embed` does. Both
start each round with an empty word cache ("cold"); "warm" has seen the words before.

`--avx2` keeps torch, oneDNN, MKL and with them TensorFlow to the instructions of processors without
AVX-512, on which the ratios differ. float16 and int8 are left out: FBGEMM cannot be kept to them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from parsers import described_parser

HERE = Path(__file__).parent
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}  # fmt: skip
SAME, AHEAD = "same batches", "look-ahead"
BATCHES = [  # elmokit: precision, batching, cache
    ("float32", SAME, "cold"),
    ("float32", AHEAD, "cold"),
    ("float32", AHEAD, "warm"),
    ("float16", AHEAD, "cold"),
    ("int8", SAME, "cold"),
    ("int8", AHEAD, "cold"),
]
SINGLE = [
    ("float32", SAME, "cold"),
    ("float32", SAME, "warm"),
    ("float16", SAME, "cold"),
    ("int8", SAME, "cold"),
]
CASES = [  # size, batch size, sentences, variants of elmokit
    ("small", 32, 320, BATCHES),
    ("small", 1, 48, SINGLE),
    ("original", 32, 96, BATCHES),
    ("original", 1, 24, SINGLE),
]


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--text", help="tokenized sentences, one per line")
    parser.add_argument("--peers", help="the script that runs the older systems")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", help="only cases of this size, or size/batch")
    parser.add_argument("--avx2", action="store_true", help="use no AVX-512")
    parser.add_argument("--out", help="default: results/speed.json or results/speed_avx2.json")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(json.loads(arguments.child))
    if arguments.avx2:
        os.environ |= AVX2  # read by the processes that measure
    with tempfile.TemporaryDirectory() as folder:
        text = arguments.text or stand_in_text(Path(folder))
        rows = []
        for size, batch, sentences, variants in CASES:
            if arguments.only and arguments.only not in (size, f"{size}/{batch}"):
                continue
            checkpoint = Path(folder) / size
            if not checkpoint.exists():
                make_checkpoint(size, checkpoint)
            if arguments.avx2:
                variants = [variant for variant in variants if variant[0] == "float32"]
            rows += measure(arguments, text, checkpoint, batch, sentences, variants)
    for row in rows:
        print(json.dumps(row))
    name = "speed_avx2.json" if arguments.avx2 else "speed.json"
    out = Path(arguments.out or HERE / "results" / name)
    out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    return None


def measure(
    arguments: argparse.Namespace,
    text: str,
    checkpoint: Path,
    batch: int,
    sentences: int,
    variants: list[tuple[str, str, str]],
) -> list[dict[str, Any]]:
    """Measure all systems on one case, in turns."""
    names = ("precision", "batching", "cache")
    settings = [dict(zip(names, variant, strict=True)) for variant in variants]
    runs: dict[str, list[dict[str, Any]]] = {}
    for _ in range(arguments.rounds):
        for peer in arguments.peer:
            command = [
                sys.executable, arguments.peers, "--ckpt", str(checkpoint), "--text", text,
                "--batch-size", str(batch), "--limit", str(sentences), "--repeats", "1",
                "--threads", str(arguments.threads), "--peer", peer,
            ]  # fmt: skip
            runs.setdefault(peer.partition("=")[0], []).append(run(command))
        for setting in settings:
            job = {
                "checkpoint": str(checkpoint), "text": text, "batch": batch, "limit": sentences,
                "threads": arguments.threads, **setting,
            }  # fmt: skip
            name = f"elmokit {setting['precision']}, {setting['batching']}, {setting['cache']}"
            command = [sys.executable, __file__, "--child", json.dumps(job)]
            runs.setdefault(name, []).append(run(command))
    rows = [summary(name, checkpoint.name, batch, of_name) for name, of_name in runs.items()]
    peers = [row for row in rows if row["system"] in ANY_WORD]
    fastest = max(peers, key=lambda row: row["tokens_per_s"], default=None)
    for row in rows:
        row["ratio"] = ratio(row, fastest) if fastest else None
    return rows


def ratio(row: dict[str, Any], peer: dict[str, Any]) -> float:
    """Return the median ratio of the rounds: a slow moment affects both systems of a round."""
    rounds = zip(row["all"], peer["all"], strict=True)
    return float(round(statistics.median(ours / theirs for ours, theirs in rounds), 2))


ANY_WORD = ("bilm", "allennlp", "simple-elmo")  # allennlp-cached knows only prepared words.


def summary(name: str, size: str, batch: int, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row of the result."""
    rates = [each["tokens_per_s"] for each in runs]
    return {
        "system": name, "size": size, "batch": batch,
        "tokens_per_s": round(statistics.median(rates), 1), "all": rates,
        "peak_rss_mb": max(each["peak_rss_mb"] for each in runs), "tokens": runs[0]["tokens"],
    }  # fmt: skip


def run(command: list[str]) -> dict[str, Any]:
    """Run a command and return the JSON object that it prints last."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines or "error" in lines[-1][:60]:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def child(job: dict[str, Any]) -> None:
    """Measure elmokit in this process."""
    import torch

    import elmokit
    from elmokit.embed import Sentence

    torch.set_num_threads(job["threads"])
    sentences = read_sentences(job["text"], job["limit"])
    tokens = sum(map(len, sentences))
    elmo = elmokit.load(job["checkpoint"], precision=job["precision"], tokenizer="whitespace")
    size = job["batch"]
    batches = [sentences[start : start + size] for start in range(0, len(sentences), size)]

    def embed() -> list[Sentence]:
        if job["batching"] == SAME:
            return [each for batch in batches for each in elmo.embed(batch, batch_size=size)]
        return list(elmo.embed(sentences, batch_size=size))

    elmo.embed(batches[0], batch_size=size)
    if job["cache"] == "warm":
        embed()
    times = []
    for _ in range(3):
        if job["cache"] == "cold":
            # Only the word vectors: packing the weights is part of loading.
            elmo.engine._words.rows.clear()
        start = time.perf_counter()
        result = embed()
        times.append(time.perf_counter() - start)
        assert [sentence.tokens for sentence in result] == sentences
        del result
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rate = tokens / statistics.median(times)
    print(json.dumps({"tokens_per_s": round(rate, 1), "peak_rss_mb": round(rss), "tokens": tokens}))


def read_sentences(path: str, limit: int) -> list[list[str]]:
    """Return the first sentences of a tokenized file, also .gz, .xz or .zst."""
    from elmokit.text import readers

    lines = (line.tokens for line in readers.read_sentences(path, tokenizer="whitespace"))
    return list(islice((words for words in lines if words), limit))


def make_checkpoint(size: str, folder: Path) -> None:
    """Write a model of a published size: random weights, activations like a trained model's."""
    import numpy as np

    from elmokit.config import BiLMConfig
    from elmokit.formats import bilm
    from elmokit.formats.checkpoint import Checkpoint
    from elmokit.model.bilm import expected_shapes

    config = BiLMConfig.preset(size)
    random = np.random.default_rng(0)
    spread = {"input_weight": 1.6, "recurrent_weight": 1.6, "characters": 0.6}
    tensors = {}
    for name, shape in expected_shapes(config).items():
        last = name.rpartition(".")[2]
        if len(shape) == 1:
            value = random.normal(-2.0 if name.endswith("gate.bias") else 0.0, 0.1, shape)
        elif last in ("input_weight", "recurrent_weight"):
            value = random.normal(0, 1.6 / np.sqrt(2 * shape[1]), shape)
        elif last == "characters":
            value = random.normal(0, spread[last], shape)
        else:
            gain = 0.6 if "convolutions" in name else 1.3 if "layers" in name else 1.0
            value = random.normal(0, gain / np.sqrt(np.prod(shape[1:])), shape)
        tensors[name] = value.astype(np.float32)
    bilm.write(Checkpoint(config, tensors), folder)


def stand_in_text(folder: Path) -> str:
    """Write the help texts of Python, English sentences that are always there."""
    from pydoc_data.topics import topics

    from elmokit.text.tokenize import split_sentences, tokenize

    path = folder / "help.txt"
    split = (tokenize(s) for topic in sorted(topics) for s in split_sentences(topics[topic]))
    lines = [" ".join(words) for words in split if 4 < len(words) < 60]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def machine() -> dict[str, Any]:
    """Describe the machine and the versions."""
    import platform

    import torch

    cpuinfo = Path("/proc/cpuinfo")
    names = (
        [x for x in cpuinfo.read_text().splitlines() if "model name" in x]
        if cpuinfo.exists()
        else []
    )
    return {
        "processor": names[0].partition(":")[2].strip() if names else platform.processor(),
        "cores": os.cpu_count(), "instructions": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(), "torch": torch.__version__,
    }  # fmt: skip


if __name__ == "__main__":
    main()
