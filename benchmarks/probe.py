"""Which layer knows parts of speech? A linear classifier on each, and on static vectors.

    python benchmarks/probe.py --train ewt.train.conllu --dev ewt.dev.conllu --vectors glove.txt

`elmokit probe` on the universal parts of speech of a treebank; all scores are on its dev part. The
paper reports 97.3 for the first and 96.8 for the second layer of its model, on another treebank
with other tags: the order of the layers can be compared, the scores cannot.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from parsers import described_parser
from speed import machine

from elmokit.analysis.plots.draw import draw_probe
from elmokit.analysis.probes.probe import probe_layers
from elmokit.analysis.probes.tokens import read_tagged_text
from elmokit.cli.analysis.measure import probe_table
from elmokit.cli.options import ModelOptions
from elmokit.figures import write_figure
from elmokit.vectors.static.table import read_static_vectors

HERE = Path(__file__).parent
PAPER = {"layer 1": 97.3, "layer 2": 96.8}


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--train", required=True, help="CoNLL-U, also .xz")
    parser.add_argument("--dev", required=True, help="CoNLL-U, also .xz")
    parser.add_argument("--vectors", help="static word vectors, also .xz")
    parser.add_argument("--column", default="UPOS")
    parser.add_argument("--model", default="english", help="a model that elmokit.load accepts")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", default=str(HERE / "results" / "probe.json"))
    arguments = parser.parse_args()
    train, dev = (
        read_tagged_text(path, column=arguments.column) for path in (arguments.train, arguments.dev)
    )
    static = read_static_vectors(arguments.vectors) if arguments.vectors else None
    store = ModelOptions(model=arguments.model, threads=arguments.threads).open_store()
    store.prepare([*train.sentences, *dev.sentences])
    start = time.perf_counter()
    probes = probe_layers(store, train, dev, static=static, quiet=False)
    result = {
        "machine": machine(),
        "model": arguments.model,
        "train": Path(arguments.train).name,
        "dev": Path(arguments.dev).name,
        "column": arguments.column,
        "vectors": Path(arguments.vectors).name if arguments.vectors else None,
        "seconds_without_embedding": round(time.perf_counter() - start, 1),
        **probes.to_dict(),
        "paper": PAPER,
    }
    print(probe_table(probes))
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")
    figure = draw_probe(probes, title=f"{arguments.column} of English EWT by layer")
    write_figure(figure, str(Path(arguments.out).with_suffix(".png")))


if __name__ == "__main__":
    main()
