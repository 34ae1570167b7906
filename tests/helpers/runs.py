"""Training runs from one mapping of options: as a call, and as a command line.

Messages of both go to stderr.
"""

from __future__ import annotations

from typing import Any

import elmokit.pretrain
from elmokit.config import BiLMConfig
from elmokit.pretrain import AdaptSettings, PretrainSettings
from elmokit.pretrain.trainer import TrainingResult
from elmokit.progress import log_to_stderr

Options = dict[str, Any]


def pretrain(options: Options) -> TrainingResult:
    """Train a new model; `model` and `dropout` are fields of its configuration."""
    rest = dict(options)
    corpus, out = rest.pop("corpus"), rest.pop("out")
    shape = {**BiLMConfig.preset("tiny").to_dict(), **rest.pop("model", {})}
    if "dropout" in rest:
        shape["dropout"] = rest.pop("dropout")
    if shape["token_encoder"] == "words":
        shape["n_words"] = 3
    config = BiLMConfig.from_dict(shape)
    log_to_stderr(quiet=rest.get("quiet", False))
    return elmokit.pretrain.pretrain(corpus, out, PretrainSettings(**rest), config=config)


def adapt(model: str, options: Options) -> TrainingResult:
    """Adapt a model."""
    rest = dict(options)
    log_to_stderr(quiet=rest.get("quiet", False))
    return elmokit.pretrain.adapt(model, rest.pop("corpus"), rest.pop("out"), AdaptSettings(**rest))


def arguments(options: Options) -> list[str]:
    """Return the options of `elmokit pretrain` as the command line takes them."""
    words = ["pretrain"]
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, dict):
            words += [
                word
                for field, part in value.items()
                for word in [f"{option}.{field.replace('_', '-')}", *flatten(part)]
            ]
        elif isinstance(value, bool):
            words += [option] if value else []
        else:
            words += [option, *flatten(value)]
    return words


def flatten(value: Any) -> list[str]:
    """Return the words of a value that may be a list of lists."""
    if isinstance(value, list | tuple):
        return [word for part in value for word in flatten(part)]
    return [str(value)]
