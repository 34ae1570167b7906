"""How fast are the nearest uses found among a million, in how much memory, and how many are missed?

    python benchmarks/neighbours.py --text wiki.txt.xz [--static glove.txt] [--tokens 1000000]

The beginning of a text is indexed with the shipped model, in one process; another builds the graphs
for the approximate search. `elmokit neighbours find` is then timed as a whole process, exact and
approximate in turns, and its parts inside one process. Queries are words of the sentences that
follow in the text; recall@10 is the share of the 10 nearest uses that the approximate search finds.
Then, as in table 4 of the ELMo paper, two sentences with "play" are held against all uses of that
word in the whole text. These are printed, to be read.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import torch
from speed import machine

from elmokit.analysis.neighbours.approximate import Graphs, open_graphs
from elmokit.analysis.neighbours.index import Index, exact_search, open_index
from elmokit.analysis.neighbours.nearest import find_neighbours
from elmokit.analysis.uses import Use, embed_uses, marked_use
from elmokit.cli.options import ModelOptions
from elmokit.io.lines import read_lines
from elmokit.store import LayerStore
from elmokit.text.tokenize import split_sentences, tokenize
from elmokit.vectors.static.table import read_vectors

HERE = Path(__file__).parent
PLAYS = {  # what the word means there: the sentence
    "game": "The shortstop made a brilliant *play* on a hard ground ball .",
    "stage": "She wrote a *play* for a small theatre on Broadway .",
}
# What the word means in the 10 nearest uses, read by hand, for the shipped model and the
# whole text; the sentences themselves are printed and not kept.
READ = {
    "game": "game game game game game stage stage game game game".split(),
    "stage": "stage stage game stage pun game stage game stage stage".split(),
}
GRAPHS = (
    "import sys\n"
    "from elmokit.analysis.neighbours.approximate import build_graphs\n"
    "from elmokit.analysis.neighbours.index import open_index\n"
    "build_graphs(open_index(sys.argv[1]), threads=int(sys.argv[2]), quiet=True)\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", required=True, help="running text, also .gz, .xz, .zst")
    parser.add_argument("--static", help="static word vectors, for table 4")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--note", help="what disturbed the run, for the result")
    parser.add_argument("--out", default=str(HERE / "results" / "neighbours.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["ELMOKIT_CACHE"] = str(folder / "cache")
        queries = cut(arguments.text, arguments.tokens, folder / "text.txt", arguments.queries)
        result = {"machine": machine(), "note": arguments.note, "threads": arguments.threads}
        result |= build(folder, arguments.threads)
        result |= processes(folder, arguments.rounds, arguments.threads)
        result |= inside(open_index(folder / "index"), queries)
        result["plays"] = plays(arguments.text, folder, arguments.threads, arguments.static)
    print(json.dumps(result, indent=1, ensure_ascii=False))
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    Path(arguments.out).write_text(text, encoding="utf-8")


def cut(source: str, tokens: int, target: Path, queries: int) -> list[Use]:
    """Write the lines of a text up to a number of tokens; gives words in what follows them."""
    count = 0
    lines = (piece.text for piece in read_lines(source))
    with target.open("w", encoding="utf-8") as out:
        for line in lines:
            out.write(line + "\n")
            count += len(tokenize(line))
            if count >= tokens:
                break
    later = (tokenize(sentence) for line in lines for sentence in split_sentences(line))
    long = list(islice((each for each in later if 8 <= len(each) <= 40), queries))
    rng = random.Random(0)
    return [
        Use(tuple(each), place, place + 1, each[place].lower())
        for each, place in ((each, rng.choice(words_in(each))) for each in long)
    ]


def words_in(tokens: Sequence[str]) -> list[int]:
    """Where words stand, and not punctuation."""
    return [place for place, token in enumerate(tokens) if token[0].isalpha()] or [0]


def build(folder: Path, threads: int) -> dict:
    """Index the text and build the graphs, each in a process of its own."""
    index = [
        "-m", "elmokit", "neighbours", "index", "text.txt", "index", "--split", "--quiet",
        "--no-approximate", "--threads", str(threads),
    ]  # fmt: skip
    indexing = run(index, folder)
    made = open_index(folder / "index")
    size = made.bytes_on_disk()
    graphs = run(["-c", GRAPHS, "index", str(threads)], folder)
    return {
        "uses": len(made),
        "sentences": made.num_sentences,
        "distinct_words": len(made.words),
        "columns": made.dim,
        "index_mb": round(size / 1e6),
        "graphs_mb": round((made.bytes_on_disk() - size) / 1e6),
        "indexing": indexing,
        "building_graphs": graphs,
    }


def processes(folder: Path, rounds: int, threads: int) -> dict:
    """`elmokit neighbours find` from start to end, exact and approximate in turns."""
    found: dict[str, list[dict]] = {"exact": [], "approximate": [], "import torch": []}
    find = [
        "-m",
        "elmokit",
        "neighbours",
        "find",
        "index",
        PLAYS["stage"],
        "--threads",
        str(threads),
    ]
    commands = {
        "exact": [*find, "--exact"],
        "approximate": find,
        "import torch": ["-c", "import torch"],
    }
    for _ in range(rounds):
        for name, command in commands.items():
            found[name].append(run(command, folder))
    return {
        "find_process": {
            name: {
                "seconds": round(statistics.median(each["seconds"] for each in runs), 3),
                "peak_rss_mb": max(each["peak_rss_mb"] for each in runs),
            }
            for name, runs in found.items()
        }
    }


def run(arguments: list[str], folder: Path) -> dict:
    """Run Python in a process of its own: its seconds and its largest memory."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"failed: {arguments}")
    return {"seconds": round(seconds, 3), "peak_rss_mb": round(usage.ru_maxrss / 1024)}


