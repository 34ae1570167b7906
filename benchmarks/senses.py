"""Which senses do the layers know? Averages over SemCor on two test sets, and the first sense.

    python benchmarks/senses.py --data data/senses [--model english]

`--data` has SemCor, senseval2 and semeval2007 in Raganato's format (NAME.data.xml and
NAME.gold.key.txt, also compressed) and WordNet's index.sense. Everything is learned on SemCor,
leaving one use out at a time, including the choice whether to subtract the mean of all tokens. The
paper reports 67.4 for the first and 69.0 for the second layer of its model, and 65.9 for
the first sense, on five test sets together, of which these are two.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from parsers import described_parser
from speed import machine

from elmokit.analysis.senses.build import build_senses
from elmokit.analysis.senses.data import TaggedCorpus, read_first_senses
from elmokit.analysis.senses.find import score_senses
from elmokit.cli.options import ModelOptions
from elmokit.cli.output import table
from elmokit.store import LayerStore

HERE = Path(__file__).parent
TRAIN, TESTS = "semcor", ("senseval2", "semeval2007")
PAPER = {"first sense": 65.9, "layer 1": 67.4, "layer 2": 69.0}


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--data", required=True, type=Path, help="the folder that has the files")
    parser.add_argument("--model", default="english", help="a model that elmokit.load accepts")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", default=str(HERE / "results" / "senses.json"))
    arguments = parser.parse_args()
    first = read_first_senses(find(arguments.data, "index.sense"))
    corpora = {name: TaggedCorpus(*files(arguments.data, name)) for name in (TRAIN, *TESTS)}
    extents = {
        name: {"sentences": corpus.sentences, "instances": corpus.instances}
        for name, corpus in corpora.items()
    }
    store = ModelOptions(model=arguments.model, threads=arguments.threads).open_store()
    rows = {
        name: measure(store, corpora, first, center=center)
        for name, center in (("as they are", False), ("without the mean of all tokens", True))
    }
    result = {
        "machine": machine(),
        "model": arguments.model,
        "fingerprint": store.elmo.fingerprint(),
        "extents": extents,
        "vectors": rows,
        "paper": PAPER,
    }
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")
    for name, measured in rows.items():
        print(f"vectors {name}")
        print(table(["", "SemCor", *TESTS], score_rows(measured)))


def find(folder: Path, name: str) -> Path:
    """Return the path of a file that may be compressed."""
    matches = sorted(folder.glob(f"{name}*"))
    if not matches:
        raise SystemExit(f"there is no {name} in {folder}")
    return matches[0]


def files(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the paths of the text and of the senses of a data set."""
    return find(folder, f"{name}.data.xml"), find(folder, f"{name}.gold.key.txt")


def measure(
    store: LayerStore,
    corpora: dict[str, TaggedCorpus],
    first: dict[tuple[str, str], str],
    *,
    center: bool,
) -> dict[str, Any]:
    """Build an inventory from SemCor and score the test sets."""
    start = time.perf_counter()
    inventory = build_senses(store, corpora[TRAIN], center=center)
    seconds = round(time.perf_counter() - start, 1)
    scores = {
        name: score_senses(store, inventory, corpora[name], first).to_dict() for name in TESTS
    }
    return {
        "senses": len(inventory.senses),
        "words": len(inventory.words),
        "seconds_to_build": seconds,
        "mixes": {name: vars(mix) for name, mix in inventory.mixes.items()},
        **inventory.metadata,
        "scores": scores,
    }


def score_rows(measured: dict[str, Any]) -> list[list[object]]:
    """Return a row for each method: accuracy on SemCor and F1 on the test sets."""
    rows: list[list[object]] = []
    for method in measured["scores"][TESTS[0]]:
        own = measured["leave_one_out"].get(method)
        tests = [100 * measured["scores"][name][method]["all"]["f1"] for name in TESTS]
        rows.append([method, None if own is None else 100 * own, *tests])
    return rows


if __name__ == "__main__":
    main()
