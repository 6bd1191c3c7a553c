"""Checkpoints whose contents follow from their step, so that a whole one is known by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mingce.record.checkpoints import Checkpoint, save
from mingce.record.run import Run


def tensors_of(step: int, size: int = 40) -> dict[str, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(step)
    return {
        "actor": {"weight": torch.randn(size, size, generator=generator), "bias": torch.full((size,), float(step))},
        "critic": {"head": torch.randn(size, generator=generator).bfloat16()},
    }


def save_step(run: Run, step: int, **settings: Any) -> Path:
    run.log(step, {"loss": 1 / (step + 1)})
    return save(run, step, tensors=tensors_of(step), state={"cursor": step, "rng": [step] * 9}, **settings)


def is_whole(checkpoint: Checkpoint | None) -> bool:
    assert checkpoint is not None
    expected = tensors_of(checkpoint.step)
    same = all(
        torch.equal(checkpoint.tensors[file][name], tensor)
        for file, flat in expected.items()
        for name, tensor in flat.items()
    )
    return same and checkpoint.state == {"cursor": checkpoint.step, "rng": [checkpoint.step] * 9}


def never(message: str) -> None:
    raise AssertionError(f"fell back: {message}")
