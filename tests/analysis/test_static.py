"""Static vectors out of contextual ones: the means of a plain loop, whatever stops the run."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import complaint, tiny_elmo

import elmokit.embed
from elmokit.analysis import Corpus, static
from elmokit.analysis.static import StaticResult, average_uses
from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.io import resumable
from elmokit.vectors.static.table import read_static_vectors

SENTENCES = [
    "The bank of the river was steep .",
    "the Bank opens late",
    "a bank , a river , the river",
    "",
    "naïve 银行 the bank",
] * 3


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    return tiny_elmo(batch_tokens=4)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 10)  # a few sentences
    return open_corpus(tmp_path)


def open_corpus(folder: Path, sentences: list[str] = SENTENCES, **options: Any) -> Corpus:
    path = folder / "corpus.txt"
    path.write_text("\n".join(sentences), encoding="utf-8")
    return Corpus(path, **{"tokenizer": "whitespace", "case_sensitive": True, **options})


def means(
    elmo: Embedder, layer: int, fold: Callable[[str], str] = str
) -> dict[str, tuple[int, np.ndarray]]:
    """Count and mean of the vectors of each word, sentence by sentence."""
    uses: dict[str, list[np.ndarray]] = defaultdict(list)
    for sentence in SENTENCES:
        for token, vector in zip(
            sentence.split(), elmo.embed([sentence.split()])[0].layers[layer], strict=True
        ):
            uses[fold(token)].append(vector)
    return {word: (len(own), np.mean(own, axis=0)) for word, own in uses.items()}


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("lowercase", [False, True])
def test_the_vector_of_a_word_is_the_mean_of_its_uses(
    elmo: Embedder, corpus: Corpus, tmp_path: Path, layer: int, lowercase: bool
) -> None:
    corpus = open_corpus(tmp_path, case_sensitive=not lowercase)
    out = tmp_path / "vectors.txt"
    result = average_uses(elmo, corpus, out, layer=str(layer), min_count=4)
    expected = means(elmo, layer, str.lower if lowercase else str)
    words = [word for word, (count, _) in expected.items() if count >= 4]
    vectors = read_static_vectors(out)
    assert vectors.words == sorted(words, key=lambda word: (-expected[word][0], word))
    dim = elmo.dim // 2 if layer == 0 else elmo.dim
    assert result == StaticResult(out, len(words), dim, sum(expected[word][0] for word in words))
    for word, vector in zip(vectors.words, vectors.vectors, strict=True):
        np.testing.assert_allclose(vector, expected[word][1][:dim], rtol=0, atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "vectors.txt"]


def test_words_can_be_named_and_limited(elmo: Embedder, corpus: Corpus, tmp_path: Path) -> None:
    average_uses(elmo, corpus, tmp_path / "few.txt", max_words=2)
    assert read_static_vectors(tmp_path / "few.txt").words == ["the", "bank"]
    named = ["river", "opens", "never", "bank"]
    out = tmp_path / "named.bin"
    result = average_uses(elmo, corpus, out, vocabulary=named, min_count=3, layer="average")
    vectors = read_static_vectors(out)
    assert vectors.words == ["bank", "river", "opens"]
    assert result.uses == 9 + 9 + 3
    average = sum(means(elmo, layer)["river"][1] for layer in range(3)) / 3
    np.testing.assert_allclose(vectors.vectors[1], average, rtol=0, atol=1e-6)


def test_words_that_a_file_cannot_hold_are_left_out(elmo: Embedder, tmp_path: Path) -> None:
    tokens = ["two words", "no\u00a0break", "\ud800", "", "x" * 5000, "tab\t", "fine", "\ufeff"]
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"text": tokens}))
    average_uses(elmo, Corpus(path), tmp_path / "vectors.bin", min_count=1)
    assert sorted(read_static_vectors(tmp_path / "vectors.bin").words) == ["fine", "\ufeff"]


@pytest.mark.parametrize("name", ["v.txt", "v.bin", "v.txt.gz", "v.bin.gz", "v.vec"])
def test_gensim_and_our_reader_read_the_same(
    elmo: Embedder, corpus: Corpus, tmp_path: Path, name: str
) -> None:
    models = pytest.importorskip("gensim.models", reason="gensim is not installed")
    average_uses(elmo, corpus, tmp_path / name, min_count=1)
    ours = read_static_vectors(tmp_path / name)
    path, binary = str(tmp_path / name), ".bin" in name
    theirs = models.KeyedVectors.load_word2vec_format(path, binary=binary)
    assert theirs.index_to_key == ours.words
    assert np.array_equal(theirs.vectors, ours.vectors)
    for word in ("bank", "银行"):
        near = ours.most_similar(word, 4)
        expected = theirs.most_similar(word, topn=4)
        assert [other for other, _ in near] == [other for other, _ in expected]
        np.testing.assert_allclose([s for _, s in near], [s for _, s in expected], atol=1e-5)
    average_uses(elmo, corpus, tmp_path / f"again-{name}", min_count=1)
    assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes()


class Killed(BaseException):
    """Stands for a kill: nothing is cleaned up."""


def test_a_run_killed_at_any_step_resumes_to_the_same_bytes(
    elmo: Embedder, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static, "SAVE_SECONDS", 0.0)
    average_uses(elmo, corpus, tmp_path / "whole.txt", min_count=1)
    for step in range(1, 100):
        out, left = tmp_path / f"{step}.txt", iter(range(1, step))

        def sync(_: int, left: Any = left) -> None:
            if next(left, None) is None:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", sync)
            patch.setattr(static.UseSums, "__exit__", lambda *_: None)
            try:
                average_uses(elmo, corpus, out, min_count=1)
                break
            except Killed:
                pass
        elmo.clear_cache()
        average_uses(elmo, corpus, out, min_count=1, resume=True)
        assert out.read_bytes() == (tmp_path / "whole.txt").read_bytes(), step
        assert not out.with_name(f"{step}.txt.parts").exists()
    assert 10 < step < 99


def stop(elmo: Embedder, corpus: Corpus, out: Path) -> None:
    """Start a run that ends after its second save."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static, "SAVE_SECONDS", 0.0)
        save, calls = static.UseSums.save, iter(range(2))

        def stopped(sums: static.UseSums) -> None:
            if next(calls, None) is None:
                raise KeyboardInterrupt
            save(sums)

        patch.setattr(static.UseSums, "save", stopped)
        with pytest.raises(KeyboardInterrupt):
            average_uses(elmo, corpus, out, min_count=1)


