"""ELMo of a text that is still being written: the forward half of a frozen biLM.

The backward half of a word's vectors has read what follows, which a decoder is only about to
write. The forward half has read `<S>` and the words up to this one. So the decoder gets, beside
the word that it wrote last, the forward columns of every layer, mixed. All words of a target that
is known are read at once; a text that is being written is read word by word, its state carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from elmokit.model.bilm import BiLM, BiLMState
from elmokit.model.lstm import LayerState
from elmokit.tasks.layers.embedder import elmo_layer
from elmokit.tasks.seq2seq.targets import UNKNOWN
from elmokit.tasks.settings import Settings
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmokit.text.vocabulary import UNKNOWN as UNKNOWN_WORD

if TYPE_CHECKING:
    from elmokit.embed import Embedder

WORDS_AT_ONCE = 256


class ForwardElmo(nn.Module):
    """Forward layers of a biLM, frozen and not among the weights, and a mix of them, which is."""

    table: Tensor

    def __init__(self, elmo: Embedder, words: Sequence[str], settings: Settings) -> None:
        """A new mix for a model of the target's language.

        Args:
            elmo: what `elmokit.load` gave.
            words: of the target's vocabulary, without the end and the unknown word; their token
                vectors are computed here, once.
            settings: which layers, how much dropout, the weight of the penalty. Layers are never
                normalised: that would need the numbers of words that are not written yet.
        """
        super().__init__()
        object.__setattr__(self, "elmo", elmo)  # not a submodule
        plain = replace(settings, placement="input", layer_norm=False, tune_elmo=False)
        self.mix = elmo_layer(elmo, plain)
        self.dim = elmo.config.projection_dim
        every = [END_SENTENCE, UNKNOWN_WORD, *words, BEGIN_SENTENCE]  # the begin is -1: the last
        self.register_buffer("table", self.spell(every), persistent=False)  # (V + 1, dim)

    def tokens(self, words: Tensor, spelled: Tensor | None) -> Tensor:
        """Token vectors of words by their numbers, as the decoder has them: (T, n) to (T, n, dim).

        Words from V on are found in `spelled` (texts, own words, dim), which may serve several
        rows for each text; without it they are unknown words.
        """
        own = words - (len(self.table) - 1)  # their places in `spelled`
        vectors = self.table[words.masked_fill(own >= 0, UNKNOWN)]
        if spelled is None or not spelled.shape[1]:
            return vectors
        rows = torch.arange(words.shape[1], device=words.device) * len(spelled) // words.shape[1]
        copied = spelled[rows, own.clamp_min(0)]
        return torch.where((own >= 0).unsqueeze(-1), copied, vectors)

    @torch.no_grad()
    def spell(self, words: Sequence[str]) -> Tensor:
        """Token vectors of some words, before any context: (words, dim)."""
        elmo: Embedder = self.elmo  # type: ignore[assignment]
        encode = elmo.model.token_encoder
        vectors = [torch.zeros(0, self.dim, device=elmo.device)]
        for start in range(0, len(words), WORDS_AT_ONCE):
            ids = torch.from_numpy(elmo.indexer.encode(words[start : start + WORDS_AT_ONCE]))
            vectors.append(encode(ids.to(elmo.device)))
        return torch.cat(vectors)

    def start(self, rows: int) -> list[LayerState]:
        """What is remembered of texts that have not begun."""
        return BiLMState.zeros(self._bilm().config, rows, self.table.device).forward

    def forward(self, tokens: Tensor, state: list[LayerState]) -> tuple[Tensor, list[LayerState]]:
        """Token vectors (steps, rows, dim) to vectors in context, and the state after them."""
        layers, state = self.layers(tokens, state)
        return self.mix.dropout(self.mix.mixes[0](layers)), state

    @torch.no_grad()
    def layers(self, tokens: Tensor, state: list[LayerState]) -> tuple[Tensor, list[LayerState]]:
        """The forward half of every layer, (L + 1, steps, rows, dim), and the state."""
        bilm = self._bilm()
        steps, rows, dim = tokens.shape
        x = tokens.reshape(steps * rows, dim)
        outputs, after = [x], []
        for number, layer in enumerate(bilm.forward_layers):
            y, last = layer(x, [rows] * steps, state[number])
            x = y + x if number and bilm.config.skip_connections else y
            outputs.append(x)
            after.append(last)
        return torch.stack(outputs).view(-1, steps, rows, dim), after

    def penalty(self) -> Tensor:
        """What the mix adds to the loss."""
        return self.mix.penalty()

    def _bilm(self) -> BiLM:
        """The biLM, where the other weights are."""
        elmo: Embedder = self.elmo  # type: ignore[assignment]
        if elmo.device != self.table.device:
            elmo.to(self.table.device)
        return elmo.model
