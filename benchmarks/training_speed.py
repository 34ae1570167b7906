"""How fast is training compared with bilm-tf, and how much of the machine does it use?

    python benchmarks/training_speed.py --text news.txt \
        --peer /venvs/tf/bin/python --peers ../shared/bench/train_bilm.py

The text is tokenized, one sentence per line. Both systems train the same configurations on it:
LSTMs of 512 cells with projection 128 in 2 layers, 10,000 words, batch 32, window 20, sampled
softmax with 1,024 words, Adagrad; 256 filters, and the 2,048 of the published models. They take
turns, round after round, each in its own process; a rate covers all steps but the first ones,
including the preparation of batches. The ratio is the median of the rounds' ratios. elmokit also
trains `tiny` with the full and the sampled softmax in batches of 32, 64 and 128. All but the first
configuration take part in the first and the last round only, with half of the steps. Without --peer
only elmokit is measured.

FLOPs count the matrix products of a step, three times those of the forward pass: every distinct
word of the window once through the character encoder, every token through the LSTMs and the
softmax of both directions. The share is of the float32 peak, which is measured in turns too.
"""

from __future__ import annotations

import argparse
import json
import lzma
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from parsers import described_parser
from speed import machine, ratio, run, stand_in_text

HERE = Path(__file__).parent
PEER = "bilm-tf"
SAME = {"filters": [[1, 32], [2, 32], [3, 64], [4, 128]]}  # the rest is as in tiny
WIDE = {"filters": [*SAME["filters"], [5, 256], [6, 512], [7, 1024]]}
PEERS = {"as bilm-tf": "small", "2,048 filters": "full"}  # configurations of the peer script
UNROLL, SAMPLES = 20, 1024
TRAINING: dict[str, Any] = {
    "vocab_size": 10_000,
    "min_count": 1,
    "unroll": UNROLL,
    "optimizer": "adagrad",
    "samples": SAMPLES,
}
CASES = [  # name, fields of the model, softmax, batch
    ("as bilm-tf", SAME, "sampled", 32),
    ("2,048 filters", WIDE, "sampled", 32),
    ("as bilm-tf", SAME, "full", 32),
    *(("tiny", {}, softmax, batch) for softmax in ("sampled", "full") for batch in (32, 64, 128)),
]
COLUMNS = ("configuration", "model", "softmax", "batch")


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--text", help="tokenized sentences, one per line, also .xz")
    parser.add_argument("--peer", metavar="PYTHON", help="a Python that has bilm and TensorFlow")
    parser.add_argument("--peers", metavar="SCRIPT", help="the script that trains bilm")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=120, help="of batch 32; fewer of larger ones")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", default=str(HERE / "results" / "training_speed.json"))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(json.loads(arguments.child))
    with tempfile.TemporaryDirectory() as folder:
        text = plain_text(arguments.text, Path(folder))
        runs, peaks = measure(arguments, text)
    rows = [summary(name, of_name, max(peaks)) for name, of_name in runs.items()]
    peers = {row["configuration"]: row for row in rows if row["system"] == PEER}
    for row in rows:
        peer = peers.get(row["configuration"]) if row["softmax"] == "sampled" else None
        row["ratio"] = ratio(row, peer) if peer else None
        print(json.dumps(row))
    result = {
        "machine": machine(),
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "peak_gflops": round(max(peaks) / 1e9, 1),
        "training": TRAINING,
        "rows": rows,
    }
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")
    return None


def plain_text(given: str | None, folder: Path) -> str:
    """Return the text as a file that the peer can read too."""
    if given is None:
        return stand_in_text(folder)
    if not given.endswith(".xz"):
        return given
    path = folder / "text.txt"
    path.write_bytes(lzma.decompress(Path(given).read_bytes()))
    return str(path)


