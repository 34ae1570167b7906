"""Run all measurements of `make bench`, then write the tables and the plot in results/.

    make bench ARGS="--text news.txt --peers run_peers.py --peer bilm=/venvs/tf/bin/python"

Arguments are passed to speed.py; --quick skips the gigabyte of text and Ray. The speed of
embedding also decides the tables of docs/explanation/scaling.md, which are written again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    quick = "--quick" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--quick"]
    scripts = [["peak.py"], ["startup.py"], ["precision.py"], ["speed.py", *arguments]]
    if not quick:
        scripts += [["memory.py"], ["ray_engine.py"]]
    for script, *rest in [*scripts, ["scaling.py", "--write"], ["report.py"]]:
        print(f"benchmarks/{script}", file=sys.stderr)
        subprocess.run([sys.executable, str(HERE / script), *rest], check=True)


if __name__ == "__main__":
    main()
