"""The decoder of translation and summarization: an LSTM with attention that writes word by word.

    last word ─┐
    its ELMo  ─┼─► LSTM ─► attention over the source ─► output ─► words of the vocabulary ─┐
    output of ─┘                      │                   │                                ├─► word
    the step before                   └──► words of the source ◄── share (with copying) ───┘

Words are indices; see targets.py. Shapes: B texts of S source tokens, n = B * k rows (k hypotheses
of a text; 1 in training), T steps, H cells, V words of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.model.lstm import LayerState
from elmokit.model.softmax import Softmax
from elmokit.tasks.layers.attention import masked_softmax
from elmokit.tasks.seq2seq.targets import BEGIN, UNKNOWN
from elmokit.tasks.settings import Seq2SeqSettings

SMOOTHING = 0.1  # label smoothing, where nothing is copied
ROWS = 256  # rows of logits that are computed at once


@dataclass(frozen=True)
class Source:
    """The texts to rewrite, as the decoder sees them."""

    memory: Tensor  # output of the encoder for each token: (B, S, columns)
    keys: Tensor  # keys of the attention: (B, S, H)
    mask: Tensor  # True where there is a token: (B, S)
    indices: Tensor  # indices of the tokens as words that can be written: (B, S)
    own_words: int  # number of words beyond the vocabulary, of the text that has most
    spelled: Tensor | None  # their vectors for the target's ELMo, if any: (B, own_words, dim)

    def take(self, texts: Tensor) -> Source:
        own: Any = {k: v[texts] for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **own)


@dataclass(frozen=True)
class State:
    """The state of the decoder between two words."""

    layers: list[LayerState]  # h and c of each LSTM layer: (n, H)
    output: Tensor  # output of the step before, which is fed in again: (n, H)
    elmo: list[LayerState]  # h and c of the target's ELMo, if there is one

    def take(self, rows: Tensor) -> State:
        layers, elmo = ([(h[rows], c[rows]) for h, c in x] for x in (self.layers, self.elmo))
        return State(layers, self.output[rows], elmo)


@dataclass(frozen=True)
class Written:
    """What the decoder returns for some steps."""

    outputs: Tensor  # (T, n, H)
    attention: Tensor  # over the tokens of each row's source, summing to 1: (T, n, S)
    vectors: Tensor  # its input: (T, n, columns)
    state: State  # after the last step


class Decoder(nn.Module):
    """LSTM layers with attention and input feeding; a word's vector is its row of the softmax."""

    def __init__(
        self, words: int, memory_dim: int, elmo_dim: int, settings: Seq2SeqSettings
    ) -> None:
        super().__init__()
        hidden, depth = settings.hidden, settings.depth
        self.words, self.depth = words, depth
        self.softmax = Softmax(words, hidden)
        self.begin = nn.Parameter(torch.zeros(hidden))
        self.first_state = nn.Linear(2 * hidden, 2 * depth * hidden)
        read = hidden + elmo_dim
        self.cells = nn.ModuleList(
            nn.LSTMCell(read + hidden if layer == 0 else hidden, hidden) for layer in range(depth)
        )
        self.keys = nn.Linear(memory_dim, hidden, bias=False)
        self.combine = nn.Linear(memory_dim + hidden, hidden)
        self.share = nn.Linear(hidden + read, 1) if settings.copy else None
        self.dropout = nn.Dropout(settings.dropout)

    def start(self, summary: Tensor, elmo: list[LayerState]) -> State:
        """Return the state before the first word, from the encoder's summary (B, 2 * H)."""
        states = self.first_state(summary).tanh().chunk(2 * self.depth, dim=1)
        layers = list(zip(states[::2], states[1::2], strict=True))
        return State(layers, torch.zeros_like(states[0]), elmo)

    def embed(self, words: Tensor) -> Tensor:
        """Return the vectors of words: indices (T, n) to (T, n, H)."""
        known = words.masked_fill((words < 0) | (words >= self.words), UNKNOWN)
        vectors = functional.embedding(known, self.softmax.weight)
        return self.dropout(torch.where((words == BEGIN).unsqueeze(-1), self.begin, vectors))  # type: ignore[no-any-return]

    def forward(self, vectors: Tensor, state: State, source: Source) -> Written:
        """Run over vectors of the words before each step, (T, n, H + elmo_dim)."""
        outputs, attention = [], []
        for step in vectors:
            output, weights, state = self.step(step, state, source)
            outputs.append(output)
            attention.append(weights)
        return Written(torch.stack(outputs), torch.stack(attention), vectors, state)

    def step(self, vectors: Tensor, state: State, source: Source) -> tuple[Tensor, Tensor, State]:
        """Read one word, (n, columns); return output (n, H), attention (n, S) and the new state."""
        x = torch.cat([vectors, state.output], dim=1)
        layers = []
        for cell, before in zip(self.cells, state.layers, strict=True):
            layers.append(cell(x, before))
            x = self.dropout(layers[-1][0])
        texts = len(source.keys)
        scores = x.view(texts, -1, x.shape[1]) @ source.keys.transpose(1, 2)  # (B, k, S)
        attention = masked_softmax(scores, source.mask.unsqueeze(1))
        context = (attention @ source.memory).flatten(0, 1)  # (n, columns of the memory)
        output = self.dropout(self.combine(torch.cat([context, x], dim=1)).tanh())
        return output, attention.flatten(0, 1), State(layers, output, state.elmo)

    # ------------------------------------------------------------------ loss
    def loss(self, written: Written, words: Tensor, mask: Tensor, source: Source) -> Tensor:
        """Return the mean negative log probability of the words (T, B) where the mask is True."""
        outputs, right = written.outputs[mask], words[mask]  # (N, H), (N,)
        if self.share is None:
            return self._smoothed_loss(outputs, right) / len(right)
        share = self._share(written.outputs, written.vectors)[mask]
        at_word = source.indices.unsqueeze(0) == words.unsqueeze(2)  # (T, B, S)
        copied = (written.attention * at_word).sum(2)[mask]
        log_known = self._log_probabilities(outputs, right) + functional.logsigmoid(share)
        log_copied = copied.clamp_min(1e-9).log() + functional.logsigmoid(-share)
        log_known = log_known.masked_fill(right >= self.words, -torch.inf)
        return -torch.logaddexp(log_known, log_copied).mean()

    def _smoothed_loss(self, outputs: Tensor, right: Tensor) -> Tensor:
        """Return the sum of the cross entropies with SMOOTHING spread over all words."""
        plain = self.softmax.loss(outputs, right)  # sum of log Z - logit of the right word
        weight, bias = self.softmax.weight, self.softmax.bias
        logits = (outputs * functional.embedding(right, weight)).sum(1) + bias[right]
        mean_logits = outputs @ weight.mean(0) + bias.mean()
        return plain + SMOOTHING * (logits - mean_logits).sum()

    def _log_probabilities(self, outputs: Tensor, right: Tensor) -> Tensor:
        """Return log p of the words by the vocabulary alone, of `unknown` beyond it: (N,)."""
        known = right.masked_fill(right >= self.words, UNKNOWN)
        pieces = zip(torch.split(outputs, ROWS), torch.split(known, ROWS), strict=True)
        return -torch.cat(
            [functional.cross_entropy(self.softmax(x), y, reduction="none") for x, y in pieces]
        )

    def _share(self, outputs: Tensor, vectors: Tensor) -> Tensor:
        """Return the logit of the vocabulary's share in the next word: (T, n)."""
        assert self.share is not None
        return self.share(torch.cat([outputs, vectors], dim=-1)).squeeze(-1)  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ prediction
    def probabilities(self, written: Written, source: Source) -> Tensor:
        """Return the probabilities of all words after the last step: (n, V + own_words).

        That of the unknown word goes to the source's word with the highest attention.
        """
        output, attention = written.outputs[-1], written.attention[-1]
        known = functional.pad(self.softmax(output).softmax(1), (0, source.own_words))
        indices = source.indices.repeat_interleave(len(output) // len(source.keys), 0)  # (n, S)
        if self.share is not None:
            share = self._share(output, written.vectors[-1]).sigmoid().unsqueeze(1)  # (n, 1)
            known = (known * share).scatter_add(1, indices, attention * (1 - share))
        attended = indices.gather(1, attention.argmax(1, keepdim=True))  # (n, 1)
        moved = known.scatter_add(1, attended, known[:, UNKNOWN : UNKNOWN + 1])
        moved[:, UNKNOWN] = 0.0
        return moved
