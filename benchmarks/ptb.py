"""How well does a small biLM predict Penn Treebank, beside Kim et al. (2016)?

    python benchmarks/ptb.py --train ptb.train.txt --valid ptb.valid.txt --test ptb.test.txt \
        --folder ptb-elmo

The text is Mikolov's: tokenized, a sentence a line, 10,000 words with `<unk>` and the sentence end
among them. A biLM with the token encoder of LSTM-Char-Small is trained on it by `elmokit pretrain`
in `--folder`; the same command goes on with a run that was stopped. Its model with the lowest
perplexity on the validation text then reads the validation and the test text in one stretch each,
the state carried from sentence to sentence, as all published figures do. The forward direction
alone is what those predict; a 5-gram model of the same text stands beside it.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from ngram import ORDER, fit, probabilities, stream_of, targets, turned
from speed import machine

import elmokit
from elmokit.embed import Embedder
from elmokit.language import Perplexity
from elmokit.pretrain.corpus import UNKNOWN_ID, Corpus, Sentences, Types, prepare
from elmokit.pretrain.evaluation import ROWS, perplexity
from elmokit.pretrain.objective import Batcher
from elmokit.text.indexers import make_indexer

HERE = Path(__file__).parent

MODEL = {
    "filters": [[1, 25], [2, 50], [3, 75], [4, 100], [5, 125], [6, 150]],
    "activation": "tanh",
    "character_dim": 16,
    "highway_layers": 1,
    "num_layers": 2,
    "lstm_dim": 512,
    "projection_dim": 256,
    "dropout": 0.35,
}
TRAINING = {
    "epochs": 10,
    "batch_size": 32,
    "unroll": 35,
    "optimizer": "adamw",
    "lr": 0.003,
    "schedule": "cosine",
    "warmup": 200,
    "weight_decay": 0.02,
    "clip": 10.0,
    "softmax": "full",
    "min_count": 1,
    "eval_every": 1_000_000,  # at the end of every epoch alone
}
MOST_PARAMETERS = 6_000_000  # of the biLM without its softmax
WORDS = 10_000  # of the standard vocabulary: 9,998 words, <unk> and the sentence end
PUBLISHED = [  # Kim et al. 2016, table 3: system, parameters in millions, test perplexity
    ("LSTM-Word-Small", 5, 97.6),
    ("LSTM-Char-Small", 5, 92.3),
    ("LSTM-Word-Large", 20, 85.4),
    ("LSTM-Char-Large", 19, 78.9),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for part in ("train", "valid", "test"):
        parser.add_argument(f"--{part}", required=True, help="tokenized, a sentence a line")
    parser.add_argument("--folder", required=True, help="where the model is trained")
    parser.add_argument("--epochs", type=int, default=TRAINING["epochs"])
    parser.add_argument("--max-steps", type=int, help="only so many, to try the script")
    parser.add_argument("--out", default=str(HERE / "results" / "ptb.json"))
    arguments = parser.parse_args()
    training = {**TRAINING, "epochs": arguments.epochs, "max_steps": arguments.max_steps}
    run_elmokit(
        "pretrain",
        corpus=arguments.train,
        valid=arguments.valid,
        out=arguments.folder,
        tokenizer="whitespace",
        model=MODEL,
        **training,
    )
    corpus, elmo = Corpus(Path(arguments.folder) / "corpus"), elmokit.load(arguments.folder)
    sizes = parameters(elmo)
    assert sizes["without_softmax"] <= MOST_PARAMETERS, sizes
    with tempfile.TemporaryDirectory() as folder:
        test = prepare(
            arguments.test, Path(folder, "test"), valid_fraction=0, tokenizer="whitespace"
        )
        texts = {"valid": (corpus.heldout, corpus.types), "test": (test.train, test.types)}
        events = {name: check_events(elmo, *text) for name, text in texts.items()}
        found = {name: text_perplexity(elmo, *text, rows=1) for name, text in texts.items()}
        five_grams = ngram_perplexity(elmo, corpus, texts)
    result = {
        "machine": machine(),
        "model": MODEL,
        "training": training,
        "best_step": elmo.metadata["training"]["step"],
        "hours": elmo.metadata["training"]["hours"],
        "parameters": sizes,
        "events": events,
        "perplexity": {name: value.to_dict() for name, value in found.items()},
        "ngram_order": ORDER,
        "ngram_perplexity": {name: value.to_dict() for name, value in five_grams.items()},
        "published": [
            {"system": name, "million_parameters": size, "test": value}
            for name, size, value in PUBLISHED
        ],
    }
    print(json.dumps(result, indent=1))
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")


def run_elmokit(command: str, *names: str, **options: object) -> None:
    """Run a command of elmokit in a process of its own, and end where it is stopped.

    What stops this script stops it too, and what is done is kept: the same command goes on.
    """
    given = [option(name, value) for name, value in options.items() if value is not None]
    process = subprocess.Popen([sys.executable, "-m", "elmokit", command, *names, *given])
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the process by itself
    code = process.wait()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, before)
    if code:
        sys.exit(code if code > 0 else 128 - code)


def option(name: str, value: object) -> str:
    """An option as the command line takes it."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value if isinstance(value, str) else json.dumps(value)}"


