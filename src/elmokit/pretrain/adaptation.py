"""`elmokit adapt MODEL`: continue to train a biLM on the text of a domain.

A model with a softmax keeps it, with its vocabulary. A model without one (every published HDF5
file) gets a new softmax over the words of the domain, which learns alone before the biLM joins in.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Checkpoint, split_dictionary, tokenizer_of
from elmokit.loading import read_valid
from elmokit.model.bilm import BiLM
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.distributed import join
from elmokit.pretrain.settings import AdaptSettings
from elmokit.pretrain.sources import Paths, Weights
from elmokit.pretrain.train import new_model, run_training
from elmokit.pretrain.trainer import Start, TrainingResult
from elmokit.text.vocabulary import Vocabulary


def adapt(
    model: str, corpus: Paths | Weights, out: str | Path, settings: AdaptSettings | None = None
) -> TrainingResult:
    """Continue to train a biLM on the text of a domain; the same call resumes a stopped run.

    Args:
        model: What `elmokit.load` takes.
        corpus: Files, globs or folders of text, also .gz, .xz, .zst; or a mapping of each to its
            weight, which is how often an epoch reads it.
        out: Folder of the adapted model and of everything that is needed to resume.
        settings: How to train.
    """
    chosen = settings or AdaptSettings()
    with join(chosen.device) as group:
        origin = read_valid(model)
        new_softmax = chosen.new_softmax or not origin.config.vocabulary_size
        if origin.config.token_encoder == "unicode":
            raise ElmokitError(
                f"{origin.source} cannot be adapted: its token encoder is 'unicode', only "
                "'characters' and 'words' are supported"
            )
        for name in ("softmax_steps", "vocab_size"):
            if not new_softmax and getattr(chosen, name) is not None:
                raise ElmokitError(
                    f"{name} is for a new softmax, but {origin.source} has one: leave {name} out "
                    "or add --new-softmax"
                )
        path = Path(model).expanduser()
        metadata, _ = split_dictionary(origin.metadata)
        described = {
            "name": path.absolute().name if path.exists() else model,
            "fingerprint": origin.fingerprint(),
            "metadata": {name: v for name, v in metadata.items() if name != "options"},
        }

        def start(text: Corpus) -> Start:
            vocabulary = choose_vocabulary(origin, text, chosen, new_softmax)
            adapted = model_to_adapt(origin, vocabulary, chosen, new_softmax)
            return Start(adapted, vocabulary, described, chosen.softmax_steps if new_softmax else 0)

        tokenizer = chosen.tokenizer or tokenizer_of(origin.metadata)
        return run_training("adapt", corpus, out, chosen, tokenizer, group, start, model)


def choose_vocabulary(
    origin: Checkpoint, text: Corpus, settings: AdaptSettings, new_softmax: bool
) -> Vocabulary:
    """Return the words to predict: the model's own, or those of the domain for a new softmax.

    A model on word ids reads and predicts the same words, so it keeps its own.
    """
    if new_softmax and origin.config.token_encoder != "words":
        count, size = settings.min_count, settings.vocab_size
        return Vocabulary(text.types.frequent(min_count=count, size=size))
    if origin.vocabulary is None:
        raise ElmokitError(f"{origin.source} has no vocabulary: adapt it with --new-softmax")
    return Vocabulary(origin.vocabulary)


def model_to_adapt(
    origin: Checkpoint, vocabulary: Vocabulary, settings: AdaptSettings, new_softmax: bool
) -> BiLM:
    """Return the model of a checkpoint, with random weights in a new softmax."""
    dropout = origin.config.dropout if settings.dropout is None else settings.dropout
    config = replace(origin.config, vocabulary_size=len(vocabulary), dropout=dropout)
    model = new_model(config, settings.seed)
    tensors = {
        name: torch.from_numpy(np.array(value, np.float32))
        for name, value in origin.tensors.items()
        if not (new_softmax and name.startswith("softmax."))
    }
    model.load_state_dict(tensors, strict=not new_softmax)
    return model
