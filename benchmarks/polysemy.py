"""Do the layers separate the senses of a word?

    python benchmarks/polysemy.py                 # the shipped model
    python benchmarks/polysemy.py --model my-elmo --out my-polysemy.json

The uses are those of examples/senses.tsv, written by hand: ten words with two senses each, 10
sentences per sense. For each word and layer: how often the nearest other use has the same sense
(1-NN purity) and the silhouette of the senses, both by cosine after the mean of all tokens is
subtracted. The baseline is chance: the same measures with the senses permuted at random over the
same vectors, 2,000 times. The figure shows the first two principal components of the top layer; the
purity of the drawn points is measured too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from parsers import described_parser

from elmokit.analysis.geometry import Array, cosine_matrix, purity, silhouette
from elmokit.analysis.plots.draw import group_style
from elmokit.analysis.plots.maps import WordMap, map_word
from elmokit.analysis.uses import embed_uses, read_uses
from elmokit.cli.options import ModelOptions
from elmokit.figures import WIDTH, new_figure, styled, write_figure
from elmokit.layers import layer_names

HERE = Path(__file__).parent
DEALS = 2000
COLUMNS = 5  # of the figure


def main() -> None:
    parser = described_parser(__doc__)
    parser.add_argument("--uses", default=str(HERE.parent / "examples" / "senses.tsv"))
    parser.add_argument("--model", default="english")
    parser.add_argument("--out", default=str(HERE / "results" / "polysemy.json"))
    arguments = parser.parse_args()
    uses = list(read_uses(arguments.uses))
    store = ModelOptions(model=arguments.model).open_store()
    vectors, mean = embed_uses(store, uses)
    words, maps = {}, []
    for word in dict.fromkeys(use.lemma for use in uses):
        rows = [i for i, use in enumerate(uses) if use.lemma == word]
        own = vectors[:, rows] - mean
        senses = [uses[i].sense for i in rows]
        maps.append(map_word(word, [uses[i] for i in rows], own))
        words[word] = {
            "senses": {s: senses.count(s) for s in senses},
            **measure(own, senses),
            "drawn": [round(float(x), 3) for x in purity(-distances(maps[-1].points), senses)],
        }
    result = {
        "model": arguments.model,
        "fingerprint": store.elmo.fingerprint(),
        "layers": layer_names(store.elmo.config.num_layers),
        "deals": DEALS,
        "words": words,
    }
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")
    figure = draw_top_layer(maps, store.elmo.config.num_layers)
    write_figure(figure, str(Path(arguments.out).with_suffix(".png")))
    for word, numbers in words.items():
        print(word, json.dumps({name: numbers[name]["value"] for name in MEASURES}))


@styled()
def draw_top_layer(maps: Sequence[WordMap], layer: int) -> Any:
    """Draw the uses of all words in the top layer, five words in a row."""
    rows = -(-len(maps) // COLUMNS)
    figure = new_figure(WIDTH, 1.75 * rows)
    panels = figure.subplots(rows, COLUMNS, squeeze=False).flat
    for axes, word_map in zip(panels, maps, strict=False):
        for i, sense in enumerate(word_map.senses):
            mine = [use.sense == sense for use in word_map.uses]
            axes.scatter(*word_map.points[layer][mine].T, s=14, label=sense, **group_style(i))
        assert word_map.purity is not None
        axes.set_title(f"{word_map.word} {word_map.purity[layer]:.2f}")
        axes.set(xticks=[], yticks=[])
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2, fontsize=6)
    return figure


def measure(vectors: Array, senses: Sequence[str]) -> dict[str, Any]:
    """Return both measures of a word for every layer, and those of chance."""
    cosines = cosine_matrix(vectors)
    rng = np.random.default_rng(1)
    deals = [[senses[i] for i in rng.permutation(len(senses))] for _ in range(DEALS)]
    return {name: beside_chance(MEASURES[name], cosines, senses, deals) for name in MEASURES}


def distances(points: Array) -> Array:
    """Return the squared distances of points (layers, n, 2): (layers, n, n)."""
    squares: Array = np.square(points[:, :, None] - points[:, None]).sum(axis=-1)
    return squares


MEASURES: dict[str, Callable[[Array, Sequence[str]], Array]] = {
    "purity": purity,
    "silhouette": silhouette,
}


def beside_chance(
    compute: Callable[[Array, Sequence[str]], Array],
    cosines: Array,
    senses: Sequence[str],
    deals: Sequence[Sequence[str]],
) -> dict[str, Any]:
    """Return a measure for every layer, its mean by chance, and how often chance gives as much."""
    value = compute(cosines, senses)
    dealt = np.stack([compute(cosines, deal) for deal in deals])  # (deals, layers)
    as_much = (dealt >= value - 1e-6).sum(axis=0)
    return {
        "value": [round(float(x), 3) for x in value],
        "chance": [round(float(x), 3) for x in dealt.mean(axis=0)],
        "chance_95": [round(float(x), 3) for x in np.quantile(dealt, 0.95, axis=0)],
        "p": [round(float(x), 4) for x in (as_much + 1) / (len(deals) + 1)],
    }


if __name__ == "__main__":
    main()
