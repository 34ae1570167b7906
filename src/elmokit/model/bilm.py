"""The bidirectional language model: token vectors through L forward and L backward LSTMs.

    token vectors x ─┬─► forward LSTM 1 ──► … ──► forward LSTM L  ─┐
                     │                                             ├─► softmax (training only)
                     └─► backward LSTM 1 ─► … ──► backward LSTM L ─┘

Layer 0 is the token vector twice; layer l is the output of the l-th forward LSTM beside that of
the l-th backward LSTM. Each sentence runs between `<S>` and `</S>`, which are removed from the
output unless asked for. Both directions share the token encoder and the softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.config import BiLMConfig
from elmokit.errors import InvalidInput
from elmokit.model.batch import TokenBatch, token_mask, with_boundaries
from elmokit.model.encoders import ENCODERS
from elmokit.model.lstm import LayerState, LSTMLayer, pack
from elmokit.model.softmax import Softmax


@dataclass(frozen=True)
class BiLMState:
    """State (h, c) of every LSTM layer, with one row per sentence of the batch."""

    forward: list[LayerState]
    backward: list[LayerState]

    @property
    def rows(self) -> int:
        """Number of sentences."""
        return len(self.forward[0][0])

    @classmethod
    def zeros(
        cls,
        config: BiLMConfig,
        rows: int,
        device: torch.device | str,
        dtype: torch.dtype = torch.float32,
    ) -> BiLMState:
        """Return the state of a model that has not read anything."""
        zeros = partial(torch.zeros, rows, device=device, dtype=dtype)
        size, cells, layers = config.projection_dim, config.lstm_dim, range(config.num_layers)
        forward, backward = ([(zeros(size), zeros(cells)) for _ in layers] for _ in range(2))
        return cls(forward, backward)

    def map(self, function: Callable[..., Tensor], *others: BiLMState) -> BiLMState:
        """Apply a function to every tensor, together with the same tensors of other states."""

        def apply(*directions: list[LayerState]) -> list[LayerState]:
            layers = (zip(*same, strict=True) for same in zip(*directions, strict=True))
            return [(function(*h), function(*c)) for h, c in layers]

        states = (self, *others)
        return BiLMState(apply(*(s.forward for s in states)), apply(*(s.backward for s in states)))

    @classmethod
    def cat(cls, states: Sequence[BiLMState]) -> BiLMState:
        """Concatenate the rows of several states."""
        return states[0].map(lambda *tensors: torch.cat(tensors), *states[1:])

    def take(self, order: Tensor) -> BiLMState:
        """Return the rows of a batch in the order of its packing: order is (sentences,)."""
        if self.rows < len(order):
            raise InvalidInput(
                f"the carried state has {self.rows} rows but the batch has {len(order)} "
                "sentences; start with the largest batch"
            )
        return self.map(lambda tensor: tensor[order])

    def put(self, order: Tensor, after: BiLMState) -> BiLMState:
        """Return this state with a batch's rows replaced; rows beyond the batch are kept."""
        return self.map(lambda old, new: old.index_copy(0, order, new), after)


@dataclass(frozen=True)
class BiLMOutput:
    """Hidden states of all layers for a batch of sentences.

    The 2L + 1 single representations have names: `output["token"]`, `output["forward_1"]`,
    `output["backward_1"]`, and so on, each (sentences, tokens, projection_dim).
    """

    hidden_states: Tensor
    """Layers 0 to L, forward columns first: (L + 1, sentences, tokens, dim); 0 where padded."""
    lengths: Tensor
    """Number of tokens of each sentence, boundaries included if asked for: (sentences,)."""
    state: BiLMState | None = None
    """State after the batch, if the caller carries it."""

    @property
    def mask(self) -> Tensor:
        """True where there is a token: (sentences, tokens)."""
        return token_mask(self.lengths, self.hidden_states.shape[2])

    @property
    def names(self) -> list[str]:
        """Names of the 2L + 1 single representations."""
        return representation_names(len(self.hidden_states) - 1)

    def __getitem__(self, name: str) -> Tensor:
        num_layers, dim = len(self.hidden_states) - 1, self.hidden_states.shape[-1]
        layer, columns = find_representation(name, num_layers, dim)
        return self.hidden_states[layer, ..., columns]


def representation_names(num_layers: int) -> list[str]:
    """Return `token`, then `forward_l` and `backward_l` for each layer."""
    layers = range(1, num_layers + 1)
    directions = ("forward", "backward")
    return ["token", *(f"{direction}_{layer}" for layer in layers for direction in directions)]


