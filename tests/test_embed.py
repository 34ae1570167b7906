"""Text in, vectors out: layers, poolings, streams, caches, and sentences for wrong arguments."""

from __future__ import annotations

import copy
import gc
import pickle
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Reference, make_reference
from tiny import complaint, difference, load_reference, tiny_elmo

import elmokit
from elmokit import embed as embed_module
from elmokit.embed import Embedder, Sentence
from elmokit.engine import make_batches
from elmokit.errors import ElmokitError
from elmokit.layers import POOLINGS, layer_weights, pool

TOKENS = ["the", "river", "bank", "."]
MANY = [["the", "river", "bank"], [], ["naïve"], ["a", "b"], ["the", "river", "bank"], ["中文"] * 9]


@pytest.fixture(scope="module")
def reference() -> Reference:
    return make_reference()


@pytest.fixture(scope="module")
def elmo(reference: Reference) -> Embedder:
    return load_reference(reference)


# ---------------------------------------------------------------------- layers
def test_layers_are_chosen_and_combined_as_by_hand(elmo: Embedder, reference: Reference) -> None:
    expected = reference.embed(TOKENS)
    weights = [0.5, -1.0, 2.0]
    by_hand: dict[Any, Any] = {
        "all": expected,
        "top": expected[2:],
        "average": expected.mean(axis=0, keepdims=True),
        0: expected[:1],
        1: expected[1:2],
        2: expected[2:],
        -1: expected[2:],
        -3: expected[:1],
        "1": expected[1:2],
        "-1": expected[2:],
        np.int64(1): expected[1:2],
        tuple(weights): np.einsum("l,ltd->td", weights, expected)[None],
        (0.0, 1.0, 0.0): expected[1:2],
        (0.0, 0.0, 0.0): np.zeros_like(expected[:1]),
    }
    by_array: Any = np.array(weights)
    for layers, expected_layers in [*by_hand.items(), (by_array, by_hand[tuple(weights)])]:
        result = elmo.embed_tokens(TOKENS, layers=layers)
        assert result.tokens == TOKENS
        assert result.layers.dtype == np.float32
        assert difference(result.layers, expected_layers) < 1e-5, layers


def test_a_sentence_of_one_layer_has_its_vectors(elmo: Embedder) -> None:
    everything = elmo.embed_tokens(TOKENS)
    top = elmo.embed_tokens(TOKENS, layers="top")
    np.testing.assert_array_equal(top.vectors, everything.layers[2])
    with pytest.raises(ElmokitError, match="this sentence has 3 layers: embed with one of them"):
        everything.vectors  # noqa: B018


def test_a_sentence_has_its_representations_by_name(elmo: Embedder) -> None:
    sentence = elmo.embed_tokens(TOKENS)
    np.testing.assert_array_equal(sentence.representation("token"), sentence.layers[0, :, :6])
    np.testing.assert_array_equal(sentence.representation("forward_2"), sentence.layers[2, :, :6])
    np.testing.assert_array_equal(sentence.representation("backward_1"), sentence.layers[1, :, 6:])
    with pytest.raises(ElmokitError, match="unknown representation 'forward_3'; choose from token"):
        sentence.representation("forward_3")


@pytest.mark.parametrize("layers", ["top", "average", 1])
def test_one_layer_or_a_mix_is_not_taken_for_the_token_layer(
    elmo: Embedder, layers: str | int
) -> None:
    with pytest.raises(ElmokitError, match="'token' needs all layers"):
        elmo.embed_tokens(TOKENS, layers=layers).representation("token")


WRONG_LAYERS: list[Any] = [
    *("bottom", "", "--1", "²", "1.0", None, True, 1.5, {}, b"top", ["all"], ["a", "b", "c"]),
    *([1.0], [1.0] * 4, [[1.0] * 3], [None] * 3, [[1], [1, 2], 3]),
    *([1.0, np.nan, 0.0], [1e39, 0, 0], [10**400, 0, 0]),
]


