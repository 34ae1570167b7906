"""The bidirectional language model: token vectors through L forward and L backward LSTMs.

Layer 0 is the token vector twice; layer l the outputs of the l-th forward and backward LSTM side
by side. Each sentence runs between `<S>` and `</S>`, which are taken off again unless asked for.
Both directions share the token encoder and, for language modelling, the softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.config import BiLMConfig
from elmokit.errors import ElmokitError
from elmokit.model.batch import TokenBatch
from elmokit.model.char_cnn import CharCNN, WordTable
from elmokit.model.lstm import LSTMLayer
from elmokit.model.packing import pack
from elmokit.model.softmax import Softmax
from elmokit.model.unicode_encoder import UnicodeEncoder

LayerState = tuple[Tensor, Tensor]
ENCODERS: dict[str, Callable[[BiLMConfig], nn.Module]] = {
    "characters": CharCNN,
    "words": WordTable,
    "unicode": UnicodeEncoder,
}


@dataclass(frozen=True)
class BiLMState:
    """What the LSTMs remember: (h, c) of every layer, a row for each place in the batch."""

    forward: list[LayerState]
    backward: list[LayerState]

    @property
    def rows(self) -> int:
        """Places in the batch."""
        return len(self.forward[0][0])

    @classmethod
    def zeros(
        cls,
        config: BiLMConfig,
        rows: int,
        device: torch.device | str,
        dtype: torch.dtype = torch.float32,
    ) -> BiLMState:
        """What a model remembers before it has read anything."""

        def layer() -> LayerState:
            return (
                torch.zeros(rows, config.projection_dim, device=device, dtype=dtype),
                torch.zeros(rows, config.lstm_dim, device=device, dtype=dtype),
            )

        return cls(
            [layer() for _ in range(config.num_layers)], [layer() for _ in range(config.num_layers)]
        )

    def map(self, change: Callable[[Tensor], Tensor]) -> BiLMState:
        """The state with every tensor changed."""
        ways = ([(change(h), change(c)) for h, c in way] for way in (self.forward, self.backward))
        return BiLMState(*ways)

    @classmethod
    def cat(cls, states: Sequence[BiLMState]) -> BiLMState:
        """The rows of several states, one after the other."""
        if len(states) == 1:
            return states[0]
        ways = (
            [
                (torch.cat([h for h, _ in layer]), torch.cat([c for _, c in layer]))
                for layer in zip(*parts, strict=True)
            ]
            for parts in ([s.forward for s in states], [s.backward for s in states])
        )
        return cls(*ways)

    def take(self, order: Tensor) -> BiLMState:
        """The rows of a batch, in the order of its packing."""
        if self.rows < len(order):
            raise ElmokitError(
                f"the carried state has {self.rows} rows but the batch has {len(order)} "
                "sentences; start with the largest batch"
            )
        return self.map(lambda tensor: tensor[order])

    def put(self, order: Tensor, after: BiLMState) -> BiLMState:
        """This state with a batch's rows replaced; rows beyond the batch stay as they were."""

        def replace(old: list[LayerState], new: list[LayerState]) -> list[LayerState]:
            return [
                (h.index_copy(0, order, new_h), c.index_copy(0, order, new_c))
                for (h, c), (new_h, new_c) in zip(old, new, strict=True)
            ]

        return BiLMState(
            replace(self.forward, after.forward), replace(self.backward, after.backward)
        )


@dataclass(frozen=True)
class BiLMOutput:
    """Every layer's vectors of a batch of sentences.

    The 2L + 1 single representations have names: `output["token"]`, `output["forward_1"]`,
    `output["backward_1"]`, and so on, each (sentences, tokens, projection_dim).
    """

    layers: Tensor
    """Layers 0..L, forward columns first: (L + 1, sentences, tokens, dim); 0 where padded."""
    lengths: Tensor
    """Tokens of each sentence (with boundaries where these were asked for): (sentences,)."""
    state: BiLMState | None = None
    """The state after the batch, where the caller carries it."""

    @property
    def mask(self) -> Tensor:
        """True where there is a token: (sentences, tokens)."""
        steps = torch.arange(self.layers.shape[2], device=self.lengths.device)
        return steps < self.lengths[:, None]

    @property
    def names(self) -> list[str]:
        """Names of the 2L + 1 single representations."""
        return representation_names(len(self.layers) - 1)

    def __getitem__(self, name: str) -> Tensor:
        layer, columns = find_representation(name, len(self.layers) - 1, self.layers.shape[-1])
        return self.layers[layer, ..., columns]


def representation_names(layers: int) -> list[str]:
    """`token`, then forward and backward of each layer."""
    ways = ("forward", "backward")
    return ["token", *(f"{way}_{layer}" for layer in range(1, layers + 1) for way in ways)]


