"""Matrix products with prepared weights (inference) or in mixed precision (training).

For inference a `Linear` is made once from a weight and keeps it in the layout that its kernel
reads. Small batches gain most, as there the time goes into reading weights. The result for a row
never depends on the other rows, except for the rounding of float32.

For training the `mixed_…` functions multiply in bfloat16: only the factors of a product are
rounded, and its result is float32 again.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from elmokit.errors import ElmokitError

Precision = Literal["float32", "float16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("float32", "float16", "int8")
BLOCKED_FROM = 2 << 20  # elements of a weight that does not fit into a core's cache
SMALL_PRODUCT = 1 << 20  # multiplications that the BLAS has done before oneDNN begins


class Linear:
    """x W^T + b for a weight W (out, in), by a kernel that allocates its output."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return the product: (n, in) to (n, out)."""
        raise NotImplementedError

    def into(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the product (n, out), written into `target` if the kernel can do so."""
        return self(x)

    def add_to(self, target: Tensor, x: Tensor) -> None:
        """Add the product to `target`, (n, out)."""
        target.add_(self(x))


class Float32Linear(Linear):
    """The weight transposed, so that the BLAS reads it row by row, with the bias as its last row.

    The input gets a column of ones for it: adding the bias to the output would take much longer.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        rows = [weight.detach().t()] if bias is None else [weight.detach().t(), bias.detach()[None]]
        self.weight = torch.cat(rows).contiguous()  # (in, out) or (in + 1, out)
        self.has_bias = bias is not None

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(self._with_ones(x), self.weight)

    def into(self, x: Tensor, target: Tensor) -> Tensor:
        return torch.mm(self._with_ones(x), self.weight, out=target)

    def add_to(self, target: Tensor, x: Tensor) -> None:
        target.addmm_(self._with_ones(x), self.weight)

    def _with_ones(self, x: Tensor) -> Tensor:
        return torch.cat([x, x.new_ones(len(x), 1)], dim=1) if self.has_bias else x


class BlockedLinear(Linear):
    """A weight in the blocks that oneDNN reads.

    The BLAS would copy the weight into blocks in each call, which for a few rows of input takes
    longer than the product itself. oneDNN rounds a row alike whatever rows are beside it, unless
    the weight has so many columns that it cuts them according to the number of rows. `blas`, if
    given, does the products that take less time than a call of oneDNN.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, blas: Linear | None = None
    ) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), 32)
        self.bias = None if bias is None else bias.detach()
        self.is_large = weight.numel() > BLOCKED_FROM
        self.blas, self.few = blas, 0 if blas is None else SMALL_PRODUCT // weight.numel()

    def __call__(self, x: Tensor) -> Tensor:
        if self.blas is not None and len(x) <= self.few:
            return self.blas(x)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return y

    def add_to(self, target: Tensor, x: Tensor) -> None:
        if self.blas is not None and len(x) <= self.few:
            self.blas.add_to(target, x)
        else:
            target.add_(self(x))


class PackedHalfLinear(Linear):
    """Weights packed by FBGEMM as float16; inputs and outputs are float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self.packed)
        return y


class Int8Linear(Linear):
    """Weights packed by FBGEMM as int8, with a scale for each output; inputs are rounded to int8.

    Each row of the input has a scale of its own: other rows do not change how it is rounded.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        scales = weight.abs().amax(dim=1).clamp_min(1e-12) / 127  # (out,)
        zeros = torch.zeros(len(scales), dtype=torch.long)
        quantized = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self.packed, self.bias = torch.ops.quantized.linear_prepack(quantized, None), bias
        # Without VNNI the kernel adds pairs of products in 16 bits, which overflows with 8-bit
        # inputs but not with 7-bit ones.
        has_vnni = getattr(torch.cpu, "_is_vnni_supported", bool)
        self.steps = 127 if has_vnni() else 63

    def __call__(self, x: Tensor) -> Tensor:
        y, scale = self._multiply(x)
        if self.bias is not None:
            return torch.addcmul(self.bias, y, scale, out=y)
        return y.mul_(scale)

    def add_to(self, target: Tensor, x: Tensor) -> None:
        y, scale = self._multiply(x)
        target.addcmul_(y, scale)
        if self.bias is not None:
            target.add_(self.bias)

    def _multiply(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the product without the bias, and a factor for each row: (n, out), (n, 1)."""
        multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        scale = x.abs().amax(dim=1, keepdim=True).clamp_min_(1e-12)
        return multiply(x / scale, 1 / self.steps, self.steps + 1, self.packed), scale


