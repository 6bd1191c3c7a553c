"""What credit is assigned to, the same numbers in every process that is timed on them."""

from __future__ import annotations

import torch
from torch import Tensor

GAMMA, LAM = 0.99, 0.95


def inputs(shape: tuple[int, int], holes: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards, values and a mask [B, T], with a hole of an eighth of each row if there are to be any."""
    generator = torch.Generator().manual_seed(shape[1])
    rewards, values = (torch.randn(shape, generator=generator) for _ in range(2))
    mask = torch.ones(shape, dtype=torch.bool)
    if holes:
        starts = torch.randint(1, shape[1] // 2, (shape[0], 1), generator=generator)
        slots = torch.arange(shape[1])
        mask = ~((slots >= starts) & (slots < starts + shape[1] // 8))
    return rewards, values, mask
