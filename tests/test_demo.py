"""The demo: what it computes and how it prints it. How good the model is, is not tested here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from elmokit import BiLM, BiLMConfig, Embedder
from elmokit.analysis.geometry import cosine_matrix, purity
from elmokit.analysis.uses import embed_uses, read_uses

DEMO = Path(__file__).parent.parent / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random_model(seed: int = 0) -> Embedder:
    torch.manual_seed(seed)
    config = BiLMConfig(filters=((1, 8), (2, 8), (3, 16)), lstm_dim=48, projection_dim=24)
    return Embedder(BiLM(config).eval())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("demo") / "model"
    random_model().save_pretrained(folder)
    return str(folder)


def test_the_senses_of_the_examples_are_balanced() -> None:
    uses = list(read_uses(DEMO.parent / "senses.tsv"))
    assert len({use.tokens for use in uses}) == len(uses)
    counts = Counter((use.lemma, use.sense) for use in uses)
    for lemma in {use.lemma for use in uses}:
        assert len({n for (own, _), n in counts.items() if own == lemma}) == 1
        assert sum(own == lemma for own, _ in counts) == 2


def test_a_layer_that_cannot_tell_gets_what_guessing_gets() -> None:
    senses = ["a"] * 4 + ["b"] * 4
    cosines = np.ones((1, 8, 8), np.float32)
    assert purity(cosines, senses) == pytest.approx([3 / 7])


def test_random_weights_hardly_find_the_senses() -> None:
    """What a trained model finds beyond that, it knows; neighbours such as "to play" tell a bit."""
    uses = list(read_uses(DEMO.parent / "senses.tsv"))
    purities = []
    for seed in range(4):
        vectors, mean = embed_uses(random_model(seed), uses)
        for lemma in {use.lemma for use in uses}:
            mine = [i for i, use in enumerate(uses) if use.lemma == lemma]
            senses = [uses[i].sense for i in mine]
            purities.append(purity(cosine_matrix((vectors - mean)[:, mine]), senses))
    assert np.mean(purities, axis=0).max() < 0.68


@pytest.mark.parametrize("name", ["senses.tsv", "senses.zh.tsv"])
def test_the_tables_name_every_layer_and_every_word(
    demo: ModuleType, model: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    demo.main(["--model", model, "--uses", str(DEMO.parent / name)])
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in out  # no colors where there is no terminal
    assert any(line.split() == "layer 0 layer 1 layer 2 average".split() for line in lines)
    uses = list(read_uses(DEMO.parent / name))
    for lemma in {use.lemma for use in uses}:
        (row,) = [line for line in lines if line.startswith(f"  {lemma} ") and "%" in line]
        own = [use for use in uses if use.lemma == lemma]
        if len({use.word for use in own}) == 1:  # Layer 0 then has one vector for all uses.
            guess = (len(own) / 2 - 1) / (len(own) - 1)
            assert f"{guess:.0%}" in row
    verdicts = [line for line in lines if line.startswith(("  right ", "  wrong "))]
    assert len(verdicts) == len({(use.lemma, use.sense) for use in uses})


def test_the_nearest_use_is_shown_below_each(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    lines = ["a bank b\t1\triver", "a bank b\t1\triver", "x bank y\t1\tmoney", "c bank\t1\tmoney"]
    (tmp_path / "uses.tsv").write_text("\n".join(lines))
    demo.main(["--model", model, "--uses", str(tmp_path / "uses.tsv")])
    out = capsys.readouterr().out
    assert "  right 1.00  river       a [bank] b\n" in out
    assert "  bank    river, money" in out


def test_the_chinese_words_stand_below_each_other(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    lines = ["这 苹果 很 甜\t1\t水果\t苹果", "她 买 花\t2\t植物\t花", "他 花 钱\t1\t用掉\t花"]
    (tmp_path / "uses.tsv").write_text("\n".join([*lines, lines[0]]))
    demo.main(["--chinese", "--model", model, "--uses", str(tmp_path / "uses.tsv")])
    out = capsys.readouterr().out
    assert "  苹果    水果" in out
    assert "  花      植物, 用掉" in out
    assert "  对 1.00" in out


def test_there_are_colors_on_a_terminal_unless_the_user_refuses_them(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert demo.paint("right", "right") == "right"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert demo.paint("right", "right") == "\x1b[32mright\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert demo.paint("right", "right") == "right"


def test_what_is_wrong_is_one_sentence(demo: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^demo.py: error: there is no file or folder .*nothing"):
        demo.main(["--model", str(tmp_path / "nothing")])
    with pytest.raises(SystemExit, match=r"^demo.py: error: there is no file .*none"):
        demo.main(["--uses", str(tmp_path / "none")])


def test_the_included_model_is_shown() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("english: ")
