"""How well does a small biLM predict the Penn Treebank, compared with Kim et al. (2016)?

    python benchmarks/ptb.py --train ptb.train.txt --valid ptb.valid.txt --test ptb.test.txt \
        --folder ptb-elmo

The text is Mikolov's: tokenized, one sentence per line, 10,000 words including `<unk>` and the
sentence end. `elmokit pretrain` trains a biLM with the token encoder of LSTM-Char-Small on it in
`--folder`; the same command resumes a run that was stopped. The model with the lowest perplexity on
the validation text then reads the validation and the test text as a whole, with the state carried
from sentence to sentence, as for all published results. Those predict forward only, so compare the
forward direction; the result also has a 5-gram model of the same text.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from ngram import ORDER, fit, probabilities, reverse, stream_of, targets
from parsers import described_parser
from speed import machine
from torch import nn

import elmokit
from elmokit.embed import Embedder
from elmokit.language import Perplexity
from elmokit.pretrain.corpus import UNKNOWN_ID, Corpus, Sentences, Types, prepare
from elmokit.pretrain.evaluation import ROWS, perplexity
from elmokit.pretrain.objective import Batcher
from elmokit.text.indexers import make_indexer
from elmokit.text.vocabulary import Vocabulary

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
TRAINING: dict[str, Any] = {
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
    "eval_every": 1_000_000,  # only at the end of every epoch
}
MAX_PARAMETERS = 6_000_000  # of the biLM without the softmax
WORDS = 10_000  # standard vocabulary: 9,998 words, <unk> and the sentence end
PUBLISHED = [  # Kim et al. 2016, table 3: system, parameters in millions, test perplexity
    ("LSTM-Word-Small", 5, 97.6),
    ("LSTM-Char-Small", 5, 92.3),
    ("LSTM-Word-Large", 20, 85.4),
    ("LSTM-Char-Large", 19, 78.9),
]


def main() -> None:
    parser = described_parser(__doc__)
    for part in ("train", "valid", "test"):
        parser.add_argument(f"--{part}", required=True, help="tokenized, one sentence per line")
    parser.add_argument("--folder", required=True, help="where the model is trained")
    parser.add_argument("--epochs", type=int, default=TRAINING["epochs"])
    parser.add_argument("--max-steps", type=int, help="maximum number of steps, to try the script")
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
    corpus, elmo = (
        Corpus(Path(arguments.folder) / "training" / "corpus"),
        elmokit.load(arguments.folder),
    )
    sizes = parameters(elmo)
    assert sizes["without_softmax"] <= MAX_PARAMETERS, sizes
    with tempfile.TemporaryDirectory() as folder:
        test = prepare(
            arguments.test, Path(folder, "test"), valid_fraction=0, tokenizer="whitespace"
        )
        texts = {"valid": (corpus.heldout, corpus.types), "test": (test.train, test.types)}
        events = {name: check_events(elmo, *text) for name, text in texts.items()}
        perplexities = {name: text_perplexity(elmo, *text, rows=1) for name, text in texts.items()}
        five_grams = ngram_perplexity(elmo, corpus, texts)
    result = {
        "machine": machine(),
        "model": MODEL,
        "training": training,
        "best_step": elmo.metadata["training"]["step"],
        "hours": elmo.metadata["training"]["hours"],
        "parameters": sizes,
        "events": events,
        "perplexity": {name: value.to_dict() for name, value in perplexities.items()},
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
    """Run a command of elmokit in its own process; exit if it fails or is stopped.

    A signal that stops this script stops the command too. It can be resumed by the same command.
    """
    words = [word for name, value in options.items() for word in option(name, value)]
    process = subprocess.Popen([sys.executable, "-m", "elmokit", command, *names, *words])
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the process directly.
    code = process.wait()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, before)
    if code:
        sys.exit(code if code > 0 else 128 - code)


def option(name: str, value: object) -> list[str]:
    """Return an option as words of the command line.

    >>> option("batch_size", 8), option("crf", False), option("corpus", ["a", "b"])
    (['--batch-size=8'], ['--no-crf'], ['--corpus', 'a', 'b'])
    >>> option("model", {"lstm_dim": 64, "filters": [[1, 32], [2, 64]]})
    ['--model.lstm-dim=64', '--model.filters', '1', '32', '2', '64']
    """
    dashed = f"--{name.replace('_', '-')}"
    if value is None:
        return []
    if isinstance(value, bool):
        return [dashed if value else f"--no-{dashed[2:]}"]
    if isinstance(value, dict):
        return [word for key in value for word in option(f"{name}.{key}", value[key])]
    if isinstance(value, list):
        return [dashed, *flatten(value)]
    return [f"{dashed}={value}"]


def flatten(values: list[Any]) -> list[str]:
    """Return the items of nested lists as strings."""
    return [
        text
        for value in values
        for text in (flatten(value) if isinstance(value, list) else [str(value)])
    ]


def vocabulary_of(elmo: Embedder) -> Vocabulary:
    """Return the words that a model predicts."""
    assert elmo.vocabulary is not None, f"{elmo.source} has no vocabulary"
    return elmo.vocabulary


def parameters(elmo: Embedder) -> dict[str, int]:
    """Count the parameters: with and without the softmax, and of the forward direction only."""

    def count(*modules: nn.Module) -> int:
        return sum(p.numel() for module in modules for p in module.parameters())

    model = elmo.model
    assert model.softmax is not None
    softmax = count(model.softmax)
    forward = count(model.token_encoder, model.forward_layers)
    return {
        "all": count(model),
        "softmax": softmax,
        "without_softmax": count(model) - softmax,
        "forward": forward,
        "forward_with_softmax": forward + softmax,
    }


def check_events(elmo: Embedder, sentences: Sentences, types: Types) -> dict[str, int]:
    """Check that the predictions are the standard ones: only the `<unk>` of the text is unknown."""
    words = targets(types, vocabulary_of(elmo))[sentences.tokens]
    unknown = int(np.sum(words == vocabulary_of(elmo).unknown))
    written = int(np.sum(sentences.tokens == UNKNOWN_ID))
    vocabulary = len(vocabulary_of(elmo)) - 1  # <S> is never predicted forward.
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
    """Return the perplexity of encoded sentences, read as `rows` parts with carried state."""
    indexer = make_indexer(elmo.config, elmo.vocabulary)
    batcher = Batcher(types, targets(types, vocabulary_of(elmo)), indexer, elmo.device)
    return perplexity(elmo.model, sentences, batcher, rows=rows)


def ngram_perplexity(
    elmo: Embedder, corpus: Corpus, texts: dict[str, tuple[Sentences, Types]]
) -> dict[str, Perplexity]:
    """Return the perplexities of a 5-gram model that is trained on the same text."""
    vocabulary = vocabulary_of(elmo)
    train = stream_of(corpus.train, targets(corpus.types, vocabulary))
    losses: dict[str, list[float]] = {name: [] for name in texts}
    for read in (np.asarray, reverse):
        model = fit(read(train), len(vocabulary))
        for name, (sentences, types) in texts.items():
            stream = read(stream_of(sentences, targets(types, vocabulary)))
            losses[name].append(float(-np.log(probabilities(model, stream)).sum()))
    counts = {name: len(s.tokens) + len(s) for name, (s, _) in texts.items()}
    return {name: Perplexity.of(np.array(losses[name]), counts[name]) for name in texts}


if __name__ == "__main__":
    main()
