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
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError
from elmokit.io.marker import Command
from elmokit.io.paths import find_files
from elmokit.model.bilm import BiLM
from elmokit.model.softmax import choose_softmax
from elmokit.pretrain.corpus import Corpus, prepare
from elmokit.pretrain.device import check_precision, keep_freed_memory
from elmokit.pretrain.distributed import ProcessGroup, join
from elmokit.pretrain.log import describe_small_vocabulary
from elmokit.pretrain.settings import PretrainSettings
from elmokit.pretrain.sources import Paths, Weights
from elmokit.pretrain.trainer import Start, Trainer, TrainingResult
from elmokit.progress import use_threads
from elmokit.text.vocabulary import Vocabulary
from elmokit.training.checkpoint import checkpoints
from elmokit.training.folder import TRAINING, open_folder
from elmokit.training.stopping import stop_signals


@dataclass(frozen=True)
class TrainingRequest:
    """What to train, on which text, and where to write it."""

    corpus: Paths | Weights
    out: str | Path
    settings: PretrainSettings
    command: Command
    tokenizer: str
    start: Callable[[Corpus], Start]
    """Returns the model before the first step, given the encoded text."""
    model: str | None = None
    """The model that is adapted."""

    def paths(self) -> Iterator[str | os.PathLike[str]]:
        """Yield the paths of all text, those of folders as they are given."""
        valid = () if self.settings.valid is None else self.settings.valid
        for given in (self.corpus, valid):
            names = [given] if isinstance(given, str | os.PathLike) else [*given]
            yield from (Path(name).expanduser() for name in names)
            yield from find_files(names) if names else ()


def train_new_model(
    corpus: Paths | Weights, out: str | Path, settings: PretrainSettings, config: BiLMConfig | None
) -> TrainingResult:
    """Train a new biLM; see `elmokit.pretrain.pretrain`."""
    shape = config or BiLMConfig.preset("tiny")
    with join(settings.device) as group:
        if shape.token_encoder == "unicode":
            raise ElmokitError("a new model has the token encoder 'characters' or 'words'")
        request = TrainingRequest(
            corpus,
            out,
            settings,
            command="pretrain",
            tokenizer=settings.tokenizer or "elmokit",
            start=lambda text: new_start(shape, text, settings),
        )
        return run_training(request, group)


def new_start(config: BiLMConfig, text: Corpus, settings: PretrainSettings) -> Start:
    """Return a new model whose softmax predicts the frequent words of a text."""
    size = text.types.cut(min_count=settings.min_count, size=settings.vocab_size)
    config = replace(
        config,
        vocabulary_size=size,
        n_words=size if config.token_encoder == "words" else config.n_words,
    )
    return Start(new_model(config, settings.seed), Vocabulary(text.types.first(size)))


def new_model(config: BiLMConfig, seed: int) -> BiLM:
    """Return a model with the random weights that a seed gives."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BiLM(config)


def run_training(request: TrainingRequest, group: ProcessGroup) -> TrainingResult:
    """Train from the start or from the last checkpoint, to the end of the run or a signal."""
    settings = request.settings
    group.check_batch(settings.batch_size, settings.accumulate)
    check_precision(settings.precision, group.device)
    inputs = [request.model, *request.paths()]
    with open_folder(request.out, request.command, inputs=inputs, owner=group.is_main) as folder:
        saved = checkpoints(folder / TRAINING)
        text = encode_text(request, folder, group, keep=bool(saved))
        start = request.start(text)
        size = len(start.vocabulary)
        trainer = Trainer(folder, text, start, resolve(settings, size), group)
        if settings.vocab_size is not None and size < settings.vocab_size:
            trainer.log.say(
                describe_small_vocabulary(size, settings.vocab_size, settings.min_count)
            )
        if saved:
            trainer.resume(saved[-1])
        keep_freed_memory()
        with stop_signals() as stop, use_threads(settings.threads):
            return trainer.train(stop)


def encode_text(
    request: TrainingRequest, folder: Path, group: ProcessGroup, *, keep: bool
) -> Corpus:
    """Encode the text in the main process, or open what an earlier run has encoded."""
    settings = request.settings

    def encode() -> None:
        prepare(
            request.corpus,
            folder / TRAINING / "corpus",
            valid=settings.valid,
            valid_fraction=settings.valid_fraction,
            tokenizer=request.tokenizer,
            workers=settings.workers,
            keep=keep,
            quiet=settings.quiet,
        )

    group.run_on_main(encode)
    return Corpus(folder / TRAINING / "corpus")


def resolve(settings: PretrainSettings, vocabulary_size: int) -> PretrainSettings:
    """Replace the settings that are None or "auto" by what they stand for."""
    return replace(
        settings,
        lr=settings.learning_rate,
        schedule=settings.course,
        softmax=choose_softmax(settings.softmax, vocabulary_size, settings.samples),
    )
