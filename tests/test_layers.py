"""Layer selectors: what a user types, and the matrix or the index that it means."""

from __future__ import annotations

import pytest

from elmokit.errors import ElmokitError
from elmokit.layers import layer_index, layer_names, layer_weights, parse_layers


def test_text_is_a_word_an_index_or_weights() -> None:
    assert [parse_layers(text) for text in ("top", "2", "1, 2,.5")] == ["top", "2", [1, 2, 0.5]]
    with pytest.raises(ElmokitError, match="comma-separated numbers, not '1,x'"):
        parse_layers("1,x")


def test_a_table_has_the_average_after_the_layers() -> None:
    names = layer_names(2)
    chosen = {layer: names[layer_index(layer, 2)] for layer in ("0", 1, "top", "average")}
    assert chosen == {"0": "layer 0", 1: "layer 1", "top": "layer 2", "average": "average"}


@pytest.mark.parametrize("layer", ["3", "-1", "all", "", "²", 3, -1])
def test_only_a_layer_of_the_model_has_an_index(layer: str | int) -> None:
    message = f"layer must be 0 to 2, top or average, not '{layer}'"
    with pytest.raises(ElmokitError, match=message):
        layer_index(layer, 2)


def test_an_index_of_the_weights_counts_from_the_end_if_negative() -> None:
    assert layer_weights("-1", 2).tolist() == layer_weights("top", 2).tolist() == [[0, 0, 1]]
