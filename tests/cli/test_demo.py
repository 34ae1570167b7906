"""The demo: what it computes and how it prints it. How good the model is, is not tested here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit import BiLM, BiLMConfig, Embedder
from elmokit.analysis.geometry import cosine_matrix, purity
from elmokit.cli import demo as demonstration
from elmokit.cli.main import COMMANDS


def random_model(seed: int = 0) -> Embedder:
    torch.manual_seed(seed)
    config = BiLMConfig(filters=((1, 8), (2, 8), (3, 16)), lstm_dim=48, projection_dim=24)
    return Embedder(BiLM(config).eval())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("demo") / "model"
    random_model().save_pretrained(folder)
    return str(folder)


def test_every_word_occurs_once_in_each_of_its_sentences() -> None:
    uses = demonstration.find_uses()
    distinct = {use for of_word in uses.values() for use in of_word}
    senses = Counter((use.lemma, use.sense) for use in distinct)
    assert list(senses.values()) == [4] * 6
    for word, of_word in uses.items():
        assert len(of_word) == 8
        for use in of_word:
            assert use.tokens.count(word) == 1
            assert use.word == word
            # The model's own tokenizer splits the sentence in the same way.
            assert tuple(random_model().tokenize(" ".join(use.tokens))) == use.tokens


def test_a_word_has_one_vector_in_layer_0_and_others_above() -> None:
    elmo = random_model()
    uses = demonstration.find_uses()
    for vectors in demonstration.use_vectors(elmo, uses).values():
        assert vectors.shape == (4, 8, 48)  # layers 0, 1, 2 and the average
        assert np.ptp(vectors[0], axis=0).max() == 0
        assert (np.ptp(vectors[1:], axis=1).max(axis=1) > 1e-3).all()


def test_the_tables_are_those_of_a_plain_count() -> None:
    senses = ["a", "a", "b", "b"]
    vectors = np.array([[[1, 0], [0.8, 0.6], [0, 1], [0.6, 0.8]]], np.float32)
    cosines = cosine_matrix(vectors)
    within, across = demonstration.within_and_across(cosines, senses)
    assert within == pytest.approx([(0.8 + 0.8) / 2])
    assert across == pytest.approx([(0.0 + 0.6 + 0.6 + 0.96) / 4])
    # the nearest: 0 -> 1 (right), 1 -> 3 (wrong), 2 -> 3 (right), 3 -> 1 (wrong)
    assert purity(cosines, senses) == pytest.approx([0.5])


def test_a_layer_that_cannot_tell_gets_what_guessing_gets() -> None:
    senses = ["a"] * 4 + ["b"] * 4
    cosines = np.ones((1, 8, 8), np.float32)
    assert purity(cosines, senses) == pytest.approx([3 / 7])


def test_random_weights_do_not_find_the_senses() -> None:
    """The sentences are balanced: what a trained model finds, it knows."""
    purities = []
    for seed in range(6):
        elmo = random_model(seed)
        uses = demonstration.find_uses()
        for word, vectors in demonstration.use_vectors(elmo, uses).items():
            senses = [use.sense for use in uses[word]]
            purities.append(purity(cosine_matrix(vectors), senses))
    assert np.abs(np.mean(purities, axis=0) - 3 / 7).max() < 0.1


def test_the_printed_tables_name_every_layer_and_every_use(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demonstration.main([model]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in out  # no colors where there is no terminal
    header = ["layer", "0", "layer", "1", "layer", "2", "average"]
    assert sum(line.split() == header for line in lines) == 4  # each word, and the summary
    for word, of_word in demonstration.find_uses().items():
        assert any(line.startswith(f"{word}: ") for line in lines)
        assert all(use.marked() in out for use in of_word)
    neighbours = [line for line in lines if line.startswith(("  right ", "  wrong "))]
    assert len(neighbours) == 24
    within = [line.split() for line in lines if line.startswith("  within a sense")]
    assert [row[3] for row in within] == ["1.00"] * 3  # layer 0


def test_the_share_of_right_neighbours_is_the_number_of_right_lines(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    demonstration.main([model])
    lines = capsys.readouterr().out.splitlines()
    right = sum(line.startswith("  right ") for line in lines)
    summary = next(line.split() for line in lines if line.startswith("  all "))
    assert summary[3] == f"{right / 24:.0%}"  # layer 2, which the lines are of


def test_the_next_steps_are_commands_that_exist(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    demonstration.main([model])
    steps = capsys.readouterr().out.partition("\nNext\n")[2].splitlines()
    assert len(steps) == 3
    for step in steps:
        program, *rest = step.split()
        if program == "elmokit":
            assert rest[0] in COMMANDS
        else:
            assert [program, *rest[:2]] == ["python", "-m", "elmokit.cli.demo"]


def test_there_are_colors_on_a_terminal_unless_the_user_refuses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert demonstration.paint("right", "right") == "right"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert demonstration.paint("right", "right") == "\x1b[32mright\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert demonstration.paint("right", "right") == "right"


def test_the_figure_has_a_panel_for_each_word(model: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "senses.png"
    assert demonstration.main([model, "--figure", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_is_wrong_is_one_sentence(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demonstration.main([str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.startswith("elmokit: error: there is no file or folder ")
    pytest.importorskip("matplotlib")
    assert demonstration.main([model, "--figure", str(tmp_path / "no" / "x.png")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("elmokit: error: there is no folder ")
    assert err.count("\n") == 1


def test_python_m_elmokit_demo_shows_the_model_that_ships() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elmokit.cli.demo"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},  # any terminal can show it
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("shipped: ")
