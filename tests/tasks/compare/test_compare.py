"""`elmokit compare`: which runs there are, what they add up to, how they go on when stopped."""

from __future__ import annotations

import json
import math
import random
import re
import shlex
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import Child
from safetensors.numpy import load_file
from tiny import tiny_elmo

from elmokit.cli.main import main
from elmokit.errors import ElmokitError
from elmokit.io.atomic import locked
from elmokit.store import FILE
from elmokit.tasks import load_task, train
from elmokit.tasks import run as run_module
from elmokit.tasks.compare import compare
from elmokit.tasks.compare.comparison import Comparer, command_line
from elmokit.tasks.compare.conditions import (
    Condition,
    Run,
    all_runs,
    make_tables,
    seconds_left,
)
from elmokit.tasks.compare.figures import draw_all, draw_curve, draw_rows, draw_weights
from elmokit.tasks.compare.summary import spread, table_of
from elmokit.tasks.run import Plan, TrainResult
from elmokit.tasks.settings import ClassifierSettings, RunOptions
from elmokit.tasks.splits import Data
from elmokit.tasks.task import find_task

SMALL = {
    "hidden": 8,
    "word_dim": 4,
    "dropout": 0.0,
    "elmo_dropout": 0.1,
    "epochs": 3,
    "batch_size": 4,
    "lr": 0.03,
    "threads": 1,
    "quiet": True,
}
ALL_NAMES = [
    "baseline",
    "elmo-input-layer0",
    "elmo-input-layer1",
    "elmo-input-top",
    "elmo-input-average",
    "elmo-input-all-l2-1",
    "elmo-input-all-l2-0.001",
    "elmo-output-all-l2-0.001",
    "elmo-both-all-l2-0.001",
]
ROWS = {
    "layers": dict(
        zip(
            [
                "without ELMo",
                "layer 0 (tokens)",
                "layer 1",
                "layer 2 (top)",
                "average of all",
                "mix of all, λ = 1",
                "mix of all, λ = 0.001",
            ],
            ALL_NAMES[:7],
            strict=True,
        )
    ),
    "placement": {
        "without ELMo": "baseline",
        "input": "elmo-input-all-l2-0.001",
        "output": "elmo-output-all-l2-0.001",
        "both": "elmo-both-all-l2-0.001",
    },
}


def write_reviews(folder: Path) -> dict[str, Any]:
    """Options for data of a classifier that is not quite easy."""
    rng = random.Random(7)
    good, poor = "fine great lovely grand superb odd", "bad dull awful drab vile odd"
    words = {"good": good.split(), "poor": poor.split()}
    for name, count in (("train", 60), ("dev", 40)):
        labels = [rng.choice(("good", "poor")) for _ in range(count)]
        lines = [
            f"{label} the {rng.choice(('film', 'book'))} was {rng.choice(words[label])}\n"
            for label in labels
        ]
        (folder / f"{name}.txt").write_text("".join(lines))
    return {"train": str(folder / "train.txt"), "dev": str(folder / "dev.txt")}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Data, a tiny biLM and a cache that all tests here share; no picture of each run."""
    folder = tmp_path_factory.mktemp("compare")
    tiny_elmo().save_pretrained(folder / "elmo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "draw_curves", lambda report, picture: False)
        yield {
            "task": "classifier",
            **write_reviews(folder),
            "elmo": str(folder / "elmo"),
            "cache": str(folder / "cache"),
            **SMALL,
        }


@pytest.fixture(scope="module")
def whole(given: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison of all kinds."""
    out = tmp_path_factory.mktemp("whole") / "out"
    sizes = [100, 5, 20]
    comparison = compare(
        **given, out=str(out), vary=["layers", "placement"], seeds=[1, 2], sample_efficiency=sizes
    )
    assert not comparison.stopped_by
    return out


def results_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text())


def scores_of(out: Path) -> dict[str, Any]:
    return {run["name"]: run["scores"] for run in results_of(out)["runs"]}


def settings(**changes: Any) -> ClassifierSettings:
    return ClassifierSettings(**changes).with_word_dim(has_vectors=False)


def as_arguments(options: dict[str, Any]) -> list[str]:
    """The options as the command line takes them, the task first."""
    words = [options["task"]]
    for name, value in options.items():
        if name != "task" and value is not False:
            words.append(f"--{name.replace('_', '-')}")
            words += (
                [] if value is True else map(str, value if isinstance(value, list) else [value])
            )
    return words


