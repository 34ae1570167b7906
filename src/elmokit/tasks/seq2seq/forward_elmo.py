"""ELMo vectors of a text that is still being written: the forward half of a frozen biLM.

The backward half of a word's vectors depends on what follows, which the decoder has not written
yet. So it gets, beside the word that it wrote last, a mix of the forward columns of all layers. A
known target is read at once, an unfinished text word by word, with the state carried along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from elmokit.embed import Embedder
from elmokit.model.bilm import BiLMState
from elmokit.model.lstm import LayerState
from elmokit.tasks.layers.embedder import elmo_layer
from elmokit.tasks.seq2seq.targets import UNKNOWN
from elmokit.tasks.settings import TrainSettings
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmokit.text.vocabulary import UNKNOWN as UNKNOWN_WORD

WORDS_PER_BATCH = 256


class ForwardElmo(nn.Module):
    """A trained mix of the forward layers of a frozen biLM, which is not among the weights."""

    table: Tensor

    def __init__(self, elmo: Embedder, words: Sequence[str], settings: TrainSettings) -> None:
        """Build a mix for a model of the target's language; `words` are the target's vocabulary."""
        super().__init__()
        self.elmo = elmo
        # A layer norm would need words that are not written yet.
        plain = replace(settings, placement="input", layer_norm=False, tune_elmo=False)
        self.mix = elmo_layer(elmo, plain)
        self.dim = elmo.config.projection_dim
        every = [END_SENTENCE, UNKNOWN_WORD, *words, BEGIN_SENTENCE]  # The begin is index -1.
        self.register_buffer("table", self.spell(every), persistent=False)  # (V + 1, dim)

    def tokens(self, words: Tensor, spelled: Tensor | None) -> Tensor:
        """Return the token vectors of words: indices of the decoder (T, n) to (T, n, dim).

        Words from V on are in `spelled` (texts, own words, dim), which may serve several rows for
        each text; without it they are unknown words.
        """
        own = words - (len(self.table) - 1)  # indices in `spelled`
        vectors = self.table[words.masked_fill(own >= 0, UNKNOWN)]
        if spelled is None or not spelled.shape[1]:
            return vectors
        rows = torch.arange(words.shape[1], device=words.device) * len(spelled) // words.shape[1]
        copied = spelled[rows, own.clamp_min(0)]
        return torch.where((own >= 0).unsqueeze(-1), copied, vectors)

    @torch.no_grad()
    def spell(self, words: Sequence[str]) -> Tensor:
        """Return the token vectors of words, before any context: (words, dim)."""
        encode, device = self.elmo.model.token_encoder, self.elmo.device
        vectors = [torch.zeros(0, self.dim, device=device)]
        for start in range(0, len(words), WORDS_PER_BATCH):
            ids = self.elmo.indexer.encode(words[start : start + WORDS_PER_BATCH])
            vectors.append(encode(torch.from_numpy(ids).to(device)))
        return torch.cat(vectors)

    def start(self, rows: int) -> list[LayerState]:
        """Move the biLM to the device of the weights; return the state before `rows` texts."""
        if self.elmo.device != self.table.device:
            self.elmo.to(self.table.device)
        return BiLMState.zeros(self.elmo.config, rows, self.table.device).forward

    def forward(self, tokens: Tensor, state: list[LayerState]) -> tuple[Tensor, list[LayerState]]:
        """Return the vectors in context of token vectors (steps, rows, dim), and the state."""
        layers, state = self.layers(tokens, state)
        return self.mix.dropout(self.mix.mixes[0](layers)), state

    @torch.no_grad()
    def layers(self, tokens: Tensor, state: list[LayerState]) -> tuple[Tensor, list[LayerState]]:
        """Return the forward half of every layer, (L + 1, steps, rows, dim), and the state."""
        bilm = self.elmo.model
        steps, rows, dim = tokens.shape
        packed = tokens.reshape(steps * rows, dim)
        outputs, after = bilm.run_stack(bilm.forward_layers, packed, [rows] * steps, state)
        return torch.stack(outputs).view(-1, steps, rows, dim), after
