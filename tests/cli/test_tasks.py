"""`elmokit train`, `predict` and `score`, seen from outside."""

from __future__ import annotations

import json
import random
import signal
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import Child
from safetensors.numpy import load_file

from elmokit.cli.main import main
from elmokit.errors import ElmokitError
from elmokit.tasks import load_task, predict, score, train
from elmokit.tasks.settings import SETTINGS
from elmokit.tasks.task import find_task

SMALL = {"hidden": 16, "char_dim": 8, "epochs": 6, "lr": 0.02, "batch_size": 8, "quiet": True}


def options(data: tuple[Path, Path], out: Path, **more: Any) -> dict[str, Any]:
    return {"train": str(data[0]), "dev": str(data[1]), "out": str(out), **SMALL, **more}


@pytest.mark.usefixtures("curves")
def test_a_tagger_is_trained_saved_loaded_and_used(
    conll: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "ner"
    result = train("tagger", **options(conll, out))
    report = json.loads((out / "report.json").read_text())
    assert (result.folder, result.report, result.stopped_by) == (out, report, 0)
    assert result.scores == report["dev"]
    assert report["dev"]["f1"] > 0.95
    assert report["elmo"] == "english"
    assert sum(report["mixes"]["input"]["weights"]) == pytest.approx(1, abs=1e-3)
    assert (out / "curves.png").stat().st_size > 5000
    assert not [file for file in out.rglob("*") if file.suffix in (".pt", ".pkl", ".bin")]
    ner = load_task(out)
    results = ner.predict_texts(["Anna Berg lives in Kiel .", ["Bo", "lives", "in", "Lund"]])
    assert results[0] == ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]
    assert results[1] == ["B-PER", "O", "O", "B-LOC"]