# ---------------------------------------------------------------------- conditions
def test_the_tables_are_those_of_the_paper() -> None:
    tables = make_tables(["layers", "placement"], settings(), 2)
    result = {name: {k: c.name for k, c in rows.items()} for name, rows in tables.items()}
    assert result == ROWS
    rows = tables["layers"]
    assert [c.settings.layers for c in rows.values()][1:] == ["0", "1", "top", "average"] + 2 * [
        "all"
    ]
    assert [rows[f"mix of all, λ = {x}"].settings.l2 for x in ("1", "0.001")] == [1.0, 0.001]
    places = [c.settings.placement for c in tables["placement"].values()]
    assert places == ["input", "input", "output", "both"]
    with_elmo = [[c.with_elmo for c in rows.values()] for rows in tables.values()]
    assert with_elmo == [[False] + 6 * [True], [False] + 3 * [True]]


def test_what_a_table_does_not_vary_is_as_the_settings_say() -> None:
    own = settings(placement="both", l2=0.1, hidden=7, elmo_dropout=0.2)
    tables = make_tables(["layers", "placement", "elmo"], own, 1)
    for rows in tables.values():
        assert all(c.settings.hidden == 7 for c in rows.values())
        assert all(c.settings.elmo_dropout == 0.2 for c in rows.values() if c.with_elmo)
    assert {c.settings.placement for c in tables["layers"].values() if c.with_elmo} == {"both"}
    assert {c.settings.l2 for c in tables["placement"].values() if c.with_elmo} == {0.1}
    assert tables["elmo"]["with ELMo"] == tables["placement"]["both"]


def test_the_same_model_has_one_name_however_it_is_requested() -> None:
    own = settings(layers="2")
    assert (
        make_tables(["elmo"], own, 2)["elmo"]["with ELMo"]
        == make_tables(["layers"], own, 2)["layers"]["layer 2 (top)"]
    )
    one, other = (
        make_tables(["elmo"], s, 2)["elmo"]["without ELMo"]
        for s in (own, settings(l2=3, elmo_lr=0.5))
    )
    assert one == other  # what concerns ELMo alone does not make another model without it


def test_every_run_is_trained_once_and_those_of_a_seed_together() -> None:
    own = settings()
    tables = make_tables(["layers", "placement", "elmo"], own, 2)
    curve = tables["elmo"]
    runs = all_runs(tables, curve, [5, 6], [1, 100])
    assert [run.seed for run in runs] == [5] * 11 + [6] * 11
    parts = ["baseline-part1", "elmo-input-all-l2-0.001-part1"]
    assert [run.name for run in runs[:11]] == [f"{name}-seed5" for name in ALL_NAMES + parts]


# ---------------------------------------------------------------------- numbers
def test_mean_spread_and_gain_are_those_of_the_textbook() -> None:
    assert spread([0.8, 0.9, 1.0]) == {
        "mean": pytest.approx(0.9),
        "spread": pytest.approx(0.1),  # sqrt((0.01 + 0 + 0.01) / 2)
        "values": [0.8, 0.9, 1.0],
    }
    assert spread([0.5])["spread"] is None
    rows = {name: Condition(name, settings(), name == "b") for name in "ab"}
    runs = [
        {"condition": name, "percent": 100, "seed": seed, "scores": {"f1": value}}
        for name, values in {"a": (0.7, 0.9), "b": (0.85, 0.85)}.items()
        for seed, value in enumerate(values)
    ]
    without, with_elmo = table_of(rows, [*runs, {**runs[0], "percent": 5, "scores": {"f1": 0}}])
    assert (without["gain"], without["fewer_errors"], without["n"]) == (None, None, 2)
    assert with_elmo["gain"] == pytest.approx(0.05)
    assert with_elmo["fewer_errors"] == pytest.approx(0.25)  # 15 errors for 20


