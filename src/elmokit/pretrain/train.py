"""A training run from beginning to end: open the folder, encode the text, train, save.

    OUT/config.json, model.safetensors, vocab.txt   the best model so far, for elmokit.load(OUT)
    OUT/log.jsonl, curves.png                       loss and held-out perplexity over the steps
    OUT/training/corpus/                            the encoded text
    OUT/training/step-N/                            the last two checkpoints
    OUT/elmokit-run.json                            marks the folder as that of a run

The same call resumes a run, however it was stopped. On a CPU the weights are the same to the bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError, plural
from elmokit.io.marker import Command
from elmokit.io.paths import find_files
from elmokit.model.bilm import BiLM
from elmokit.model.softmax import choose_softmax
from elmokit.pretrain.corpus import Corpus, prepare
from elmokit.pretrain.device import check_precision, keep_freed_memory
from elmokit.pretrain.distributed import ProcessGroup, join
from elmokit.pretrain.settings import PretrainSettings
from elmokit.pretrain.sources import Paths, Weights
from elmokit.pretrain.trainer import Start, Trainer, TrainingResult
from elmokit.progress import use_threads
from elmokit.text.chinese import with_dictionary
from elmokit.text.vocabulary import Vocabulary
from elmokit.training.checkpoint import checkpoints
from elmokit.training.folder import TRAINING, open_folder
from elmokit.training.stopping import stop_signals


def pretrain(
    corpus: Paths | Weights,
    out: str | Path,
    settings: PretrainSettings | None = None,
    *,
    config: BiLMConfig | None = None,
) -> TrainingResult:
    """Train a new biLM on raw text; the same call resumes a run that was stopped.

    Args:
        corpus: Files, globs or folders of text, also .gz, .xz, .zst; or a mapping of each to its
            weight, which is how often an epoch reads it.
        out: Folder of the model and of everything that is needed to resume.
        settings: How to train.
        config: Shape of the model; its vocabulary comes from the text. The preset "tiny" if None.
    """
    chosen, shape = settings or PretrainSettings(), config or BiLMConfig.preset("tiny")

    def start(text: Corpus) -> Start:
        words = text.types.frequent(min_count=chosen.min_count, size=chosen.vocab_size)
        n_words = len(words) if shape.token_encoder == "words" else shape.n_words
        config = replace(shape, vocabulary_size=len(words), n_words=n_words)
        return Start(new_model(config, chosen.seed), Vocabulary(words))

    with join(chosen.device) as group:
        if shape.token_encoder == "unicode":
            raise ElmokitError("a new model has the token encoder 'characters' or 'words'")
        tokenizer = chosen.tokenizer or "elmokit"
        return run_training("pretrain", corpus, out, chosen, tokenizer, group, start)


def new_model(config: BiLMConfig, seed: int) -> BiLM:
    """Return a model with the random weights that a seed gives."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BiLM(config)


def run_training(
    command: Command,
    corpus: Paths | Weights,
    out: str | Path,
    settings: PretrainSettings,
    tokenizer: str,
    group: ProcessGroup,
    start: Callable[[Corpus], Start],
    model: str | None = None,
) -> TrainingResult:
    """Train from the start or from the last checkpoint, to the end of the run or a signal.

    `start` returns the model before the first step, given the encoded text; `model` is the name of
    the one that is adapted.
    """
    rows, world, parts = settings.batch_size, group.world_size, settings.accumulate
    if rows % (world * parts):  # Every process gets equally many rows in every part of a step.
        raise ElmokitError(
            f"a batch of {plural(rows, 'row')} cannot be split over {plural(world, 'process')} "
            f"with {plural(parts, 'part')} each: make batch_size a multiple of {world * parts}"
        )
    check_precision(settings.precision, group.device)
    tokenizer = with_dictionary(tokenizer, settings.jieba_dict)
    inputs = [model, settings.jieba_dict, *input_paths(corpus), *input_paths(settings.valid or ())]
    with open_folder(out, command, inputs=inputs, owner=group.is_main) as folder:
        saved, encoded = checkpoints(folder / TRAINING), folder / TRAINING / "corpus"
        options: Any = {"tokenizer": tokenizer, "keep": bool(saved)}
        for name in ("valid", "valid_fraction", "workers", "quiet"):
            options[name] = getattr(settings, name)
        group.run_on_main(lambda: prepare(corpus, encoded, **options))
        text = Corpus(encoded)
        first = start(text)
        size = len(first.vocabulary)
        softmax = choose_softmax(settings.softmax, size, settings.samples)
        rate, course = settings.learning_rate, settings.course
        final = replace(settings, lr=rate, schedule=course, softmax=softmax)
        trainer = Trainer(folder, text, first, final, group)
        if settings.vocab_size is not None and size < settings.vocab_size:
            trainer.log.say(
                f"the vocabulary has {size:,} words, not {settings.vocab_size:,}: no more words "
                f"occur at least {plural(settings.min_count, 'time')} in the text"
            )
        if saved:
            trainer.resume(saved[-1])
        keep_freed_memory()
        with stop_signals() as stop, use_threads(settings.threads):
            return trainer.train(stop)


def input_paths(given: Paths | Weights) -> Iterator[str | os.PathLike[str]]:
    """Yield the paths of a text: as they are given, and of all of its files."""
    names = [given] if isinstance(given, str | os.PathLike) else [*given]
    yield from names
    yield from find_files(names) if names else ()