@pytest.mark.parametrize("layers", WRONG_LAYERS, ids=lambda value: repr(value)[:20])
def test_wrong_layers_are_told_what_they_may_be(elmo: Embedder, layers: Any) -> None:
    with pytest.raises(ElmokitError, match="layers must be 'all', 'top', 'average', an index fr"):
        elmo.embed(TOKENS, layers=layers)


@pytest.mark.parametrize("layers", [3, -4, "3", "-4", 10**20, "999999999"])
def test_a_layer_that_does_not_exist_is_told_of(elmo: Embedder, layers: Any) -> None:
    with pytest.raises(ElmokitError, match=f"no layer {layers}; this model has layers 0 to 2"):
        elmo.embed(TOKENS, layers=layers)


@given(st.text(max_size=6) | st.integers() | st.floats() | st.lists(st.floats(), max_size=4))
def test_any_layers_are_understood_or_refused_in_a_sentence(layers: Any) -> None:
    if not complaint(lambda: layer_weights(layers, 2)):
        assert layer_weights(layers, 2).shape in ((1, 3), (3, 3))


# ---------------------------------------------------------------------- what a text is
def test_a_string_is_one_sentence_and_so_are_its_tokens(elmo: Embedder) -> None:
    one = elmo.embed("the river bank .")
    assert isinstance(one, Sentence)
    assert one.tokens == TOKENS
    for tokens in (TOKENS, tuple(TOKENS), iter(TOKENS), np.array(TOKENS)):
        result = elmo.embed_tokens(tokens)  # type: ignore[arg-type]
        assert isinstance(result, Sentence)
        np.testing.assert_array_equal(result.layers, one.layers)
    assert elmo.embed_tokens([" bank ", ""]).tokens == [" bank ", ""]
    with pytest.raises(ElmokitError, match="as a list of tokens, not as the string 'the bank'"):
        elmo.embed_tokens("the bank")


def test_a_list_of_strings_is_always_a_list_of_texts(elmo: Embedder) -> None:
    for texts in (["the river", "bank"], ["river", "bank"], ["bank"], ["河岸", "银行"], [""]):
        result = elmo.embed(texts)
        assert [sentence.tokens for sentence in result] == [elmo.tokenize(text) for text in texts]
        assert elmo.sentence_vectors(texts).shape == (len(texts), 12)
    assert elmo.sentence_vectors("bank").shape == (12,)


def test_a_notebook_shows_a_sentence_as_a_table(elmo: Embedder) -> None:
    shown = elmo.embed_tokens(["<b>", "bank"])._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert (shown.count("<tr>"), shown.count("<svg ")) == (1 + 2, 2 * 3)
    assert shown.count("<rect ") == 2 * 3 * 12, "12 columns are fewer than the squares of a strip"
    assert "3 × 2 × 12 float32" in shown
    assert "<script" not in shown
    ElementTree.fromstring(shown)


def test_a_notebook_shows_the_sign_and_size_of_values() -> None:
    layers = np.array([[[4.0, -4.0, 0.0, 1.0]]], np.float32)
    fills = re.findall('fill="(.*?)"', Sentence(["a"], layers)._repr_html_())
    assert fills == ["#ff0000", "#0000ff", "#ffffff", "#ff8080"]


def test_a_notebook_shows_only_the_beginning_of_a_long_text() -> None:
    long = Sentence(["x" * 10_000] * 20_000, np.ones((3, 20_000, 64), np.float32))
    shown = long._repr_html_()
    assert len(shown) < 200_000
    assert "19,950 more tokens" in shown
    nothing = Sentence([], np.zeros((3, 0, 64), np.float32))
    assert "3 × 0 × 64 float32" in nothing._repr_html_()
    unknown = Sentence(["a"], np.full((1, 1, 4), np.nan, np.float32))
    assert unknown._repr_html_().count("<rect ") == 4


