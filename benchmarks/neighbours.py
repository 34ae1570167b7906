"""How fast is the search for the nearest uses among a million, and how many does it miss?

    python benchmarks/neighbours.py --text wiki.txt.xz [--static glove.txt] [--tokens 1000000]

The beginning of a text is indexed with the shipped model, in one process; another builds the graphs
for the approximate search. `elmokit neighbours find` is then timed as a whole process, exact and
approximate in turns, and its parts inside one process. Queries are words of the sentences that
follow in the text; recall@10 is the share of the 10 nearest uses that the approximate search finds.
Then, as in table 4 of the ELMo paper, two sentences with "play" are compared with all uses of that
word in the whole text. The nearest are printed for a reader to judge.
"""

from __future__ import annotations

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
from typing import Any

import torch
from parsers import described_parser
from speed import machine

from elmokit.analysis.neighbours.approximate import Graphs, open_graphs
from elmokit.analysis.neighbours.index import Index, exact_search, open_index
from elmokit.analysis.neighbours.nearest import find_neighbours
from elmokit.analysis.uses import Use, embed_uses, marked_use
from elmokit.cli.options import ModelOptions
from elmokit.io.lines import read_lines
from elmokit.store import LayerStore
from elmokit.text.tokenize import split_sentences, tokenize
from elmokit.vectors.static.table import read_static_vectors

HERE = Path(__file__).parent
PLAYS = {  # meaning of the word: sentence
    "game": "The shortstop made a brilliant *play* on a hard ground ball .",
    "stage": "She wrote a *play* for a small theatre on Broadway .",
}
# The meaning of the word in the 10 nearest uses, judged by hand for the shipped model and the whole
# text; the sentences themselves are only printed.
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
    parser = described_parser(__doc__)
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
    """Write the beginning of a text and return words from the sentences that follow it."""
    count = 0
    lines = (piece.text for piece in read_lines(source))
    with target.open("w", encoding="utf-8") as out:
        for line in lines:
            out.write(line + "\n")
            count += len(tokenize(line))
            if count >= tokens:
                break
    later = (tokenize(sentence) for line in lines for sentence in split_sentences(line))
    sentences = list(islice((each for each in later if 8 <= len(each) <= 40), queries))
    rng = random.Random(0)
    return [
        Use(tuple(tokens), position, position + 1, tokens[position].lower())
        for tokens, position in ((tokens, rng.choice(words_in(tokens))) for tokens in sentences)
    ]


def words_in(tokens: Sequence[str]) -> list[int]:
    """Return the positions of words, without punctuation."""
    return [i for i, token in enumerate(tokens) if token[0].isalpha()] or [0]


def build(folder: Path, threads: int) -> dict[str, Any]:
    """Index the text and build the graphs, each in its own process."""
    index = [
        "-m", "elmokit", "neighbours", "index", "text.txt", "index", "--split", "--quiet",
        "--no-approximate", "--threads", str(threads),
    ]  # fmt: skip
    indexing = run(index, folder)
    opened = open_index(folder / "index")
    size = opened.bytes_on_disk()
    graphs = run(["-c", GRAPHS, "index", str(threads)], folder)
    return {
        "uses": len(opened),
        "sentences": opened.num_sentences,
        "distinct_words": len(opened.words),
        "columns": opened.dim,
        "index_mb": round(size / 1e6),
        "graphs_mb": round((opened.bytes_on_disk() - size) / 1e6),
        "indexing": indexing,
        "building_graphs": graphs,
    }


def processes(folder: Path, rounds: int, threads: int) -> dict[str, Any]:
    """Time `elmokit neighbours find` as a whole process, exact and approximate in turns."""
    runs: dict[str, list[dict[str, Any]]] = {"exact": [], "approximate": [], "import torch": []}
    find = ["-m", "elmokit", "neighbours", "find", "index", PLAYS["stage"]]
    find += ["--threads", str(threads)]
    commands = {
        "exact": [*find, "--exact"],
        "approximate": find,
        "import torch": ["-c", "import torch"],
    }
    for _ in range(rounds):
        for name, command in commands.items():
            runs[name].append(run(command, folder))
    return {
        "find_process": {
            name: {
                "seconds": round(statistics.median(each["seconds"] for each in of_name), 3),
                "peak_rss_mb": max(each["peak_rss_mb"] for each in of_name),
            }
            for name, of_name in runs.items()
        }
    }


