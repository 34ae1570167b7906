"""How much longer is an epoch of a task with ELMo, when the biLM's vectors are kept?

    python benchmarks/task_speed.py --train conll2003.train.conll --dev conll2003.dev.conll \
        [--vectors glove.txt]

A tagger of names is trained for one epoch, with the measuring on the dev set that belongs to it:
without ELMo, with the layers of the shipped model read from the disk, and with the layers computed
anew for every batch. They take turns, each in a process of its own; ratios are medians of the
rounds' ratios. What it takes to compute and keep the layers once stands apart: all later epochs and
runs read them. Memory is the largest of each process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from speed import machine

HERE = Path(__file__).parent
WITHOUT, KEPT, ANEW = "without ELMo", "ELMo, layers kept", "ELMo, layers computed each time"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", required=True, help="names in CoNLL columns")
    parser.add_argument("--dev", required=True)
    parser.add_argument("--vectors", help="static word vectors, the same for all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", default=str(HERE / "results" / "task_speed.json"))
    arguments = parser.parse_args()
    runs: dict[str, list[dict]] = {WITHOUT: [], KEPT: [], ANEW: []}
    with tempfile.TemporaryDirectory() as folder:
        first = one_epoch(KEPT, arguments, Path(folder))  # computes the layers and keeps them
        for number in range(arguments.rounds):
            for name, found in runs.items():
                found.append(one_epoch(name, arguments, Path(folder)))
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        kept_mb = sum(f.stat().st_size for f in Path(folder, "cache").rglob("*")) // 1_000_000
    rows = {name: summary(found, runs[WITHOUT]) for name, found in runs.items()}
    result = {
        "machine": machine(),
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "hidden": arguments.hidden,
        "train_examples": first["train_examples"],
        "dev_examples": first["dev_examples"],
        "rows": rows,
        "seconds_to_keep": round(
            first["process_seconds"]
            - statistics.median(found["process_seconds"] for found in runs[KEPT]),
            1,
        ),
        "kept_mb": kept_mb,
    }
    print(json.dumps(result, indent=1))
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")


def one_epoch(name: str, arguments: argparse.Namespace, folder: Path) -> dict:
    """Train for an epoch in a process of its own; gives its time, memory and report."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "model"
    command = [
        sys.executable, "-m", "elmokit", "train", "tagger", "--train", arguments.train,
        "--dev", arguments.dev, "--out", str(out), "--epochs", "1",
        "--hidden", str(arguments.hidden), "--threads", str(arguments.threads), "--quiet",
        "--cache", str(folder / ("none" if name == ANEW else "cache")),
    ]  # fmt: skip
    command += ["--no-elmo"] if name == WITHOUT else []
    command += ["--cache-gb", "0.000001"] if name == ANEW else []  # nothing fits
    command += ["--vectors", arguments.vectors] if arguments.vectors else []
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    report = json.loads((out / "report.json").read_text())
    return {
        "seconds": report["seconds"],
        "process_seconds": round(time.perf_counter() - started, 1),
        "peak_rss_mb": usage.ru_maxrss // 1024,
        "train_examples": report["train_examples"],
        "dev_examples": report["dev_examples"],
    }


def summary(found: list[dict], without: list[dict]) -> dict:
    ratios = [
        mine["seconds"] / other["seconds"] for mine, other in zip(found, without, strict=True)
    ]
    return {
        "seconds": statistics.median(one["seconds"] for one in found),
        "all": [one["seconds"] for one in found],
        "ratio": round(statistics.median(ratios), 2),
        "peak_rss_mb": max(one["peak_rss_mb"] for one in found),
    }


if __name__ == "__main__":
    main()
