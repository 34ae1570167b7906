"""Adapting a model to other text: with its softmax, or with a new one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import adapt, pretrain
from safetensors.numpy import load_file
from small_text import make_sentences, training_options
from tiny import complaint

import elmokit
from elmokit.cli.main import main
from elmokit.errors import ElmokitError
from elmokit.formats import bilm, native
from elmokit.formats.checkpoint import Checkpoint
from elmokit.io.marker import write_marker
from elmokit.pretrain.corpus import prepare
from elmokit.pretrain.evaluation import text_losses
from elmokit.pretrain.log import read_log
from elmokit.pretrain.trainer import Trainer

Options = dict[str, Any]
LEARNING = {"epochs": 1, "optimizer": "adamw", "lr": 0.01}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a run that has learned the small language."""
    options = training_options(tmp_path_factory.mktemp("trained"))
    pretrain(options | LEARNING)
    return str(options["out"])


@pytest.fixture
def model(trained: str, options: Options) -> str:
    """A copy of that folder, where `options` has its output."""
    return str(shutil.copytree(trained, options["out"]))


@pytest.fixture
def published(model: str, tmp_path: Path) -> str:
    """The same as it would be published: without its softmax."""
    whole = native.read(Path(model))
    tensors = {name: value for name, value in whole.tensors.items() if "softmax" not in name}
    config = replace(whole.config, vocabulary_size=0)
    bilm.write(Checkpoint(config, tensors), tmp_path / "published")
    return str(tmp_path / "published" / "weights.hdf5")


@pytest.fixture
def domain(tmp_path: Path) -> Options:
    """Text of the same grammar where every noun is a spoon."""
    words = dict.fromkeys("cat dog river bank house tree child".split(), "spoon")
    lines = [
        " ".join(words.get(word, word) for word in words_) for words_ in make_sentences(200, seed=9)
    ]
    (tmp_path / "domain.txt").write_text("".join(line + "\n" for line in lines))
    return {
        "corpus": str(tmp_path / "domain.txt"),
        "out": str(tmp_path / "adapted"),
        "tokenizer": "whitespace",
        "min_count": 1,
        "epochs": 3,
        "batch_size": 8,
        "unroll": 10,
        "warmup": 2,
        "lr": 0.01,
        "eval_every": 20,
        "save_every": 10,
        "threads": 1,
        "quiet": True,
    }


def metadata_of(options: Options) -> dict[str, Any]:
    return json.loads(Path(options["out"], "config.json").read_text())["metadata"]


def test_adapting_starts_from_the_model_and_its_softmax(model: str, domain: Options) -> None:
    assert adapt(model, domain).stopped_by == 0
    before, after = elmokit.load(model), elmokit.load(domain["out"])
    assert after.vocabulary is not None
    assert before.vocabulary is not None
    assert after.vocabulary.words == before.vocabulary.words
    metadata = metadata_of(domain)
    assert metadata["adapted_from"]["name"] == Path(model).name
    assert metadata["adapted_from"]["fingerprint"] == before.fingerprint()
    assert metadata["adapted_from"]["metadata"]["training"]["corpus"] == ["text.txt"]
    assert metadata["training"]["corpus"] == ["domain.txt"]
    # What it says about itself is what anyone can measure.
    corpus = prepare(
        domain["corpus"], Path(domain["out"], "training", "corpus"), valid_fraction=0.05,
        tokenizer="whitespace", quiet=True,
    )  # fmt: skip
    first = next(line for line in read_log(Path(domain["out"], "log.jsonl")) if "heldout" in line)
    assert first["step"] == 0
    assert metadata["training"]["heldout_perplexity_before"] == pytest.approx(
        first["heldout"]["average"], abs=1e-3
    )
    assert metadata["training"]["heldout_perplexity"]["average"] < 0.6 * first["heldout"]["average"]
    tokens = len(corpus.train.tokens) + len(corpus.train)
    losses = [text_losses(elmo, corpus, carry=True)[0].sum() for elmo in (before, after)]
    assert losses[1] / tokens < losses[0] / tokens - 0.4


