"""Sums, means, variance and whitening over the chosen tokens only.

Slots behind the mask are replaced before anything is computed, not multiplied by 0, so that a NaN there stays there.
Statistics are accumulated in float64. Degenerate cases are defined: no token has mean 0, one token or no variance has
variance 0 and whitens to 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from mingce.algorithms.checks import as_mask, same_size
from mingce.algorithms.sums import count_mean_squares

EPSILON = 1e-8  # added to the variance before the root, as verl, TRL and OpenRLHF do


def keep(values: Tensor, mask: Tensor) -> Tensor:
    """`values` [B, T] where the mask is 1, exactly 0 elsewhere, whatever stood there."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def masked_sum(values: Tensor, mask: Tensor, axis: int | None = None) -> Tensor:
    """Sum of `values` over the chosen tokens, over all of them or along `axis`."""
    mask = as_mask(mask)
    same_size(mask, values=values)
    kept = keep(values, mask)
    return kept.sum() if axis is None else kept.sum(dim=axis)


def masked_mean(values: Tensor, mask: Tensor, axis: int | None = None) -> Tensor:
    """Mean of `values` over the chosen tokens; 0 where there is none."""
    mask = as_mask(mask)
    count = mask.sum() if axis is None else mask.sum(dim=axis)
    return masked_sum(values, mask, axis) / count.clamp(min=1)


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of a set of numbers; sets can be merged, so ranks can share theirs."""

    count: float
    mean: float
    squares: float

    def variance(self, unbiased: bool = True) -> float:
        """Variance, with Bessel's n − 1 by default; 0 for fewer than two numbers or for mere rounding noise."""
        if self.count < 2:
            return 0.0
        variance = self.squares / (self.count - 1 if unbiased else self.count)
        noise = (torch.finfo(torch.float32).eps * abs(self.mean)) ** 2  # what equal float32 numbers may still show
        return variance if variance > noise else 0.0


def masked_moments(values: Tensor, mask: Tensor) -> Moments:
    """Moments of the chosen tokens' `values` [B, T], in float64."""
    mask = as_mask(mask)
    same_size(mask, values=values)
    count, mean, squares = count_mean_squares(values, mask)
    return Moments(float(count), mean, squares)


def merge_moments(parts: Iterable[Moments]) -> Moments:
    """Moments of the union of disjoint sets (Chan's rule), for statistics over several batches or ranks."""
    count, mean, squares = 0.0, 0.0, 0.0
    for part in parts:
        if part.count == 0:
            continue
        total, gap = count + part.count, part.mean - mean
        squares += part.squares + gap * gap * count * part.count / total
        mean += gap * part.count / total
        count = total
    return Moments(count, mean, squares)


def masked_var(values: Tensor, mask: Tensor, unbiased: bool = True) -> Tensor:
    """Variance over all chosen tokens, as a scalar tensor."""
    variance = masked_moments(values, mask).variance(unbiased)
    return torch.tensor(variance, dtype=values.dtype, device=values.device)


def masked_whiten(values: Tensor, mask: Tensor, shift_mean: bool = True, moments: Moments | None = None) -> Tensor:
    """(values − mean) / √(variance + 10⁻⁸) over all chosen tokens of the batch; 0 behind the mask.

    `shift_mean=False` keeps the mean, as in TRL. `moments` are the statistics of the whole batch when `values` is only
    a part of it (another rank holds the rest).
    """
    mask = as_mask(mask)
    moments = masked_moments(values, mask) if moments is None else moments
    same_size(mask, values=values)
    variance = moments.variance()
    scale = 1.0 / (variance + EPSILON) ** 0.5 if variance > 0 else 0.0
    whitened = (values - moments.mean).mul_(scale)  # in place from here on: new memory costs more than the arithmetic
    return (whitened if shift_mean else whitened.add_(moments.mean)).masked_fill_(~mask, 0.0)
