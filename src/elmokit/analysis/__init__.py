"""What the layers of a model know: senses, neighbours, probes, similarity, drift, figures.

The functions take an Embedder or a LayerStore and return results as objects with a `to_dict`; the
commands of `elmokit.cli` print them. The names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.analysis.drift.measure import (
        DriftResult,
        SampledUses,
        WordChange,
        measure_drift,
        sample_both,
    )
    from elmokit.analysis.neighbours.approximate import build_graphs, open_graphs
    from elmokit.analysis.neighbours.index import Index, open_index
    from elmokit.analysis.neighbours.indexing import index_uses
    from elmokit.analysis.neighbours.nearest import Neighbour, QueryResult, find_neighbours
    from elmokit.analysis.plots.draw import draw_pair, draw_surprisal, draw_uses, draw_weights
    from elmokit.analysis.plots.maps import (
        TokenPair,
        WordMap,
        compare_tokens,
        map_clusters,
        map_uses,
    )
    from elmokit.analysis.probes.figure import draw_probe
    from elmokit.analysis.probes.probe import ProbeResult, probe_layers
    from elmokit.analysis.probes.tokens import TaggedText, read_tagged_text
    from elmokit.analysis.sampling import Corpus, find_uses, sample
    from elmokit.analysis.senses.build import build_senses
    from elmokit.analysis.senses.data import TaggedCorpus, read_first_senses, read_tagged
    from elmokit.analysis.senses.induce import InducedSenses, induce_senses
    from elmokit.analysis.senses.inventory import Inventory, load_inventory
    from elmokit.analysis.senses.score import SenseScores, score_first_senses, score_senses
    from elmokit.analysis.senses.tag import SentenceTags, tag_senses
    from elmokit.analysis.similarity.pairs import Pair, read_pairs
    from elmokit.analysis.similarity.rate import SimilarityResult, rate_similarity
    from elmokit.analysis.uses import Use, embed_uses, marked_use, read_uses

__all__ = [
    "Corpus",
    "DriftResult",
    "Index",
    "InducedSenses",
    "Inventory",
    "Neighbour",
    "Pair",
    "ProbeResult",
    "QueryResult",
    "SampledUses",
    "SenseScores",
    "SentenceTags",
    "SimilarityResult",
    "TaggedCorpus",
    "TaggedText",
    "TokenPair",
    "Use",
    "WordChange",
    "WordMap",
    "build_graphs",
    "build_senses",
    "compare_tokens",
    "draw_pair",
    "draw_probe",
    "draw_surprisal",
    "draw_uses",
    "draw_weights",
    "embed_uses",
    "find_neighbours",
    "find_uses",
    "index_uses",
    "induce_senses",
    "load_inventory",
    "map_clusters",
    "map_uses",
    "marked_use",
    "measure_drift",
    "open_graphs",
    "open_index",
    "probe_layers",
    "rate_similarity",
    "read_first_senses",
    "read_pairs",
    "read_tagged",
    "read_tagged_text",
    "read_uses",
    "sample",
    "sample_both",
    "score_first_senses",
    "score_senses",
    "tag_senses",
]

# public name: the module that defines it
MODULES = {
    "Corpus": "elmokit.analysis.sampling",
    "DriftResult": "elmokit.analysis.drift.measure",
    "Index": "elmokit.analysis.neighbours.index",
    "InducedSenses": "elmokit.analysis.senses.induce",
    "Inventory": "elmokit.analysis.senses.inventory",
    "Neighbour": "elmokit.analysis.neighbours.nearest",
    "Pair": "elmokit.analysis.similarity.pairs",
    "ProbeResult": "elmokit.analysis.probes.probe",
    "QueryResult": "elmokit.analysis.neighbours.nearest",
    "SampledUses": "elmokit.analysis.drift.measure",
    "SenseScores": "elmokit.analysis.senses.score",
    "SentenceTags": "elmokit.analysis.senses.tag",
    "SimilarityResult": "elmokit.analysis.similarity.rate",
    "TaggedCorpus": "elmokit.analysis.senses.data",
    "TaggedText": "elmokit.analysis.probes.tokens",
    "TokenPair": "elmokit.analysis.plots.maps",
    "Use": "elmokit.analysis.uses",
    "WordChange": "elmokit.analysis.drift.measure",
    "WordMap": "elmokit.analysis.plots.maps",
    "build_graphs": "elmokit.analysis.neighbours.approximate",
    "build_senses": "elmokit.analysis.senses.build",
    "compare_tokens": "elmokit.analysis.plots.maps",
    "draw_pair": "elmokit.analysis.plots.draw",
    "draw_probe": "elmokit.analysis.probes.figure",
    "draw_surprisal": "elmokit.analysis.plots.draw",
    "draw_uses": "elmokit.analysis.plots.draw",
    "draw_weights": "elmokit.analysis.plots.draw",
    "embed_uses": "elmokit.analysis.uses",
    "find_neighbours": "elmokit.analysis.neighbours.nearest",
    "find_uses": "elmokit.analysis.sampling",
    "index_uses": "elmokit.analysis.neighbours.indexing",
    "induce_senses": "elmokit.analysis.senses.induce",
    "load_inventory": "elmokit.analysis.senses.inventory",
    "map_clusters": "elmokit.analysis.plots.maps",
    "map_uses": "elmokit.analysis.plots.maps",
    "marked_use": "elmokit.analysis.uses",
    "measure_drift": "elmokit.analysis.drift.measure",
    "open_graphs": "elmokit.analysis.neighbours.approximate",
    "open_index": "elmokit.analysis.neighbours.index",
    "probe_layers": "elmokit.analysis.probes.probe",
    "rate_similarity": "elmokit.analysis.similarity.rate",
    "read_first_senses": "elmokit.analysis.senses.data",
    "read_pairs": "elmokit.analysis.similarity.pairs",
    "read_tagged": "elmokit.analysis.senses.data",
    "read_tagged_text": "elmokit.analysis.probes.tokens",
    "read_uses": "elmokit.analysis.uses",
    "sample": "elmokit.analysis.sampling",
    "sample_both": "elmokit.analysis.drift.measure",
    "score_first_senses": "elmokit.analysis.senses.score",
    "score_senses": "elmokit.analysis.senses.score",
    "tag_senses": "elmokit.analysis.senses.tag",
}

if not TYPE_CHECKING:  # A type checker would accept any misspelt name.

    def __getattr__(name: str) -> object:
        import importlib

        if name not in MODULES:
            raise AttributeError(f"module 'elmokit.analysis' has no attribute {name!r}")
        return getattr(importlib.import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
