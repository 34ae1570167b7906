"""How much memory does embedding a file of 1 GB take?

    python benchmarks/memory.py --text corpus.txt [--minutes 5]

The text is repeated (with the sentences in another order each time) to a file of 1 GB, which
`elmokit embed` then embeds with random weights of the `small` size, one pooled vector per sentence,
while its resident memory is sampled. On a laptop the whole file would take hours, so the command is
stopped after some minutes; the share that was embedded is in the result. With --whole a second
run reads, tokenizes and windows the whole gigabyte without the LSTMs.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from speed import machine, make_checkpoint, stand_in_text

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", help="a text file, also .xz; Python's help texts if not given")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--out", default=str(HERE / "results" / "memory.json"))
    parser.add_argument("--whole", action="store_true", help="read all of it without the LSTMs too")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        return read_all(arguments.read)
    with tempfile.TemporaryDirectory() as folder:
        big, model = Path(folder, "big.txt"), Path(folder, "small")
        make_text(arguments.text or stand_in_text(Path(folder)), big, arguments.gigabytes)
        make_checkpoint("small", model)
        embedding = watch_embedding(big, model, arguments.minutes)
        reading = None
        if arguments.whole:
            command = [sys.executable, __file__, "--read", str(big)]
            reading = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        size = big.stat().st_size
    result = {"machine": machine(), "bytes": size, "embedding": embedding, "reading": reading}
    print(json.dumps(result, indent=1))
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")
    return None


def make_text(source: str, target: Path, gigabytes: float) -> None:
    """Repeat the lines of `source`, shuffled each time, until the file is large enough."""
    content = Path(source).read_bytes()
    if source.endswith(".xz"):
        content = lzma.decompress(content)
    lines = [line for line in content.split(b"\n") if line.strip()]
    written, size = 0, gigabytes * 1e9
    with target.open("wb") as out:
        while written < size:
            random.Random(written).shuffle(lines)
            for line in lines:
                written += out.write(line + b"\n")
                if written >= size:
                    break


def watch_embedding(text: Path, model: Path, minutes: float) -> dict[str, Any]:
    """Run `elmokit embed` for some minutes and sample its memory."""
    out = text.with_name("vectors.npy")
    command = [
        sys.executable, "-m", "elmokit", "embed", str(text), str(out), "--model", str(model),
        "--split", "--layers", "average", "--pooling", "mean", "--dtype", "float16", "--quiet",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    samples, end = [], time.monotonic() + 60 * minutes
    while time.monotonic() < end and process.poll() is None:
        time.sleep(1)
        samples.append(resident(process.pid))
    if process.poll() is None:
        process.terminate()
    process.wait()
    parts = [
        json.loads(p.read_bytes()) for p in out.with_name("vectors.npy.parts").glob("part*.json")
    ]
    tokens = sum(len(sentence) for part in parts for sentence in part["tokens"])
    characters = sum(len(t) + 1 for part in parts for sentence in part["tokens"] for t in sentence)
    return {
        "minutes": minutes, "tokens": tokens, "about_bytes_of_text": characters,
        "peak_rss_mb": max(samples), "rss_mb_each_tenth": samples[:: max(1, len(samples) // 10)],
    }  # fmt: skip


def resident(process: int) -> int:
    """Return the resident memory of a process in MB (Linux)."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(lines[0].split()[1]) // 1024 if lines else 0


def read_all(path: str) -> None:
    """Do everything but run the model, for the whole file."""
    from elmokit.embed import Embedder
    from elmokit.formats.detect import read_checkpoint
    from elmokit.text.readers import read_sentences, whole_lines

    elmo = Embedder.from_pretrained(read_checkpoint(Path(path).with_name("small")))
    start = time.perf_counter()
    tokens = sentences = 0
    for window in elmo.windows(whole_lines(read_sentences(path, split=True)), kept=3):
        sentences += len(window)
        tokens += sum(map(len, window))
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    seconds = round(time.perf_counter() - start)
    print(
        json.dumps(
            {"sentences": sentences, "tokens": tokens, "peak_rss_mb": rss, "seconds": seconds}
        )
    )


if __name__ == "__main__":
    main()