def test_the_remaining_time_is_estimated_from_runs_of_the_same_kind() -> None:
    without, with_elmo = (Condition(str(x), settings(), x) for x in (False, True))
    done = {Run(without, 1): 10.0, Run(with_elmo, 1): 31.0}
    runs = [*done, Run(without, 2), Run(with_elmo, 2), Run(with_elmo, 1, 50)]
    sizes = {"train": 100, "dev": 10}
    assert seconds_left(runs, done, **sizes) == pytest.approx(10 + 31 + 31 * 160 / 310)
    assert seconds_left(runs, {}, **sizes) is None
    assert seconds_left(list(done), done, **sizes) == 0


# ---------------------------------------------------------------------- a whole comparison
def test_the_table_can_be_recomputed_from_the_runs(whole: Path) -> None:
    results, text = results_of(whole), (whole / "table.md").read_text()
    assert results["complete"]
    for name, rows in ROWS.items():
        part = text.partition(f"## {name.title()}\n")[2].partition("\n#")[0]
        printed = {
            c[0]: c
            for c in ([x.strip() for x in r.split("|")[1:-1]] for r in part.split("\n"))
            if len(c) > 2
        }
        head = printed.pop("")
        assert head[1:] == ["n", "accuracy", "macro_f1", "gain", "fewer errors"]
        means = {}
        for label, condition in rows.items():
            reports = [
                json.loads((whole / "runs" / f"{condition}-seed{seed}" / "report.json").read_text())
                for seed in (1, 2)
            ]
            for column, score in ((2, "accuracy"), (3, "macro_f1")):
                values = [100 * report["dev"][score] for report in reports]
                expected = f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"
                assert printed[label][column] == expected
            means[label] = np.mean([100 * report["dev"]["accuracy"] for report in reports])
            assert printed[label][1] == "2"
        for label in list(rows)[1:]:
            assert printed[label][4] == f"{means[label] - means['without ELMo']:+.2f}"
    single = {
        (run["condition"], run["seed"]): run["scores"]
        for run in results["runs"]
        if run["percent"] == 100
    }
    for line in (line for lines in results["tables"].values() for line in lines):
        values = [single[line["condition"], seed]["accuracy"] for seed in (1, 2)]
        assert line["scores"]["accuracy"]["mean"] == pytest.approx(np.mean(values))
    assert len({tuple(scores.items()) for scores in single.values()}) > 2  # they do differ


def test_each_run_was_trained_as_its_condition_says(whole: Path) -> None:
    runs = {run["name"]: run for run in results_of(whole)["runs"]}
    assert len(runs) == 2 * (9 + 2 * 2)  # 100 percent are in the tables
    for name, run in runs.items():
        report = json.loads((whole / run["folder"] / "report.json").read_text())
        assert report["complete"]
        assert (report["dev"], report["mixes"]) == (run["scores"], run["mixes"])
        assert report["settings"] == run["settings"]
        assert (report["elmo"] is None) == name.startswith("baseline")
        assert report["settings"]["seed"] == run["seed"] == int(name[-1])
    assert runs["elmo-input-layer1-seed2"]["mixes"]["input"]["weights"] == [0, 1, 0]
    assert runs["elmo-input-top-seed1"]["mixes"]["input"]["weights"] == [0, 0, 1]
    assert len(set(runs["elmo-input-average-seed1"]["mixes"]["input"]["weights"])) == 1
    assert set(runs["elmo-both-all-l2-0.001-seed1"]["mixes"]) == {"input", "output"}
    away = {
        l2: np.ptp(runs[f"elmo-input-all-l2-{l2}-seed1"]["mixes"]["input"]["weights"])
        for l2 in ("1", "0.001")
    }
    assert away["1"] < away["0.001"]


def test_a_part_of_the_data_has_as_many_examples_as_it_should(whole: Path) -> None:
    results = results_of(whole)
    result = {(run["percent"], run["train_examples"]) for run in results["runs"]}
    assert result == {(5.0, 3), (20.0, 12), (100.0, 60)}
    points = results["sample_efficiency"]
    assert [(p["percent"], p["examples"]) for p in points] == [(5, 3), (20, 12), (100, 60)]
    for point in points:
        for label, start in (
            ("without ELMo", "baseline"),
            ("with ELMo", "elmo-input-all-l2-0.001"),
        ):
            part = "" if point["percent"] == 100 else f"-part{point['percent']:g}"
            values = [
                json.loads(
                    (whole / "runs" / f"{start}{part}-seed{seed}" / "report.json").read_text()
                )
                for seed in (1, 2)
            ]
            scores = [report["dev"]["accuracy"] for report in values]
            assert point["rows"][label]["scores"]["accuracy"]["mean"] == pytest.approx(
                np.mean(scores)
            )
    assert re.search(r"^\| 5 % +\| +3 \| +2 \|", (whole / "table.md").read_text(), re.M)


