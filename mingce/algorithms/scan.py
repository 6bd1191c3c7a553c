"""The recursions that run backwards along a row, compiled: one pass over the tokens that steps over the masked slots.

y_t = x_t + d·y_{t+1} cannot be written as elementwise tensor arithmetic, and a Python loop over T is two orders of
magnitude slower than the memory it reads. numba compiles the plain loops below on first use and keeps what it made.
They run on the CPU for tensors of any device: [B, T] numbers are few beside the model's own.

Rows are taken two at a time, because a row's next step must wait for its last one and two rows need not wait for each
other; with an odd number of rows the last is computed twice. Slots count in unsigned integers: numba looks for negative
indices otherwise, which costs a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from mingce.base.compiled import EXACT, FUSED, compiler

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_compiled = compiler(EXACT)
_fused = compiler(FUSED)


@_fused
def _plus(x, factor, y):  # type: ignore[no-untyped-def]
    return x + factor * y


@_compiled
def _generalised(rewards, values, mask, after, gamma, decay, advantages, returns):  # type: ignore[no-untyped-def]
    rows, width = rewards.shape
    for first in range(0, rows, 2):
        second = min(first + 1, rows - 1)
        r, v, m, a, g = rewards[first], values[first], mask[first], advantages[first], returns[first]
        r2, v2, m2, a2, g2 = rewards[second], values[second], mask[second], advantages[second], returns[second]
        ahead, ahead2 = after[first], after[second]  # the value of the state after the token
        later = later2 = gamma - gamma  # the advantage of the next chosen token
        t = np.uint64(width)
        while t > _ZERO:
            t -= _ONE
            if m[t]:
                value = v[t]
                later = _plus(_plus(r[t], gamma, ahead) - value, decay, later)
                ahead = value
                a[t], g[t] = later, later + value
            else:
                a[t], g[t] = 0, 0
            if m2[t]:
                value = v2[t]
                later2 = _plus(_plus(r2[t], gamma, ahead2) - value, decay, later2)
                ahead2 = value
                a2[t], g2[t] = later2, later2 + value
            else:
                a2[t], g2[t] = 0, 0


@_compiled
def _td_errors(rewards, values, mask, after, gamma, deltas):  # type: ignore[no-untyped-def]
    rows, width = rewards.shape
    for row in range(rows):
        r, v, m, d = rewards[row], values[row], mask[row], deltas[row]
        ahead = after[row]
        t = np.uint64(width)
        while t > _ZERO:
            t -= _ONE
            if m[t]:
                value = v[t]
                d[t] = _plus(r[t], gamma, ahead) - value
                ahead = value
            else:
                d[t] = 0


@_compiled
def _windowed(x, mask, decay, length, sums):  # type: ignore[no-untyped-def]
    """Σ_{k<length} d^k·x_{t+k} = (to the end of t's block) + d^(what is left of it)·(from the next block's start), for
    blocks of `length` chosen tokens: two running sums, no subtraction, so nothing cancels."""
    rows, width = x.shape
    chosen = np.empty(width, x.dtype)
    to_end, from_start, power = np.zeros(width, x.dtype), np.zeros(width, x.dtype), np.empty(width + 1, x.dtype)
    for row in range(rows):
        count = 0
        for t in range(width):
            if mask[row, t]:
                chosen[count] = x[row, t]
                count += 1
        for start in range(0, count, length):
            end = min(start + length, count)
            weight, total = decay**0, decay - decay
            for i in range(start, end):
                total += weight * chosen[i]
                from_start[i] = total
                weight *= decay
                power[end - 1 - (i - start)] = weight
            total = decay - decay
            for i in range(end - 1, start - 1, -1):
                total = chosen[i] + decay * total
                to_end[i] = total
        i = 0
        for t in range(width):
            if not mask[row, t]:
                sums[row, t] = 0
                continue
            sums[row, t] = to_end[i]
            block_end = (i // length + 1) * length
            reach = min(i + length, count)
            if reach > block_end:
                sums[row, t] += power[i] * from_start[reach - 1]
            i += 1


def _run(
    kernel: Callable[..., None], columns: tuple[Tensor, ...], settings: tuple[float, ...], new: int
) -> list[Tensor]:
    """`kernel` on NumPy views of the columns and the settings in their dtype; gives `new` columns like the first."""
    like = columns[0]
    wide = like.dtype if like.dtype in (torch.float32, torch.float64) else torch.float32
    views = [column.cpu().contiguous().to(column.dtype if column.dtype == torch.bool else wide) for column in columns]
    results = [torch.empty(like.shape, dtype=wide) for _ in range(new)]
    number = np.float64 if wide == torch.float64 else np.float32
    numbers = [number(setting) if isinstance(setting, float) else setting for setting in settings]
    kernel(*(view.numpy() for view in views), *numbers, *(result.numpy() for result in results))
    return [result.to(like) for result in results]


def generalised_advantages(
    rewards: Tensor, values: Tensor, mask: Tensor, after: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """(A, R) [B, T]: A_t = δ_t + γλA_{t+1} over the chosen tokens, R_t = A_t + V_t; `after` [B] is V after the last."""
    advantages, returns = _run(_generalised, (rewards, values, mask, after), (float(gamma), float(gamma * lam)), 2)
    return advantages, returns


def td_errors(rewards: Tensor, values: Tensor, mask: Tensor, after: Tensor, gamma: float) -> Tensor:
    """δ [B, T]: δ_t = r_t + γV_{t+1} − V_t over the chosen tokens; `after` [B] is V after the last one."""
    (deltas,) = _run(_td_errors, (rewards, values, mask, after), (float(gamma),), 1)
    return deltas


def windowed_sum(x: Tensor, mask: Tensor, decay: float, length: int) -> Tensor:
    """y [B, T] with y_t = Σ_{k<length} decay^k·x_{t+k} over the chosen tokens."""
    (sums,) = _run(_windowed, (x, mask), (float(decay), max(1, min(length, x.shape[1]))), 1)
    return sums
