"""From tokens to the input of a task's model: h = [static or learned vector; characters; ELMo]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.config import BiLMConfig
from elmokit.embed import Embedder
from elmokit.layer import ElmoLayer
from elmokit.model.batch import TokenBatch, make_batch
from elmokit.model.encoders import CharCNN
from elmokit.store import LayerStore
from elmokit.tasks.settings import TrainSettings
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE, CharacterIndexer
from elmokit.vectors.static.table import StaticVectors

MIN_COUNT = 2  # a word that occurs less often in the training data has no learned vector
MAX_CHARACTERS = 25  # of a word that the small CNN reads


@dataclass(frozen=True)
class Encoded:
    """The vectors of a batch of texts."""

    vectors: Tensor  # input of the RNN, dropout applied, 0 where padded: (texts, tokens, dim)
    late: Tensor | None  # ELMo vectors for the RNN's output, if placed there: (texts, tokens, dim)
    mask: Tensor  # True where there is a token: (texts, tokens)

    def join(self, outputs: Tensor) -> Tensor:
        return outputs if self.late is None else torch.cat([outputs, self.late], dim=-1)


class Inputs(nn.Module):
    """Compute the input vectors of a task's model; what is frozen is not among its weights."""

    def __init__(
        self,
        settings: TrainSettings,
        words: Sequence[str],
        vectors: StaticVectors | None = None,
        elmo: Embedder | None = None,
        store: LayerStore | None = None,
    ) -> None:
        """Build the parts that the settings request; `words` (see `known_words`) get vectors."""
        super().__init__()
        self.words = {word: row for row, word in enumerate(words, start=1)}  # row 0: unknown
        word_dim = settings.word_dim or 0
        self.static, self.store = vectors, store
        fixed_dim = 0 if vectors is None else vectors.dim
        self.unknown = nn.Parameter(torch.zeros(fixed_dim)) if vectors is not None else None
        self.learned = _table(len(words) + 1, word_dim, spread=0.1)
        tuned_dim = fixed_dim if settings.tune_words else 0
        self.correction = _table(len(words) + 1, tuned_dim, spread=0.0)
        self.characters = _small_cnn(settings.char_dim) if settings.char_dim else None
        self.dropout = nn.Dropout(settings.dropout)
        self.elmo = elmo_layer(elmo, settings) if elmo is not None else None
        self.placement = settings.placement
        elmo_dim = 0 if elmo is None else elmo.dim
        own_dim = fixed_dim + word_dim + settings.char_dim
        self.dim = own_dim if settings.placement == "output" else own_dim + elmo_dim
        self.late_dim = 0 if settings.placement == "input" else elmo_dim

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.parameters()), torch.device("cpu"))

    def forward(self, texts: Sequence[Sequence[str]]) -> Encoded:
        batch = make_batch(texts, CharacterIndexer(MAX_CHARACTERS)).to(self.device)
        # In the order of `make_batch`, the sentence boundaries first.
        words = list(dict.fromkeys(chain((BEGIN_SENTENCE, END_SENTENCE), *texts)))
        parts = [self.dropout(part) for part in self._own_parts(batch, words)]
        late = None
        if self.elmo is not None:
            source = self.elmo.hidden_states if self.store is None else self.store.layers
            mixed = self.elmo.mix(source(texts)).outputs
            late = mixed[-1] if self.placement != "input" else None
            parts += [mixed[0]] if self.placement != "output" else []
        if not parts:  # With ELMo at the output alone, the RNN still needs an input.
            parts = [torch.zeros(*batch.mask.shape, self.dim, device=self.device)]
        vectors = torch.cat(parts, dim=-1).masked_fill(~batch.mask.unsqueeze(-1), 0.0)
        return Encoded(vectors, late, batch.mask)

    def _own_parts(self, batch: TokenBatch, words: list[str]) -> list[Tensor]:
        """Return the vectors of each kind but ELMo, as (texts, tokens, columns) each."""
        parts: list[Tensor] = []
        rows = torch.tensor([self.words.get(word, 0) for word in words], device=self.device)
        if self.static is not None and self.unknown is not None:
            indices = self.static.rows(words)  # -1 if it has no such word: (words,)
            vectors = np.array(self.static.vectors[np.maximum(indices, 0)], np.float32)
            known, missing = torch.from_numpy(vectors), torch.from_numpy(indices < 0).unsqueeze(1)
            fixed = torch.where(missing.to(self.device), self.unknown, known.to(self.device))
            if self.correction is not None:
                fixed = fixed + self.correction(rows) * (rows > 0).unsqueeze(1)
            parts.append(fixed)
        if self.learned is not None:
            parts.append(self.learned(rows))
        if self.characters is not None:
            parts.append(self.characters(batch.features))
        return [part[batch.index] for part in parts]

    def penalty(self) -> Tensor:
        return torch.zeros((), device=self.device) if self.elmo is None else self.elmo.penalty()

    def mixes(self) -> dict[str, dict[str, Any]]:
        if self.elmo is None:
            return {}
        names = ["input", "output"] if self.placement == "both" else [self.placement]
        return {
            name: {
                "weights": [round(w, 4) for w in mix.proportions().tolist()],  # type: ignore[operator]
                "scale": round(mix.gamma.item(), 4),  # type: ignore[operator]
            }
            for name, mix in zip(names, self.elmo.mixes, strict=True)
        }


def known_words(texts: Iterable[Sequence[str]], settings: TrainSettings) -> list[str]:
    """Return the words of the training data that get learned vectors, if any are learned."""
    if not settings.word_dim and not settings.tune_words:
        return []
    counts = Counter(word for text in texts for word in text)
    return sorted(word for word, count in counts.items() if count >= MIN_COUNT)


def elmo_layer(elmo: Embedder, settings: TrainSettings) -> ElmoLayer:
    """Return the biLM with a mix for each placement."""
    special = {"all": None, "average": None, "top": elmo.config.num_layers}
    layer = ElmoLayer(
        elmo,
        outputs=2 if settings.placement == "both" else 1,
        dropout=settings.elmo_dropout,
        layer_norm=settings.layer_norm,
        trainable=settings.tune_elmo,
        l2=settings.l2,
        layer=special[settings.layers] if settings.layers in special else int(settings.layers),
    )
    if settings.layers == "average":
        for mix in layer.mixes:
            mix.weights.requires_grad_(False)
    return layer


def _small_cnn(dim: int) -> CharCNN:
    sizes: Any = dict.fromkeys(("projection_dim", "lstm_dim"), dim)
    sizes |= {"max_characters": MAX_CHARACTERS, "character_dim": 16, "filters": ((3, dim),)}
    return CharCNN(BiLMConfig(**sizes, highway_layers=0, project_tokens=False))


def _table(rows: int, columns: int, *, spread: float) -> nn.Embedding | None:
    if columns == 0:
        return None
    table = nn.Embedding(rows, columns)
    nn.init.uniform_(table.weight, -spread, spread)
    return table
