"""Tokens to the input of a task's model: h = [static or learned vector; characters; ELMo].

ELMo's vectors come from a frozen biLM through a store that keeps them on the disk, or from a biLM
that is trained along. Each placement has a scalar mix of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.config import BiLMConfig
from elmokit.layer import ElmoLayer
from elmokit.model.batch import TokenBatch, make_batch
from elmokit.model.encoders import CharCNN
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE, CharacterIndexer

if TYPE_CHECKING:
    from elmokit.embed import Embedder
    from elmokit.store import LayerStore
    from elmokit.tasks.settings import Settings
    from elmokit.vectors.static.table import StaticVectors

RARE = 2  # a word that stands in the training text less often has no learned vector
CHARACTERS = 25  # of a word that the small CNN reads


@dataclass(frozen=True)
class Encoded:
    """The vectors of a batch of texts."""

    vectors: Tensor
    """The input of the task's RNN, dropout applied, 0 where padded: (texts, tokens, dim)."""
    late: Tensor | None
    """ELMo's vectors for the output of the RNN, if wanted there: (texts, tokens, late_dim)."""
    mask: Tensor
    """True where there is a token: (texts, tokens)."""

    def join(self, outputs: Tensor) -> Tensor:
        """Outputs of the RNN, with ELMo's vectors beside them if wanted there."""
        return outputs if self.late is None else torch.cat([outputs, self.late], dim=-1)


class Inputs(nn.Module):
    """Makes the input vectors of a task's model; what is frozen is not among its weights."""

    def __init__(
        self,
        settings: Settings,
        words: Sequence[str],
        *,
        vectors: StaticVectors | None = None,
        elmo: Embedder | None = None,
        store: LayerStore | None = None,
    ) -> None:
        """Set up all that the settings ask for.

        Args:
            settings: complete ones.
            words: of the training text, for vectors that are learned; see `known_words`.
            vectors: static word vectors.
            elmo: the biLM; None for a model without ELMo.
            store: keeps the layers of a frozen biLM.
        """
        super().__init__()
        self.words = {word: row for row, word in enumerate(words, start=1)}  # row 0: unknown
        object.__setattr__(self, "static", vectors)  # neither is a submodule
        object.__setattr__(self, "store", store)
        self.fixed_dim = 0 if vectors is None else vectors.dim
        self.unknown = nn.Parameter(torch.zeros(self.fixed_dim)) if vectors is not None else None
        self.learned = _table(len(words) + 1, settings.word_dim, spread=0.1)
        tuned = settings.tune_words and vectors is not None
        self.correction = _table(len(words) + 1, self.fixed_dim if tuned else 0, spread=0.0)
        self.characters = small_cnn(settings.characters) if settings.characters else None
        self.dropout = nn.Dropout(settings.dropout)
        self.elmo = elmo_layer(elmo, settings) if elmo is not None else None
        self.placement = settings.placement
        elmo_dim = 0 if elmo is None else elmo.dim
        early, late = settings.placement != "output", settings.placement != "input"
        self.dim = self.fixed_dim + settings.word_dim + settings.characters + early * elmo_dim
        self.late_dim = late * elmo_dim

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next((p.device for p in self.parameters()), torch.device("cpu"))

    def forward(self, texts: Sequence[Sequence[str]]) -> Encoded:
        """The vectors of some tokenized texts."""
        batch = make_batch(texts, CharacterIndexer(CHARACTERS)).to(self.device)
        parts = [self.dropout(part) for part in self._own_parts(batch, _distinct(texts))]
        late = None
        if self.elmo is not None:
            mixed = self.elmo.mix(self._layers(texts)).outputs
            late = mixed[-1] if self.placement != "input" else None
            parts += [mixed[0]] if self.placement != "output" else []
        if not parts:  # ELMo at the output alone: the RNN still has something to read
            parts = [torch.zeros(*batch.mask.shape, self.dim, device=self.device)]
        vectors = torch.cat(parts, dim=-1).masked_fill(~batch.mask.unsqueeze(-1), 0.0)
        return Encoded(vectors, late, batch.mask)

    def _own_parts(self, batch: TokenBatch, words: list[str]) -> list[Tensor]:
        """Each distinct word's vectors, laid out over the texts: (texts, tokens, columns) each."""
        parts: list[Tensor] = []
        rows = torch.tensor([self.words.get(word, 0) for word in words], device=self.device)
        if self.unknown is not None:
            fixed = self._fixed(words)  # (words, fixed_dim)
            if self.correction is not None:
                fixed = fixed + self.correction(rows) * (rows > 0).unsqueeze(1)
            parts.append(fixed)
        if self.learned is not None:
            parts.append(self.learned(rows))
        if self.characters is not None:
            parts.append(self.characters(batch.features))
        return [part[batch.index] for part in parts]

    def _fixed(self, words: list[str]) -> Tensor:
        static: StaticVectors = self.static  # type: ignore[assignment]
        rows = static.rows(words)
        found = torch.from_numpy(np.array(static.vectors[np.maximum(rows, 0)], np.float32))
        missing = torch.from_numpy(rows < 0).unsqueeze(1).to(self.device)
        assert self.unknown is not None
        return torch.where(missing, self.unknown, found.to(self.device))

    def _layers(self, texts: Sequence[Sequence[str]]) -> Any:
        assert self.elmo is not None
        store: LayerStore | None = self.store  # type: ignore[assignment]
        return self.elmo.hidden_states(texts) if store is None else store.layers(texts)

    def penalty(self) -> Tensor:
        """What the mixes add to the loss."""
        if self.elmo is None:
            return torch.zeros((), device=self.device)
        return self.elmo.penalty()

    def mixes(self) -> dict[str, dict[str, Any]]:
        """Each placement's layer weights and scale, for a report."""
        if self.elmo is None:
            return {}
        names = {"input": ["input"], "output": ["output"], "both": ["input", "output"]}
        return {
            name: {
                "weights": [round(w, 4) for w in mix.proportions().tolist()],  # type: ignore[operator]
                "scale": round(mix.gamma.item(), 4),  # type: ignore[operator]
            }
            for name, mix in zip(names[self.placement], self.elmo.mixes, strict=True)
        }


