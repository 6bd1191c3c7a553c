"""Random batches for property tests: ragged rows, holes in the mask, rows without a chosen token, B = 0 and T = 0."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    rewards: Tensor
    values: Tensor
    mask: Tensor
    bootstrap: Tensor
    group: list[int]
    turn: Tensor
    seed: int

    def randn(self, *shape: int) -> Tensor:
        """More random numbers that belong to this batch."""
        return torch.randn(shape or tuple(self.mask.shape), generator=torch.Generator().manual_seed(self.seed + 1))


@st.composite
def batches(draw: st.DrawFn, max_rows: int = 5, max_width: int = 100, min_rows: int = 0, min_width: int = 0) -> Batch:
    rows = draw(st.integers(min_rows, max_rows))
    width = draw(st.integers(min_width, max_width))
    kind = draw(st.sampled_from(["full", "ragged", "holes", "sparse", "empty"]))
    seed = draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    scale = draw(st.sampled_from([1.0, 1e-3, 100.0]))
    rewards, values = (scale * torch.randn((rows, width), generator=generator) for _ in range(2))
    lengths = torch.randint(0, width + 1, (rows, 1), generator=generator)
    mask = torch.arange(width).expand(rows, width) < lengths
    noise = torch.rand((rows, width), generator=generator)
    mask = {
        "full": torch.ones_like(mask),
        "ragged": mask,
        "holes": mask & (noise > 0.2),
        "sparse": noise > 0.8,
        "empty": torch.zeros_like(mask),
    }[kind]
    group = torch.randint(0, 3, (rows,), generator=generator).tolist()
    after = scale * torch.randn(rows, generator=generator)
    turn = (torch.rand((rows, width), generator=generator) < draw(st.sampled_from([0.0, 0.1, 0.5]))).cumsum(dim=1)
    return Batch(rewards, values, mask, after, group, turn, seed)


unit = st.one_of(st.sampled_from([0.0, 1.0, 0.95, 0.99]), st.floats(0, 1, width=32))


def close(fast: Tensor, exact: list[list[float]], *inputs: Tensor, tol: float = 1e-5) -> None:
    """`fast` equals the twin within `tol` of the row's scale: the largest number that went in or came out."""
    wanted = torch.tensor(exact, dtype=torch.float64).reshape(fast.shape)
    assert torch.isfinite(fast).all()
    if fast.numel() == 0:
        return
    scale = torch.stack([wanted.abs(), *(x.double().abs() for x in inputs)]).amax(dim=(0, 2))
    error = (fast.double() - wanted).abs().amax(dim=1)
    assert (error <= tol * scale.clamp(min=1e-12)).all(), f"relative error {(error / scale.clamp(min=1e-12)).max():.2e}"
