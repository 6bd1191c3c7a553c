"""Functions with verl's names give the numbers of verl 0.9.1: ragged rows, holes, a prompt sampled once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mingce.algorithms import verl_names
from mingce.algorithms.kl import kl_penalty
from mingce.algorithms.losses import agg_loss, compute_policy_loss, compute_value_loss
from mingce.algorithms.masking import masked_mean, masked_var, masked_whiten
from mingce.specs import AGGREGATIONS, find_kl

GOLDENS = json.loads(Path(__file__).with_name("verl_goldens.json").read_text(encoding="utf-8"))
INPUTS: dict[str, Any] = {
    name: x if name == "index" else torch.tensor(x, dtype=torch.float32) for name, x in GOLDENS["inputs"].items()
}
OUTPUTS, SETTINGS = GOLDENS["outputs"], GOLDENS["settings"]
REWARDS, VALUES, MASK = INPUTS["rewards"], INPUTS["values"], INPUTS["mask"]


def equal(got: Tensor, wanted: Any, tol: float = 2e-6) -> None:
    assert torch.allclose(got.double(), torch.tensor(wanted, dtype=torch.float64), rtol=1e-5, atol=tol)


def test_credit() -> None:
    advantages, returns = verl_names.compute_gae_advantage_return(REWARDS, VALUES, MASK, **SETTINGS["gae"])
    equal(advantages, OUTPUTS["gae"]["advantages"])
    equal(returns, OUTPUTS["gae"]["returns"])
    for name, normed in (("grpo", True), ("grpo_no_std", False)):
        advantages, _ = verl_names.compute_grpo_outcome_advantage(
            REWARDS, MASK, INPUTS["index"], norm_adv_by_std_in_grpo=normed
        )
        equal(advantages, OUTPUTS[name]["advantages"])
    equal(verl_names.compute_rloo_outcome_advantage(REWARDS, MASK, INPUTS["index"])[0], OUTPUTS["rloo"]["advantages"])
    advantages, returns = verl_names.compute_reinforce_plus_plus_outcome_advantage(
        REWARDS, MASK, **SETTINGS["reinforce_plus_plus"]
    )
    equal(advantages, OUTPUTS["reinforce_plus_plus"]["advantages"])
    equal(returns, OUTPUTS["reinforce_plus_plus"]["returns"])


@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_losses(mode: str) -> None:
    equal(agg_loss(REWARDS, MASK, mode), OUTPUTS[f"agg {mode}"])
    old, new = INPUTS["old_log_prob"], INPUTS["log_prob"]
    policy = compute_policy_loss(old, new, REWARDS, MASK, **SETTINGS["policy"], loss_agg_mode=mode)
    loss, clip_fraction, kl, dual_fraction = OUTPUTS[f"policy {mode}"]
    equal(policy.loss, loss)
    # verl counts the two clips apart; `clipped` holds both
    equal(masked_mean(policy.columns["dual_clipped"].float(), MASK), dual_fraction)
    equal(masked_mean((policy.columns["clipped"] & ~policy.columns["dual_clipped"]).float(), MASK), clip_fraction)
    equal(masked_mean(old - new, MASK), kl)
    value = compute_value_loss(new, REWARDS, VALUES, MASK, **SETTINGS["value"], loss_agg_mode=mode)
    equal(value.loss, OUTPUTS[f"value {mode}"][0])
    equal(masked_mean(value.columns["value_clipped"].float(), MASK), OUTPUTS[f"value {mode}"][1])


def test_kl_and_statistics() -> None:
    for name in ("kl", "abs", "mse", "low_var_kl"):
        clamp = find_kl(name).verl_clamp
        equal(kl_penalty(INPUTS["log_prob"], INPUTS["ref_log_prob"], name, MASK, clamp), OUTPUTS[f"kl {name}"])
    equal(masked_mean(REWARDS, MASK), OUTPUTS["masked_mean"])
    equal(masked_var(REWARDS, MASK), OUTPUTS["masked_var"])
    equal(masked_whiten(REWARDS, MASK), OUTPUTS["masked_whiten"])
