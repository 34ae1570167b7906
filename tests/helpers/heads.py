"""What the tests of the tasks' models share: small models, quick learning, ELMo's placements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tiny import tiny_elmo
from torch import Tensor

from elmokit.tasks.layers.embedder import Inputs, known_words
from elmokit.tasks.settings import TrainSettings
from elmokit.tasks.task import Task

PLACEMENTS = ("input", "output", "both")


def complete(task: Task, **given: Any) -> TrainSettings:
    """Small settings, without dropout."""
    given = {"hidden": 16, "word_dim": 16, "dropout": 0.0, "elmo_dropout": 0.0, **given}
    return task.settings(**given).with_word_dim(has_vectors=False)


def make_model(task: Task, examples: Sequence[Any], *, elmo: Any = None, **given: Any) -> Any:
    """A new model for the labels and words of some examples."""
    settings = complete(task, **given)
    words = known_words([text for example in examples for text in example.texts], settings)
    torch.manual_seed(settings.seed)
    inputs = Inputs(settings, words, elmo=elmo)
    return task.model(inputs, settings, task.learn(examples, settings))


def learn(model: Any, examples: Sequence[Any], *, epochs: int, lr: float = 0.01) -> Any:
    """Train with a plain loop instead of `fit`."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(1)
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(examples), generator=generator).tolist()
        for start in range(0, len(order), 25):
            optimizer.zero_grad()
            model.loss([examples[i] for i in order[start : start + 25]]).backward()
            optimizer.step()
    return model.eval()


def scores_of(model: Any, examples: Sequence[Any]) -> Tensor:
    """Return the scores of a model before the softmax."""
    with torch.inference_mode():
        scores: Tensor = model.eval()(examples)
    return scores


def predict(model: Any, examples: Sequence[Any]) -> list[Any]:
    """Return the predictions of a model."""
    with torch.inference_mode():
        predictions: list[Any] = model.eval().predict(examples)
    return predictions


def right(model: Any, examples: Sequence[Any]) -> float:
    """Return the share of examples whose label is predicted."""
    labels = [prediction["label"] for prediction in predict(model, examples)]
    pairs = zip(labels, examples, strict=True)
    return sum(bool(label == example.label) for label, example in pairs) / len(examples)


Movement = tuple[bool, bool]  # whether the output of the RNN and the scores change


def movements(task: Task, examples: Sequence[Any], rnn: str, placement: str) -> list[Movement]:
    """Tell for each mix whether the output of the RNN and the scores depend on its scale."""
    model = make_model(task, examples, elmo=tiny_elmo(), placement=placement)
    outputs: list[Tensor] = []
    getattr(model, rnn).register_forward_hook(lambda _module, _given, made: outputs.append(made))
    before = scores_of(model, examples)
    moved: list[Movement] = []
    for mix in model.inputs.elmo.mixes:
        with torch.no_grad():
            mix.gamma.fill_(3.0)
            after = scores_of(model, examples)
            mix.gamma.fill_(1.0)
        moved.append((differ(outputs[0], outputs[-1]), differ(before, after)))
    return moved


def watched(model: Any, examples: Sequence[Any], *names: str) -> list[list[tuple[Tensor, Tensor]]]:
    """What modules of a model were given and what they made of it, at each of their calls."""
    calls: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in names}
    for name in names:
        module = getattr(model, name)
        module.register_forward_hook(
            lambda _module, given, made, name=name: calls[name].append((given[0], made))
        )
    scores_of(model, examples)
    return [calls[name] for name in names]


def differ(one: Tensor, other: Tensor) -> bool:
    return (one - other).abs().max().item() > 1e-6


# What `movements` finds where everything is right: a mix at the input moves what the RNN gives,
# a mix at its output does not, and both move the scores.
AT_INPUT, AT_OUTPUT = (True, True), (False, True)
EXPECTED_MOVEMENTS = {"input": [AT_INPUT], "output": [AT_OUTPUT], "both": [AT_INPUT, AT_OUTPUT]}