def find_representation(name: str, layers: int, dim: int) -> tuple[int, slice]:
    """The layer and the columns of a named representation."""
    if name not in representation_names(layers):
        names = ", ".join(representation_names(layers))
        raise ElmokitError(f"there is no representation {name!r}; it may be {names}")
    way, _, layer = name.partition("_")
    half = slice(dim // 2, dim) if way == "backward" else slice(0, dim // 2)
    return int(layer or 0), half


class BiLM(nn.Module):
    """A token encoder, L forward and L backward LSTMs, and the softmax if there is one."""

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        self.token_encoder = ENCODERS[config.token_encoder](config)
        self.forward_layers = nn.ModuleList(LSTMLayer(config) for _ in range(config.num_layers))
        self.backward_layers = nn.ModuleList(LSTMLayer(config) for _ in range(config.num_layers))
        self.dropout = nn.Dropout(config.dropout)
        self.softmax = (
            Softmax(config.vocabulary_size, config.projection_dim)
            if config.vocabulary_size
            else None
        )

    def forward(
        self,
        batch: TokenBatch,
        *,
        state: BiLMState | Literal["carry"] | None = None,
        boundaries: bool = False,
    ) -> BiLMOutput:
        """Every layer's vectors, differentiable.

        Args:
            batch: the sentences.
            state: None starts every sentence afresh. "carry" does so too and returns the state
                after the batch; a returned state continues there, row by row, as the original
                systems did from batch to batch.
            boundaries: keep `<S>` and `</S>` in the output.
        """
        vectors = self.token_encoder(batch.features)  # (words, projection_dim)
        device = vectors.device
        index, lengths = with_boundaries(batch)  # boundary words are rows 0 and 1
        packing = pack(lengths.cpu())
        flat = index[mask_of(lengths, index.shape[1])]  # sentence-major rows
        x = vectors[flat[packing.sentence_major.to(device)]]  # packed (positions, projection_dim)
        order = packing.order.to(device)
        dtype = next(self.parameters()).dtype  # whatever autocast makes of x
        zeros = BiLMState.zeros(self.config, len(lengths), device, dtype)
        before = given_state(state) or zeros
        start = before.take(order)
        turned = packing.turned.to(device)
        forward, forward_state = self._run(self.forward_layers, x, packing.sizes, start.forward)
        backward, backward_state = self._run(
            self.backward_layers, x[turned], packing.sizes, start.backward
        )
        both = [torch.cat([f, b[turned]], 1) for f, b in zip(forward, backward, strict=True)]
        layers = torch.stack(both)[:, packing.packed.to(device)]  # sentence-major (L+1, n, dim)
        padded = unflatten(layers, lengths, index.shape[1])
        if not boundaries:
            padded, lengths = padded[:, :, 1:-1], batch.lengths
            padded = padded.masked_fill(~batch.mask[None, :, :, None], 0.0)
        after = None
        if state is not None:
            after = before.put(order, BiLMState(forward_state, backward_state))
        return BiLMOutput(padded, lengths, after)

    def _run(
        self, layers: nn.ModuleList, x: Tensor, sizes: list[int], start: list[LayerState]
    ) -> tuple[list[Tensor], list[LayerState]]:
        """One direction: every layer's packed output and its last state."""
        outputs, states = [x], []
        for number, layer in enumerate(layers):
            y, last = layer(self.dropout(x), sizes, start[number])
            x = y + x if number and self.config.skip_connections else y
            outputs.append(x)
            states.append(last)
        return outputs, states


def given_state(state: BiLMState | str | None) -> BiLMState | None:
    """The state to go on from, or None where there is none yet."""
    if isinstance(state, str):
        if state != "carry":
            raise ElmokitError(f"state must be 'carry', a returned state or None, not {state!r}")
        return None
    return state


def with_boundaries(batch: TokenBatch) -> tuple[Tensor, Tensor]:
    """The index with `<S>` (row 0) before and `</S>` (row 1) after each sentence, and lengths."""
    rows, tokens = batch.index.shape
    index = batch.index.new_zeros(rows, tokens + 2)
    index[:, 1:-1] = batch.index
    index.scatter_(1, batch.lengths[:, None] + 1, 1)
    return index, batch.lengths + 2


def mask_of(lengths: Tensor, tokens: int) -> Tensor:
    """True where a sentence has a token: (sentences, tokens)."""
    return torch.arange(tokens, device=lengths.device) < lengths[:, None]


def unflatten(layers: Tensor, lengths: Tensor, tokens: int) -> Tensor:
    """Sentence-major (L + 1, positions, dim) to padded (L + 1, sentences, tokens, dim)."""
    padded = layers.new_zeros(len(layers), len(lengths), tokens, layers.shape[-1])
    padded[:, mask_of(lengths, tokens)] = layers
    return padded


def expected_shapes(config: BiLMConfig) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor that a configuration needs."""
    with torch.device("meta"):  # Shapes only: no memory, whatever the sizes are.
        model = BiLM(config)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def build(config: BiLMConfig, tensors: Mapping[str, NDArray[np.float32]]) -> BiLM:
    """Return a model with these weights, ready to run."""
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