def test_the_weights_of_the_layers_are_means_over_the_seeds(whole: Path) -> None:
    results = results_of(whole)
    runs = {run["name"]: run for run in results["runs"]}
    lines = {(line["condition"], line["mix"]): line for line in results["weights"]}
    assert len(lines) == 9  # eight conditions with ELMo, one of them with two mixes
    for (condition, mix), line in lines.items():
        mixes = [runs[f"{condition}-seed{seed}"]["mixes"][mix] for seed in (1, 2)]
        expected = np.mean([m["weights"] for m in mixes], axis=0)
        np.testing.assert_allclose([share["mean"] for share in line["weights"]], expected)
        assert line["scale"]["mean"] == pytest.approx(np.mean([m["scale"] for m in mixes]))


def test_a_second_call_trains_nothing_and_says_the_same(
    given: dict[str, Any], whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = sorted(whole.glob("runs/*/model.safetensors"))
    before = [file.stat().st_mtime_ns for file in weights]
    text, results = ((whole / name).read_text() for name in ("table.md", "results.json"))
    vary = {"vary": ["layers", "placement"], "seeds": [1, 2], "sample_efficiency": [5, 20, 100]}
    without_cache = {**given, "cache": str(whole / "none"), "out": str(whole), **vary}
    assert main(["compare", *as_arguments(without_cache)]) == 0
    assert len(before) == 26
    assert [file.stat().st_mtime_ns for file in weights] == before
    assert capsys.readouterr().out == text == (whole / "table.md").read_text()
    assert results == (whole / "results.json").read_text()
    with closing(sqlite3.connect(whole / "none" / FILE)) as database:
        stored = database.execute("SELECT count(*) FROM records").fetchone()
    assert stored == (0,)  # nor is ELMo asked for anything


def test_only_the_model_and_its_report_are_kept(whole: Path) -> None:
    kept = {file.name for file in (whole / "runs" / "baseline-seed1").iterdir()}
    assert kept == {
        "config.json", "elmokit-run.json", "model.safetensors", "report.json", "words.json",
    }  # fmt: skip
    assert {"results.json", "runs", "table.md"} <= {file.name for file in whole.iterdir()}
    (result,) = load_task(whole / "runs" / "elmo-both-all-l2-0.001-seed2").predict_texts(["a film"])
    assert result["label"] in ("good", "poor")


def test_the_recorded_command_trains_the_same_model(whole: Path, tmp_path: Path) -> None:
    run = next(
        r for r in results_of(whole)["runs"] if r["name"] == "elmo-input-all-l2-0.001-part20-seed2"
    )
    assert run["command"].endswith(
        "--train-fraction 0.2 --elmo-dropout 0.1 --word-dim 4 --hidden 8 --dropout 0.0 --epochs 3 "
        "--batch-size 4 --lr 0.03 --seed 2"
    )
    words = shlex.split(run["command"].replace(str(whole / run["folder"]), str(tmp_path / "alone")))
    assert main([*words[1:], "--quiet"]) == 0
    one, other = (
        load_file(f / "model.safetensors") for f in (tmp_path / "alone", whole / run["folder"])
    )
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_every_option_of_a_recorded_command_is_understood(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"encoder": "mean", "tune_words": True, "placement": "both", "l2": 0.5}
    own = settings(**changes, dropout=0.25, patience=9, tokenizer="elmokit")
    tiny_elmo().save_pretrained(tmp_path / "a model")
    model = str(tmp_path / "a model")
    options = {"train": given["train"], "dev": given["dev"], "vectors": None, "skip_bad": True}
    options |= {
        "dev_fraction": 0.1,
        "device": "cpu",
        "elmo": model,
        "out": str(tmp_path / "a b"),
    }
    plan = Plan(
        find_task("classifier"), own, Data([], [], {}, ""), RunOptions(train="a", elmo=model)
    )
    comparison = Comparer(plan, tmp_path, {}, {}, [7], [30], options)
    seen: list[tuple[Plan, Path]] = []
    result = TrainResult(tmp_path, {"dev": {}, "mixes": {}, "note": ""})

    def run_plan(plan: Plan, folder: Path) -> TrainResult:
        seen.append((plan, folder))
        return result

    monkeypatch.setattr(Plan, "run", run_plan)
    for condition in make_tables(["elmo"], own, 2)["elmo"].values():
        run = Run(condition, 7, 30)
        assert main(shlex.split(comparison.train_command(run))[1:]) == 0
        trained, folder = seen.pop()
        assert trained.settings == replace(condition.settings, seed=7)
        assert trained.options.elmo == (model if condition.with_elmo else None)
        assert len(trained.data.train) == 18  # 30 percent of 60
        assert folder == tmp_path / "a b" / "runs" / run.name


def test_the_recorded_command_of_a_comparison_gives_the_same_table(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(results_of(whole)["command"])
    vary = ["--vary", "layers", "placement", "--seeds", "1", "2"]
    start = words.index("--vary")
    assert words[start : start + 6] == vary
    assert main([*words[1:], "--quiet"]) == 0
    assert capsys.readouterr().out == (whole / "table.md").read_text()


def test_options_are_recorded_as_the_command_line_takes_them() -> None:
    options = {"crf": False, "copy": True, "out": "a b", "percents": [0.5, 100.0], "vary": ["x"]}
    assert command_line("train", "tagger", options) == (
        "elmokit train tagger --no-crf --copy --out 'a b' --percents 0.5 100 --vary x"
    )


def test_more_seeds_are_added_to_existing_results(
    given: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = {**given, "out": str(out), "vary": ["elmo"], "epochs": 1, "quiet": False}
    assert main(["compare", *as_arguments({**options, "seeds": [3]})]) == 0
    said = capsys.readouterr()
    assert said.out == (out / "table.md").read_text()  # what the runs say goes elsewhere
    assert "elmokit: run 1 of 2: baseline-seed3\n" in said.err
    second = r"elmokit: run 2 of 2: elmo-input-all-l2-0.001-seed3, about \d\d:\d\d left\n"
    assert re.search(second, said.err)
    assert main(["compare", *as_arguments({**options, "seeds": [3, 4]})]) == 0
    assert re.findall(r"run (\d) of 4", capsys.readouterr().err) == ["3", "4"]
    assert [line["n"] for line in results_of(out)["tables"]["elmo"]] == [2, 2]


# ---------------------------------------------------------------------- stopped
def test_a_comparison_that_is_killed_again_and_again_ends_like_one_that_was_not(
    given: dict[str, Any], tmp_path: Path
) -> None:
    options = {**given, "vary": ["elmo"], "seeds": [1, 2], "epochs": 6, "patience": 6}
    arguments = ["compare", *as_arguments({**options, "out": str(tmp_path / "killed")})]
    codes = []
    for signum, at in ((signal.SIGKILL, 0), (signal.SIGTERM, 1), (signal.SIGKILL, 2)):
        process = Child(arguments)
        names = [f"{n}-seed{k}" for k in (1, 2) for n in ("baseline", "elmo-input-all-l2-0.001")]
        expected = tmp_path / "killed" / "runs" / names[at] / "training"
        while process.poll() is None and not list(expected.glob("step-*")):
            time.sleep(0.02)
        process.send_signal(signum)
        codes.append(process.finish()[0])
    assert codes == [-signal.SIGKILL, 128 + signal.SIGTERM, -signal.SIGKILL]
    assert not results_of(tmp_path / "killed")["complete"]
    assert "Not complete: " in (tmp_path / "killed" / "table.md").read_text()
    for name in ("killed", "calm"):
        assert compare(**options, out=str(tmp_path / name)).results is not None
    assert scores_of(tmp_path / "killed") == scores_of(tmp_path / "calm")
    one, other = (results_of(tmp_path / name)["tables"] for name in ("killed", "calm"))
    assert one == other
    for folder in (tmp_path / "calm" / "runs").iterdir():
        twin = tmp_path / "killed" / "runs" / folder.name / "model.safetensors"
        assert twin.read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_run_that_was_trained_differently_is_refused(
    given: dict[str, Any], tmp_path: Path
) -> None:
    data = write_reviews(tmp_path)
    options = {**given, **data, "out": str(tmp_path / "out"), "vary": ["elmo"], "seeds": [1]}
    options |= {"epochs": 1}
    compare(**options)
    for change, message in (
        ({"hidden": 5}, "baseline-seed1 was trained differently: hidden was 8 and is now 5; use"),
        ({"epochs": 2}, "epochs was 1 and is now 2"),
        (
            {"elmo": "english"},
            "elmo-input-all-l2-0.001-seed1 was trained differently: the biLM cha",
        ),
    ):
        with pytest.raises(ElmokitError, match=message):
            compare(**{**options, **change})
    Path(data["train"]).write_text(Path(data["train"]).read_text() + "good the film was odd\n")
    with pytest.raises(ElmokitError, match="the data changed"):
        compare(**options)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": 7},
        {"fingerprints": []},
        {"dev": {"accuracy": "high"}},
        {"dev": None},
        {"seconds": "long"},
        {"mixes": {"input": {"weights": 3, "scale": 1}}},
        {"best_epoch": ...},
    ],
    ids=str,
)
def test_a_damaged_report_is_a_sentence(
    given: dict[str, Any], whole: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    out = shutil.copytree(whole, tmp_path / "out")
    path = out / "runs" / "elmo-input-all-l2-0.001-seed1" / "report.json"
    report = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({name: v for name, v in report.items() if v is not ...}))
    with pytest.raises(ElmokitError, match=r"report\.json is damaged \(.*remove it to train"):
        compare(**{**given, "out": str(out), "vary": ["elmo"], "seeds": [1]})


def test_two_at_once_are_refused(given: dict[str, Any], whole: Path) -> None:
    options = {**given, "out": str(whole), "vary": ["elmo"], "seeds": [1]}
    with locked(whole), pytest.raises(ElmokitError, match="another process is writing"):
        compare(**options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vary": ["layer"]}, "vary must be one of layers, placement, elmo, not 'layer'"),
        ({"vary": []}, "at least one table to vary"),
        ({"seeds": []}, "at least one table to vary and one seed"),
        ({"seeds": [-1]}, "seeds must be whole numbers from 0, not -1"),
        ({"seed": 2}, "name them with seeds, not seed"),
        ({"sample_efficiency": [0, 100]}, "percentages above 0 and up to 100, not 0"),
        ({"sample_efficiency": [1, 200]}, "not 200"),
        ({"layers": "3"}, "there is no layer 3: choose from 0 to 2"),
        ({"beam": 3}, "this task has no option 'beam'"),
        ({"dev_fraction": 2.0}, "dev_fraction must be"),
    ],
    ids=str,
)
def test_wrong_options_give_a_message_and_leave_no_files(
    given: dict[str, Any], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ElmokitError, match=re.escape(message)):
        compare(**{**given, "out": str(tmp_path / "out"), **change})
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------- what runs share
def test_static_vectors_are_on_disk_once(given: dict[str, Any], tmp_path: Path) -> None:
    glove = tmp_path / "glove.txt"
    glove.write_text("".join(f"{w} 0.{n} 0.5\n" for n, w in enumerate("the film book bad".split())))
    out = tmp_path / "out"
    options = {**given, "out": str(out), "vary": ["elmo"], "seeds": [1], "epochs": 1}
    compare(**{**options, "word_dim": 0}, vectors=str(glove))
    glove.unlink()
    runs = sorted((out / "runs").iterdir())
    files = [sorted((run / "vectors").iterdir()) for run in runs]
    assert len(files) == 2
    assert [f.name for f in files[0]] == [f.name for f in files[1]]
    assert all(a.samefile(b) for a, b in zip(*files, strict=True))
    for run in runs:
        trained = load_task(run)
        assert trained.vectors is not None
        assert trained.vectors.words == ["the", "film", "book", "bad"]
    assert "static vectors: " in (out / "table.md").read_text()


