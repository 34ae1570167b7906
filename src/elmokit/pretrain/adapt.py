"""`elmokit adapt MODEL`: go on training a biLM on the text of a domain.

A model with a softmax goes on with it and with its vocabulary. A model without (every published
HDF5 file) gets a new one over the words of the domain, which learns alone before the biLM joins
in. The output folder is that of `elmokit pretrain`, and the same command goes on likewise.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Checkpoint, check_tensors, tokenizer_of
from elmokit.formats.detect import read_checkpoint
from elmokit.model.bilm import BiLM, expected_shapes
from elmokit.model.softmax import choose_softmax
from elmokit.pretrain.checkpoint import checkpoints
from elmokit.pretrain.corpus import Corpus, prepare
from elmokit.pretrain.device import Precision, check_precision
from elmokit.pretrain.distributed import join
from elmokit.pretrain.log import fewer_words
from elmokit.pretrain.settings import Settings
from elmokit.pretrain.train import go_on, new_model, open_folder
from elmokit.pretrain.trainer import Run
from elmokit.pretrain.windows import Windows
from elmokit.progress import check_threads
from elmokit.text.vocabulary import Vocabulary

SOFTMAX_SHARE = 0.2  # of all steps, in which a new softmax learns alone


def adapt(
    model: str,
    *,
    corpus: list[str] | str | None = None,
    out: str | None = None,
    valid: list[str] | str | None = None,
    valid_fraction: float = 0.05,
    tokenizer: Literal["elmokit", "whitespace", "chinese"] | None = None,
    new_softmax: bool = False,
    softmax_steps: int | None = None,
    min_count: int = 3,
    vocab_size: int | None = None,
    epochs: int = 1,
    max_steps: int | None = None,
    max_minutes: float | None = None,
    batch_size: int = 32,
    unroll: int = 20,
    accumulate: int = 1,
    lr: float = 0.001,
    warmup: int = 50,
    weight_decay: float = 0.0,
    clip: float = 5.0,
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
    """Go on training a model on the text of a domain; the best model on held-out text is kept.

    Args:
        model: a model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        corpus: files, globs or folders of text, also .gz, .xz, .zst; several as '[a.txt, b.txt]'.
        out: folder of the adapted model and of everything that the run needs to go on.
        valid: text to hold out, instead of a part of the corpus.
        valid_fraction: of the corpus's sentences to hold out, in blocks spread over it.
        tokenizer: elmokit or chinese for running text; whitespace for text that is tokenized, a
            sentence a line; if not given, chinese for a model that was trained with it, and else
            elmokit.
        new_softmax: predict the words of this corpus, with a new softmax, although the model has
            one. A model without always gets a new one.
        softmax_steps: steps in which a new softmax learns alone; a fifth of all if not given.
        min_count: how often a word must stand in the text to be predicted by a new softmax.
        vocab_size: words that a new softmax predicts, at most.
        epochs: times that the whole text is read.
        max_steps: stop after so many steps in all.
        max_minutes: stop this run after so long; the same command goes on.
        batch_size: stretches of text that run side by side, over all processes.
        unroll: tokens of a step in each of them.
        accumulate: parts in which a step's stretches are read, for less memory; what is learned is
            the same.
        lr: learning rate of AdamW, which falls along a cosine to a hundredth.
        warmup: steps in which the rate rises from 0.
        weight_decay: of AdamW.
        clip: largest norm of the gradient.
        dropout: of every LSTM layer's input and of the output; the model's if not given.
        softmax: full, sampled, or auto by the size of the vocabulary. Evaluation is always full.
        samples: words that a sampled softmax draws in each step.
        seed: of new weights, order, dropout and samples.
        eval_every: steps between evaluations; there is one before, and at the end of every epoch.
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
        if softmax_steps is not None and softmax_steps < 0:
            raise ElmokitError(f"softmax_steps must not be below 0, but is {softmax_steps}")
        start = read_checkpoint(model)
        check_tensors(start, expected_shapes(start.config))
        if start.config.token_encoder == "unicode":
            raise ElmokitError(f"{start.source} is on Unicode characters: it cannot be adapted")
        new_softmax = new_softmax or not start.config.vocabulary_size
        if not new_softmax and (softmax_steps is not None or vocab_size is not None):
            raise ElmokitError(
                f"{start.source} has a softmax: softmax_steps and vocab_size are for a new one, "
                "which --new-softmax gives it"
            )
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
                    tokenizer=tokenizer or tokenizer_of(start.metadata),
                    workers=workers,
                    keep=bool(found),
                    quiet=quiet,
                )
            )
            text = Corpus(folder / "corpus")
            words = vocabulary_of(
                start, text, new_softmax, min_count=min_count, vocab_size=vocab_size
            )
            settings = Settings(
                epochs=epochs,
                max_steps=max_steps,
                batch_size=batch_size,
                unroll=unroll,
                accumulate=accumulate,
                optimizer="adamw",
                lr=lr,
                schedule="cosine",
                warmup=warmup,
                weight_decay=weight_decay,
                clip=clip,
                softmax=choose_softmax(softmax, len(words), samples),
                samples=samples,
                min_count=min_count,
                vocab_size=vocab_size,
                seed=seed,
                start=start.fingerprint(),
                precision=precision,
            )
            if new_softmax:
                settings = replace(
                    settings, frozen_steps=_frozen_steps(settings, text, softmax_steps)
                )
            adapted = model_to_adapt(start, words, new_softmax, seed=seed, dropout=dropout)
            origin = origin_of(model, start)
            run = Run(
                folder,
                text,
                adapted,
                words,
                settings,
                ranks,
                origin=origin,
                tensorboard=tensorboard,
                quiet=quiet,
            )
            if new_softmax and vocab_size is not None and len(words) < vocab_size:
                run.log.say(fewer_words(len(words), vocab_size, min_count))
            return go_on(
                run,
                found,
                threads=threads,
                eval_every=eval_every,
                save_every=save_every,
                max_minutes=max_minutes,
            )