def test_a_list_of_lists_is_sentences(elmo: Embedder) -> None:
    given: list[Any] = [MANY, tuple(MANY), iter(MANY), [tuple(tokens) for tokens in MANY]]
    for many in given:
        assert [sentence.tokens for sentence in elmo.embed(many)] == MANY
    assert elmo.embed([["one"]])[0].tokens == ["one"]
    assert elmo.embed([]) == []
    mixed = elmo.embed([["the", "river"], "on the bank"])
    assert [sentence.tokens for sentence in mixed] == [["the", "river"], ["on", "the", "bank"]]


def test_an_empty_sentence_has_no_vectors(elmo: Embedder) -> None:
    for text in ("", "   ", "\n"):
        assert elmo.embed(f"{text}").layers.shape == (3, 0, 12)
    assert elmo.embed([[], []], layers="top")[1].layers.shape == (1, 0, 12)


WRONG_TEXTS: list[Any] = [None, 5, 1.5, b"bytes", [1, 2], [["a", 1]], [["a"], None], [[["a"]]],
                          [["a", ["b"]]], {"a": 1, "b c": 2}.values(), [["a"], b"b"]]  # fmt: skip


@pytest.mark.parametrize("text", WRONG_TEXTS, ids=lambda value: repr(value)[:20])
def test_what_is_no_text_is_refused_in_a_sentence(elmo: Embedder, text: Any) -> None:
    with pytest.raises(
        ElmokitError, match=r"(text is a string or a list of tokens|must be a list of strings), not"
    ):
        elmo.embed(text)


def test_wrong_arguments_are_told_of(elmo: Embedder) -> None:
    with pytest.raises(ElmokitError, match="dtype must be float32 or float16, not 'float64'"):
        elmo.embed(TOKENS, dtype="float64")
    for size in (0, -1, "3", 2.0, True):
        with pytest.raises(ElmokitError, match="batch_size must be an integer of at least 1"):
            elmo.embed(TOKENS, batch_size=size)  # type: ignore[arg-type]
    for sentences in ([], ["the bank"]):
        with pytest.raises(ElmokitError, match=r"pooling must be one of mean, .* not 'median'"):
            elmo.sentence_vectors(sentences, pooling="median")  # type: ignore[arg-type]
    with pytest.raises(ElmokitError, match="precision must be one of float32, float16, int8"):
        tiny_elmo(precision="bfloat16")
    with pytest.raises(ElmokitError):
        tiny_elmo(tokenizer="nonsense")


# ---------------------------------------------------------------------- poolings
def test_poolings_are_as_by_hand(elmo: Embedder, reference: Reference) -> None:
    sentences = [tokens for tokens in MANY if tokens]
    layers = [reference.embed(tokens).mean(axis=0) for tokens in sentences]
    by_hand: dict[Any, Any] = {
        "mean": [x.mean(axis=0) for x in layers],
        "max": [x.max(axis=0) for x in layers],
        "min": [x.min(axis=0) for x in layers],
        "sum": [x.sum(axis=0) for x in layers],
        "first": [x[0] for x in layers],
        "last": [x[-1] for x in layers],
        "ends": [np.concatenate([x[-1, :6], x[0, 6:]]) for x in layers],
    }
    assert tuple(by_hand) == POOLINGS
    for pooling in POOLINGS:
        vectors = elmo.sentence_vectors(sentences, pooling=pooling)
        assert vectors.dtype == np.float32
        assert difference(vectors, np.array(by_hand[pooling])) < 1e-5, pooling


@pytest.mark.parametrize("pooling", POOLINGS)
def test_an_empty_sentence_is_pooled_to_zeros(elmo: Embedder, pooling: Any) -> None:
    result = elmo.sentence_vectors([[], ["the"], ""], pooling=pooling)
    assert result.shape == (3, 12)
    assert (result[[0, 2]] == 0).all()
    assert (result[1] != 0).any()


def test_a_single_string_has_one_vector_and_no_strings_none(elmo: Embedder) -> None:
    one = elmo.sentence_vectors("the river")
    assert one.shape == (12,)
    np.testing.assert_allclose(one, elmo.sentence_vectors(["the river", "x"])[0], atol=1e-6)
    assert elmo.sentence_vectors([]).shape == (0, 12)
    assert elmo.sentence_vectors([], layers="all").shape == (0, 36)
    unit = elmo.sentence_vectors(["the river", ""], normalize=True)
    np.testing.assert_allclose(unit[0], one / np.sqrt((one**2).sum()), atol=1e-6)
    assert not unit[1].any()


