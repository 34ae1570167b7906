"""Training with products in bfloat16: close to float32, and float32 wherever it must be.

A processor may have bfloat16 or not, or say so and be stopped by it. So the numbers come from a
process of their own, where torch computes the products itself, slowly, on any processor.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from children import HANGS
from runs import arguments, pretrain
from safetensors.torch import load_file

from elmokit.cli.main import main
from elmokit.errors import ElmokitError
from elmokit.pretrain import device
from elmokit.pretrain.device import check_precision, processor_has_bfloat16

Options = dict[str, Any]

BEFORE = """
import json, sys, torch
torch.backends.mkldnn.set_flags(False)
torch.set_num_threads(1)
"""

# Two runs; prints every step's loss of both.
RUNS = (
    BEFORE
    + """
from elmokit.cli.main import main
from elmokit.pretrain import device
from elmokit.pretrain.trainer import Trainer

device.processor_has_bfloat16 = lambda: True
one_step, losses = Trainer.one_step, {}

def noted(run):
    loss, norm = one_step(run)
    losses.setdefault(run.settings.precision, []).append(loss)
    return loss, norm

Trainer.one_step = noted
for arguments in json.loads(sys.argv[1]):
    assert main(arguments) == 0
print(json.dumps(losses))
"""
)

# One step's results and gradients by both precisions; prints how far they are apart.
STEP = (
    BEFORE
    + """
import numpy as np
from elmokit.config import BiLMConfig
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.model.softmax import Sample
from elmokit.pretrain.objective import Batch, window_loss

torch.manual_seed(0)
words = 20_000
config = BiLMConfig.from_dict(json.loads(sys.argv[1]) | {"vocabulary_size": words})
model = BiLM(config)
model.softmax.weight.data.mul_(4)
batch = Batch(
    torch.randint(0, 262, (30, config.max_characters)),
    torch.randint(0, 30, (2, 10, 4)),
    torch.randint(-1, words, (2, 40)),
)
start = BiLMState.zeros(config, 4, "cpu").map(lambda tensor: torch.randn_like(tensor) * 0.5)
report = {}
for name, sample in (
    ("full", None), ("sampled", Sample.draw(words, 2000, np.random.default_rng(0)))
):
    result = {}
    for precision in (None, torch.bfloat16):
        model.zero_grad()
        loss, after = window_loss(model, batch, start, sample=sample, precision=precision)
        loss.backward()
        result[precision] = {
            "loss": loss.detach(),
            **{f"cells {k}": c for k, (_, c) in enumerate(after.forward + after.backward)},
            **{f"gradient of {n}": p.grad.clone() for n, p in model.named_parameters()},
        }
    report[name] = {
        key: [
            float((value - result[torch.bfloat16][key]).norm() / value.norm()),
            str(result[torch.bfloat16][key].dtype),
            bool((result[torch.bfloat16][key].bfloat16() != result[torch.bfloat16][key]).any()),
        ]
        for key, value in result[None].items()
    }
print(json.dumps(report))
"""
)


def run(script: str, argument: Any) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-c", script, json.dumps(argument)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_thirty_steps_stay_close_to_float32_and_the_weights_are_float32(options: Options) -> None:
    options |= {"max_steps": 30, "dropout": 0.1, "optimizer": "adamw", "lr": 0.03, "workers": 1}
    low = options | {"precision": "bf16"}
    high = options | {"out": options["out"] + "-float32"}
    losses = run(RUNS, [arguments(high), arguments(low)])
    exact, rounded = losses["float32"], losses["bf16"]
    assert len(exact) == len(rounded) == 30
    assert exact[-1] < exact[0] - 0.3  # it has learned something
    assert rounded == pytest.approx(exact, rel=0.03)
    assert any(abs(a - b) > 1e-4 for a, b in zip(exact, rounded, strict=True))
    state = load_file(Path(options["out"], "training", "step-00000030", "state.safetensors"))
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    published = load_file(Path(options["out"], "model.safetensors"))
    assert {tensor.dtype for tensor in published.values()} == {torch.float32}
    # Between the steps nothing is rounded either.
    weight = state["model.forward_layers.0.input_weight"]
    assert (weight.bfloat16() != weight).float().mean() > 0.9


def test_losses_cells_and_gradients_are_summed_in_float32(options: Options) -> None:
    report = run(STEP, options["model"] | {"lstm_dim": 64, "projection_dim": 32})
    for name in ("full", "sampled"):
        for key, (difference, dtype, is_finer) in report[name].items():
            assert dtype == "torch.float32", key
            rough = "characters" in key or "convolutions" in key  # it may find another maximum
            most = 3e-4 if key == "loss" else 0.15 if rough else 0.02
            assert difference < most, (name, key, difference)
            if key.startswith("cells"):
                assert is_finer, key  # than bfloat16
                assert difference > 1e-5, key  # bfloat16 was in it


def test_a_processor_that_is_stopped_by_bfloat16_refuses_it(
    options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(device, "PROBE", stopped)
    names = ("corpus", "out", "tokenizer")
    chosen = {name: options[name] for name in names}
    assert main([*arguments(chosen), "--precision=bf16"]) == 2
    assert capsys.readouterr().err == (
        "elmokit: error: this processor does not support bfloat16: leave --precision at float32\n"
    )
    assert not Path(options["out"]).exists()
    monkeypatch.setattr(device, "PROBE", "pass")
    check_precision("bf16", torch.device("cpu"))


def test_probing_this_processor_is_safe() -> None:
    assert processor_has_bfloat16() in (True, False)


def test_a_gpu_without_bfloat16_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    with pytest.raises(ElmokitError, match=r"this GPU does not support bfloat16"):
        check_precision("bf16", torch.device("cuda"))


def test_the_precision_of_a_run_does_not_change(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain(options | {"max_steps": 10})
    monkeypatch.setattr(device, "processor_has_bfloat16", lambda: True)
    with pytest.raises(ElmokitError, match=r"precision was 'float32' and is now 'bf16'"):
        pretrain(options | {"max_steps": 12, "precision": "bf16"})


def test_a_run_from_before_there_was_a_choice_is_resumed(options: Options) -> None:
    pretrain(options | {"max_steps": 10})
    metadata = Path(options["out"], "training", "step-00000010", "state.json")
    values = json.loads(metadata.read_text())
    del values["settings"]["precision"]
    metadata.write_text(json.dumps(values))
    assert pretrain(options | {"max_steps": 12}).stopped_by == 0
