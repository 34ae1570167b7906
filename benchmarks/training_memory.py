"""How much memory does pretraining take, for a small corpus and for one of 1 GB?

    python benchmarks/training_memory.py --text corpus.txt

The text is repeated (with its lines in another order each time) to files of 10 MB and of 1 GB in a
temporary folder. `elmokit pretrain` encodes each and trains `tiny` on it for some steps, while the
resident memory of the process and of its tokenizing workers is sampled. The encoded corpus is a
memory-mapped file: its pages in memory count as resident, but the system reclaims them when it
needs them, so the anonymous memory of the process is reported too. Repeating a text does not add
distinct words, and these are all that is held in memory while a corpus is encoded.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from memory import make_text
from parsers import described_parser
from speed import machine, stand_in_text

from elmokit.pretrain.corpus import MANIFEST, Corpus

HERE = Path(__file__).parent
EVERY = 0.2  # seconds between samples
PHASES = ("encoding", "training")


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--text", help="running text, also .xz; Python's help texts if not given")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[10.0, 1000.0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--vocab-size", type=int, default=30_000)
    parser.add_argument("--out", default=str(HERE / "results" / "training_memory.json"))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Deletes the temporary folder too.
    rows = []
    for megabytes in arguments.megabytes:
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder, "text.txt")
            source = arguments.text or stand_in_text(Path(folder))
            make_text(source, text, megabytes / 1000)
            rows.append(watch(text, arguments))
        print(json.dumps(rows[-1]), file=sys.stderr)
    result = {"machine": machine(), "steps": arguments.steps, "rows": rows}
    print(json.dumps(result, indent=1))
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")


def watch(text: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Pretrain on a text and sample the memory of both phases."""
    out = text.with_name("elmo")
    command = [
        sys.executable, "-m", "elmokit", "pretrain", "--corpus", str(text), "--out", str(out),
        "--preset", "tiny", "--vocab-size", str(arguments.vocab_size), "--valid-fraction", "0",
        "--max-steps", str(arguments.steps), "--quiet",
    ]  # fmt: skip
    size = text.stat().st_size
    peaks = {phase: {"resident_mb": 0, "own_mb": 0, "with_workers_mb": 0} for phase in PHASES}
    seconds = dict.fromkeys(PHASES, 0.0)
    process = subprocess.Popen(command, start_new_session=True)
    try:
        last = time.monotonic()
        while process.poll() is None:
            phase = PHASES[(out / "training" / "corpus" / MANIFEST).exists()]
            for name, value in sample(process.pid).items():
                peaks[phase][name] = max(peaks[phase][name], value)
            time.sleep(EVERY)
            now = time.monotonic()
            seconds[phase] += now - last
            last = now
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # with its workers
            process.wait()
    if process.returncode:
        sys.exit(f"elmokit pretrain ended with {process.returncode}")
    manifest = Corpus(out / "training" / "corpus").manifest
    return {
        "bytes": size,
        "tokens": manifest["train_tokens"],
        "types": manifest["types"],
        "encoded_mb": sum(file.stat().st_size for file in (out / "training" / "corpus").iterdir())
        // 1_000_000,
        **{phase: {**peaks[phase], "seconds": round(seconds[phase], 1)} for phase in PHASES},
    }


def sample(process: int) -> dict[str, int]:
    """Return memory in MB (Linux): resident, anonymous, and anonymous including children.

    Memory that processes share counts for each of them.
    """
    own = status(process)
    workers = [status(child) for child in children(process)]
    return {
        "resident_mb": own.get("VmRSS", 0) // 1024,
        "own_mb": own.get("RssAnon", 0) // 1024,
        "with_workers_mb": sum(each.get("RssAnon", 0) for each in [own, *workers]) // 1024,
    }


def status(process: int) -> dict[str, int]:
    """Return the sizes in /proc/PID/status in kB; empty if the process has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split()[:2] for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(value) for name, value in pairs}


def children(process: int) -> list[int]:
    """Return the ids of the child processes (Linux)."""
    result = []
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            result += [int(child) for child in thread.read_text().split()]
        except OSError:  # The thread has ended.
            continue
    return result


if __name__ == "__main__":
    main()