def find_representation(name: str, num_layers: int, dim: int) -> tuple[int, slice]:
    """Return the layer and the columns of a named representation."""
    names = representation_names(num_layers)
    if name not in names:
        raise InvalidInput(f"unknown representation {name!r}; choose from {', '.join(names)}")
    direction, _, layer = name.partition("_")
    columns = slice(dim // 2, dim) if direction == "backward" else slice(0, dim // 2)
    return int(layer or 0), columns


class BiLM(nn.Module):
    """A token encoder, L forward and L backward LSTMs, and optionally a softmax."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        self.token_encoder = ENCODERS[config.token_encoder](config)
        self.forward_layers = nn.ModuleList(LSTMLayer(config) for _ in range(config.num_layers))
        self.backward_layers = nn.ModuleList(LSTMLayer(config) for _ in range(config.num_layers))
        self.dropout = nn.Dropout(config.dropout)
        words = config.vocabulary_size
        self.softmax = Softmax(words, config.projection_dim) if words else None

    def forward(
        self,
        batch: TokenBatch,
        *,
        state: BiLMState | Literal["carry"] | None = None,
        boundaries: bool = False,
    ) -> BiLMOutput:
        """Compute the hidden states of all layers, differentiable.

        Args:
            batch: the sentences.
            state: None starts every sentence from zeros. "carry" does too, and returns the state
                after the batch. A returned state continues from there, row by row.
            boundaries: keep `<S>` and `</S>` in the output.
        """
        vectors = self.token_encoder(batch.features)  # (words, projection_dim)
        device = vectors.device
        index, lengths = with_boundaries(batch)  # (sentences, tokens + 2), (sentences,)
        packing = pack(lengths.cpu())
        flat = index[token_mask(lengths, index.shape[1])]  # sentence-major (positions,)
        x = vectors[flat[packing.sentence_major.to(device)]]  # packed (positions, projection_dim)
        order, reverse = packing.order.to(device), packing.reversed.to(device)
        dtype = next(self.parameters()).dtype  # Autocast may give x another one.
        before = given_state(state) or BiLMState.zeros(self.config, len(lengths), device, dtype)
        start = before.take(order)
        sizes = packing.sizes
        forward, forward_state = self.run_stack(self.forward_layers, x, sizes, start.forward)
        backward, backward_state = self.run_stack(
            self.backward_layers, x[reverse], sizes, start.backward
        )
        packed = torch.stack(
            [torch.cat([f, b[reverse]], 1) for f, b in zip(forward, backward, strict=True)]
        )  # (L + 1, positions, dim)
        hidden_states = unflatten(packed[:, packing.packed.to(device)], lengths, index.shape[1])
        if not boundaries:
            hidden_states, lengths = hidden_states[:, :, 1:-1], batch.lengths
            hidden_states = hidden_states.masked_fill(~batch.mask[None, :, :, None], 0.0)
        states = BiLMState(forward_state, backward_state)
        after = None if state is None else before.put(order, states)
        return BiLMOutput(hidden_states, lengths, after)

    def run_stack(
        self, layers: nn.ModuleList, x: Tensor, sizes: list[int], start: list[LayerState]
    ) -> tuple[list[Tensor], list[LayerState]]:
        """Run one direction; return x and each layer's output, packed, and the last states."""
        outputs, states = [x], []
        for i, layer in enumerate(layers):
            y, last = layer(self.dropout(x), sizes, start[i])
            x = y + x if i and self.config.skip_connections else y  # (positions, projection_dim)
            outputs.append(x)
            states.append(last)
        return outputs, states


def given_state(state: BiLMState | str | None) -> BiLMState | None:
    """Return the state to continue from, None if there is none yet; raise for other strings."""
    if isinstance(state, str):
        if state != "carry":
            raise InvalidInput(f"state must be 'carry', a returned state or None, not {state!r}")
        return None
    return state


def unflatten(flat: Tensor, lengths: Tensor, tokens: int) -> Tensor:
    """Pad sentence-major (L + 1, positions, dim) to (L + 1, sentences, tokens, dim)."""
    padded = flat.new_zeros(len(flat), len(lengths), tokens, flat.shape[-1])
    padded[:, token_mask(lengths, tokens)] = flat
    return padded


def weights_version(model: nn.Module) -> tuple[int, ...]:
    """Return integers that change when any parameter is modified in place, replaced or moved.

    Writing through `.data` does not change them.
    """
    return tuple(
        version
        for module in model.modules()
        for parameter in module._parameters.values()
        if parameter is not None
        for version in (parameter.data_ptr(), parameter._version)
    )


def expected_shapes(config: BiLMConfig) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor that a configuration needs."""
    with torch.device("meta"):  # Shapes only: no memory, whatever the sizes are.
        model = BiLM(config)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def build(config: BiLMConfig, tensors: Mapping[str, NDArray[np.float32]]) -> BiLM:
    """Return a model with these weights, in evaluation mode."""
    with torch.device("meta"):
        model = BiLM(config)
    state = {
        name: torch.from_numpy(np.ascontiguousarray(value, np.float32))
        for name, value in tensors.items()
    }
    model.load_state_dict(state, assign=True)
    return model.eval()


def tensors_of(model: BiLM, *, copy: bool = True) -> dict[str, NDArray[np.float32]]:
    """Return the named tensors of a model as NumPy arrays, as copies if `copy`."""
    tensors = {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}
    return {name: value.copy() for name, value in tensors.items()} if copy else tensors
