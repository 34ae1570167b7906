"""`elmokit pretrain`: a biLM from raw text. Set up, train, evaluate, save, clean up.

    OUT/config.json, model.safetensors, vocab.txt   the best model so far, for elmokit.load(OUT)
    OUT/log.jsonl, curves.png                       how it went
    OUT/corpus/                                     the encoded text
    OUT/training/step-N/                            the last two checkpoints

The same command goes on where a run was stopped, however it was stopped, and on a CPU ends with the
same weights to the bit.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError
from elmokit.formats import native
from elmokit.io.atomic import locked
from elmokit.model.bilm import BiLM
from elmokit.model.softmax import choose_softmax
from elmokit.pretrain.checkpoint import checkpoints
from elmokit.pretrain.corpus import Corpus, prepare
from elmokit.pretrain.device import Precision, check_precision, keep_freed_memory
from elmokit.pretrain.distributed import Ranks, join
from elmokit.pretrain.log import fewer_words
from elmokit.pretrain.settings import Settings
from elmokit.pretrain.trainer import Run
from elmokit.progress import check_threads, use_threads
from elmokit.text.vocabulary import SPECIAL, Vocabulary
from elmokit.training.stopping import stop_signals

RATES = {"adagrad": 0.2, "adamw": 0.001}


def pretrain(
    *,
    corpus: list[str] | str | None = None,
    out: str | None = None,
    preset: str = "tiny",
    model: dict[str, Any] | None = None,
    valid: list[str] | str | None = None,
    valid_fraction: float = 0.01,
    tokenizer: Literal["elmokit", "whitespace", "chinese"] = "elmokit",
    min_count: int = 3,
    vocab_size: int | None = None,
    epochs: int = 10,
    max_steps: int | None = None,
    max_minutes: float | None = None,
    batch_size: int = 128,
    unroll: int = 20,
    accumulate: int = 1,
    optimizer: Literal["adagrad", "adamw"] = "adagrad",
    lr: float | None = None,
    schedule: Literal["auto", "constant", "cosine"] = "auto",
    warmup: int = 0,
    weight_decay: float = 0.0,
    clip: float = 10.0,
    dropout: float | None = None,
    softmax: Literal["auto", "full", "sampled"] = "auto",
    samples: int = 8192,
    seed: int = 1,
    eval_every: int = 1000,
    save_every: int = 500,
    workers: int | None = None,
    threads: int | None = None,
    device: str = "cpu",
    precision: Precision = "float32",
    tensorboard: bool = False,
    quiet: bool = False,
) -> int:
    """Train a biLM on raw text; the same command goes on with a run that was stopped.

    Args:
        corpus: files, globs or folders of text, also .gz, .xz, .zst; several as '[a.txt, b.txt]'.
        out: folder of the model and of everything that the run needs to go on.
        preset: size of the model: tiny, small, medium or original.
        model: fields of the model's configuration that differ from the preset's.
        valid: text to hold out, instead of a part of the corpus.
        valid_fraction: of the corpus's sentences to hold out, in blocks spread over it.
        tokenizer: elmokit or chinese for running text; whitespace for text that is tokenized, a
            sentence a line.
        min_count: how often a word must stand in the text to be predicted.
        vocab_size: words to predict, at most.
        epochs: times that the whole text is read.
        max_steps: stop after so many steps in all.
        max_minutes: stop this run after so long; the same command goes on.
        batch_size: stretches of text that run side by side, over all processes.
        unroll: tokens of a step in each of them.
        accumulate: parts in which a step's stretches are read, for less memory; what is learned is
            the same.
        optimizer: adagrad as the original, or adamw.
        lr: learning rate; 0.2 for adagrad and 0.001 for adamw if not given.
        schedule: constant or cosine (to a hundredth); auto is constant for adagrad, else cosine.
        warmup: steps in which the rate rises from 0.
        weight_decay: of adamw.
        clip: largest norm of the gradient.
        dropout: of every LSTM layer's input and of the output; the model's if not given.
        softmax: full, sampled, or auto by the size of the vocabulary. Evaluation is always full.
        samples: words that a sampled softmax draws in each step.
        seed: of weights, order, dropout and samples.
        eval_every: steps between evaluations; there is one at the end of every epoch too.
        save_every: steps between checkpoints.
        workers: processes that tokenize the text; all cores if not given.
        threads: to compute with; all cores if not given.
        device: cpu or cuda.
        precision: of matrix products: float32, or bf16 where the hardware has it; weights and sums
            are float32 all the same.
        tensorboard: write a log for TensorBoard into the folder too (an extra).
        quiet: no progress and no sentences.

    Returns:
        0 when the run came to its end or its time was up, else 128 + the signal that stopped it.
    """
    with join(device) as ranks:
        if corpus is None or out is None:
            raise ElmokitError("name the text with --corpus and the folder to write with --out")
        fields = {**BiLMConfig.preset(preset).to_dict(), **(model or {})}
        if fields["token_encoder"] == "unicode":
            raise ElmokitError("a new model is on 'characters' or 'words', not on 'unicode'")
        if fields["token_encoder"] == "words":
            fields["n_words"] = len(SPECIAL)  # until they are counted
        config = BiLMConfig.from_dict(fields)  # a wrong field is told of before the text is read
        ranks.check(batch_size, accumulate)
        check_threads(threads)
        check_precision(precision, ranks.device)
        with open_folder(out, ranks) as folder:
            found = checkpoints(folder / "training")
            ranks.first_does(
                lambda: prepare(
                    corpus,
                    folder / "corpus",
                    valid=valid,
                    valid_fraction=valid_fraction,
                    tokenizer=tokenizer,
                    workers=workers,
                    keep=bool(found),
                    quiet=quiet,
                )
            )
            text = Corpus(folder / "corpus")
            words = text.types.cut(min_count=min_count, size=vocab_size)
            config = replace(
                config,
                vocabulary_size=words,
                n_words=words if config.token_encoder == "words" else config.n_words,
                dropout=config.dropout if dropout is None else dropout,
            )
            settings = Settings(
                epochs=epochs,
                max_steps=max_steps,
                batch_size=batch_size,
                unroll=unroll,
                accumulate=accumulate,
                optimizer=optimizer,
                lr=RATES[optimizer] if lr is None else lr,
                schedule=_schedule(schedule, optimizer),
                warmup=warmup,
                weight_decay=weight_decay,
                clip=clip,
                softmax=choose_softmax(softmax, words, samples),
                samples=samples,
                min_count=min_count,
                vocab_size=vocab_size,
                seed=seed,
                precision=precision,
            )
            vocabulary = Vocabulary(text.types.first(words))
            start = new_model(config, seed)
            run = Run(
                folder,
                text,
                start,
                vocabulary,
                settings,
                ranks,
                tensorboard=tensorboard,
                quiet=quiet,
            )
            if vocab_size is not None and words < vocab_size:
                run.log.say(fewer_words(words, vocab_size, min_count))
            return go_on(
                run,
                found,
                threads=threads,
                eval_every=eval_every,
                save_every=save_every,
                max_minutes=max_minutes,
            )


def go_on(
    run: Run,
    found: list[Path],
    *,
    threads: int | None,
    eval_every: int,
    save_every: int,
    max_minutes: float | None,
) -> int:
    """Train from the last of the checkpoints that were found; gives the exit code."""
    if found:
        run.resume(found[-1])
    keep_freed_memory()
    with stop_signals() as stop, use_threads(threads):
        run.train(stop, eval_every=eval_every, save_every=save_every, max_minutes=max_minutes)
    return 128 + stop.signal if stop.signal else 0


def new_model(config: BiLMConfig, seed: int) -> BiLM:
    """A model with the weights that a seed gives."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BiLM(config)


