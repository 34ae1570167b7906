"""Building the explorer without a server: what is said if it cannot be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tiny import softmax_elmo, word_elmo

from elmokit.errors import ElmokitError
from elmokit.formats.checkpoint import Checkpoint
from elmokit.text import tokenize

pytest.importorskip("fastapi", reason="fastapi is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

import build_explorer
import javascript


def test_without_npm_one_sentence_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = {"dependencies": {"onnxruntime-web": "1.2.3"}}
    (tmp_path / "package.json").write_text(json.dumps(pinned))
    monkeypatch.setattr(build_explorer, "HERE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ElmokitError, match=r"needs onnxruntime-web 1\.2\.3 .* install Node\.js"):
        build_explorer.fetch_runtime()


def test_a_folder_that_exists_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "explorer").mkdir()
    with pytest.raises(ElmokitError, match="exists"):
        build_explorer.build(tmp_path / "explorer", ["english"])
    assert list((tmp_path / "explorer").iterdir()) == []


def test_a_model_on_word_ids_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ElmokitError, match="words does not read characters"):
        build_explorer.write_model(tmp_path, "words", word_elmo())


def test_the_policy_is_on_the_page_before_anything_is_loaded() -> None:
    page = build_explorer.adapt_page((build_explorer.STATIC / "index.html").read_text())
    policy = page.index('http-equiv="Content-Security-Policy"')
    assert policy < min(page.index("<link"), page.index("<script"))
    assert "unsafe-inline" not in page
    assert "'unsafe-eval'" not in page
    with pytest.raises(ElmokitError, match="must have"):
        build_explorer.adapt_page(page.replace('<div id="app">', "<div>"))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_graph_of_the_softmax_gives_the_losses_of_the_model(dtype: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    import numpy as np
    import torch

    elmo = softmax_elmo()
    assert elmo.model.softmax is not None
    tensors = {name: value.numpy() for name, value in elmo.model.state_dict().items()}
    graph = build_explorer.softmax_graph(Checkpoint(elmo.config, tensors), dtype)  # type: ignore[arg-type]
    states = np.random.default_rng(0).normal(size=(7, 12)).astype(np.float32)
    targets = np.arange(7)[:, None]
    session = runtime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    losses, logs = session.run(None, {"states": states, "targets": targets})
    with torch.no_grad():
        logits = elmo.model.softmax(torch.from_numpy(states))
        expected = torch.log_softmax(logits, dim=1).numpy()
    tolerance = 1e-5 if dtype == "float32" else 1e-2
    assert np.abs(logs - expected).max() < tolerance
    assert np.abs(losses + expected[np.arange(7), np.arange(7)]).max() < tolerance


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"[^\W\d_x]", r"(?:(?![\p{Nd}_x])[\p{L}\p{N}_])"),
        (r"(?i:a[b-d])e", "(?:[aA][B-Db-d])e"),
        (r"\S\.{2,}", r"[^" + javascript.SPACE + r"]\u{2e}{2,}"),
        (r"(?<!\w)x|(?=y)", r"(?:(?<![\p{L}\p{N}_])x|(?=y))"),
    ],
)
def test_patterns_of_python_become_patterns_of_javascript(pattern: str, expected: str) -> None:
    assert javascript.translate(pattern) == expected


@pytest.mark.parametrize("pattern", [r"^a", r"(a)\1", r"[\Wa]", r"(?a:\w)", r"a*?"])
def test_what_cannot_be_translated_is_an_error(pattern: str) -> None:
    with pytest.raises(ElmokitError, match="not translated"):
        javascript.translate(pattern)


def test_the_pattern_of_the_tokenizer_is_translated() -> None:
    translated = javascript.translate(tokenize._token_pattern(False).pattern)
    assert not re.search(r"\(\?i|\\[wWdD]", translated)
