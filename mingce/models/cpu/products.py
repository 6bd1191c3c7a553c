"""Matrix products in float32, by oneDNN where it is the faster library.

torch's own `mm` is MKL's, which leaves out AVX-512 on processors of another make than Intel's; there oneDNN, which
comes with torch too, has more than twice its speed. Small products stay with `mm`, whose calls cost less. What decides
is the weight's size and not the number of rows, so that a row is computed alike in every batch.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

LARGE = 1 << 17
"""Numbers of a weight from which on oneDNN wins."""

PIECE = 1 << 20
"""Numbers of a weight's gradient that are made at once where they are added to a larger one."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, size: int | None = None) -> Tensor:
    """x `[S, in]` · weight `[out, in]`ᵀ + bias, of any strides, without gradients.

    `size` stands for the weight's where it is a thin factor of a larger one.
    """
    if _is_for_onednn(x, weight, weight.numel() if size is None else size):
        return _by_onednn(x, weight, bias)
    return functional.linear(x, weight, bias)


def of_weight(of_y: Tensor, x: Tensor, size: int | None = None) -> Tensor:
    """of_y `[S, out]`ᵀ · x `[S, in]`: the gradient of a weight."""
    return linear(of_y.T, x.T, size=of_y.shape[1] * x.shape[1] if size is None else size)


def add_of_weight(total: Tensor, of_y: Tensor, x: Tensor) -> None:
    """`total += of_weight(of_y, x)`, without a second tensor of that size."""
    if total.dtype == of_y.dtype and not _is_for_onednn(of_y.T, x.T, total.numel()):
        total.addmm_(of_y.T, x)
        return
    rows = max(1, PIECE // x.shape[1])
    for part, columns in zip(total.split(rows), of_y.split(rows, dim=1), strict=True):
        part.add_(of_weight(columns, x, total.numel()))


def _is_for_onednn(x: Tensor, weight: Tensor, size: int) -> bool:
    return size >= LARGE and bool(x.numel()) and _fits(x, weight) and _works()


def _fits(*tensors: Tensor) -> bool:
    return all(one.dtype == torch.float32 and one.device.type == "cpu" for one in tensors)


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    operation = cast(Any, torch.ops.mkldnn)._linear_pointwise
    x, weight = _dense(x.detach()), _dense(weight.detach())
    return cast(Tensor, operation(x, weight, None if bias is None else bias.detach(), "none", [], ""))


def _dense(matrix: Tensor) -> Tensor:
    """The matrix without gaps between its rows or columns, which can cost oneDNN hundreds of times the product."""
    return matrix.T.contiguous().T if matrix.stride(0) == 1 else matrix.contiguous()


@cache
def _works() -> bool:
    """Whether this torch has oneDNN's product, and it computes what `mm` does; tried once."""
    if not torch.backends.mkldnn.is_available():
        return False
    x, weight = torch.arange(-6.0, 6.0).view(3, 4), torch.arange(-10.0, 10.0).view(4, 5).T
    try:
        return torch.equal(_by_onednn(x, weight, weight[:, 0]), functional.linear(x, weight, weight[:, 0]))
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