def run(arguments: list[str], folder: Path) -> dict[str, Any]:
    """Run Python in its own process; return its seconds and its peak memory."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"failed: {arguments}")
    return {"seconds": round(seconds, 3), "peak_rss_mb": round(usage.ru_maxrss / 1024)}


def inside(index: Index, queries: list[Use]) -> dict[str, Any]:
    """Measure the parts of a search, and recall."""
    store = ModelOptions().open_store()
    graphs = open_graphs(index)
    return {
        "search_ms": times(index, store, graphs, queries),
        "queries": len(queries),
        **recalls(index, store, graphs, queries),
    }


def times(index: Index, store: LayerStore, graphs: Graphs, queries: list[Use]) -> dict[str, Any]:
    """Return the median milliseconds of the parts of a search for one use."""
    embedded, _ = embed_uses(store, queries)
    vectors = index.query(embedded[index.settings["layer"]])
    parts: dict[str, Callable[[int], object]] = {
        "embed the query": lambda i: list(store.elmo.stream([queries[i].tokens])),
        "exact search": lambda i: exact_search(index.vectors, vectors[i : i + 1], 80),
        "approximate search": lambda i: graphs.search(vectors[i : i + 1], 80),
        "exact answer": lambda i: find_neighbours(store, index, [queries[i]]),
        "approximate answer": lambda i: find_neighbours(store, index, [queries[i]], graphs=graphs),
    }
    return {name: round(1000 * median(call, 15), 1) for name, call in parts.items()}


def median(call: Callable[[int], object], count: int) -> float:
    """Return the median seconds of a call over the first queries, after one call to warm up."""
    call(0)
    seconds = []
    for i in range(count):
        start = time.perf_counter()
        call(i)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def recalls(index: Index, store: LayerStore, graphs: Graphs, queries: list[Use]) -> dict[str, Any]:
    """Return the share of the 10 nearest uses that the graphs find, as in `neighbours find`."""
    embedded, _ = embed_uses(store, queries)
    vectors = index.query(embedded[index.settings["layer"]])
    _, nearest = exact_search(index.vectors, vectors, 10)
    shares = {}
    for candidates in (10, 80):
        results = graphs.search(vectors, candidates)
        recall = [
            len(set(rows[:10].tolist()) & set(best.tolist())) / 10
            for (_, rows), best in zip(results, nearest, strict=True)
        ]
        shares[candidates] = round(statistics.mean(recall), 4)
    return {"recall_at_10": shares[80], "recall_at_10_of_10_candidates": shares[10]}


def plays(text: str, folder: Path, threads: int, static: str | None) -> dict[str, Any]:
    """Find the uses of "play" in the whole text that are nearest to two sentences with it."""
    command = ["-m", "elmokit", "neighbours", "index", str(Path(text).absolute()), "plays"]
    run([*command, "--split", "--quiet", "--words", "play", "--threads", str(threads)], folder)
    index, store = open_index(folder / "plays"), ModelOptions().open_store()
    vectors = None if static is None else read_static_vectors(static, quiet=True)
    uses = [marked_use(sentence, tokenize) for sentence in PLAYS.values()]
    answers = [each.to_dict() for each in find_neighbours(store, index, uses, k=10, static=vectors)]
    result: dict[str, Any] = {"uses": len(index), "read": READ, "static": answers[0]["static"]}
    for name, values in zip(PLAYS, answers, strict=True):
        print(values["query"], *(near["sentence"] for near in values["neighbours"]), sep="\n  ")
        result[name] = [near["score"] for near in values["neighbours"]]
    return result


if __name__ == "__main__":
    main()
