"""An index of uses: what its files hold, the exact search, and resuming after an interruption."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from children import Child
from tiny import complaint, tiny_elmo

import elmokit.embed
from elmokit.analysis.neighbours import indexing
from elmokit.analysis.neighbours.index import Index, VectorFile, exact_search, open_index
from elmokit.analysis.neighbours.indexing import IndexWriter, index_uses
from elmokit.analysis.neighbours.nearest import find_neighbours
from elmokit.analysis.uses import marked_use
from elmokit.embed import Embedder
from elmokit.io.jsonfile import write_json

TEXT = [
    "the river bank was steep",
    "",
    "she owes the bank money",
    "The Bank of England lends money to a bank",
    "她 坐 在 河 边 的 长椅 上",
    "a word with \ud800 half a character and \u2028 a strange line end",
    "no",
    "they walked along the bank of the river until it was dark",
    "she owes the bank money",
]
SENTENCES = [line.split(" ") if line else [] for line in TEXT]


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    return tiny_elmo(batch_tokens=4)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of some 16 tokens, where a real model has thousands."""
    monkeypatch.setattr(elmokit.embed, "WINDOW_BYTES", 1 << 10)


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(one, axis=1)[:, None] * np.linalg.norm(other, axis=1)
    return one @ other.T / lengths


# ---- what it holds


@pytest.mark.parametrize("layer", ["top", "average", 0, "1"])
def test_the_vectors_are_those_of_each_sentence_alone_without_the_mean_of_the_first_window(
    elmo: Embedder, tmp_path: Path, layer: str | int
) -> None:
    made = index_uses(elmo, SENTENCES, tmp_path / "index", layer=layer)
    alone = [elmo.embed([tokens])[0].layers for tokens in SENTENCES if tokens]
    chosen = {"top": 2, 0: 0, "1": 1}.get(layer)
    layers = [a.mean(axis=0) if chosen is None else a[chosen] for a in alone]
    mean = np.concatenate(layers[:2]).mean(axis=0)  # 5 and 5 tokens; the third would make 19
    expected = np.concatenate(layers) - mean
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(made.vectors[0 : len(made)]), expected, atol=1e-3)
    assert made.settings["layer"] == ("average" if chosen is None else chosen)


def test_uses_sentences_and_words_are_those_of_the_text(elmo: Embedder, tmp_path: Path) -> None:
    made = index_uses(elmo, SENTENCES, tmp_path / "index")
    full = [tuple(tokens) for tokens in SENTENCES if tokens]
    assert [made.sentence(i) for i in range(made.num_sentences)] == full
    assert made.words == list(dict.fromkeys(word for tokens in full for word in tokens))
    positions = [(s, p) for s, tokens in enumerate(full) for p in range(len(tokens))]
    assert [tuple(use[1:]) for use in made.uses.tolist()] == positions
    assert [made.words[use[0]] for use in made.uses.tolist()] == [full[s][p] for s, p in positions]


def test_the_static_vectors_are_those_of_layer_0(elmo: Embedder, tmp_path: Path) -> None:
    made = index_uses(elmo, SENTENCES, tmp_path / "index")
    alone = elmo.embed([[word] for word in made.words], layers=0)
    expected = np.concatenate([each.vectors for each in alone]) - made.means[0]
    static = np.array(made.static[0 : len(made.words)], np.float32)
    assert np.diag(cosines(static, expected)).min() > 1 - 1e-5


def test_only_the_uses_of_chosen_words_are_indexed(elmo: Embedder, tmp_path: Path) -> None:
    made = index_uses(elmo, SENTENCES, tmp_path / "index", words=["BANK", "河"])
    uses = [(made.words[w], " ".join(made.sentence(s))) for w, s, _ in made.uses.tolist()]
    assert uses == [
        (word, line) for line in TEXT for word in line.split() if word.lower() in ("bank", "河")
    ]
    assert "no" not in made.words  # its sentence has none of them


def test_a_word_is_found_in_capital_letters_too(elmo: Embedder, tmp_path: Path) -> None:
    made = index_uses(elmo, SENTENCES, tmp_path / "index")
    rows = np.flatnonzero(made.uses_of("Bank"))
    assert [
        made.words[made.uses[row, 0]] for row in rows
    ] == "bank bank Bank bank bank bank".split()


def test_a_query_with_another_model_raises(elmo: Embedder, tmp_path: Path) -> None:
    index = index_uses(elmo, SENTENCES, tmp_path / "index")
    use = marked_use("the *bank* .", str.split)
    assert len(find_neighbours(elmo, index, [use], k=2)[0].neighbours) == 2
    message = complaint(lambda: find_neighbours(tiny_elmo(seed=1), index, [use]))
    assert "was made with another model (unknown) than" in message


# ---- exact search

