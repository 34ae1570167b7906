"""What the layers of a model know: senses, neighbours, probes, similarity, drift, figures.

The functions take a `Model`, which is an Embedder or a LayerStore, and return results as objects
with a `to_dict`; the commands of `elmokit.cli` print them. Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.analysis.drift.measure import DriftResult, WordChange, measure_drift, sample_both
    from elmokit.analysis.neighbours.approximate import build_graphs, open_graphs
    from elmokit.analysis.neighbours.index import Index, open_index
    from elmokit.analysis.neighbours.indexing import index_uses
    from elmokit.analysis.neighbours.nearest import Neighbour, QueryResult, find_neighbours
    from elmokit.analysis.plots.draw import (
        draw_pair,
        draw_probe,
        draw_surprisal,
        draw_uses,
        draw_weights,
    )
    from elmokit.analysis.plots.maps import (
        TokenPair,
        WordMap,
        compare_tokens,
        map_clusters,
        map_uses,
    )
    from elmokit.analysis.probes.probe import ProbeResult, probe_layers
    from elmokit.analysis.probes.tokens import TaggedText, read_tagged_text
    from elmokit.analysis.sampling import Corpus, find_uses, sample
    from elmokit.analysis.senses.build import build_senses
    from elmokit.analysis.senses.data import TaggedCorpus, read_first_senses, read_tagged
    from elmokit.analysis.senses.find import (
        SenseScores,
        SentenceTags,
        score_first_senses,
        score_senses,
        tag_senses,
    )
    from elmokit.analysis.senses.induce import InducedSenses, induce_senses
    from elmokit.analysis.senses.inventory import Inventory, load_inventory
    from elmokit.analysis.similarity.pairs import Pair, read_pairs
    from elmokit.analysis.similarity.rate import SimilarityResult, rate_similarity
    from elmokit.analysis.static import StaticResult, average_uses
    from elmokit.analysis.uses import Use, embed_uses, marked_use, read_uses

__all__ = [
    "Corpus", "DriftResult", "Index", "InducedSenses", "Inventory", "Neighbour", "Pair",
    "ProbeResult", "QueryResult", "SenseScores", "SentenceTags", "SimilarityResult",
    "StaticResult", "TaggedCorpus", "TaggedText", "TokenPair", "Use", "WordChange", "WordMap",
    "average_uses", "build_graphs", "build_senses", "compare_tokens", "draw_pair", "draw_probe",
    "draw_surprisal", "draw_uses", "draw_weights", "embed_uses", "find_neighbours", "find_uses",
    "index_uses", "induce_senses", "load_inventory", "map_clusters", "map_uses", "marked_use",
    "measure_drift", "open_graphs", "open_index", "probe_layers", "rate_similarity",
    "read_first_senses", "read_pairs", "read_tagged", "read_tagged_text", "read_uses", "sample",
    "sample_both", "score_first_senses", "score_senses", "tag_senses",
]  # fmt: skip

# module: the public names that it defines
MODULES = {
    "drift.measure": "DriftResult WordChange measure_drift sample_both",
    "neighbours.approximate": "build_graphs open_graphs",
    "neighbours.index": "Index open_index",
    "neighbours.indexing": "index_uses",
    "neighbours.nearest": "Neighbour QueryResult find_neighbours",
    "plots.draw": "draw_pair draw_probe draw_surprisal draw_uses draw_weights",
    "plots.maps": "TokenPair WordMap compare_tokens map_clusters map_uses",
    "probes.probe": "ProbeResult probe_layers",
    "probes.tokens": "TaggedText read_tagged_text",
    "sampling": "Corpus find_uses sample",
    "senses.build": "build_senses",
    "senses.data": "TaggedCorpus read_first_senses read_tagged",
    "senses.find": "SenseScores SentenceTags score_first_senses score_senses tag_senses",
    "senses.induce": "InducedSenses induce_senses",
    "senses.inventory": "Inventory load_inventory",
    "similarity.pairs": "Pair read_pairs",
    "similarity.rate": "SimilarityResult rate_similarity",
    "static": "StaticResult average_uses",
    "uses": "Use embed_uses marked_use read_uses",
}

if not TYPE_CHECKING:  # A type checker would accept any misspelled name.

    def __getattr__(name: str) -> object:
        import importlib

        for module, names in MODULES.items():
            if name in names.split():
                return getattr(importlib.import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
