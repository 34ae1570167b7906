"""`elmokit adapt MODEL`: continue to train a biLM on the text of a domain.

A model with a softmax keeps it, with its vocabulary. A model without one (every published HDF5
file) gets a new softmax over the words of the domain, which learns alone before the biLM joins in.
The output folder is that of `elmokit pretrain`, and the run is resumed in the same way.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Checkpoint, check_tensors, tokenizer_of
from elmokit.formats.detect import read_checkpoint
from elmokit.model.bilm import BiLM, expected_shapes
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.distributed import join
from elmokit.pretrain.settings import AdaptSettings
from elmokit.pretrain.sources import Paths, Weights
from elmokit.pretrain.train import TrainingRequest, new_model, run_training
from elmokit.pretrain.trainer import Origin, Start, TrainingResult
from elmokit.pretrain.windows import Windows
from elmokit.text.vocabulary import Vocabulary

SOFTMAX_SHARE = 0.2  # Fraction of all steps in which a new softmax learns alone.


def adapt_model(
    model: str, corpus: Paths | Weights, out: str | Path, settings: AdaptSettings
) -> TrainingResult:
    """Continue to train a biLM; see `elmokit.pretrain.adapt`."""
    with join(settings.device) as group:
        origin = read_checkpoint(model)
        check_tensors(origin, expected_shapes(origin.config))
        new_softmax = settings.new_softmax or not origin.config.vocabulary_size
        check_adaptable(origin, settings, new_softmax)
        request = TrainingRequest(
            corpus,
            out,
            settings,
            command="adapt",
            model=model,
            tokenizer=settings.tokenizer or tokenizer_of(origin.metadata),
            start=lambda text: adapted_start(model, origin, text, settings, new_softmax),
        )
        return run_training(request, group)


def check_adaptable(origin: Checkpoint, settings: AdaptSettings, new_softmax: bool) -> None:
    """Raise if a model cannot be adapted, or not with these settings."""
    if origin.config.token_encoder == "unicode":
        raise ElmokitError(
            f"{origin.source} cannot be adapted: its token encoder is 'unicode', only "
            "'characters' and 'words' are supported"
        )
    if new_softmax:
        return
    for name in ("softmax_steps", "vocab_size"):
        if getattr(settings, name) is not None:
            raise ElmokitError(
                f"{name} is for a new softmax, but {origin.source} has one: leave {name} out or "
                "add --new-softmax"
            )


def adapted_start(
    name: str, origin: Checkpoint, text: Corpus, settings: AdaptSettings, new_softmax: bool
) -> Start:
    """Return the model to adapt, with what its metadata will say about its origin."""
    vocabulary = choose_vocabulary(origin, text, settings, new_softmax)
    return Start(
        model_to_adapt(origin, vocabulary, settings, new_softmax),
        vocabulary,
        Origin(
            origin.fingerprint(),
            describe_origin(name, origin),
            frozen_steps=count_frozen_steps(settings, text) if new_softmax else 0,
        ),
    )


def choose_vocabulary(
    origin: Checkpoint, text: Corpus, settings: AdaptSettings, new_softmax: bool
) -> Vocabulary:
    """Return the words to predict: the model's own, or those of the domain for a new softmax.

    A model on word ids reads and predicts the same words, so it keeps its own.
    """
    if new_softmax and origin.config.token_encoder != "words":
        size = text.types.cut(min_count=settings.min_count, size=settings.vocab_size)
        return Vocabulary(text.types.first(size))
    if origin.vocabulary is None:
        raise ElmokitError(f"{origin.source} has no vocabulary: adapt it with --new-softmax")
    return Vocabulary(origin.vocabulary)


def model_to_adapt(
    origin: Checkpoint, vocabulary: Vocabulary, settings: AdaptSettings, new_softmax: bool
) -> BiLM:
    """Return the model of a checkpoint, with random weights in a new softmax."""
    config = replace(origin.config, vocabulary_size=len(vocabulary))
    if settings.dropout is not None:
        config = replace(config, dropout=settings.dropout)
    model = new_model(config, settings.seed)
    tensors = {
        name: torch.from_numpy(np.array(value, np.float32))
        for name, value in origin.tensors.items()
        if not (new_softmax and name.startswith("softmax."))
    }
    model.load_state_dict(tensors, strict=not new_softmax)
    return model


def describe_origin(name: str, origin: Checkpoint) -> dict[str, Any]:
    """Return what the metadata of the adapted model says about the model it comes from."""
    path = Path(name).expanduser()
    return {
        "name": path.absolute().name if path.exists() else name,
        "fingerprint": origin.fingerprint(),
        "metadata": {key: value for key, value in origin.metadata.items() if key != "options"},
    }


def count_frozen_steps(settings: AdaptSettings, text: Corpus) -> int:
    """Return the number of steps in which only a new softmax learns."""
    if settings.softmax_steps is not None:
        return settings.softmax_steps
    windows = Windows(
        text.train, rows=settings.batch_size, unroll=settings.unroll, weights=text.weights
    )
    return int(SOFTMAX_SHARE * settings.total_steps(windows.steps))