def parameters(elmo: Embedder) -> dict[str, int]:
    """How many: the softmax apart, and those that the forward direction alone needs."""

    def count(*modules) -> int:
        return sum(p.numel() for module in modules for p in module.parameters())

    model = elmo.model
    one_way = count(model.token_encoder, model.forward_layers)
    return {
        "all": count(model),
        "softmax": count(model.softmax),
        "without_softmax": count(model) - count(model.softmax),
        "forward": one_way,
        "forward_with_softmax": one_way + count(model.softmax),
    }


def check_events(elmo: Embedder, sentences: Sentences, types: Types) -> dict[str, int]:
    """The predictions are the standard ones: no word but the text's own `<unk>` is unknown."""
    words = targets(types, elmo.vocabulary)[sentences.tokens]
    unknown = int((words == elmo.vocabulary.unknown).sum())
    written = int((sentences.tokens == UNKNOWN_ID).sum())
    vocabulary = len(elmo.vocabulary) - 1  # nothing predicts <S> forward
    if unknown != written or vocabulary != WORDS:
        print(
            f"not the standard events: {vocabulary:,} words to predict, {unknown - written:,} "
            "words of the text outside them",
            file=sys.stderr,
        )
    return {
        "words": len(words),
        "predictions": len(words) + len(sentences),
        "unk": written,
        "outside_vocabulary": unknown - written,
        "vocabulary": vocabulary,
    }


def text_perplexity(
    elmo: Embedder, sentences: Sentences, types: Types, *, rows: int = ROWS
) -> Perplexity:
    """Of encoded sentences, the state carried through each of `rows` stretches."""
    indexer = make_indexer(elmo.config, elmo.vocabulary)
    batcher = Batcher(types, targets(types, elmo.vocabulary), indexer, elmo.device)
    return perplexity(elmo.model, sentences, batcher, rows=rows)


def ngram_perplexity(
    elmo: Embedder, corpus: Corpus, texts: dict[str, tuple[Sentences, Types]]
) -> dict[str, Perplexity]:
    """Of the 5-gram model that is trained on the same text."""
    train = stream_of(corpus.train, targets(corpus.types, elmo.vocabulary))
    losses: dict[str, list[float]] = {name: [] for name in texts}
    for way in (np.asarray, turned):
        model = fit(way(train), len(elmo.vocabulary))
        for name, (sentences, types) in texts.items():
            stream = way(stream_of(sentences, targets(types, elmo.vocabulary)))
            losses[name].append(float(-np.log(probabilities(model, stream)).sum()))
    counts = {name: len(s.tokens) + len(s) for name, (s, _) in texts.items()}
    return {name: Perplexity.of(np.array(losses[name]), counts[name]) for name in texts}


if __name__ == "__main__":
    main()
