"""Estimators and policy losses against verl 0.9.1's own functions: 500 random ragged batches, values and gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mingce.algorithms.advantage import function_of
from mingce.algorithms.losses import policy_loss
from mingce.algorithms.verl_names import sampled_once
from mingce.specs import AGGREGATIONS, ESTIMATORS, POLICY_LOSSES

pytestmark = pytest.mark.slow  # the first time it downloads verl's wheel
BATCHES = 500


@pytest.fixture(scope="module")
def verl() -> Any:
    """verl's core_algos, without the GPU stack that the package asks for."""
    from audit_peers import verl as load

    return load()


def batch(seed: int) -> dict[str, Any]:
    """Ragged rows with holes, in groups of one to four, on both sides of every clip."""
    draw = torch.Generator().manual_seed(seed)
    rows, width = int(torch.randint(1, 9, (), generator=draw)), int(torch.randint(1, 24, (), generator=draw))
    lengths = torch.randint(1, width + 1, (rows, 1), generator=draw)
    mask = (torch.arange(width) < lengths) & (torch.rand(rows, width, generator=draw) < 0.9)
    mask[:, 0] = True

    def normal() -> Tensor:
        return torch.randn(rows, width, generator=draw, dtype=torch.float64)

    old = -normal().abs()
    return {
        "mask": mask,
        "rewards": normal() * mask,
        "old": old,
        "new": old + 0.5 * normal(),
        "advantages": normal(),
        "group": [f"g{int(i)}" for i in torch.randint(0, max(rows // 2, 1), (rows,), generator=draw)],
        "baseline": torch.randn(rows, generator=draw, dtype=torch.float64),
    }


def near(ours: Tensor, theirs: Tensor, what: str) -> None:
    gap = float((ours - theirs).abs().max())
    assert gap <= 1e-6 * max(1.0, float(theirs.abs().max())), f"{what}: {gap}"


def test_opo_is_verls(verl: Any) -> None:
    for seed in range(BATCHES):
        b = batch(seed)
        theirs, _ = verl.compute_opo_outcome_advantage(b["rewards"].clone(), b["mask"].double(), b["group"])
        ours = function_of(ESTIMATORS["opo"])(b["rewards"], b["mask"], b["group"])
        near(sampled_once(ours, b["rewards"], b["mask"], b["group"]), theirs, f"batch {seed}")


def test_remax_is_verls(verl: Any) -> None:
    for seed in range(BATCHES):
        b = batch(seed)
        theirs, _ = verl.compute_remax_outcome_advantage(b["rewards"].clone(), b["baseline"], b["mask"].double())
        ours = function_of(ESTIMATORS["remax"])(b["rewards"], b["mask"], b["baseline"].tolist())
        near(ours.advantages, theirs * b["mask"], f"batch {seed}")  # verl has sums in the holes too


@pytest.mark.parametrize("name", ["gspo", "cispo", "ppo"])
@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_policy_losses_are_verls(verl: Any, name: str, mode: str) -> None:
    """`ppo` with clip_high above clip_low, token-mean and a dual clip of 10 is DAPO's clip-higher."""
    for seed in range(BATCHES // 4):
        b, got = batch(seed), []
        config = SimpleNamespace(
            clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.28, clip_ratio_c=10.0, global_batch_info={},
            get=lambda key, default=None: default,
        )  # fmt: skip
        for side in ("theirs", "ours"):
            new = b["new"].clone().requires_grad_()
            if side == "ours":
                settings = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 10.0}
                loss = policy_loss(POLICY_LOSSES[name], b["old"], new, b["advantages"], b["mask"], settings, mode).loss
            elif name == "ppo":
                loss = verl.compute_policy_loss(
                    b["old"], new, b["advantages"], b["mask"].double(), cliprange_low=0.2, cliprange_high=0.28,
                    cliprange=0.2, clip_ratio_c=10.0, loss_agg_mode=mode,
                )[0]  # fmt: skip
            else:
                verl.ActorConfig = SimpleNamespace
                function = verl.get_policy_loss_fn(name)
                loss = function(b["old"], new, b["advantages"], b["mask"].double(), mode, config)[0]
            loss.backward()
            got.append((loss.detach(), new.grad * b["mask"]))
        near(got[1][0], got[0][0], f"{name} {mode} batch {seed}: value")
        near(got[1][1], got[0][1], f"{name} {mode} batch {seed}: gradient")
