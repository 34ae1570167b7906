"""ELMo for PyTorch: contextual word vectors from a bidirectional language model.

The public names are imported when they are first used, so that `import elmokit` alone
costs milliseconds; torch and numpy come with the first name that needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit import allennlp as allennlp
    from elmokit import analysis as analysis
    from elmokit import hub as hub
    from elmokit import manylangs as manylangs
    from elmokit import pretrain as pretrain
    from elmokit import simple_elmo as simple_elmo
    from elmokit import tasks as tasks
    from elmokit.config import BiLMConfig
    from elmokit.embed import Embedder, Sentence
    from elmokit.errors import (
        ElmokitError,
        InvalidInput,
        MissingExtra,
        MissingFile,
        UnsupportedFormat,
    )
    from elmokit.layer import ElmoLayer
    from elmokit.loading import load
    from elmokit.model.bilm import BiLM, BiLMOutput, BiLMState
    from elmokit.model.scalar_mix import ScalarMix
    from elmokit.text.tokenize import tokenize
    from elmokit.vectors.reader import read_vectors
    from elmokit.vectors.shards import VectorShards

    __version__: str

__all__ = [
    "BiLM", "BiLMConfig", "BiLMOutput", "BiLMState", "ElmoLayer", "ElmokitError", "Embedder",
    "InvalidInput", "MissingExtra", "MissingFile", "ScalarMix", "Sentence", "UnsupportedFormat",
    "VectorShards", "__version__", "load", "read_vectors", "tokenize",
]  # fmt: skip

# module: the public names that it defines
MODULES = {
    "config": "BiLMConfig",
    "embed": "Embedder Sentence",
    "errors": "ElmokitError InvalidInput MissingExtra MissingFile UnsupportedFormat",
    "layer": "ElmoLayer",
    "loading": "load",
    "model.bilm": "BiLM BiLMOutput BiLMState",
    "model.scalar_mix": "ScalarMix",
    "text.tokenize": "tokenize",
    "vectors.reader": "read_vectors",
    "vectors.shards": "VectorShards",
}

# modules that are reached as `elmokit.hub`
SUBMODULES = ("allennlp", "analysis", "hub", "manylangs", "pretrain", "simple_elmo", "tasks")

if not TYPE_CHECKING:  # a type checker would take any misspelt name for granted

    def __getattr__(name: str) -> object:
        import importlib

        if name == "__version__":
            from importlib.metadata import PackageNotFoundError, version

            try:
                return version("elmokit")
            except PackageNotFoundError:  # a source tree that was never installed
                return "unknown"
        if name in SUBMODULES:
            return importlib.import_module(f"elmokit.{name}")
        for module, names in MODULES.items():
            if name in names.split():
                return getattr(importlib.import_module(f"elmokit.{module}"), name)
        raise AttributeError(f"module 'elmokit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *SUBMODULES})