def test_a_model_without_a_softmax_gets_one_that_learns_first(
    published: str, domain: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}
    train = Trainer.one_step

    def watched(run: Trainer) -> tuple[float, float]:
        result = train(run)
        if run.step in (run.frozen_steps, run.frozen_steps + 1):
            seen[run.step] = {n: p.detach().clone() for n, p in run.model.named_parameters()}
        return result

    monkeypatch.setattr(Trainer, "one_step", watched)
    start = elmokit.load(published)
    assert adapt(published, domain).stopped_by == 0
    (last_frozen, frozen), (_, free) = sorted(seen.items())
    weights = dict(start.model.named_parameters())
    for name, value in frozen.items():
        if not name.startswith("softmax."):
            assert np.array_equal(value.numpy(), weights[name].detach().numpy()), name
            if "bias" not in name:
                assert not np.array_equal(value.numpy(), free[name].numpy()), name
    elmo = elmokit.load(domain["out"])
    assert elmo.vocabulary is not None
    assert "spoon" in elmo.vocabulary
    metadata = metadata_of(domain)["training"]
    assert metadata["settings"]["frozen_steps"] == last_frozen > 10
    assert metadata["heldout_perplexity"]["average"] < metadata["heldout_perplexity_before"] < 12


def test_a_new_softmax_may_be_asked_for(model: str, domain: Options) -> None:
    adapt(model, domain | {"new_softmax": True, "vocab_size": 8, "softmax_steps": 5})
    elmo = elmokit.load(domain["out"])
    assert elmo.vocabulary is not None
    assert len(elmo.vocabulary) == 8
    assert metadata_of(domain)["training"]["settings"]["frozen_steps"] == 5


def test_a_stopped_adaptation_ends_with_the_same_bits(
    published: str, domain: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = domain | {"out": domain["out"] + "-whole"}
    adapt(published, whole)
    train = Trainer.one_step
    stops = {3, 17, 40}

    def interrupted(run: Trainer) -> tuple[float, float]:
        if run.step in stops:
            stops.remove(run.step)
            raise KeyboardInterrupt
        return train(run)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "one_step", interrupted)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                adapt(published, domain)
    adapt(published, domain)
    one, other = (load_file(Path(o["out"], "model.safetensors")) for o in (whole, domain))
    assert all(np.array_equal(value, other[name]) for name, value in one.items())
    assert metadata_of(whole)["training"]["heldout_perplexity_before"] == pytest.approx(
        metadata_of(domain)["training"]["heldout_perplexity_before"]
    )


