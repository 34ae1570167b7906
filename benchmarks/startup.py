"""How long does it take from the command to the first vector, beyond the import of torch?

    python benchmarks/startup.py [--model FOLDER]

Median times of three commands, run in turns as whole processes: `import torch` alone,
`elmokit embed` of a file with one sentence, and `elmokit --help`. Bytecode is cached, as
after an installation by pip.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="english")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--out", default=str(HERE / "results" / "startup.json"))
    arguments = parser.parse_args()
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "one.txt").write_text("He sat on the river bank .\n")
        embed = [
            sys.executable, "-m", "elmokit", "embed", "one.txt", "one.npy", "--overwrite",
            "--quiet", "--model", arguments.model,
        ]  # fmt: skip
        commands = {
            "import torch": [sys.executable, "-c", "import torch"],
            "embed one sentence": embed,
            "--help": [sys.executable, "-m", "elmokit", "--help"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(arguments.rounds):
            for name, command in commands.items():
                start = time.perf_counter()
                subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
                times[name].append(time.perf_counter() - start)
    medians = {name: round(statistics.median(seconds), 3) for name, seconds in times.items()}
    added = round(medians["embed one sentence"] - medians["import torch"], 3)
    result = {"machine": machine(), "model": arguments.model, "seconds": medians, "added": added}
    print(json.dumps(result, indent=1))
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
