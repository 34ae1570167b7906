"""Kept layers are the biLM's own, rounded to float16, whatever happens to the files."""

from __future__ import annotations

import copy
import pickle
import signal
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import Child
from tiny import WORDS, complaint, tiny_elmo, word_elmo

from elmokit.embed import Embedder
from elmokit.io import records
from elmokit.store import LayerStore
from elmokit.text.vocabulary import Vocabulary

TEXTS = [
    ["He", "sat", "on", "the", "river", "bank", "."],
    ["Why", "?"],
    [],
    ("The", "bank", "opens", "."),
    ["她", "喜欢", "naïve", "🙂"],
    ["Why", "?"],
    ["bro\ud800ken"],
]
DISTINCT = 5  # and not empty
TOKENS = 7 + 2 + 4 + 4 + 1
TOKEN_BYTES = 3 * 12 * 2  # layers, columns, bytes of a number


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    return tiny_elmo()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tests leave the user's cache alone."""
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "layers"


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts that an Embedder embeds from now on."""
    texts: list[list[str]] = []
    stream = Embedder.stream

    def heard(self: Embedder, sentences: Any, *args: Any, **settings: Any) -> Any:
        given = [list(sentence) for sentence in sentences]
        texts.extend(given)
        return stream(self, given, *args, **settings)

    monkeypatch.setattr(Embedder, "stream", heard)
    return texts


def check(store: LayerStore, elmo: Embedder, texts: Sequence[Sequence[str]] = TEXTS) -> None:
    """The store gives what the model itself gives, rounded, each text for itself."""
    result = store.layers(texts)
    assert result.hidden_states.dtype == torch.float32
    assert result.lengths.tolist() == [len(text) for text in texts]
    assert result.hidden_states.shape == (3, len(texts), max(map(len, texts)), elmo.dim)
    exact = result.hidden_states.half().float()
    assert torch.equal(result.hidden_states, exact)  # numbers that float16 has
    for index, text in enumerate(texts):
        alone = layers_of(elmo, text)
        here = result.hidden_states[:, index].numpy()
        np.testing.assert_allclose(here[:, : len(text)], alone, rtol=1e-3, atol=1e-4)
        assert not here[:, len(text) :].any()  # padded with zeros
    mask = (
        np.arange(result.hidden_states.shape[2]) < np.array([len(text) for text in texts])[:, None]
    )
    np.testing.assert_array_equal(result.mask.numpy(), mask)


def layers_of(elmo: Embedder, text: Sequence[str]) -> np.ndarray:
    """All layers of one text by the padded model, without the store's way of computing them."""
    return elmo.layers_of([text]).hidden_states[:, 0].numpy()


# ---------------------------------------------------------------------- keeping
def test_kept_layers_are_those_of_the_model(
    elmo: Embedder, tmp_path: Path, computed: list[list[str]]
) -> None:
    store = LayerStore(elmo, folder=tmp_path)
    assert store.prepare(TEXTS, quiet=True) == DISTINCT == len(store)
    assert sum(map(len, computed)) == TOKENS  # each once
    computed.clear()
    check(store, elmo)
    assert store.prepare(iter(TEXTS), quiet=True) == 0
    assert TEXTS[0] in store
    assert ["other"] not in store
    again = LayerStore(elmo, folder=tmp_path)  # the next run
    assert again.prepare(TEXTS, quiet=True) == 0
    check(again, elmo)
    assert computed == []  # nothing was computed a second time
    assert again.prepare([*TEXTS, ["new"]], quiet=True) == 1
    assert torch.equal(store.layers(TEXTS).hidden_states, again.layers(TEXTS).hidden_states)


def test_a_batch_is_in_the_order_asked_for_and_may_repeat_texts(
    elmo: Embedder, tmp_path: Path
) -> None:
    store = LayerStore(elmo, folder=tmp_path)
    store.prepare(TEXTS, quiet=True)
    whole = store.layers(TEXTS).hidden_states
    turned = store.layers(TEXTS[::-1]).hidden_states
    assert torch.equal(turned, whole.flip(1))
    assert torch.equal(store.layers([TEXTS[1]]).hidden_states[:, 0], whole[:, 1, :2])
    assert store.layers([]).hidden_states.shape == (3, 0, 0, 12)
    assert store.layers([[]]).hidden_states.shape == (3, 1, 0, 12)