BLOCK = "elmokit.analysis.neighbours.index.BLOCK_BYTES"


@pytest.mark.parametrize("block", [1, 7, 64, 1000, 5000])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_search_finds_what_numpy_finds_with_any_block_size(
    block: int, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BLOCK, block * 4 * 12)
    rng = np.random.default_rng(block)
    vectors: np.ndarray = rng.standard_normal((1000, 12)).astype(dtype)
    queries = rng.standard_normal((5, 12)).astype(np.float32)
    scores, rows = exact_search(vectors, queries, 20)
    products = queries @ vectors.astype(np.float32).T
    order = np.argsort(-products, axis=1)[:, :20]
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_allclose(scores, np.take_along_axis(products, order, 1), rtol=1e-5)


@pytest.mark.parametrize("share", [0.003, 0.3, 0.99])
def test_only_the_kept_rows_are_searched(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BLOCK, 37 * 4 * 12)
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((1000, 12)).astype(np.float16)
    queries = rng.standard_normal((3, 12)).astype(np.float32)
    keep = rng.random(1000) < share
    _, rows = exact_search(vectors, queries, 20, keep=keep)
    products = np.where(keep, queries @ vectors.astype(np.float32).T, -np.inf)
    assert rows.shape == (3, min(20, keep.sum()))
    np.testing.assert_array_equal(rows, np.argsort(-products, axis=1)[:, : rows.shape[1]])