def inside(index: Index, queries: list[Use]) -> dict:
    """The parts of a search, and recall."""
    store = ModelOptions().open_store()
    graphs = open_graphs(index)
    return {
        "search_ms": times(index, store, graphs, queries),
        "queries": len(queries),
        **recalls(index, store, graphs, queries),
    }


def times(index: Index, store: LayerStore, graphs: Graphs, queries: list[Use]) -> dict:
    """Milliseconds of the parts of a search for one use, medians."""
    embedded, _ = embed_uses(store, queries)
    vectors = index.query(embedded[index.settings["layer"]])
    whole = {
        "embed the query": lambda n: list(store.elmo.stream([queries[n].tokens])),
        "exact search": lambda n: exact_search(index.vectors, vectors[n : n + 1], 80),
        "approximate search": lambda n: graphs.search(vectors[n : n + 1], 80),
        "exact answer": lambda n: find_neighbours(store, index, [queries[n]]),
        "approximate answer": lambda n: find_neighbours(store, index, [queries[n]], graphs=graphs),
    }
    return {name: round(1000 * median(call, 15), 1) for name, call in whole.items()}


def median(call: Callable[[int], object], count: int) -> float:
    """Seconds of a call, the median over the first queries; one goes before to warm up."""
    call(0)
    found = []
    for number in range(count):
        start = time.perf_counter()
        call(number)
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def recalls(index: Index, store: LayerStore, graphs: Graphs, queries: list[Use]) -> dict:
    """The share of the 10 nearest uses that the graphs find, as `neighbours find` asks them."""
    embedded, _ = embed_uses(store, queries)
    vectors = index.query(embedded[index.settings["layer"]])
    _, wanted = exact_search(index.vectors, vectors, 10)
    shares = {}
    for candidates in (10, 80):
        found = graphs.search(vectors, candidates)
        each = [
            len(set(rows[:10].tolist()) & set(best.tolist())) / 10
            for (_, rows), best in zip(found, wanted, strict=True)
        ]
        shares[candidates] = round(statistics.mean(each), 4)
    return {"recall_at_10": shares[80], "recall_at_10_of_10_candidates": shares[10]}


def plays(text: str, folder: Path, threads: int, static: str | None) -> dict:
    """The uses of "play" in the whole text that are nearest to two sentences with it."""
    command = ["-m", "elmokit", "neighbours", "index", str(Path(text).absolute()), "plays"]
    run([*command, "--split", "--quiet", "--words", "play", "--threads", str(threads)], folder)
    index, store = open_index(folder / "plays"), ModelOptions().open_store()
    vectors = None if static is None else read_vectors(static, quiet=True)
    uses = [marked_use(sentence, tokenize) for sentence in PLAYS.values()]
    found = find_neighbours(store, index, uses, k=10, static=vectors)
    result: dict = {"uses": len(index), "read": READ, "static": found[0].to_dict()["static"]}
    for name, one in zip(PLAYS, found, strict=True):
        metadata = one.to_dict()
        print(metadata["query"], *(near["sentence"] for near in metadata["neighbours"]), sep="\n  ")
        result[name] = [near["score"] for near in metadata["neighbours"]]
    return result


if __name__ == "__main__":
    main()
