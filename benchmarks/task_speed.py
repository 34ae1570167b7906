"""How much longer does an epoch of a task take with ELMo if the vectors of the biLM are cached?

    python benchmarks/task_speed.py --train conll2003.train.conll --dev conll2003.dev.conll \
        [--vectors glove.txt]

A tagger of names is trained for one epoch and evaluated on the dev set: without ELMo, with the
layers of the shipped model read from the disk, and with the layers computed again for every batch.
They take turns, each in its own process; ratios are medians of the rounds' ratios. The cost of
computing and storing the layers once is measured separately: all later epochs and runs read them.
Memory is the peak of each process.
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
from typing import Any

from parsers import described_parser
from speed import machine

HERE = Path(__file__).parent
WITHOUT, KEPT, AGAIN = "without ELMo", "ELMo, layers kept", "ELMo, layers computed each time"


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--train", required=True, help="names in CoNLL columns")
    parser.add_argument("--dev", required=True)
    parser.add_argument("--vectors", help="static word vectors, the same for all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", default=str(HERE / "results" / "task_speed.json"))
    arguments = parser.parse_args()
    runs: dict[str, list[dict[str, Any]]] = {WITHOUT: [], KEPT: [], AGAIN: []}
    with tempfile.TemporaryDirectory() as folder:
        first = one_epoch(KEPT, arguments, Path(folder))  # Computes the layers and stores them.
        for i in range(arguments.rounds):
            for name, of_name in runs.items():
                of_name.append(one_epoch(name, arguments, Path(folder)))
            print(f"round {i + 1} of {arguments.rounds}", file=sys.stderr)
        kept_mb = sum(f.stat().st_size for f in Path(folder, "cache").rglob("*")) // 1_000_000
    rows = {name: summary(of_name, runs[WITHOUT]) for name, of_name in runs.items()}
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
            - statistics.median(each["process_seconds"] for each in runs[KEPT]),
            1,
        ),
        "kept_mb": kept_mb,
    }
    print(json.dumps(result, indent=1))
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")


def one_epoch(name: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train for an epoch in a process; return its time, memory and number of examples."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "model"
    command = [
        sys.executable, "-m", "elmokit", "train", "tagger", "--train", arguments.train,
        "--dev", arguments.dev, "--out", str(out), "--epochs", "1",
        "--hidden", str(arguments.hidden), "--threads", str(arguments.threads), "--quiet",
        "--cache", str(folder / ("none" if name == AGAIN else "cache")),
    ]  # fmt: skip
    command += ["--no-elmo"] if name == WITHOUT else []
    command += ["--cache-gb", "0.000001"] if name == AGAIN else []  # Nothing fits.
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


def summary(runs: list[dict[str, Any]], without: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row of the result."""
    ratios = [each["seconds"] / other["seconds"] for each, other in zip(runs, without, strict=True)]
    return {
        "seconds": statistics.median(each["seconds"] for each in runs),
        "all": [each["seconds"] for each in runs],
        "ratio": round(statistics.median(ratios), 2),
        "peak_rss_mb": max(each["peak_rss_mb"] for each in runs),
    }


if __name__ == "__main__":
    main()
