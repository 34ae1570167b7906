"""How much better does the shipped model predict a domain after one epoch on its text?

    python benchmarks/movies.py --text movies.txt --folder movies-elmo

`elmokit adapt` reads the text once and holds out a twentieth of it, in blocks spread over it; the
same command resumes a run that was stopped. Both models then predict the held-out part, with the
same words and the state carried from sentence to sentence. The aim is a perplexity that is at least
a quarter lower.
"""

from __future__ import annotations

import json
from pathlib import Path

from parsers import described_parser
from ptb import run_elmokit, text_perplexity, vocabulary_of
from speed import machine

import elmokit
from elmokit.pretrain.corpus import Corpus

HERE = Path(__file__).parent
TRAINING = {"epochs": 1, "batch_size": 32, "unroll": 20, "lr": 0.001, "warmup": 50, "dropout": 0.05}
AIM = -0.25


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--text", required=True, help="running text, also .xz")
    parser.add_argument("--folder", required=True, help="where the adapted model goes")
    parser.add_argument("--model", default="english", help="whatever elmokit.load takes")
    parser.add_argument("--max-steps", type=int, help="only so many, to try the script")
    parser.add_argument("--out", default=str(HERE / "results" / "movies.json"))
    arguments = parser.parse_args()
    run_elmokit(
        "adapt",
        arguments.model,
        corpus=arguments.text,
        out=arguments.folder,
        max_steps=arguments.max_steps,
        **TRAINING,
    )
    corpus = Corpus(Path(arguments.folder) / "training" / "corpus")
    models = {"before": elmokit.load(arguments.model), "after": elmokit.load(arguments.folder)}
    words = [vocabulary_of(elmo).words for elmo in models.values()]
    assert words[0] == words[1]
    perplexity = {
        name: text_perplexity(elmo, corpus.heldout, corpus.types) for name, elmo in models.items()
    }
    change = {
        name: round(getattr(perplexity["after"], name) / getattr(perplexity["before"], name) - 1, 4)
        for name in ("forward", "backward", "average")
    }
    training = models["after"].metadata["training"]
    result = {
        "machine": machine(),
        "model": arguments.model,
        "text": Path(arguments.text).name,
        "train_tokens": training["train_tokens"],
        "heldout_predictions": perplexity["after"].tokens,
        "words": models["after"].config.vocabulary_size,
        "settings": training["settings"],
        "step": training["step"],
        "hours": training["hours"],
        "perplexity": {name: value.to_dict() for name, value in perplexity.items()},
        "change": change,
        "aim": AIM,
    }
    print(json.dumps(result, indent=1))
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