def measure(
    arguments: argparse.Namespace, text: str
) -> tuple[dict[str, list[dict[str, Any]]], list[float]]:
    """Run every system in turns; return the runs of each and the peaks between them."""
    runs: dict[str, list[dict[str, Any]]] = {}
    peaks = []
    for i in range(arguments.rounds):
        peaks.append(peak_rate(arguments.threads))
        is_complete = i in (0, arguments.rounds - 1)
        for index, case in enumerate(CASES if is_complete else CASES[:1]):
            steps = arguments.steps // (2 if index else 1)
            job: dict[str, Any] = {
                **dict(zip(COLUMNS, case, strict=True)), "text": text, "threads": arguments.threads,
                "steps": max(3, steps * 32 // case[-1]),
            }  # fmt: skip
            name = f"elmokit, {job['configuration']}, {job['softmax']}, {job['batch']}"
            jobs = [(name, [sys.executable, __file__, "--child", json.dumps(job)])]
            if arguments.peer and job["softmax"] == "sampled" and job["configuration"] in PEERS:
                jobs.insert(0, (f"{PEER}, {job['configuration']}", peer_command(arguments, job)))
            for name, command in jobs:
                case_of_job = {key: job[key] for key in ("configuration", "softmax", "batch")}
                runs.setdefault(name, []).append({**run(command), **case_of_job})
        print(f"round {i + 1} of {arguments.rounds}", file=sys.stderr)
    return runs, peaks


def peer_command(arguments: argparse.Namespace, job: dict[str, Any]) -> list[str]:
    """Return the command that trains the same with bilm-tf."""
    return [
        arguments.peer, arguments.peers, "--text", job["text"], "--batches", str(job["steps"]),
        "--skip", str(skipped(job["steps"])), "--repeats", "1", "--threads", str(job["threads"]),
        "--cnn", PEERS[job["configuration"]],
    ]  # fmt: skip


def skipped(steps: int) -> int:
    """Return the number of steps at the beginning that are not timed."""
    return max(1, steps // 6)


def peak_rate(threads: int) -> float:
    """Return FLOP/s of multiply-adds in registers, or of a large product without a compiler."""
    import torch
    from peak import fastest, multiply_add_rate

    torch.set_num_threads(threads)
    rate = multiply_add_rate(threads)
    if not rate:
        a, b, out = torch.randn(4096, 4096), torch.randn(4096, 4096), torch.empty(4096, 4096)
        rate = 2 * 4096**3 / fastest(lambda: torch.mm(a, b, out=out))
    return rate


def summary(name: str, runs: list[dict[str, Any]], peak: float) -> dict[str, Any]:
    """Return one row of the result."""
    first, rates = runs[0], [each["tokens_per_s"] for each in runs]
    rate = statistics.median(rates)
    row = {
        "system": name.partition(",")[0], "configuration": first["configuration"],
        "softmax": first["softmax"], "batch": first["batch"], "tokens_per_s": round(rate, 1),
        "all": rates, "peak_rss_mb": max(each["peak_rss_mb"] for each in runs),
    }  # fmt: skip
    if "flops" in first:
        flops = rate * first["flops"] / (first["batch"] * UNROLL)
        row["gflop_per_step"] = round(first["flops"] / 1e9, 2)
        row["gflops"] = round(flops / 1e9, 1)
        row["share_of_peak"] = round(flops / peak, 3)
    return row


def child(job: dict[str, Any]) -> None:
    """Our side, in a process of its own: `elmokit pretrain` with a clock at every step."""
    from elmokit.config import BiLMConfig
    from elmokit.pretrain import PretrainSettings, pretrain  # Sets a variable before torch loads.
    from elmokit.pretrain.trainer import Trainer

    times, plain = [], Trainer.one_step

    def timed(self: Trainer) -> tuple[float, float]:
        result = plain(self)
        times.append(time.perf_counter())
        return result

    Trainer.one_step = timed  # type: ignore[method-assign]
    config = BiLMConfig.from_dict({**BiLMConfig.preset("tiny").to_dict(), **job["model"]})
    settings = PretrainSettings(
        valid_fraction=0, tokenizer="whitespace", batch_size=job["batch"], softmax=job["softmax"],
        threads=job["threads"], epochs=1000, max_steps=job["steps"], eval_every=1 << 30,
        save_every=1 << 30, quiet=True, **TRAINING,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        pretrain(job["text"], folder, settings, config=config)
        flops = flops_of_step(Path(folder), job)
    skip = skipped(job["steps"])
    tokens = (len(times) - skip) * job["batch"] * UNROLL
    rate = round(tokens / (times[-1] - times[skip - 1]), 1)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"tokens_per_s": rate, "flops": flops, "peak_rss_mb": rss}))


def flops_of_step(folder: Path, job: dict[str, Any]) -> float:
    """Return the FLOPs of a step on an average window; a multiply-add counts as two."""
    from peak import flops_per_token

    from elmokit.formats import native
    from elmokit.pretrain.corpus import Corpus
    from elmokit.pretrain.windows import Windows

    config, corpus = native.read(folder).config, Corpus(folder / "training" / "corpus")
    windows = Windows(corpus.train, rows=job["batch"], unroll=UNROLL, seed=1)
    words = [corpus.types.words(windows.window(0, i).types) for i in range(windows.steps)]
    distinct = statistics.mean(map(len, words))
    # Positions where a character n-gram can start: the bytes of a word and its two marks.
    positions = statistics.mean(sum(len(w.encode()) + 2 for w in each) for each in words)
    filters = sum(2 * width * config.character_dim * count for width, count in config.filters)
    parts = flops_per_token(config)
    tokens = job["batch"] * UNROLL
    outputs = config.vocabulary_size if job["softmax"] == "full" else SAMPLES + 1
    forward: float = (
        filters * positions
        + parts["highway and projection"] * distinct
        + parts["LSTM stack"] * tokens
        + 2 * 2 * config.projection_dim * outputs * tokens
    )
    return 3 * forward


if __name__ == "__main__":
    main()