def test_a_run_resumes_only_with_the_same_settings_and_corpus(
    elmo: Embedder, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable, "IDENTITY_BYTES", 4)
    out = tmp_path / "vectors.txt"
    stop(elmo, corpus, out)
    for change in ({"layer": "2"}, {"min_count": 2}, {"vocabulary": ["bank"]}, {"max_words": 9}):
        options: dict[str, Any] = {"min_count": 1, "resume": True, **change}
        assert f"({next(iter(change))} was " in complaint(
            lambda options=options: average_uses(elmo, corpus, out, **options)  # type: ignore[misc]
        )
    assert "holds an unfinished run" in complaint(lambda: average_uses(elmo, corpus, out))
    length = len("\n".join(SENTENCES).encode())
    changes = {
        "at the start": [SENTENCES[0].replace("steep", "deep!"), *SENTENCES[1:]],
        "at the end": [*SENTENCES[:-1], SENTENCES[-1].replace("bank", "bunk")],
        "nearly all": [SENTENCES[0].ljust(length)],
    }
    for where, sentences in changes.items():
        other = open_corpus(tmp_path, sentences)
        said = complaint(lambda c=other: average_uses(elmo, c, out, min_count=1, resume=True))  # type: ignore[misc]
        assert "is not the input that the unfinished run" in said, where
    (tmp_path / "vectors.txt.parts" / "state.npz").write_bytes(b"PK\3\4broken")
    said = complaint(lambda: average_uses(elmo, corpus, out, min_count=1, resume=True))
    assert "vectors.txt.parts is damaged" in said
    average_uses(elmo, open_corpus(tmp_path), out, min_count=1, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "vectors.txt"]


def test_a_folder_of_someone_else_is_kept(elmo: Embedder, corpus: Corpus, tmp_path: Path) -> None:
    """Its names are ours, what it holds is not."""
    out = tmp_path / "vectors.txt"
    state = tmp_path / "vectors.txt.parts" / "state.npz"
    state.parent.mkdir()
    np.savez(state, weights=np.ones(3))
    before = state.read_bytes()
    said = complaint(lambda: average_uses(elmo, corpus, out, min_count=1, overwrite=True))
    assert said == f"{state.parent} is not an unfinished run, so it is kept"
    assert state.read_bytes() == before
    assert not out.exists()


def test_bad_requests_are_refused_and_leave_nothing(
    elmo: Embedder, corpus: Corpus, tmp_path: Path
) -> None:
    for options, sentence in (
        ({"min_count": 99}, "no word occurs 99 times in .*: lower --min-count"),
        ({"vocabulary": ["never"]}, "none of the words occurs 5 times"),
        ({"layer": "all"}, "layer must name one layer"),
        ({"layer": "7"}, "there is no layer 7"),
        ({"max_words": 0}, "max_words"),
    ):
        with pytest.raises(ElmokitError, match=sentence):
            average_uses(elmo, corpus, tmp_path / "vectors.txt", **options)
    with pytest.raises(ElmokitError, match=r"written as they are or as \.gz, not \.xz"):
        average_uses(elmo, corpus, tmp_path / "vectors.txt.xz")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


def test_most_similar_names_a_word_that_is_missing(
    elmo: Embedder, corpus: Corpus, tmp_path: Path
) -> None:
    average_uses(elmo, corpus, tmp_path / "v.txt")
    vectors = read_static_vectors(tmp_path / "v.txt")
    assert "has no vector of 'never'" in complaint(lambda: vectors.most_similar("never"))
    assert len(vectors.most_similar("bank", 999)) == len(vectors) - 1