def test_the_same_scores_come_back_from_the_folder(
    conll: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, scores = tmp_path / "ner", tmp_path / "scores.json"
    train("tagger", **options(conll, out, epochs=2))
    report = json.loads((out / "report.json").read_text())
    assert main(["score", str(out), str(conll[1]), "--json", str(scores), "--quiet"]) == 0
    result = json.loads(scores.read_text())["scores"]
    assert result == pytest.approx(report["dev"], abs=1e-9)
    assert score(str(out), str(conll[1]), quiet=True).scores == result
    assert f"f1         {100 * result['f1']:6.2f}" in capsys.readouterr().out


def test_predictions_go_to_a_file_that_can_be_read_again(
    conll: tuple[Path, Path], tmp_path: Path
) -> None:
    out, written = tmp_path / "ner", tmp_path / "found.conll"
    train("tagger", **options(conll, out))
    predict(str(out), str(conll[1]), str(written), quiet=True)
    right = conll[1].read_text().split("\n")
    result = written.read_text().split("\n")
    assert [line.split()[:1] for line in result if line] == [
        line.split()[:1] for line in right if line
    ]
    same = [a.split() == b.split() for a, b in zip(result, right, strict=False) if b]
    assert np.mean(same) > 0.9


@pytest.mark.parametrize("with_elmo", [True, False])
def test_a_classifier_learns_with_and_without_elmo(
    reviews: tuple[Path, Path], tmp_path: Path, with_elmo: bool
) -> None:
    out = tmp_path / "model"
    train("classifier", **options(reviews, out, elmo="english" if with_elmo else None))
    config = json.loads((out / "config.json").read_text())
    assert config["report"]["dev"]["accuracy"] > 0.95
    assert config["elmo"] == ("english" if with_elmo else None)
    assert bool(config["report"]["mixes"]) == with_elmo
    (result,) = load_task(out).predict_texts(["the play was great ."])
    assert result["label"] == "good"


def test_static_vectors_travel_with_the_model(reviews: tuple[Path, Path], tmp_path: Path) -> None:
    glove = tmp_path / "glove.txt"
    words = ["the", "film", "book", "play", "was", ".", "fine", "great", "lovely", "bad", "dull"]
    rng = random.Random(1)
    lines = [f"{w} {' '.join(f'{rng.gauss(0, 1):.4f}' for _ in range(6))}\n" for w in words]
    lines.append("splendid " + lines[7].split(" ", 1)[1])  # as great
    glove.write_text("".join(lines))
    out = tmp_path / "model"
    train("classifier", **options(reviews, out, elmo=None, char_dim=0, vectors=str(glove)))
    glove.unlink()
    trained = load_task(out)
    assert trained.model.inputs.learned is None  # static vectors alone
    result = trained.predict_texts(["the play was great .", "the play was splendid ."])
    assert result[0] == result[1]
    assert result[0]["label"] == "good"


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def assert_same(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert np.array_equal(value, second[name]), name


def test_a_run_that_is_killed_again_and_again_ends_like_one_that_was_not(
    conll: tuple[Path, Path], tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    given = {"epochs": 5, "patience": 5, "batch_size": 2, "threads": 1}
    train("tagger", **options(conll, whole, **given))
    rng = random.Random(5)
    own = {name: str(value) for name, value in options(conll, killed, **given).items()}
    del own["quiet"]
    pairs = [(f"--{name.replace('_', '-')}", value) for name, value in own.items()]
    arguments = ["train", "tagger", "--quiet", *(word for pair in pairs for word in pair)]
    for stop in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        process = Child(arguments)
        while process.poll() is None and not list(killed.glob("training/step-*")):
            time.sleep(0.05)
        time.sleep(rng.random())
        process.send_signal(stop)
        process.finish()
    assert Child(arguments).finish() == (0, "")
    assert_same(whole, killed)
    reports = [json.loads((folder / "report.json").read_text()) for folder in (whole, killed)]
    assert reports[0]["history"] == reports[1]["history"]


def test_another_seed_gives_another_model_and_the_same_seed_the_same(
    reviews: tuple[Path, Path], tmp_path: Path
) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train("classifier", **options(reviews, tmp_path / name, epochs=1, seed=seed))
    assert_same(tmp_path / "a", tmp_path / "b")
    differ = [
        not np.array_equal(v, weights(tmp_path / "c")[k])
        for k, v in weights(tmp_path / "a").items()
    ]
    assert any(differ)


def test_a_run_with_other_data_or_settings_does_not_resume(
    reviews: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "model"
    train("classifier", **options(reviews, out, epochs=1))
    with pytest.raises(ElmokitError, match="cannot resume: hidden was 16 and is now 17"):
        train("classifier", **options(reviews, out, hidden=17))
    reviews[0].write_text(reviews[0].read_text() + "good the book was fine .\n")
    with pytest.raises(ElmokitError, match="cannot resume: the data changed"):
        train("classifier", **options(reviews, out, epochs=2))


def test_a_model_that_was_trained_with_another_bilm_is_refused(
    reviews: tuple[Path, Path], tmp_path: Path
) -> None:
    import elmokit

    out, other = tmp_path / "model", tmp_path / "other"
    train("classifier", **options(reviews, out, epochs=1))
    elmo = elmokit.load()
    elmo.model.forward_layers[0].get_parameter("projection").data *= 1.01
    elmo.save_pretrained(other)
    with pytest.raises(ElmokitError, match="was trained with another biLM"):
        load_task(out, elmo=str(other))


def test_a_bilm_named_from_here_is_found_from_elsewhere(
    reviews: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import elmokit

    out, elsewhere = tmp_path / "model", tmp_path / "elsewhere"
    elsewhere.mkdir()
    elmokit.load().save_pretrained(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    train("classifier", **options(reviews, out, epochs=1, elmo="mine"))
    monkeypatch.chdir(elsewhere)
    assert load_task(out).predict_texts(["a fine film"])
    (tmp_path / "mine").rename(tmp_path / "moved")
    with pytest.raises(ElmokitError, match="name it with --elmo if it has moved"):
        load_task(out)
    assert load_task(out, elmo="../moved").predict_texts(["a fine film"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("good\n", "line 81: the line has no text after its label 'good'"),
        ("\n", ""),
    ],
)
def test_a_bad_line_is_named_and_can_be_skipped(
    reviews: tuple[Path, Path],
    tmp_path: Path,
    line: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "model"
    with reviews[0].open("a") as stream:
        stream.write(line)
    given = [f"--train={reviews[0]}", f"--dev={reviews[1]}", f"--out={out}"]
    given += ["--epochs=1", "--hidden=4", "--no-elmo", "--quiet"]
    code = main(["train", "classifier", *given])
    said = capsys.readouterr().err
    assert (code, message in said) == ((2 if message else 0), True)
    if message:
        assert not out.exists()  # it cost nothing else
        assert main(["train", "classifier", *given, "--skip-bad"]) == 0


def test_a_label_that_training_never_saw_is_named(
    reviews: tuple[Path, Path], tmp_path: Path
) -> None:
    with reviews[1].open("a") as stream:
        stream.write("mixed the film was fine .\n")
    with pytest.raises(ElmokitError, match="line 31: 'mixed' is not in the training data"):
        train("classifier", **options(reviews, tmp_path / "model"))


def test_without_dev_data_a_part_of_the_training_data_is_set_apart(
    reviews: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "model"
    given = options(reviews, out, dev=None, dev_fraction=0.2, train_fraction=0.5, epochs=1)
    train("classifier", **given, elmo=None)
    report = json.loads((out / "report.json").read_text())
    assert (report["train_examples"], report["dev_examples"]) == (32, 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beam": 3}, "this task has no option 'beam'"),
        ({"hiden": 3}, "no option 'hiden': did you mean 'hidden'"),  # codespell:ignore hiden
        ({"pooling": "sum"}, "pooling must be one of max, mean, attention, not 'sum'"),
        ({"layers": "9"}, "there is no layer 9"),
        ({"layers": "best"}, "layers must be all, top, average or the index"),
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"train_fraction": 0}, "train_fraction must be above 0"),
        ({"dev_fraction": 1}, "dev_fraction must be above 0 and below 1"),
        ({"vectors": "nowhere.txt"}, "nowhere.txt"),
        ({"elmo": "no-such-folder"}, "no-such-folder"),
        ({"train": "nowhere.txt"}, "nowhere.txt"),
    ],
    ids=str,
)
def test_wrong_options_are_a_sentence(
    reviews: tuple[Path, Path], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ElmokitError, match=message):
        train("classifier", **{**options(reviews, tmp_path / "model"), **change})
    assert not (tmp_path / "model" / "config.json").exists()


def test_an_empty_file_is_named(reviews: tuple[Path, Path], tmp_path: Path) -> None:
    reviews[0].write_text("")
    with pytest.raises(ElmokitError, match=r"train\.txt has no examples"):
        train("classifier", **options(reviews, tmp_path / "model"))
    assert not (tmp_path / "model").exists()


def test_a_task_that_does_not_exist_is_refused(reviews: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ElmokitError, match="unknown task 'tager': choose one of"):
        train("tager", **options(reviews, tmp_path / "model"))  # type: ignore[arg-type]


def test_a_folder_with_another_model_is_left_alone(
    reviews: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ElmokitError, match="already contains a model"):
        train("classifier", **options(reviews, tmp_path))
    with pytest.raises(ElmokitError, match="of a task model that this version can read"):
        load_task(tmp_path)


def test_tuning_trains_the_bilm_and_keeps_it_in_the_model(
    reviews: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "model"
    train("classifier", **options(reviews, out, epochs=1, tune_elmo=True))
    names = [name for name in weights(out) if name.startswith("inputs.elmo.bilm.")]
    assert names
    first = load_task(out).predict_texts(["the film was awful ."])
    assert first == load_task(out).predict_texts(["the film was awful ."])
    report = json.loads((out / "report.json").read_text())
    scores = score(str(out), str(reviews[1]), quiet=True).scores
    assert scores == pytest.approx(report["dev"], abs=1e-9)


# ---------------------------------------------------------------------- the command line
@pytest.mark.parametrize(
    ("task", "option"),
    [("classifier", "--beam"), ("tagger", "--pooling"), ("question", "--crf"), ("pair", "--copy")],
)
def test_the_options_of_other_tasks_are_unknown(
    task: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", task, "--train", "a", "--out", "b", option, "1"]) == 2
    assert f"there is no option {option}" in capsys.readouterr().err.lower()


def test_a_comparison_has_seeds_and_no_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "tagger", "--train", "a", "--out", "b", "--seed", "2"]) == 2
    assert "there is no option --seed" in capsys.readouterr().err.lower()


@pytest.mark.parametrize("verb", ["train", "compare"])
@pytest.mark.parametrize("task", SETTINGS)
def test_every_task_has_a_command_with_its_settings_in_groups(
    verb: str, task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, task, "--help"]) == 0
    text = capsys.readouterr().out
    for group in ("Data", "ELMo", "Network", "Training", "Output"):
        assert f"─ {group} ─" in text
    assert "Parameters" not in text
    for field in fields(find_task(task).settings):
        if (verb, field.name) != ("compare", "seed"):
            assert f"--{field.name.replace('_', '-')} " in text


def test_predictions_go_to_standard_output(
    conll: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, text = tmp_path / "ner", tmp_path / "text.txt"
    text.write_text("Bo lives in Lund\n")
    paths = [f"--train={conll[0]}", f"--dev={conll[1]}", f"--out={out}"]
    assert main(["train", "tagger", *paths, "--no-elmo", "--hidden=8", "--epochs=1"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("f1 ")
    assert "elmokit: training a tagger without ELMo: " in said.err
    assert main(["predict", str(out), str(text), "-", "--quiet"]) == 0
    said = capsys.readouterr()
    assert [line.split("\t")[0] for line in said.out.split("\n")[:4]] == text.read_text().split()
    assert said.err == ""
