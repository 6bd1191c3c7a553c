"""Count, sum and squared deviations of the chosen tokens in float64, compiled: two passes that write nothing.

By torch's operations the same goes through memory eight times. On the CPU for tensors of any device, like the scans.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mingce.base.compiled import REORDERED, compiler

_compiled = compiler(REORDERED)


def count_mean_squares(values: Tensor, mask: Tensor) -> tuple[int, float, float]:
    """Of `values` where `mask` (bool, same shape) is true; all 0 where it never is."""
    numbers = values.detach().cpu()
    if numbers.dtype not in (torch.float32, torch.float64):
        numbers = numbers.double()
    flat, chosen = numbers.contiguous().view(-1).numpy(), mask.cpu().contiguous().view(-1).numpy()
    count, total = _count_and_sum(flat, chosen)
    if count == 0:
        return 0, 0.0, 0.0
    mean = total / count
    return int(count), float(mean), float(_squares(flat, chosen, mean))


@_compiled
def _count_and_sum(values, mask):  # type: ignore[no-untyped-def]
    count, total = 0, 0.0
    for i in range(len(values)):
        count += mask[i]
        total += np.float64(values[i]) if mask[i] else 0.0
    return count, total


@_compiled
def _squares(values, mask, mean):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(values)):
        far = np.float64(values[i]) - mean if mask[i] else 0.0
        total += far * far
    return total