def test_a_file_is_searched_like_an_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    vectors = rng.standard_normal((300, 8)).astype("<f2")
    vectors.tofile(tmp_path / "v")
    file = VectorFile(tmp_path / "v", (300, 8))
    queries = vectors[:4].astype(np.float32)
    expected = exact_search(vectors, queries, 9)
    monkeypatch.setattr(BLOCK, 1000)
    for one, other in zip(exact_search(file, queries, 9), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(file[np.array([7, 3])], vectors[[7, 3]])


def test_a_search_without_vectors_finds_none() -> None:
    scores, rows = exact_search(np.zeros((5, 3), np.float32), np.ones((2, 3), np.float32), 4,
                                keep=np.zeros(5, bool))  # fmt: skip
    assert scores.shape == rows.shape == (2, 0)


# ---- resuming


class Killed(BaseException):
    """Stands for a kill: nothing is cleaned up."""


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let the run die at a step of writing; return a function that counts the steps so far."""
    steps = 0

    def dies(action: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object) -> object:
            nonlocal steps
            steps += 1
            if steps == step:
                raise Killed
            return action(*arguments)

        return wrapped

    monkeypatch.setattr(os, "fsync", dies(lambda descriptor: None))
    monkeypatch.setattr(indexing, "write_json", dies(write_json))
    monkeypatch.setattr(Path, "rename", dies(Path.rename))
    monkeypatch.setattr(IndexWriter, "__exit__", lambda *_: None)
    return lambda: steps


def test_a_run_that_is_killed_at_any_step_resumes_to_the_same_bytes(
    elmo: Embedder, tmp_path: Path
) -> None:
    index_uses(elmo, SENTENCES, tmp_path / "complete")
    whole = content_of(tmp_path / "complete")
    for step in range(1, 200):
        out = tmp_path / f"killed-{step}"
        with pytest.MonkeyPatch.context() as patch:
            steps = killed_at(step, patch)
            try:
                index_uses(elmo, SENTENCES, out)
                break
            except Killed:
                assert steps() == step
        elmo.clear_cache()
        if not out.exists():  # it does if only its name was not safe yet
            index_uses(elmo, SENTENCES, out, resume=True)
        assert content_of(out) == whole, step
    assert 20 < step < 199


KILLED = """
import sys, time, elmokit, elmokit.embed
from elmokit.analysis.neighbours import indexing

elmokit.embed.WINDOW_BYTES = 1 << 10
commit = indexing.IndexWriter._commit

def slow(self, added):
    commit(self, added)
    time.sleep(0.2)

indexing.IndexWriter._commit = slow
lines = [line.split() for line in open(sys.argv[2], encoding="utf-8")]
indexing.index_uses(elmokit.load(sys.argv[1], batch_tokens=4), lines, sys.argv[3])
"""


@pytest.mark.slow
def test_a_process_that_is_killed_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    tiny_elmo().save_pretrained(tmp_path / "model")
    lines = [line for line in TEXT if line and "\ud800" not in line] * 9
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    running = Child([str(tmp_path / name) for name in ("model", "text.txt", "index")], code=KILLED)
    about = tmp_path / "index.parts" / "index.json"
    while running.poll() is None:
        if about.is_file() and json.loads(about.read_bytes())["sizes"]["uses.u32"] > 0:
            break
        time.sleep(0.02)
    running.kill()
    assert running.finish() == (-signal.SIGKILL, "")
    assert not (tmp_path / "index").exists()
    elmo, sentences = tiny_elmo(batch_tokens=4), [line.split() for line in lines]
    index_uses(elmo, sentences, tmp_path / "index", resume=True)
    index_uses(elmo, sentences, tmp_path / "complete")
    assert content_of(tmp_path / "index") == content_of(tmp_path / "complete")


def interrupted(sentences: list[list[str]]) -> Iterator[list[str]]:
    yield from sentences
    raise KeyboardInterrupt


def test_a_run_resumes_only_with_the_same_text_and_layer(elmo: Embedder, tmp_path: Path) -> None:
    out = tmp_path / "index"
    with pytest.raises(KeyboardInterrupt):
        index_uses(elmo, interrupted(SENTENCES), out)
    assert "unfinished run" in complaint(lambda: index_uses(elmo, SENTENCES, out))
    other = [["another", "text"], *SENTENCES[1:]]
    assert "the corpus is not the input" in complaint(
        lambda: index_uses(elmo, other, out, resume=True)
    )
    assert "the corpus is not the input" in complaint(
        lambda: index_uses(elmo, SENTENCES[:1], out, resume=True)
    )
    assert "layer was 2 and is now 1" in complaint(
        lambda: index_uses(elmo, SENTENCES, out, layer=1, resume=True)
    )
    assert "is not finished" in complaint(lambda: open_index(out))
    index_uses(elmo, SENTENCES, out, resume=True)
    index_uses(elmo, SENTENCES, tmp_path / "complete")
    assert content_of(out) == content_of(tmp_path / "complete")


def test_a_run_that_fails_before_its_first_window_leaves_nothing(
    elmo: Embedder, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        index_uses(elmo, interrupted([]), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


# ---- errors


def test_nothing_is_written_through_a_link_in_an_unfinished_index(
    elmo: Embedder, tmp_path: Path
) -> None:
    out, parts, mine = tmp_path / "index", tmp_path / "index.parts", tmp_path / "mine"
    index_uses(elmo, SENTENCES, out)
    out.rename(parts)
    (parts / "vectors.f16").rename(mine)
    mine.write_bytes(mine.read_bytes() + b"years of work")
    before = mine.read_bytes()
    (parts / "vectors.f16").symlink_to(mine)
    said = complaint(lambda: index_uses(elmo, SENTENCES, out, resume=True))
    assert "vectors.f16 is a link" in said
    assert mine.read_bytes() == before


def test_only_an_index_is_overwritten_and_only_on_request(elmo: Embedder, tmp_path: Path) -> None:
    out = tmp_path / "index"
    index_uses(elmo, SENTENCES, out)
    assert "exists" in complaint(lambda: index_uses(elmo, SENTENCES, out))
    assert "nothing to resume" in complaint(lambda: index_uses(elmo, SENTENCES, out, resume=True))
    assert index_uses(elmo, SENTENCES[:1], out, overwrite=True).num_sentences == 1
    own = tmp_path / "own"
    own.mkdir()
    (own / "diary.txt").write_text("dear diary")
    said = complaint(lambda: index_uses(elmo, SENTENCES, own, overwrite=True))
    assert "other files are in it (diary.txt)" in said
    assert (own / "diary.txt").read_text() == "dear diary"
    (own / "diary.txt").rename(own / "index.json")
    said = complaint(lambda: index_uses(elmo, SENTENCES, own, overwrite=True))
    assert "is not an index" in said
    assert (own / "index.json").read_text() == "dear diary"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "own"]


def test_an_empty_index_is_an_error(elmo: Embedder, tmp_path: Path) -> None:
    out = tmp_path / "index"
    assert "no tokens" in complaint(lambda: index_uses(elmo, [[], []], out))
    assert "none of the words zebra" in complaint(
        lambda: index_uses(elmo, SENTENCES, out, words=["zebra"])
    )
    assert "layer must be 0 to 2" in complaint(lambda: index_uses(elmo, SENTENCES, out, layer=7))
    assert "not 'all'" in complaint(lambda: index_uses(elmo, SENTENCES, out, layer="all"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_an_index_or_is_damaged_raises(elmo: Embedder, tmp_path: Path) -> None:
    assert "no index at" in complaint(lambda: open_index(tmp_path / "nowhere"))
    out = tmp_path / "index"
    made = index_uses(elmo, SENTENCES, out)
    assert isinstance(made, Index)
    os.truncate(out / "uses.u32", 12)
    assert "damaged: uses.u32" in complaint(lambda: open_index(out))
    about = json.loads((out / "index.json").read_text())
    (out / "index.json").write_text(json.dumps({**about, "version": 99}))
    assert "version 99" in complaint(lambda: open_index(out))
    (out / "index.json").write_text("{}")
    assert "not the metadata of an index" in complaint(lambda: open_index(out))