def test_texts_that_are_not_kept_have_the_same_numbers(elmo: Embedder, tmp_path: Path) -> None:
    kept, empty = LayerStore(elmo, folder=tmp_path / "a"), LayerStore(elmo, folder=tmp_path / "b")
    kept.prepare(TEXTS, quiet=True)
    check(empty, elmo)
    same_numbers(kept.layers(TEXTS).hidden_states, empty.layers(TEXTS).hidden_states)
    assert len(empty) == 0  # asking does not keep


def same_numbers(one: torch.Tensor, other: torch.Tensor) -> None:
    """Equal but for what another batch may change in the last bit of float16."""
    np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2**-10, atol=1e-7)
    assert (one == other).float().mean() > 0.99


def test_texts_longer_than_the_models_window_are_kept_as_they_are_embedded(
    elmo: Embedder, tmp_path: Path
) -> None:
    long = [f"w{index % 50}" for index in range(1100)]
    store = LayerStore(elmo, folder=tmp_path)
    store.prepare([long], quiet=True)
    expected = elmo.embed_tokens(long, dtype="float16").layers.astype(np.float32)
    np.testing.assert_allclose(
        store.layers([long]).hidden_states[:, 0], expected, rtol=2**-10, atol=1e-7
    )


def test_where_a_token_ends_is_part_of_the_text(elmo: Embedder, tmp_path: Path) -> None:
    texts = [["ab", "c"], ["a", "bc"], ["abc"], ["a b", "c"], ["ab\n", "c"], ["ab", "\nc"]]
    store = LayerStore(elmo, folder=tmp_path)
    assert store.prepare(texts, quiet=True) == len(texts)
    check(store, elmo, texts)


def test_a_string_is_not_a_text(elmo: Embedder, tmp_path: Path) -> None:
    store = LayerStore(elmo, folder=tmp_path)
    message = "give a sentence as a list of tokens"
    assert message in complaint(lambda: store.prepare(["He sat down ."]))
    assert message in complaint(lambda: store.layers(["He sat down ."]))


# ---------------------------------------------------------------------- streaming
def test_a_stream_gives_each_text_its_layers_and_keeps_them(
    elmo: Embedder, tmp_path: Path, computed: list[list[str]]
) -> None:
    store = LayerStore(elmo, folder=tmp_path)
    result = list(store.stream(iter(TEXTS)))
    assert [layers.shape for layers in result] == [(3, len(text), 12) for text in TEXTS]
    for text, layers in zip(TEXTS, result, strict=True):
        assert layers.dtype == np.float16
        if text:
            np.testing.assert_allclose(layers, layers_of(elmo, text), rtol=1e-3, atol=1e-4)
    assert sum(map(len, computed)) == TOKENS  # each text once
    assert len(store) == DISTINCT
    computed.clear()
    again = list(LayerStore(elmo, folder=tmp_path).stream(TEXTS))
    assert computed == []
    assert all(map(np.array_equal, again, result))
    assert list(store.stream([])) == []


