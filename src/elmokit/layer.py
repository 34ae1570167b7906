"""ELMo inside a task model: one biLM, frozen or trained along, and one or more scalar mixes.

A task model concatenates a mix to its input vectors, h = [x; ELMo], and may concatenate a second
mix to the output of its RNN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmokit.embed import Embedder
from elmokit.errors import InvalidInput
from elmokit.model.batch import make_batch
from elmokit.model.bilm import BiLMOutput
from elmokit.model.scalar_mix import ScalarMix


@dataclass(frozen=True)
class Representations:
    """What an ElmoLayer returns for a batch."""

    outputs: list[Tensor]
    """One tensor per mix: (sentences, tokens, dim), 0 where padded."""
    mask: Tensor
    """True where there is a token: (sentences, tokens)."""


class ElmoLayer(nn.Module):
    """Contextual vectors as a layer of a task model.

    A frozen biLM is not a submodule: its weights are neither among the parameters nor in the state
    dict, so a task model's file stays small. With `trainable=True` it is a submodule.
    """

    def __init__(
        self,
        elmo: Embedder,
        *,
        outputs: int = 1,
        dropout: float = 0.5,
        layer_norm: bool = False,
        trainable: bool = False,
        l2: float = 0.0,
        layer: int | None = None,
    ) -> None:
        """Put an embedder into a task model.

        Args:
            elmo: what `elmokit.load` returned.
            outputs: number of mixes, each with its own weights.
            dropout: applied to each output during training.
            layer_norm: normalize each layer before mixing.
            trainable: train the biLM too.
            l2: pulls the weights of the mixes towards the average; see `penalty`.
            layer: use this layer alone.
        """
        super().__init__()
        if outputs < 1:
            raise InvalidInput(f"outputs must be at least 1, not {outputs}")
        object.__setattr__(self, "elmo", elmo)  # This keeps it from becoming a submodule.
        self.bilm = elmo.model if trainable else None
        self.mixes = nn.ModuleList(
            ScalarMix(elmo.config.num_layers + 1, layer_norm=layer_norm, l2=l2, only=layer)
            for _ in range(outputs)
        )
        self.dropout = nn.Dropout(dropout)
        self.dim = elmo.dim

    def forward(self, sentences: Sequence[Sequence[str]]) -> Representations:
        """Embed tokenized sentences: `outputs` tensors of (sentences, tokens, dim)."""
        return self.mix(self.hidden_states(sentences))

    def hidden_states(self, sentences: Sequence[Sequence[str]]) -> BiLMOutput:
        """Run the biLM, with gradients if it is trained and gradients are enabled."""
        elmo: Embedder = self.elmo  # type: ignore[assignment]
        if self.bilm is None or not (self.training or torch.is_grad_enabled()):
            return elmo.layers_of(sentences)
        return self.bilm(make_batch(sentences, elmo.indexer).to(elmo.device))  # type: ignore[no-any-return]

    def mix(self, output: BiLMOutput) -> Representations:
        """Mix hidden states that were computed before, such as stored ones of a frozen biLM."""
        device = next(self.mixes.parameters()).device
        hidden_states, mask = output.hidden_states.to(device), output.mask.to(device)
        outputs = [
            self.dropout(mix(hidden_states, mask)).masked_fill(~mask.unsqueeze(-1), 0.0)
            for mix in self.mixes
        ]  # (sentences, tokens, dim) each
        return Representations(outputs, mask)

    def penalty(self) -> Tensor:
        """Return the sum of the L2 terms of the mixes, to be added to the task's loss."""
        return torch.stack([mix.penalty() for mix in self.mixes]).sum()  # type: ignore[operator]