def vocabulary_of(
    start: Checkpoint, text: Corpus, new_softmax: bool, *, min_count: int, vocab_size: int | None
) -> Vocabulary:
    """The words to predict: the model's own, or the domain's for a new softmax.

    A model on word ids reads and predicts the same words, so that its own stay.
    """
    if new_softmax and start.config.token_encoder != "words":
        return Vocabulary(text.types.first(text.types.cut(min_count=min_count, size=vocab_size)))
    if start.vocabulary is None:
        raise ElmokitError(f"{start.source} has no vocabulary: adapt it with --new-softmax")
    return Vocabulary(start.vocabulary)


def model_to_adapt(
    start: Checkpoint, words: Vocabulary, new_softmax: bool, *, seed: int, dropout: float | None
) -> BiLM:
    """The model of a checkpoint, with new weights where it gets a new softmax."""
    config = replace(start.config, vocabulary_size=len(words))
    model = new_model(config if dropout is None else replace(config, dropout=dropout), seed)
    tensors = {
        name: torch.from_numpy(np.array(value, np.float32))
        for name, value in start.tensors.items()
        if not (new_softmax and name.startswith("softmax."))
    }
    model.load_state_dict(tensors, strict=not new_softmax)
    return model


def origin_of(model: str, start: Checkpoint) -> dict[str, Any]:
    """What the adapted model's `config.json` says about the one that it comes from."""
    path = Path(model).expanduser()
    return {
        "adapted_from": {
            "name": path.absolute().name if path.exists() else model,
            "fingerprint": start.fingerprint(),
            "metadata": {key: value for key, value in start.metadata.items() if key != "options"},
        }
    }


def _frozen_steps(settings: Settings, text: Corpus, wanted: int | None) -> int:
    if wanted is not None:
        return wanted
    rows = Windows(text.train, rows=settings.batch_size, unroll=settings.unroll)
    return int(SOFTMAX_SHARE * settings.total_steps(rows.steps))