def test_a_stream_holds_only_some_texts_at_once(
    elmo: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmokit.store.STREAM_BYTES", 5 * TOKEN_BYTES)
    taken = 0

    def endless() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield [f"word{taken}"]  # counts as two tokens

    stream = LayerStore(elmo, folder=tmp_path).stream(endless())
    for index in range(1, 8):
        expected = layers_of(elmo, [f"word{index}"])
        np.testing.assert_allclose(next(stream), expected, rtol=1e-3, atol=1e-4)
        assert index <= taken < index + 3  # texts of 5 tokens are read ahead, no more


def test_a_stream_continues_where_nothing_can_be_stored(
    elmo: Embedder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    store = LayerStore(elmo, folder=tmp_path / "file" / "layers")
    result = list(store.stream(TEXTS))
    assert len(caplog.messages) == 1
    np.testing.assert_allclose(result[0], layers_of(elmo, TEXTS[0]), rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------------- which model
def test_another_model_has_another_key(elmo: Embedder, tmp_path: Path) -> None:
    LayerStore(elmo, folder=tmp_path).prepare(TEXTS, quiet=True)
    other = tiny_elmo(seed=1)
    store = LayerStore(other, folder=tmp_path)
    assert len(store) == 0
    store.prepare(TEXTS, quiet=True)
    check(store, other)
    assert len(LayerStore(tiny_elmo(precision="float16"), folder=tmp_path)) == 0
    assert len(LayerStore(tiny_elmo(), folder=tmp_path)) == DISTINCT  # the same weights again


def test_weights_that_change_under_way_are_noticed(tmp_path: Path) -> None:
    elmo = tiny_elmo()
    store = LayerStore(elmo, folder=tmp_path)
    store.prepare(TEXTS, quiet=True)
    before = store.layers(TEXTS).hidden_states
    with torch.no_grad():
        next(elmo.model.forward_layers.parameters()).mul_(1.5)
    check(store, elmo)
    assert not torch.equal(store.layers(TEXTS).hidden_states, before)
    assert store.prepare(TEXTS, quiet=True) == DISTINCT
    check(store, elmo)


def test_a_model_on_words_is_known_by_its_vocabulary_too(tmp_path: Path) -> None:
    elmo, text = word_elmo(), [["the", "river", "bank"]]
    LayerStore(elmo, folder=tmp_path).prepare(text, quiet=True)
    turned = Embedder(elmo.model, vocabulary=Vocabulary([*WORDS[:3], *WORDS[:2:-1]]))
    assert turned.fingerprint() == elmo.fingerprint()
    store = LayerStore(turned, folder=tmp_path)
    assert store.prepare(text, quiet=True) == 1
    check(store, turned, text)


# ---------------------------------------------------------------------- limits and trouble
def test_beyond_the_limit_texts_are_computed_to_the_same_numbers(
    elmo: Embedder, tmp_path: Path, computed: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    whole = LayerStore(elmo, folder=tmp_path / "whole")
    whole.prepare(TEXTS, quiet=True)
    LayerStore(elmo, folder=tmp_path / "part")
    limit = (
        size_of(tmp_path / "part") + 9 * TOKEN_BYTES + 2 * records.OVERHEAD_BYTES
    )  # the first two texts
    store = LayerStore(elmo, folder=tmp_path / "part", limit_bytes=limit)
    computed.clear()
    assert store.prepare(TEXTS, quiet=True) == 2
    assert computed == TEXTS[:2]  # nothing is computed in vain
    assert [text in store for text in TEXTS] == [True, True, False, False, False, True, False]
    assert caplog.messages == [
        f"the layers of 3 of 5 texts do not fit into {tmp_path / 'part'}, which may hold "
        f"{limit / 2**30:.2g} GB: they are computed each time"
    ]
    check(store, elmo)
    same_numbers(store.layers(TEXTS).hidden_states, whole.layers(TEXTS).hidden_states)
    assert size_of(tmp_path / "part") <= limit


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_models_used_long_ago_make_room(elmo: Embedder, tmp_path: Path) -> None:
    models = [elmo, tiny_elmo(seed=1), tiny_elmo(seed=2)]
    texts = [[f"word{i}"] * 100 for i in range(8)]  # 7 KB each
    for model in models[:2]:
        LayerStore(model, folder=tmp_path).prepare(texts, quiet=True)
    used, needed = size_of(tmp_path), 8 * (100 * TOKEN_BYTES + records.OVERHEAD_BYTES)
    limit = used + needed // 2  # Half of what the third needs.
    third = LayerStore(models[2], folder=tmp_path, limit_bytes=limit)
    assert third.prepare(texts, quiet=True) == 8
    kept = [LayerStore(model, folder=tmp_path, limit_bytes=limit) for model in models]
    assert [len(store) for store in kept] == [0, 8, 8]
    check(third, models[2], texts)
    assert third.prepare([["more"] * 900], quiet=True) == 1  # Its own texts are kept.
    assert [len(store) for store in kept] == [0, 0, 9]
    assert size_of(tmp_path) <= limit


def test_a_full_disk_is_reported_once_and_costs_only_time(
    elmo: Embedder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = LayerStore(elmo, folder=tmp_path)
    store.prepare(TEXTS[:2], quiet=True)

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(records.Records, "append", full)
    assert store.prepare(TEXTS, quiet=True) == 0
    assert store.prepare(TEXTS, quiet=True) == 0
    check(store, elmo)
    assert TEXTS[0] in store
    assert caplog.messages == [
        f"cannot store layers of the biLM in {tmp_path} (database or disk is full): they are "
        "computed each time"
    ]


def test_a_folder_that_cannot_be_made_costs_only_time(
    elmo: Embedder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").write_text("in the way")
    store = LayerStore(elmo, folder=tmp_path / "file" / "layers")
    assert store.prepare(TEXTS, quiet=True) == 0
    check(store, elmo)
    assert len(caplog.messages) == 1
    monkeypatch.setattr("elmokit.store.cache_folder", lambda kind: None)  # no home
    store = LayerStore(elmo)
    assert store.prepare(TEXTS, quiet=True) == 0
    check(store, elmo)
    assert len(caplog.messages) == 2
    assert "ELMOKIT_CACHE" in caplog.messages[1]


def test_read_only_files_are_read(
    elmo: Embedder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    LayerStore(elmo, folder=tmp_path).prepare(TEXTS[:2], quiet=True)
    connect = sqlite3.connect

    def read_only(path: Path, **settings: Any) -> sqlite3.Connection:
        return connect(f"file:{path}?mode=ro", uri=True, **settings)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    store = LayerStore(elmo, folder=tmp_path)
    assert store.prepare(TEXTS[:2], quiet=True) == 0
    assert caplog.messages == []  # all is there
    assert store.prepare(TEXTS, quiet=True) == 0
    check(store, elmo)
    assert len(caplog.messages) == 1
    assert "attempt to write a readonly database" in caplog.messages[0]


def test_the_users_cache_is_the_default_place(elmo: Embedder, own_cache: Path) -> None:
    LayerStore(elmo).prepare(TEXTS, quiet=True)
    (database,) = own_cache.iterdir()
    assert database.stat().st_size > TOKENS * TOKEN_BYTES


def test_progress_is_shown_in_tokens_unless_quiet(
    elmo: Embedder, tmp_path: Path, capsys: Any
) -> None:
    LayerStore(elmo, folder=tmp_path).prepare(TEXTS)
    shown = capsys.readouterr().err
    assert f"/{TOKENS}" in shown.replace(".0", "")
    assert "tokens/s" in shown
    LayerStore(elmo, folder=tmp_path).prepare(TEXTS)  # nothing to do, nothing to show
    LayerStore(elmo, folder=tmp_path).prepare([["new"]], quiet=True)
    assert capsys.readouterr().err == ""


def test_a_store_can_be_copied_with_the_model_that_holds_it(elmo: Embedder, tmp_path: Path) -> None:
    store = LayerStore(elmo, folder=tmp_path)
    store.prepare(TEXTS, quiet=True)
    for other in (copy.deepcopy(store), pickle.loads(pickle.dumps(store))):
        assert torch.equal(other.layers(TEXTS).hidden_states, store.layers(TEXTS).hidden_states)
        assert len(other) == DISTINCT


# ---------------------------------------------------------------------- other processes
# Prepares up to 60 texts, one write each; is killed before the chosen write, if any.
PREPARES = """
import os, signal, sys
from pathlib import Path
from elmokit.io import records
from elmokit import store
from tiny import tiny_elmo

whole, left = records.Records.append, int(sys.argv[2])

def append(self, content):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    whole(self, content)

records.Records.append, store.COMMIT_BYTES = append, 1
texts = [[f"word{number}"] * (1 + number % 7) for number in range(int(sys.argv[3]), 60)]
store.LayerStore(tiny_elmo(), folder=Path(sys.argv[1])).prepare(texts, quiet=True)
"""


def start(folder: Path, *, fatal_write: int = 0, first_text: int = 0) -> Child:
    return Child([str(folder), str(fatal_write), str(first_text)], code=PREPARES)


def numbered() -> list[list[str]]:
    return [[f"word{index}"] * (1 + index % 7) for index in range(60)]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("fatal", [1, 42])
def test_a_killed_run_is_resumed(fatal: int, elmo: Embedder, tmp_path: Path) -> None:
    assert start(tmp_path, fatal_write=fatal).finish() == (-signal.SIGKILL, "")
    store = LayerStore(elmo, folder=tmp_path)
    assert len(store) == fatal - 1  # all before the fatal one
    check(store, elmo, numbered())
    assert store.prepare(numbered(), quiet=True) == 60 - (fatal - 1)
    check(store, elmo, numbered())
    check(LayerStore(elmo, folder=tmp_path), elmo, numbered())


def test_two_processes_may_prepare_the_same_texts(elmo: Embedder, tmp_path: Path) -> None:
    both = [start(tmp_path), start(tmp_path, first_text=20)]
    assert [process.finish() for process in both] == [(0, "")] * 2
    store = LayerStore(elmo, folder=tmp_path)
    assert len(store) == 60
    check(store, elmo, numbered())
