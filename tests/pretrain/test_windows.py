"""Windows against a slow reading of the same sentences, token by token."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import ElmokitError
from elmokit.pretrain.corpus import Sentences
from elmokit.pretrain.windows import NOTHING, Window, Windows


def make(lengths: list[int]) -> Sentences:
    """Sentences in which every token is another type, from 3 on."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Sentences(np.arange(3, 3 + offsets[-1], dtype=np.int32), offsets)


def sentence(text: Sentences, index: int) -> list[int]:
    return [0, *text.tokens[text.offsets[index] : text.offsets[index + 1]].tolist(), 1]


def expected_pairs(text: Sentences) -> tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]]:
    forward: Counter[tuple[int, int]] = Counter()
    backward: Counter[tuple[int, int]] = Counter()
    for index in range(len(text)):
        words = sentence(text, index)
        forward.update(itertools.pairwise(words))
        backward.update(zip(words[:0:-1], words[-2::-1], strict=True))
    return forward, backward


def pairs(window: Window, direction: int, row: int) -> list[tuple[int, int]]:
    inputs = window.types[window.index[direction, :, row]].tolist()
    targets = window.targets[direction, :, row].tolist()
    return [(a, b) for a, b in zip(inputs, targets, strict=True) if b != NOTHING]


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=60),
    rows=st.integers(1, 7),
    unroll=st.integers(1, 25),
    block=st.integers(1, 9),
    epoch=st.integers(0, 3),
)
def test_every_token_is_predicted_once_an_epoch_in_both_directions(
    lengths: list[int], rows: int, unroll: int, block: int, epoch: int
) -> None:
    text = make(lengths)
    if sum(lengths) + len(lengths) < rows:
        return
    windows = Windows(text, rows=rows, unroll=unroll, seed=5, block=block)
    result: tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]] = (Counter(), Counter())
    for step in range(windows.steps):
        window = windows.window(epoch, step)
        assert window.index.shape[1:] == window.targets.shape[1:]
        assert window.index.shape[2] == rows
        assert (window.targets[0] != NOTHING).sum() == windows.pairs_at(step)
        for direction in range(2):
            for row in range(rows):
                result[direction].update(pairs(window, direction, row))
    assert result == expected_pairs(text)


def test_in_file_order_one_row_reads_the_text_as_it_stands() -> None:
    text = make([3, 1, 5, 2])
    windows = Windows(text, rows=1, unroll=4)
    result = [
        pair for step in range(windows.steps) for pair in pairs(windows.window(0, step), 0, 0)
    ]
    expected = []
    for index in range(len(text)):
        words = sentence(text, index)
        expected += list(itertools.pairwise(words))
    assert result == expected


def test_a_row_continues_where_its_last_window_ended() -> None:
    text = make([7] * 40)
    one, many = Windows(text, rows=3, unroll=1000, seed=1), Windows(text, rows=3, unroll=6, seed=1)
    for row in range(3):
        whole = pairs(one.window(0, 0), 1, row)
        parts = [p for step in range(many.steps) for p in pairs(many.window(0, step), 1, row)]
        assert parts == whole


def test_epochs_differ_seeds_differ_and_positions_can_be_asked_in_any_order() -> None:
    text = make([4] * 500)
    windows = Windows(text, rows=2, seed=1, block=10)
    first = windows.window(0, 3)
    second = windows.window(1, 3)
    assert not np.array_equal(first.targets, second.targets)
    assert np.array_equal(windows.window(0, 3).targets, first.targets)
    other = Windows(text, rows=2, seed=2, block=10).window(0, 3)
    assert not np.array_equal(first.targets, other.targets)


def test_processes_share_the_rows_of_the_global_batch() -> None:
    windows = Windows(make([5] * 100), rows=6, seed=1)
    whole = windows.window(0, 2)
    for rank in range(3):
        part = windows.window(0, 2, slice(rank, None, 3))
        assert np.array_equal(part.targets, whole.targets[:, :, rank::3])
        assert np.array_equal(part.types[part.index], whole.types[whole.index[:, :, rank::3]])


def test_a_text_smaller_than_a_batch_is_refused() -> None:
    with pytest.raises(ElmokitError, match="5 tokens, fewer than the 8 rows"):
        Windows(make([4]), rows=8)