def test_all_layers_stand_side_by_side_in_a_sentence_vector(elmo: Embedder) -> None:
    result = elmo.sentence_vectors([TOKENS], layers="all")[0]
    expected = elmo.embed_tokens(TOKENS).layers.mean(axis=1).reshape(-1)
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_means_and_sums_of_float16_are_computed_in_more() -> None:
    layers = np.full((1, 4000, 2), 3.0, np.float16)
    assert pool(layers, "mean").tolist() == [[3.0, 3.0]]
    assert pool(layers, "sum").tolist() == [[12000.0, 12000.0]]
    assert pool(layers, "mean").dtype == np.float16


# ---------------------------------------------------------------------- types and windows
def test_float16_is_the_rounded_float32(elmo: Embedder) -> None:
    for whole, half in zip(elmo.embed(MANY), elmo.embed(MANY, dtype="float16"), strict=True):
        assert half.layers.dtype == np.float16
        np.testing.assert_array_equal(half.layers, whole.layers.astype(np.float16))


def test_a_stream_is_lazy_and_in_bounded_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    elmo = tiny_elmo(batch_tokens=4)
    monkeypatch.setattr(embed_module, "WINDOW_BYTES", 1)  # then 4 batches of 4 tokens make one
    taken = 0

    def source() -> Iterator[list[str]]:
        nonlocal taken
        for index in range(10**9):
            taken += 1
            yield [f"word{index % 7}"] * (index % 3)

    stream = elmo.stream(source())
    assert taken == 0
    for index in range(60):
        sentence = next(stream)
        assert sentence.tokens == [f"word{index % 7}"] * (index % 3)
        assert taken - index <= 17  # 16 tokens of look-ahead; empty sentences count too
    assert taken < 80


def test_windows_do_not_change_the_vectors(monkeypatch: pytest.MonkeyPatch, elmo: Embedder) -> None:
    expected = elmo.embed(MANY)
    small = tiny_elmo(batch_tokens=1)
    monkeypatch.setattr(embed_module, "WINDOW_BYTES", 1)
    windows = list(small.windows(MANY))
    assert [tokens for window in windows for tokens in window] == MANY
    assert len(windows) > 3
    for result, expected_one in zip(small.stream(MANY), expected, strict=True):
        assert difference(result.layers, expected_one.layers) < 1e-5


def test_a_streams_result_is_not_changed_by_what_comes_after(elmo: Embedder) -> None:
    stream = elmo.stream([*MANY, *MANY])
    first = next(stream)
    kept = first.layers.copy()
    list(stream)
    np.testing.assert_array_equal(first.layers, kept)
    first.layers[:] = 0.0  # nor is what comes after changed by the result
    assert difference(elmo.embed_tokens(MANY[0]).layers, kept) < 1e-6


def test_a_batch_of_short_sentences_keeps_to_its_tokens() -> None:
    lengths = [3] * 100 + [400] * 40
    batches = list(make_batches(lengths, 60, None))
    for batch in batches:
        total = sum(lengths[index] for index in batch)
        if max(lengths[index] for index in batch) == 3:
            assert total <= 60
        assert total <= 480 or len(batch) == 1


def test_batches_are_bounded_and_hold_every_sentence_once() -> None:
    lengths = [5, 1, 9, 0, 3, 3, 20, 2, 0]
    for tokens, size in ((10, None), (1, None), (100, 2), (6, 3)):
        batches = list(make_batches(lengths, tokens, size))
        assert sorted(index for batch in batches for index in batch) == list(range(9))
        for batch in batches:
            total = sum(lengths[index] for index in batch)
            assert total <= tokens or len(batch) <= 16  # long sentences, several side by side
            assert total <= 8 * tokens or total == max(lengths[index] for index in batch)
            assert size is None or len(batch) <= size


