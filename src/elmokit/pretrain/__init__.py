"""From raw text to a trained biLM: corpus ─► windows ─► loss in both directions ─► checkpoint.

`pretrain`, `adapt` and `evaluate` are what the commands of these names call. They import torch only
when they are called.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from elmokit.errors import ElmokitError
from elmokit.pretrain.settings import AdaptSettings, PretrainSettings

if TYPE_CHECKING:
    from pathlib import Path

    from elmokit.config import BiLMConfig
    from elmokit.embed import Embedder
    from elmokit.pretrain.evaluation import EvaluationResult
    from elmokit.pretrain.sources import Paths, Weights
    from elmokit.pretrain.trainer import TrainingResult

__all__ = [
    "AdaptSettings",
    "OtherProcessFailed",
    "PretrainSettings",
    "adapt",
    "evaluate",
    "pretrain",
]


class OtherProcessFailed(ElmokitError):
    """Another process of the same run has failed and reports the error."""


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
    let_threads_spin()
    from elmokit.pretrain.train import train_new_model

    return train_new_model(corpus, out, settings or PretrainSettings(), config)


def adapt(
    model: str, corpus: Paths | Weights, out: str | Path, settings: AdaptSettings | None = None
) -> TrainingResult:
    """Continue to train a biLM on the text of a domain; the same call resumes a stopped run.

    Args:
        model: A model folder, weights file, archive or Hub name; "shipped" is elmokit's own.
        corpus: Files, globs or folders of text, also .gz, .xz, .zst; or a mapping of each to its
            weight, which is how often an epoch reads it.
        out: Folder of the adapted model and of everything that is needed to resume.
        settings: How to train.
    """
    let_threads_spin()
    from elmokit.pretrain.adaptation import adapt_model

    return adapt_model(model, corpus, out, settings or AdaptSettings())


def evaluate(
    elmo: Embedder,
    text: Paths,
    *,
    state: Literal["carry", "fresh"] = "carry",
    stretches: int = 32,
    sentences: str | Path | None = None,
    quiet: bool = True,
) -> EvaluationResult:
    """Measure the perplexity of a text in both directions, by the full softmax.

    Args:
        elmo: A model with a softmax.
        text: Files, globs or folders of text, also .gz, .xz, .zst.
        state: "carry" the LSTM state from sentence to sentence, or begin each with a "fresh" one.
        stretches: Number of parts of the text that are read in parallel if the state is carried;
            1 reads the text as a whole, exactly but slowly.
        sentences: A .tsv file to write, with the perplexity of each sentence.
        quiet: Show no progress bar.
    """
    from elmokit.pretrain.evaluation import evaluate_text

    return evaluate_text(
        elmo, text, state=state, stretches=stretches, sentences=sentences, quiet=quiet
    )


def let_threads_spin() -> None:
    """Let OpenMP threads spin briefly while they wait for each other.

    By default they spin for long, which makes training several times slower as soon as anything
    else runs on the machine. With OMP_WAIT_POLICY=passive they sleep and wake thousands of times
    per step. OpenMP reads the variable once, when torch is imported.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