def known_words(texts: Iterable[Sequence[str]], settings: Settings) -> list[str]:
    """Words of the training text that get vectors of their own, where any are learned."""
    if not settings.word_dim and not settings.tune_words:
        return []
    counts = Counter(word for text in texts for word in text)
    return sorted(word for word, count in counts.items() if count >= RARE)


def elmo_layer(elmo: Embedder, settings: Settings) -> ElmoLayer:
    """The biLM with a mix for each placement."""
    top = elmo.config.num_layers
    only = {"all": None, "average": None, "top": top}
    layer = ElmoLayer(
        elmo,
        outputs=2 if settings.placement == "both" else 1,
        dropout=settings.elmo_dropout,
        layer_norm=settings.layer_norm,
        trainable=settings.tune_elmo,
        l2=settings.l2,
        layer=only[settings.layers] if settings.layers in only else int(settings.layers),
    )
    if settings.layers == "average":
        for mix in layer.mixes:
            mix.weights.requires_grad_(False)
    return layer


def small_cnn(columns: int) -> CharCNN:
    """A character CNN for a task's own use: `columns` filters over three characters."""
    config = BiLMConfig(
        max_characters=CHARACTERS,
        character_dim=16,
        filters=((3, columns),),
        highway_layers=0,
        project_tokens=False,
        projection_dim=columns,
        lstm_dim=columns,
    )
    return CharCNN(config)


def _distinct(texts: Sequence[Sequence[str]]) -> list[str]:
    """The distinct words in the order of `make_batch`: the sentence boundaries come first."""
    words = (word for text in texts for word in text)
    return list(dict.fromkeys(chain((BEGIN_SENTENCE, END_SENTENCE), words)))


def _table(rows: int, columns: int, *, spread: float) -> nn.Embedding | None:
    if columns == 0:
        return None
    table = nn.Embedding(rows, columns)
    nn.init.uniform_(table.weight, -spread, spread)
    return table