def test_text_that_it_only_forgets_on_keeps_the_model_as_it_was(
    model: str, domain: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    adapt(model, domain | {"lr": 5.0, "clip": 1000.0, "quiet": False, "max_steps": 40})
    said = capsys.readouterr().err
    assert "the earlier model is kept" in said
    one, other = (load_file(Path(o, "model.safetensors")) for o in (model, domain["out"]))
    assert all(np.array_equal(value, other[name]) for name, value in one.items())


def test_another_model_on_resume_is_refused(model: str, published: str, domain: Options) -> None:
    adapt(model, domain | {"max_steps": 10})
    pretrain_again = elmokit.load(model)
    with np.errstate(all="ignore"):
        next(pretrain_again.model.parameters()).data.add_(1)
    pretrain_again.save_pretrained(str(Path(model).parent / "other"))
    with pytest.raises(ElmokitError, match="the model to adapt is another one"):
        adapt(str(Path(model).parent / "other"), domain | {"max_steps": 10})


def test_the_command_says_before_and_after(
    model: str, domain: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("corpus", "out", "tokenizer", "batch_size", "unroll", "lr", "warmup", "threads")
    arguments = [f"--{name.replace('_', '-')}={domain[name]}" for name in names]
    assert main(["adapt", model, *arguments]) == 0
    said = capsys.readouterr().err
    assert "step 0: held-out perplexity" in said
    assert "(-" in said.splitlines()[-1]


@pytest.mark.parametrize("option", ["softmax_steps", "vocab_size"])
def test_what_only_a_new_softmax_takes_is_not_ignored(
    model: str, domain: Options, option: str
) -> None:
    with pytest.raises(ElmokitError, match=f"{option} is for a new softmax"):
        adapt(model, domain | {option: 8})


def test_a_wrong_dropout_leaves_no_folder_behind(model: str, domain: Options) -> None:
    with pytest.raises(ElmokitError, match="dropout must be at least 0 and below 1, not -7"):
        adapt(model, domain | {"dropout": -7.0})
    assert not Path(domain["out"]).exists()


def test_text_and_folder_are_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adapt", "english", "--out", "model"]) == 2
    assert "--corpus" in capsys.readouterr().err


def test_the_adapted_model_is_never_replaced(model: str, domain: Options) -> None:
    base = Path(model)
    files = {path: path.read_bytes() for path in base.iterdir() if path.is_file()}
    with pytest.raises(ElmokitError, match="folder of a run of elmokit pretrain"):
        adapt(str(base), domain | {"out": str(base)})
    elmokit.load(base).save_pretrained(base.parent / "plain")
    with pytest.raises(ElmokitError, match="already contains a model"):
        adapt(str(base.parent / "plain"), domain | {"out": str(base.parent / "plain")})
    assert {path: path.read_bytes() for path in base.iterdir() if path.is_file()} == files


def test_a_run_of_another_kind_and_the_model_itself_are_never_written_to(
    model: str, domain: Options, tmp_path: Path
) -> None:
    """Neither `adapt` into a pretraining, nor the reverse, nor `adapt OLD --out OLD`."""
    adapted = tmp_path / "adapted"
    adapt(model, domain | {"epochs": 1, "max_steps": 2})
    (tmp_path / "task" / "training").mkdir(parents=True)
    (tmp_path / "task" / "report.json").write_text("{}")
    write_marker(tmp_path / "task", "train")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    runs: dict[str, Callable[[], object]] = {
        f"{model} is the folder of a run of elmokit pretrain, not of elmokit adapt": lambda: adapt(
            model, domain | {"out": model}
        ),
        f"{adapted} is inside the output folder {adapted}": lambda: adapt(str(adapted), domain),
        f"{adapted} is the folder of a run of elmokit adapt, not of elmokit pretrain": lambda: (
            pretrain(domain)
        ),
        f"{tmp_path / 'task'} is the folder of a run of elmokit train, not of": lambda: pretrain(
            domain | {"out": str(tmp_path / "task")}
        ),
    }
    for message, run in runs.items():
        assert complaint(run).startswith(message)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_damaged_checkpoint_is_a_sentence(model: str, options: Options) -> None:
    state = sorted(Path(model, "training").glob("step-*"))[-1]
    whole = (state / "state.json").read_text()
    options |= LEARNING
    changes: list[Options] = [{"settings": 7}, {"seconds": None}, {"model": []}, {"losses": ...}]
    for change in changes:
        values = {**json.loads(whole), **change}
        (state / "state.json").write_text(
            json.dumps({name: value for name, value in values.items() if value is not ...})
        )
        assert "remove it to resume from the one before" in complaint(lambda: pretrain(options))
    (state / "state.json").write_text(whole)
    (state / "state.safetensors").write_bytes(b"cut off")
    assert f"{state} cannot be read" in complaint(lambda: pretrain(options))


def test_a_run_killed_before_its_first_checkpoint_logs_each_step_once(
    model: str, domain: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(trainer: Trainer) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "one_step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            adapt(model, domain)
    assert [line["step"] for line in read_log(Path(domain["out"], "log.jsonl"))] == [0]
    adapt(model, domain)
    heldout = [line for line in read_log(Path(domain["out"], "log.jsonl")) if "heldout" in line]
    steps = [line["step"] for line in heldout]
    assert steps == sorted(set(steps))