def test_a_bilm_that_is_trained_too_starts_again_in_each_run(
    given: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = {**given, "tune_elmo": True, "epochs": 1, "elmo_lr": 0.01}
    compare(**options, out=str(out), vary=["elmo"], seeds=[1, 2])
    train(**options, out=str(tmp_path / "alone"), seed=2)
    one = load_file(tmp_path / "alone" / "model.safetensors")
    other = load_file(out / "runs" / "elmo-input-all-l2-0.001-seed2" / "model.safetensors")
    assert any(name.startswith("inputs.elmo.bilm.") for name in one)
    assert all(np.array_equal(value, other[name]) for name, value in one.items())


# ---------------------------------------------------------------------- figures
def test_the_figure_shows_every_row_with_its_mean_and_spread(whole: Path) -> None:
    pytest.importorskip("matplotlib")
    results = results_of(whole)
    panels = draw_rows(results).axes
    assert [axes.get_title(loc="left") or axes.get_title() for axes in panels] == [
        "Layers: classifier",
        "Placement: classifier",
    ]
    assert panels[-1].get_xlabel() == "dev accuracy, percent"
    for axes, (name, rows) in zip(panels, ROWS.items(), strict=True):
        assert [label.get_text() for label in axes.get_yticklabels()] == list(rows)
        assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first row is on top
        assert len(axes.containers) == len(rows)
        for row, (bar, line) in enumerate(
            zip(axes.containers, results["tables"][name], strict=True)
        ):
            score = line["scores"]["accuracy"]
            point, _, (whisker,) = bar.lines
            assert point.get_xydata()[0] == pytest.approx([100 * score["mean"], row])
            ends = whisker.get_segments()[0][:, 0]
            assert np.ptp(ends) == pytest.approx(200 * score["spread"])


def test_the_curve_has_a_line_and_a_band_for_each_side(whole: Path) -> None:
    pytest.importorskip("matplotlib")
    results = results_of(whole)
    (axes,) = draw_curve(results).axes
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5", "20", "100"]
    assert axes.get_xlabel() == "training data, percent"
    assert axes.get_ylabel() == "dev accuracy, percent"
    lines = {line.get_label(): line for line in axes.lines}
    assert set(lines) == {"with ELMo", "without ELMo"}
    assert {text.get_text() for text in axes.get_legend().get_texts()} == set(lines)
    assert len(axes.collections) == 2
    for label, line in lines.items():
        means = [
            100 * point["rows"][label]["scores"]["accuracy"]["mean"]
            for point in results["sample_efficiency"]
        ]
        np.testing.assert_allclose(line.get_xydata(), list(zip([5, 20, 100], means, strict=True)))
    assert draw_curve({**results, "sample_efficiency": []}) is None


def test_the_weights_are_bars_for_each_placement_and_learned_mix(whole: Path) -> None:
    pytest.importorskip("matplotlib")
    results = results_of(whole)
    figure = draw_weights(results)
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes]
    assert titles == ["mix at the input", "mix at the output"]
    named = [[t.get_text() for t in axes.get_xticklabels()] for axes in figure.axes]
    assert named == [
        ["input\nλ = 1", "input\nλ = 0.001", "both\nλ = 0.001"],
        ["output\nλ = 0.001", "both\nλ = 0.001"],
    ]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["layer 0", "layer 1", "layer 2"]
    runs = {run["name"]: run for run in results["runs"]}
    for position, axes, conditions in (
        ("input", figure.axes[0], ("input-all-l2-1", "input-all-l2-0.001", "both-all-l2-0.001")),
        ("output", figure.axes[1], ("output-all-l2-0.001", "both-all-l2-0.001")),
    ):
        heights = np.reshape([bar.get_height() for bar in axes.patches], (3, len(conditions)))
        for column, condition in enumerate(conditions):
            shares = [
                runs[f"elmo-{condition}-seed{seed}"]["mixes"][position]["weights"]
                for seed in (1, 2)
            ]
            np.testing.assert_allclose(heights[:, column], np.mean(shares, axis=0))
            assert math.isclose(heights[:, column].sum(), 1, abs_tol=1e-3)


def test_all_figures_are_written_for_screen_and_print(whole: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("figure", "sample_efficiency", "weights"):
        assert (whole / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (whole / f"{name}.svg").read_text()


def test_without_matplotlib_there_are_tables_and_a_message(
    given: dict[str, Any],
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not draw_all(results_of(whole), tmp_path)
    assert list(tmp_path.iterdir()) == []
    out = shutil.copytree(whole, tmp_path / "out")
    options = {**given, "out": str(out), "vary": ["elmo"], "seeds": [1, 2], "quiet": False}
    assert main(["compare", *as_arguments(options)]) == 0
    assert "no figures without matplotlib: pip install 'elmokit[plots]'" in capsys.readouterr().err