@contextmanager
def open_folder(out: str, ranks: Ranks) -> Iterator[Path]:
    """The output folder, made if need be, for this run alone; one with another model is refused."""
    folder = Path(out).expanduser().absolute()
    training = folder / "training"
    if ranks.first:
        _make_folder(folder, training)
    with locked(training) if ranks.first else nullcontext():
        ranks.first_does(lambda: _clean_up(folder, training))
        try:
            yield folder
        finally:
            if ranks.first:
                with suppress(OSError):  # they are not empty, as after most runs
                    training.rmdir()
                    folder.rmdir()


def _make_folder(folder: Path, training: Path) -> None:
    if (folder / native.CONFIG).exists() and not training.is_dir():
        raise ElmokitError(f"{folder} holds a model already: choose another folder")
    try:
        training.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ElmokitError(f"cannot write into {folder}: {error.strerror}") from None


def _clean_up(folder: Path, training: Path) -> None:
    """Remove what a run that was killed has half written."""
    for half_written in [*folder.glob(".corpus.*"), *training.glob(".*")]:
        shutil.rmtree(half_written, ignore_errors=True)


def _schedule(schedule: str, optimizer: str) -> Literal["constant", "cosine"]:
    cosine = schedule == "cosine" or (schedule == "auto" and optimizer == "adamw")
    return "cosine" if cosine else "constant"
