"""How fast is `elmokit embed --engine ray` beside plain `embed` with as many processes?

    python benchmarks/ray_engine.py [--rows 20000] [--workers 2] [--rounds 3]

Three commands embed the same texts into pooled vectors, in turns, as whole processes: plain embed
with one process and all its threads, with `--workers N`, and the engine ray with N actors on a Ray
of its own. The seconds are from the command to the end. A second measurement of a tenth of the
rows gives the rate without the start: rows more, divided by seconds more, of the medians.

The script is not called ray.py, because Python would then import it instead of Ray.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from speed import machine

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples" / "senses.tsv"


def texts(count: int) -> list[str]:
    """Return sentences of everyday English, again and again."""
    lines = EXAMPLES.read_text(encoding="utf-8").splitlines()[1:]
    pool = [line.partition("\t")[0] for line in lines]
    return [pool[i % len(pool)] for i in range(count)]


def write_inputs(folder: Path, rows: int) -> None:
    """Write the same texts as a text file and as four Parquet files."""
    import pyarrow
    from pyarrow import parquet

    all_texts = texts(rows)
    (folder / f"{rows}.txt").write_text("\n".join(all_texts) + "\n", encoding="utf-8")
    (folder / f"{rows}").mkdir()
    for k in range(4):
        share = all_texts[k * rows // 4 : (k + 1) * rows // 4]
        parquet.write_table(pyarrow.table({"text": share}), folder / f"{rows}" / f"{k}.parquet")


def commands(rows: int, workers: int, model: str) -> dict[str, list[str]]:
    """Return the arguments of each command."""
    same = ["--pooling", "mean", "--layers", "average", "--overwrite", "--quiet", "--model", model]
    plain = [f"{rows}.txt", f"{rows}.vectors.parquet", "--threads", str(workers), *same]
    many = ["--workers", str(workers)]
    return {
        "one process": plain,
        "workers": [*plain, *many],
        "ray": [f"{rows}/*.parquet", f"{rows}.vectors", "--engine", "ray", *many, *same],
    }


def seconds_of(arguments: list[str], folder: Path) -> float:
    """Run a command and return how long it took."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "elmokit", "embed", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure, print and write the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="english")
    parser.add_argument("--out", default=str(HERE / "results" / "ray_engine.json"))
    options = parser.parse_args()
    sizes = (options.rows, max(8, options.rows // 10))
    times: dict[str, dict[int, list[float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in sizes:
            write_inputs(folder, rows)
        for _ in range(options.rounds):
            for rows in sizes:
                for what, arguments in commands(rows, options.workers, options.model).items():
                    seconds = seconds_of(arguments, folder)
                    times.setdefault(what, {}).setdefault(rows, []).append(seconds)
    results = {}
    for what, by_rows in times.items():
        many, few = (statistics.median(by_rows[rows]) for rows in sizes)
        rate = (sizes[0] - sizes[1]) / (many - few) if many > few else None
        results[what] = {
            "seconds": round(many, 2),
            "seconds_of_a_tenth": round(few, 2),
            "rows_per_second_without_start": None if rate is None else round(rate, 1),
        }
    result = {
        "machine": machine(),
        "model": options.model,
        "rows": sizes[0],
        "tokens_per_row": round(sum(len(t.split()) for t in texts(sizes[0])) / sizes[0], 1),
        "workers": options.workers,
        "rounds": options.rounds,
        "results": results,
    }
    print(json.dumps(result, indent=1))
    Path(options.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
