"""Matrix products in a lower precision than the numbers around them, for training.

Weights, states, sums and gradients stay in float32. Only the factors of a product are rounded to
the second one's precision, and its result counts in float32 again.
"""

from __future__ import annotations

import torch
from torch import Tensor


def lowered(weight: Tensor, precision: torch.dtype | None) -> Tensor:
    """A factor of products in a precision; as it is for None."""
    return weight if precision is None else weight.to(precision)


def product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """(n, k) by (k, m), multiplied in b's precision and given in a's: (n, m)."""
    if a.dtype == b.dtype:
        return torch.mm(a, b, out=out)
    found = torch.mm(a.to(b.dtype), b)
    return found.to(a.dtype) if out is None else out.copy_(found)


def add_product(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Add (n, k) by (k, m), multiplied in b's precision, to a total (n, m) in place."""
    if a.dtype == b.dtype:
        return total.addmm_(a, b)
    return total.add_(torch.mm(a.to(b.dtype), b))


def batched_product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """(2, n, k) by (2, k, m), multiplied in b's precision and given in a's: (2, n, m)."""
    if a.dtype == b.dtype:
        return torch.bmm(a, b, out=out)
    found = torch.bmm(a.to(b.dtype), b)
    return found.to(a.dtype) if out is None else out.copy_(found)
