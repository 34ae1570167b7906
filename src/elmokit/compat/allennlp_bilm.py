"""The biLM behind `elmokit.allennlp.Elmo`: character ids to layers, with AllenNLP's state dict.

The layers include `<S>` and `</S>`, which the mixes need for AllenNLP's layer norm.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.config import BiLMConfig
from elmokit.engine import Engine, build_model
from elmokit.errors import InvalidInput, UnsupportedFormat
from elmokit.formats import allennlp
from elmokit.formats.checkpoint import Checkpoint
from elmokit.model.batch import TokenBatch, token_mask, with_boundaries
from elmokit.model.bilm import BiLMOutput, BiLMState, unflatten
from elmokit.text.characters import BEGIN_SENTENCE, END_SENTENCE, PADDING_ID, CharacterIndexer


class CharacterBiLM(nn.Module):
    """The biLM behind an Elmo, with `<S>` and `</S>` in its output."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        requires_grad: bool,
        vocab_to_cache: Sequence[str] | None,
        stateful: bool,
    ) -> None:
        super().__init__()
        self.bilm = build_model(_without_softmax(checkpoint)).requires_grad_(requires_grad)
        self.config = self.bilm.config
        self.num_layers = self.config.num_layers + 1
        self.stateful = stateful
        indexer = CharacterIndexer(self.config.max_characters)
        self.boundaries: Tensor
        marks = torch.from_numpy(indexer.encode([BEGIN_SENTENCE, END_SENTENCE])).long()
        self.register_buffer("boundaries", marks, persistent=False)
        words = torch.from_numpy(indexer.encode(list(vocab_to_cache or []))).long()
        words[:1] = 0  # The first word stands for padding.
        self.words: Tensor
        self.register_buffer("words", words, persistent=False)
        self.reset_states()
        self._engine = Engine(self.bilm, indexer, precision="float32", cache_bytes=0)

    def get_output_dim(self) -> int:
        return self.config.dim

    def reset_states(self) -> None:
        self._state: BiLMState | None = None

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Map character ids (sentences, tokens, 50) to layers of (sentences, tokens + 2, dim)."""
        batch = self._batch(self._characters(inputs, word_inputs))
        trained = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())
        weight = next(self.parameters())
        state, rows = None, len(batch.lengths)
        if self.stateful:
            state = with_rows(self._state, rows, self.config, weight.device, weight.dtype)
        if weight.dtype == torch.float32 and not trained:
            output = self._fast_layers(batch, state)
        else:
            output = self.bilm(batch, state=state, boundaries=True)
        if self.stateful and output.state is not None:
            self._state = output.state.map(Tensor.detach)
        return {"activations": list(output.hidden_states), "mask": output.mask}

    def _characters(self, inputs: Tensor, word_inputs: Tensor | None) -> Tensor:
        """Return the character ids, those of `vocab_to_cache` if `word_inputs` are given."""
        if word_inputs is None:
            return inputs
        if not len(self.words):
            warnings.warn("word_inputs are not used without vocab_to_cache", stacklevel=4)
            return inputs
        known = (word_inputs >= 0) & (word_inputs < len(self.words))
        # AllenNLP, too, falls back for indices outside the vocabulary.
        return self.words[word_inputs] if known.all() else inputs

    def _batch(self, ids: Tensor) -> TokenBatch:
        """Return a batch of the distinct words of (sentences, tokens, 50) and their positions."""
        if ids.ndim != 3 or ids.shape[2] != self.config.max_characters or ids.is_floating_point():
            shapes = f"(sentences, tokens, {self.config.max_characters}), not {tuple(ids.shape)}"
            raise InvalidInput(f"inputs must be character ids of shape {shapes}")
        if ids.numel() and not 0 <= ids.min() <= ids.max() <= PADDING_ID:
            raise InvalidInput(f"character ids must be 0 to {PADDING_ID}")
        mask = (ids > 0).any(dim=2)
        lengths = mask.sum(dim=1)
        if not torch.equal(mask, token_mask(lengths, ids.shape[1])):
            raise InvalidInput("a sentence has padding (character ids of 0) before its end")
        words, rows = torch.unique(ids[mask], dim=0, return_inverse=True)
        index = torch.zeros(mask.shape, dtype=torch.long, device=ids.device)
        index[mask] = rows + 2
        return TokenBatch(torch.cat([self.boundaries, words]), index, lengths)

    def _fast_layers(self, batch: TokenBatch, state: BiLMState | None) -> BiLMOutput:
        with torch.inference_mode():
            engine = self._engine.packed()
            index, lengths = with_boundaries(batch)
            vectors = engine.encode(batch.features)[index[token_mask(lengths, index.shape[1])]]
            layers, after = engine.run_with_state(vectors, lengths.cpu(), state)
        padded = unflatten(layers.clone(), lengths.clone(), index.shape[1])
        return BiLMOutput(padded, lengths.clone(), after.map(Tensor.clone))

    # ------------------------------------------------------------------ AllenNLP's names
    def state_dict(self, *args: Any, prefix: str = "", **settings: Any) -> dict[str, Any]:  # type: ignore[override]
        tensors: dict[str, Any] = super().state_dict(*args, prefix=prefix, **settings)
        for row in allennlp.rows(self.config):
            ours = [tensors.pop(f"{prefix}bilm.{name}") for name in row.ours]
            array = row.write(*(tensor.detach().float().cpu().numpy() for tensor in ours))
            tensors[prefix + row.theirs] = torch.from_numpy(array.copy()).to(ours[0])
        return tensors

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **settings: Any
    ) -> None:
        errors: list[str] = args[-1]
        state_dict.pop(prefix + allennlp.CACHED_WORDS, None)
        for row in allennlp.rows(self.config):
            tensor = state_dict.pop(prefix + row.theirs, None)
            if tensor is None:
                continue
            if tuple(tensor.shape) != row.shape:
                shapes = f"{list(tensor.shape)}, not {list(row.shape)}"
                errors.append(f"{prefix}{row.theirs} has the shape {shapes}")
                continue
            parts = row.read(tensor.detach().float().cpu().numpy())
            for name, part in zip(row.ours, parts, strict=True):
                state_dict[f"{prefix}bilm.{name}"] = torch.from_numpy(np.ascontiguousarray(part))
        super()._load_from_state_dict(state_dict, prefix, *args, **settings)


def with_rows(
    state: BiLMState | None,
    rows: int,
    config: BiLMConfig,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> BiLMState:
    """Return a carried state with at least `rows` rows; new ones are zeros."""
    more = max(0, rows - (0 if state is None else state.rows))
    zeros = BiLMState.zeros(config, more, device, dtype)
    return zeros if state is None else BiLMState.cat([state, zeros])


def _without_softmax(checkpoint: Checkpoint) -> Checkpoint:
    """Remove softmax and inner dropout; raise if AllenNLP cannot represent the model."""
    config, source = checkpoint.config, checkpoint.source
    if (kind := config.token_encoder) != "characters":
        raise UnsupportedFormat(f"Elmo needs a model on characters, but {source} is on {kind}")
    if not (config.project_tokens and config.project_state):
        raise UnsupportedFormat(f"Elmo needs token and state projections, but {source} lacks one")
    tensors = {n: t for n, t in checkpoint.tensors.items() if not n.startswith("softmax.")}
    config = replace(config, vocabulary_size=0, dropout=0.0)
    return replace(checkpoint, config=config, tensors=tensors, vocabulary=None)