class HalfLinear(Linear):
    """Float16 weights where FBGEMM is not available, such as on a GPU."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight.t().contiguous().half()  # (in, out)
        self.bias = None if bias is None else bias.clone()

    def __call__(self, x: Tensor) -> Tensor:
        y = (x.half() @ self.weight).float() if x.is_cuda else x @ self.weight.float()
        return y if self.bias is None else y + self.bias


def make_linear(
    weight: Tensor,
    bias: Tensor | None,
    precision: Precision,
    *,
    blocks: bool = True,
    few_by_blas: bool = False,
) -> Linear:
    """Return the product with `weight` (out, in) and `bias` (out,), or raise if it cannot run here.

    Without `blocks` a float32 product can be written into given memory; few rows take longer.
    Where the MKL is slow, it is in blocks in any case, with `few_by_blas` but for few rows.
    """
    if precision == "float32":
        is_large = weight.numel() > (BLOCKED_FROM if bias is None else 0)
        if has_blocks(weight) and (mkl_is_slow() or (is_large and blocks)):
            return BlockedLinear(weight, bias, Float32Linear(weight, bias) if few_by_blas else None)
        return Float32Linear(weight, bias)
    engines = torch.backends.quantized.supported_engines
    can_pack = weight.device.type == "cpu" and "fbgemm" in engines
    if precision == "int8" and not can_pack:
        raise ElmokitError("precision 'int8' runs on x86 processors only; use 'float16' here")
    weight = weight.detach().float().contiguous()
    bias = None if bias is None else bias.detach().float().contiguous()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FBGEMM's operators will move.
        if precision == "int8":
            return Int8Linear(weight, bias)
        return PackedHalfLinear(weight, bias) if can_pack else HalfLinear(weight, bias)


def has_blocks(weight: Tensor) -> bool:
    """Return whether oneDNN can hold this weight in blocks, and torch has the operators for it."""
    operators = ("_reorder_linear_weight", "_linear_pointwise")
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and all(hasattr(torch.ops.mkldnn, name) for name in operators)
    )


@cache
def mkl_is_slow() -> bool:
    """Return whether this is a processor of AMD.

    There the MKL, torch's BLAS, does not use AVX-512, with AVX2 it has three quarters of oneDNN's
    speed, and it multiplies a single row with one thread. It also rounds one row differently than
    many, and oneDNN does not.
    """
    if not hasattr(torch.cpu, "get_capabilities"):  # An old version of torch.
        return False
    return "AMD" in torch.cpu.get_capabilities().get("cpu_name", "")


# ---------------------------------------------------------------------- mixed precision
def to_precision(tensor: Tensor, precision: torch.dtype | None) -> Tensor:
    """Round a factor of products to a precision; None keeps it as it is."""
    return tensor if precision is None else tensor.to(precision)


def mixed_mm(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Multiply (n, k) by (k, m), or batches of them, in b's precision; return it in a's."""
    multiply = torch.mm if a.ndim == 2 else torch.bmm
    if a.dtype == b.dtype:
        return multiply(a, b, out=out)
    result = multiply(a.to(b.dtype), b)
    return result.to(a.dtype) if out is None else out.copy_(result)


def mixed_addmm_(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Add (n, k) by (k, m), multiplied in b's precision, to `total` (n, m) in place."""
    if a.dtype == b.dtype:
        return total.addmm_(a, b)
    return total.add_(torch.mm(a.to(b.dtype), b))
