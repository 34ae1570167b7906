"""Matrix products for inference, with weights as float32, float16 or int8.

Each is made once from a weight and kept in the layout its kernel likes: float32 transposed for
the BLAS or, if large, in blocks for oneDNN; the others packed by FBGEMM, which computes in float32
(float16 weights) or quantizes its input on the fly (int8, one scale for each output). Small
batches gain most: there the time goes into reading weights.
"""

from __future__ import annotations

import warnings
from typing import Literal, Protocol

import torch
from torch import Tensor

from elmokit.errors import ElmokitError

Precision = Literal["float32", "float16", "int8"]
LARGE = 2 << 20  # numbers of a weight that no core keeps in its cache
PRECISIONS: tuple[Precision, ...] = ("float32", "float16", "int8")


class Linear(Protocol):
    """x W^T + b, and the same added to something."""

    def __call__(self, x: Tensor) -> Tensor:
        """(n, in) to (n, out)."""
        ...

    def into(self, x: Tensor, target: Tensor) -> Tensor:
        """The product, (n, out): written into `target` where that saves the memory for it."""
        ...

    def add_to(self, target: Tensor, x: Tensor) -> None:
        """Add the product to `target`, (n, out)."""
        ...


class Float32Linear:
    """The weight transposed, so that the BLAS reads it along its rows, a bias as its last row.

    The input then gets a column of ones: adding a bias apart would be one more pass over the
    output, which is many times larger.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        rows = [weight.detach().t()] if bias is None else [weight.detach().t(), bias.detach()[None]]
        self.weight = torch.cat(rows).contiguous()  # (in, out) or (in + 1, out)
        self.has_bias = bias is not None

    def __call__(self, x: Tensor) -> Tensor:
        """(n, in) to (n, out)."""
        return torch.mm(self._widened(x), self.weight)

    def into(self, x: Tensor, target: Tensor) -> Tensor:
        """Write the product into `target`."""
        return torch.mm(self._widened(x), self.weight, out=target)

    def add_to(self, target: Tensor, x: Tensor) -> None:
        """Add the product to `target`."""
        target.addmm_(self._widened(x), self.weight)

    def _widened(self, x: Tensor) -> Tensor:
        return torch.cat([x, x.new_ones(len(x), 1)], dim=1) if self.has_bias else x


class BlockedLinear:
    """A large weight in the blocks that oneDNN reads.

    The BLAS would copy it into blocks at each call, which for a few rows of input takes longer
    than the product itself.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), 32)
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """(n, in) to (n, out)."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return y

    def into(self, x: Tensor, target: Tensor) -> Tensor:
        """The product in memory of its own: the kernel takes no target."""
        return self(x)

    def add_to(self, target: Tensor, x: Tensor) -> None:
        """Add the product to `target`."""
        target.add_(self(x))


class PackedLinear:
    """Weights packed by FBGEMM as float16 or int8; inputs and outputs are float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None, precision: Precision) -> None:
        weight = weight.detach().float().contiguous()
        bias = None if bias is None else bias.detach().float().contiguous()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that these operators will move
            if precision == "float16":
                self.packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)
            else:
                scales = weight.abs().amax(dim=1).clamp_min(1e-12) / 127
                zeros = torch.zeros(len(scales), dtype=torch.long)
                quantized = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
                self.packed = torch.ops.quantized.linear_prepack(quantized, bias)
        self.is_half = precision == "float16"
        # Without VNNI the kernel adds pairs of products in 16 bits: 7-bit inputs cannot overflow.
        self.reduce_range = not _has_vnni()

    def __call__(self, x: Tensor) -> Tensor:
        """(n, in) to (n, out)."""
        if self.is_half:
            half: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self.packed)
            return half
        y: Tensor = torch.ops.quantized.linear_dynamic(x, self.packed, self.reduce_range)
        return y

    def into(self, x: Tensor, target: Tensor) -> Tensor:
        """The product in memory of its own: the kernel takes no target."""
        return self(x)

    def add_to(self, target: Tensor, x: Tensor) -> None:
        """Add the product to `target`."""
        target.add_(self(x))


class HalfLinear:
    """Float16 weights where FBGEMM is not to be had, such as on a GPU."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight.detach().t().contiguous().half()
        self.bias = None if bias is None else bias.detach().clone()

    def __call__(self, x: Tensor) -> Tensor:
        """(n, in) to (n, out)."""
        y = (x.half() @ self.weight).float() if x.is_cuda else x @ self.weight.float()
        return y if self.bias is None else y + self.bias

    def into(self, x: Tensor, target: Tensor) -> Tensor:
        """The product in memory of its own: the kernel takes no target."""
        return self(x)

    def add_to(self, target: Tensor, x: Tensor) -> None:
        """Add the product to `target`."""
        target.add_(self(x))


def make_linear(weight: Tensor, bias: Tensor | None, precision: Precision) -> Linear:
    """The product with `weight` (out, in) in a precision that this machine can run."""
    if precision == "float32":
        large = bias is None and weight.numel() > LARGE
        return (
            BlockedLinear(weight) if large and has_blocks(weight) else Float32Linear(weight, bias)
        )
    packable = (
        weight.device.type == "cpu" and "fbgemm" in torch.backends.quantized.supported_engines
    )
    if precision == "float16":
        return PackedLinear(weight, bias, precision) if packable else HalfLinear(weight, bias)
    if precision == "int8":
        if packable:
            return PackedLinear(weight, bias, precision)
        raise ElmokitError("precision 'int8' runs on x86 processors only; use 'float16' here")
    raise ElmokitError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")


def has_blocks(weight: Tensor) -> bool:
    """Whether oneDNN and the two operators of torch that reach its blocks are here."""
    operators = ("_reorder_linear_weight", "_linear_pointwise")
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and all(hasattr(torch.ops.mkldnn, name) for name in operators)
    )


def _has_vnni() -> bool:
    known = getattr(torch.cpu, "_is_vnni_supported", None)
    return bool(known and known())
