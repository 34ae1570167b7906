"""Spans of tokens as tensors."""

from __future__ import annotations

from elmokit.tasks.layers.spans import (
    BUCKETS,
    EDGES,
    bucket,
    buckets,
    covered,
    distance,
)


def test_distance_is_counted_from_the_nearest_token_of_a_span() -> None:
    assert [distance(token, (2, 5)) for token in range(8)] == [-2, -1, 0, 0, 0, 1, 2, 3]


def test_buckets_are_in_order_and_mirrored() -> None:
    result = [bucket(distance) for distance in range(-60, 61)]
    assert result == sorted(result)
    assert [BUCKETS - 1 - index for index in result] == result[::-1]
    assert set(result) == set(range(BUCKETS))


def test_a_bucket_ends_where_the_next_edge_begins() -> None:
    for edge in EDGES:
        assert bucket(edge - 1) < bucket(edge)
        assert bucket(-edge) < bucket(1 - edge)
    assert bucket(5) == bucket(7)


def test_each_token_has_the_bucket_of_its_distance() -> None:
    middle = len(EDGES)
    assert buckets([(0, 1), (1, 3)], 4).tolist() == [
        [middle, middle + 1, middle + 2, middle + 3],
        [middle - 1, middle, middle, middle + 1],
    ]


def test_tokens_of_a_span_are_covered() -> None:
    assert covered([(0, 1), (1, 3)], 4).int().tolist() == [[1, 0, 0, 0], [0, 1, 1, 0]]