@pytest.mark.parametrize("boundaries", [False, True])
def test_a_long_sentence_is_read_in_windows(
    monkeypatch: pytest.MonkeyPatch, elmo: Embedder, reference: Reference, boundaries: bool
) -> None:
    """Each window as a sentence of its own, only the outermost boundaries kept."""
    monkeypatch.setattr(embed_module, "WINDOW_TOKENS", 5)
    for length in (4, 5, 6, 10, 12):
        tokens = [f"w{index}" for index in range(length)]
        parts = [
            reference.embed(tokens[start : start + 5], boundaries=True)
            for start in range(0, length, 5)
        ]
        inner = np.concatenate([part[:, 1:-1] for part in parts], axis=1)
        ends = [parts[0][:, :1], inner, parts[-1][:, -1:]]
        expected = np.concatenate(ends, axis=1) if boundaries else inner
        result = elmo.embed([["x"], tokens, []], boundaries=boundaries)[1]
        assert result.tokens == (["<S>", *tokens, "</S>"] if boundaries else tokens)
        assert difference(result.layers, expected) < 1e-5


def test_vectors_too_many_for_the_memory_are_the_same_from_a_file(
    monkeypatch: pytest.MonkeyPatch, elmo: Embedder
) -> None:
    expected = elmo.embed(MANY)
    monkeypatch.setattr("elmokit.io.scratch.MAX_IN_MEMORY", 200)
    result = elmo.embed(MANY)
    assert isinstance(result[0].layers, np.memmap)
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_array_equal(one.layers, other.layers)
    del result, one
    gc.collect()  # a file that was not closed would be a warning, and so an error


# ---------------------------------------------------------------------- caches
def test_a_word_is_encoded_once_however_often_it_occurs(elmo: Embedder) -> None:
    elmo = tiny_elmo()
    seen: list[int] = []
    packed = elmo.engine.packed()
    encode = packed.encode

    def counted(ids: torch.Tensor) -> torch.Tensor:
        seen.append(len(ids))
        return encode(ids)

    packed.encode = counted
    first = elmo.embed(MANY)
    again = elmo.embed(MANY[::-1])[::-1]
    assert sum(seen) == len({word for tokens in MANY for word in tokens})
    for one, other in zip(first, again, strict=True):
        assert difference(one.layers, other.layers) < 1e-6


def test_the_cache_of_words_is_bounded_and_changes_nothing(reference: Reference) -> None:
    small, large = tiny_elmo(cache_bytes=0, batch_tokens=50), tiny_elmo()
    texts = [[f"word{index}" for index in range(start, start + 30)] for start in range(0, 3000, 25)]
    for start in range(0, len(texts), 10):
        batch = texts[start : start + 10]
        for one, other in zip(small.embed(batch), large.embed(batch), strict=True):
            assert difference(one.layers, other.layers) < 1e-5
        assert len(small.engine._words.rows) <= 1000
        assert small.engine._words.table.numel() * 4 <= 2 * 1000 * 6 * 4
    assert len(large.engine._words.rows) > 3000
    assert difference(small.embed_tokens(texts[0]).layers, reference.embed(texts[0])) < 1e-5


def test_words_known_before_the_cache_was_full_are_known_after(reference: Reference) -> None:
    elmo = tiny_elmo(cache_bytes=0)
    words = [f"word{index}" for index in range(990)]
    elmo.layers_of([words])
    few = [words[5], *(f"new{index}" for index in range(20)), words[6]]
    output = elmo.layers_of([few])  # 1,010 words are more than the cache holds
    assert difference(output.hidden_states[:, 0].numpy(), reference.embed(few)) < 1e-5


def test_more_new_words_at_once_than_the_cache_holds(reference: Reference) -> None:
    elmo = tiny_elmo(cache_bytes=0)
    words = [f"word{index}" for index in range(1500)]
    result = elmo.embed([words[:700], words[700:]], layers=0)
    for index in (0, 699, 700, 1499):
        vector = result[index >= 700].vectors[index - 700 * (index >= 700), :6]
        assert difference(vector, reference.token_vector(words[index])) < 1e-5


