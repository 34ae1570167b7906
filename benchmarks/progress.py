"""What did more text bring the English model, and what would still more bring?

    python benchmarks/progress.py

The repository has kept each released model of the present shape together with what was measured
with it. This reads them from its history: the held-out perplexity, the senses of ten words
(polysemy.py) and of running text (senses.py). From the first to the last release, each measure is
taken as a straight line over the logarithm of the tokens read, which says how many tokens an aim
would need. Two releases are few, so that is an order of magnitude.
"""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

from parsers import described_parser
from release_model import training_runs

HERE = Path(__file__).parent
MODEL = "src/elmokit/pretrained/english/config.json"
NOUNS = ("bank", "cell", "crane", "plant", "bat", "spring", "mouse")
AIMS = {"purity_nouns": 0.85, "purity_all": 0.85, "semeval2007": 50.0}


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--out", default=str(HERE / "results" / "progress.json"))
    arguments = parser.parse_args()
    rows = [row for commit in releases() if (row := measured(commit)) is not None]
    needed = {name: tokens_for(rows[0], rows[-1], name, aim) for name, aim in AIMS.items()}
    result = {"rows": rows, "aims": AIMS, "million_tokens_for": needed}
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def releases() -> list[str]:
    """Return the commits that changed the English model, the oldest first."""
    return git("log", "--reverse", "--format=%h", "--", MODEL).split()


def measured(commit: str) -> dict[str, Any] | None:
    """Return what was measured with the model of a commit; None if it has another shape."""
    config, now = (json.loads(git("show", f"{name}:{MODEL}")) for name in (commit, "HEAD"))
    if config["model"] != now["model"]:
        return None
    runs = training_runs(config["metadata"])
    tokens = sum(
        run["step"] * run["settings"]["batch_size"] * run["settings"]["unroll"] for run in runs
    )
    words = results(commit, "polysemy")["words"]
    best = {word: max(entry["purity"]["value"][:-1]) for word, entry in words.items()}
    scores = results(commit, "senses")["vectors"]["as they are"]["scores"]
    return {
        "million_tokens": round(tokens / 1e6, 1),
        "hours": round(sum(run["hours"] for run in runs), 1),
        "perplexity": round(runs[-1]["heldout_perplexity"]["average"], 1),
        "purity_nouns": round(sum(best[word] for word in NOUNS) / len(NOUNS), 3),
        "purity_all": round(sum(best.values()) / len(best), 3),
        **{
            name: round(100 * scores[name]["layer 2"]["all"]["f1"], 1)
            for name in ("senseval2", "semeval2007")
        },
    }


def results(commit: str, name: str) -> dict[str, Any]:
    """Return a result as it was then."""
    content: dict[str, Any] = json.loads(git("show", f"{commit}:benchmarks/results/{name}.json"))
    return content


def tokens_for(first: dict[str, Any], last: dict[str, Any], name: str, aim: float) -> int | None:
    """Return how many million tokens the line through two releases needs; None if it falls."""
    doublings = math.log2(last["million_tokens"] / first["million_tokens"])
    slope = (last[name] - first[name]) / doublings
    if slope <= 0:
        return None
    return int(round(last["million_tokens"] * 2 ** ((aim - last[name]) / slope), -1))


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=HERE.parent, capture_output=True, check=True)
    return done.stdout.decode()


if __name__ == "__main__":
    main()
