"""Discounted sums along the token axis without a Python loop over it.

y_t = x_t + d·y_{t+1} is done in blocks of 32 tokens: inside a block it is one product with a small triangular matrix of
powers of d; the first slot of each block then follows the same recursion with d³², so the function calls itself on the
block heads, and what comes from the next block is added with powers of d. All of it is matmul and elementwise torch,
for any device and any T.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mingce.algorithms.masking import holds_any

BLOCK = 32


@lru_cache(maxsize=64)
def _powers(decay: float, width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """(matrix[j, i] = d^{j−i} for j ≥ i, tail[i] = d^{width−i}), both computed in float64."""
    steps = torch.arange(width, dtype=torch.float64)
    lag = steps[:, None] - steps[None, :]
    matrix = torch.where(lag >= 0, torch.tensor(decay, dtype=torch.float64) ** lag.clamp(min=0), 0.0)
    tail = torch.tensor(decay, dtype=torch.float64) ** (width - steps)
    return matrix.to(device, dtype), tail.to(device, dtype)


def discounted_sum(x: Tensor, decay: float) -> Tensor:
    """y [B, T] with y_t = x_t + decay·y_{t+1} and y_T = 0, for finite x [B, T]."""
    rows, width = x.shape
    if width <= BLOCK:
        return x @ _powers(decay, width, x.dtype, x.device)[0]
    blocks = -(-width // BLOCK)
    filled = pad(x, (0, blocks * BLOCK - width)) if width % BLOCK else x.contiguous()
    matrix, tail = _powers(decay, BLOCK, x.dtype, x.device)
    sums = (filled.view(rows * blocks, BLOCK) @ matrix).view(rows, blocks, BLOCK)
    heads = discounted_sum(sums[:, :, 0], decay**BLOCK)
    sums[:, :-1].addcmul_(heads[:, 1:, None], tail)
    return sums.view(rows, blocks * BLOCK)[:, :width]


def windowed_sum(x: Tensor, decay: float, length: int) -> Tensor:
    """y [B, T] with y_t = Σ_{k<length} decay^k·x_{t+k}, in log₂(length) doublings so that nothing cancels."""
    length = min(length, x.shape[1])
    total, done = torch.zeros_like(x), 0
    block, size = x, 1
    while done < length:
        if length & size:
            total = total + decay**done * _ahead(block, done)
            done += size
        block = block + decay**size * _ahead(block, size)
        size *= 2
    return total


def _ahead(x: Tensor, by: int) -> Tensor:
    """x shifted so that slot t holds x_{t+by}, zeros beyond the end."""
    return pad(x[:, by:], (0, min(by, x.shape[1])))


class Packing(NamedTuple):
    """Moves chosen tokens to the front of each row and back, so that a recursion steps over the slots between them.

    Packed rows are [B, W], W a whole number of blocks. Slot 0 is spare: it takes what stands behind the mask and is
    then set to 0; the chosen tokens follow from slot 1 on.
    """

    slots: Tensor  # [B, T] the packed slot of each token; 0 for all that were not chosen
    width: int

    @classmethod
    def of(cls, mask: Tensor) -> Packing | None:
        """The packing of `mask`, or None when every row's chosen tokens already stand at its front."""
        if not holds_any(mask[:, 1:] & ~mask[:, :-1]):
            return None
        slots = mask.cumsum(dim=1)
        width = (int(slots[:, -1].max()) // BLOCK + 1) * BLOCK
        all_bits = mask.view(torch.int8).neg().to(torch.int64)  # −1 where chosen: an `and` is faster than a `where`
        return cls(slots.bitwise_and_(all_bits), width)

    def pack(self, x: Tensor) -> Tensor:
        """[B, T] → [B, W]; 0 in the spare slot and after the last chosen token."""
        packed = x.new_zeros(x.shape[0], self.width).scatter_(1, self.slots, x)
        packed[:, 0] = 0
        return packed

    def unpack(self, x: Tensor) -> Tensor:
        """[B, W] → [B, T], 0 behind the mask; the spare slot of `x` is set to 0."""
        x[:, 0] = 0
        return x.gather(1, self.slots)
