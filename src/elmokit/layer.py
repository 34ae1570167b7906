"""ELMo inside a task model: one biLM, frozen or trained along, and n scalar mixes.

h = [x; ELMo] at the task's input, and with a second mix at the output of its RNN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from elmokit.errors import ElmokitError
from elmokit.model.batch import make_batch
from elmokit.model.bilm import BiLMOutput
from elmokit.model.scalar_mix import ScalarMix

if TYPE_CHECKING:
    from elmokit.embed import Embedder


@dataclass(frozen=True)
class Representations:
    """What an ElmoLayer gives for a batch."""

    outputs: list[Tensor]
    """One for each mix: (sentences, tokens, dim), 0 where padded."""
    mask: Tensor
    """True where there is a token: (sentences, tokens)."""


class ElmoLayer(nn.Module):
    """Contextual vectors as a layer of a task model.

    A frozen biLM is not among the module's parameters and not in its state dict, so a task
    model's file stays small; only the mixes are. With `trainable=True` it is part of the module.
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
            elmo: what `elmokit.load` gave.
            outputs: number of mixes, each with its own weights (input and output placement).
            dropout: applied to each output, in training.
            layer_norm: normalise each layer before mixing.
            trainable: train the biLM too.
            l2: pulls the mixes' weights towards the average; see `penalty`.
            layer: use this layer alone.
        """
        super().__init__()
        if outputs < 1:
            raise ElmokitError(f"an ElmoLayer has at least 1 output, not {outputs}")
        object.__setattr__(self, "elmo", elmo)  # not a submodule: see the class's docstring
        self.bilm = elmo.model if trainable else None
        self.mixes = nn.ModuleList(
            ScalarMix(elmo.config.num_layers + 1, layer_norm=layer_norm, l2=l2, only=layer)
            for _ in range(outputs)
        )
        self.dropout = nn.Dropout(dropout)
        self.dim = elmo.dim

    def forward(self, sentences: Sequence[Sequence[str]]) -> Representations:
        """Tokenized sentences to `outputs` tensors of (sentences, tokens, dim)."""
        return self.mix(self.hidden_states(sentences))

    def hidden_states(self, sentences: Sequence[Sequence[str]]) -> BiLMOutput:
        """The biLM's layers, with gradients if it is trained along and gradients are on."""
        elmo: Embedder = self.elmo  # type: ignore[assignment]
        if self.bilm is None or not (self.training or torch.is_grad_enabled()):
            return elmo.layers_of(sentences)
        return self.bilm(make_batch(sentences, elmo.indexer).to(elmo.device))  # type: ignore[no-any-return]

    def mix(self, output: BiLMOutput) -> Representations:
        """Mix layers that were computed before, such as kept ones of a frozen biLM."""
        device = next(self.mixes.parameters()).device
        layers, mask = output.hidden_states.to(device), output.mask.to(device)
        outputs = [
            self.dropout(mix(layers, mask)).masked_fill(~mask.unsqueeze(-1), 0.0)
            for mix in self.mixes
        ]
        return Representations(outputs, mask)

    def penalty(self) -> Tensor:
        """The sum of the mixes' L2 terms, to be added to the task's loss."""
        return torch.stack([mix.penalty() for mix in self.mixes]).sum()  # type: ignore[operator]