def test_repeated_sentences_each_have_their_own_vectors(elmo: Embedder) -> None:
    result = elmo.embed([TOKENS] * 5)
    for sentence in result[1:]:
        assert difference(sentence.layers, result[0].layers) < 1e-6
        assert not np.shares_memory(sentence.layers, result[0].layers)


@settings(max_examples=20)
@given(st.lists(st.lists(st.sampled_from("abcdefg"), max_size=7), max_size=9), st.integers(1, 20))
def test_results_come_back_in_order(
    elmo: Embedder, reference: Reference, sentences: list[list[str]], batch_tokens: int
) -> None:
    before, elmo.batch_tokens = elmo.batch_tokens, batch_tokens
    try:
        result = list(elmo.stream(sentences, layers=0))
    finally:
        elmo.batch_tokens = before
    assert [sentence.tokens for sentence in result] == sentences
    for sentence in result:
        expected = [reference.token_vector(word) for word in sentence.tokens]
        assert difference(sentence.vectors[:, :6], np.array(expected).reshape(-1, 6)) < 1e-5


# ---------------------------------------------------------------------- the Embedder itself
def test_an_embedder_can_be_copied_and_pickled(elmo: Embedder) -> None:
    expected = elmo.embed_tokens(TOKENS).layers
    for twin in (copy.deepcopy(elmo), pickle.loads(pickle.dumps(elmo))):
        np.testing.assert_array_equal(twin.embed_tokens(TOKENS).layers, expected)
        assert twin.model is not elmo.model
        assert (twin.source, twin.metadata) == (elmo.source, elmo.metadata)


def test_an_embedder_says_what_it_is(elmo: Embedder) -> None:
    assert repr(elmo).startswith("Embedder(")
    assert "2 layers of 10/6, dim 12, float32)" in repr(elmo)
    assert elmo.dim == 12
    assert elmo.device.type == "cpu"
    assert elmo.to("cpu") is elmo


def test_a_batch_without_state_is_the_same_as_embedding(elmo: Embedder) -> None:
    result, state = elmo.embed_batch([*MANY, "the bank"])
    assert state is None
    assert [sentence.tokens for sentence in result] == [*MANY, ["the", "bank"]]
    for one, other in zip(result, elmo.embed(MANY), strict=False):
        assert difference(one.layers, other.layers) < 1e-6
    assert elmo.embed_batch([]) == ([], None)


def test_layers_of_is_one_padded_batch(elmo: Embedder) -> None:
    output = elmo.layers_of(MANY)
    assert output.hidden_states.shape == (3, 6, 9, 12)
    assert not output.hidden_states.requires_grad
    for row, sentence in enumerate(elmo.embed(MANY)):
        result = output.hidden_states[:, row, : len(sentence.tokens)].numpy()
        assert difference(result, sentence.layers) < 1e-6
        assert (output.hidden_states[:, row, len(sentence.tokens) :] == 0).all()
    assert elmo.layers_of([]).hidden_states.shape == (3, 0, 0, 12)


# ---------------------------------------------------------------------- foreign text
GERMAN = "Der alte Mann saß den ganzen Tag am Ufer und wartete auf die Fähre nach Hamburg ."
ENGLISH = "The old man sat on the bank of the river all day and waited for the ferry ."


@pytest.mark.parametrize("text", [GERMAN, "我 每天 都 坐 地铁 上班 。"])
def test_a_text_in_another_language_is_warned_about_once(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    elmo = elmokit.load()
    for _ in range(3):
        elmo.embed_tokens(text.split())
    (record,) = caplog.records
    assert "are not in the vocabulary of" in record.getMessage()


def test_ordinary_text_and_models_without_a_vocabulary_cause_no_warning(
    elmo: Embedder, caplog: pytest.LogCaptureFixture
) -> None:
    shipped = elmokit.load()
    shipped.embed([ENGLISH] * 100 + [GERMAN] * 200)  # most of it is English at first
    shipped.embed("Zbigniew visited Szczecin .")
    elmo.embed(GERMAN)
    assert not caplog.records
