"""Functions with verl's names give the numbers of verl 0.9.1: ragged rows, holes, a prompt sampled once."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mingce.algorithms import verl_names
from mingce.algorithms.kl import kl_penalty
from mingce.algorithms.losses import BatchTotals, agg_loss, value_loss
from mingce.algorithms.masking import masked_mean, masked_var, masked_whiten
from mingce.base.errors import MingceError
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


@pytest.mark.parametrize("mode", [mode for mode in AGGREGATIONS if f"agg {mode}" in OUTPUTS])
def test_losses(mode: str) -> None:
    equal(agg_loss(REWARDS, MASK, mode), OUTPUTS[f"agg {mode}"])
    old, new = INPUTS["old_log_prob"], INPUTS["log_prob"]
    policy = verl_names.compute_policy_loss(old, new, REWARDS, MASK, **SETTINGS["policy"], loss_agg_mode=mode)
    for ours, theirs in zip(policy, OUTPUTS[f"policy {mode}"], strict=True):
        equal(ours, theirs)
    value = verl_names.compute_value_loss(new, REWARDS, VALUES, MASK, **SETTINGS["value"], loss_agg_mode=mode)
    for ours, theirs in zip(value, OUTPUTS[f"value {mode}"], strict=True):
        equal(ours, theirs)


def test_ranks() -> None:
    """On `dp_size` ranks whose gradients are averaged, the mean of the ranks' losses is that of the whole batch."""
    totals: BatchTotals = {"batch_num_tokens": int(MASK.sum()), "global_batch_size": len(MASK), "loss_scale_factor": 7}
    for mode in AGGREGATIONS:
        whole = agg_loss(REWARDS, MASK, mode, **totals)
        ranks: BatchTotals = {**totals, "dp_size": 2}
        halves = [agg_loss(REWARDS[rows], MASK[rows], mode, **ranks) for rows in (slice(0, 1), slice(1, None))]
        equal(torch.stack(halves).mean(), whole.tolist())
    equal(agg_loss(REWARDS, MASK, "token-sum"), float((REWARDS * MASK).sum()))
    loss, _ = verl_names.compute_value_loss(REWARDS, VALUES, VALUES, MASK, 0.5, "token-sum", dp_size=3)
    equal(loss / 3, verl_names.compute_value_loss(REWARDS, VALUES, VALUES, MASK, 0.5, "token-sum")[0].tolist())


def test_arguments_that_do_not_exist_are_refused() -> None:
    for call in (
        lambda: agg_loss(REWARDS, MASK, "token-mean", dp_sise=2),  # type: ignore[call-arg]
        lambda: verl_names.compute_value_loss(REWARDS, REWARDS, REWARDS, MASK, 0.5, tokens=3),  # type: ignore[call-arg]
        lambda: value_loss(REWARDS, REWARDS, REWARDS, MASK, 0.5, ranks=3),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="has no argument"):
            call()
    with pytest.raises(MingceError, match="token-mean on 2 ranks needs batch_num_tokens"):
        agg_loss(REWARDS, MASK, "token-mean", dp_size=2)
    with pytest.raises(TypeError, match="needs config"):
        verl_names.compute_reinforce_plus_plus_outcome_advantage(REWARDS, MASK)
    with pytest.raises(TypeError, match="needs cliprange"):
        verl_names.compute_policy_loss(REWARDS, REWARDS, REWARDS, MASK)


def test_a_configuration_is_taken() -> None:
    """verl's trainer passes `config` to every estimator; REINFORCE++ reads γ from it."""
    config, index = SimpleNamespace(gamma=SETTINGS["reinforce_plus_plus"]["gamma"]), np.array(INPUTS["index"])
    advantages, returns = verl_names.compute_reinforce_plus_plus_outcome_advantage(REWARDS, MASK, config=config)
    equal(advantages, OUTPUTS["reinforce_plus_plus"]["advantages"])
    equal(returns, OUTPUTS["reinforce_plus_plus"]["returns"])
    for name, function in vars(verl_names).items():
        if name.endswith("outcome_advantage") and "index" in function.__code__.co_varnames:
            shapes = [x.shape for x in function(REWARDS, MASK, index=index, config=config)]
            assert shapes == [MASK.shape] * 2, name


def test_entropy_is_that_of_logits() -> None:
    logits = torch.randn(*MASK.shape, 5, generator=torch.Generator().manual_seed(0))
    tokens = torch.distributions.Categorical(logits=logits).entropy()
    equal(verl_names.compute_entropy_loss(logits, MASK), float((tokens * MASK).sum() / MASK.sum()))


def test_statistics_of_a_row() -> None:
    """One axis, three axes: whatever has the mask's shape."""
    row, mask = torch.tensor([1.0, 2.0, 4.0, float("nan")]), torch.tensor([1, 1, 1, 0])
    equal(masked_mean(row, mask), 7 / 3)
    equal(masked_var(row, mask), float(torch.tensor([1.0, 2.0, 4.0]).var()))
    equal(masked_whiten(row, mask)[:3].mean(), 0.0)
    equal(masked_mean(row.expand(2, 3, 4), mask.expand(2, 3, 4), axis=-1), [[7 / 3] * 3] * 2)
    with pytest.raises(MingceError, match="shape"):
        masked_mean(row, mask[:3])


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_what_tools_say_stops_no_return(gamma: float) -> None:
    """As verl's own test of it asks (its #7278): returns step over observations, undiscounted, and are 0 on them."""
    kept = torch.tensor([[1, 1, 0, 0, 1, 1, 0], [1, 0, 1, 0, 0, 0, 0]])
    rewards = torch.tensor([[0.0, 0, 0, 0, 0, 1, 0], [0.5, 0, 2, 0, 0, 0, 0]])
    config = SimpleNamespace(gamma=gamma)
    _, returns = verl_names.compute_reinforce_plus_plus_outcome_advantage(rewards, kept, config=config)
    assert not returns[kept == 0].any()
    for row, mask in enumerate(kept.bool()):
        alone = rewards[row][mask][None]
        _, wanted = verl_names.compute_reinforce_plus_plus_outcome_advantage(
            alone, torch.ones_like(alone), config=config
        )
        torch.testing.assert_close(returns[row][mask], wanted[0])
    torch.testing.assert_close(returns[0][kept[0].bool()], gamma ** torch.tensor([3.0, 2, 1, 0]))


def test_kl_and_statistics() -> None:
    for name in ("kl", "abs", "mse", "low_var_kl"):
        clamp = find_kl(name).verl_clamp
        equal(kl_penalty(INPUTS["log_prob"], INPUTS["ref_log_prob"], name, MASK, clamp), OUTPUTS[f"kl {name}"])
        theirs = torch.tensor(OUTPUTS[f"kl {name}"])
        for call in (verl_names.kl_penalty, verl_names.kl_penalty_forward):
            equal(call(INPUTS["log_prob"], INPUTS["ref_log_prob"], name) * MASK, (theirs * MASK).tolist())
    equal(masked_mean(REWARDS, MASK), OUTPUTS["masked_mean"])
    equal(masked_var(REWARDS, MASK), OUTPUTS["masked_var"])
    equal(masked_whiten(REWARDS, MASK), OUTPUTS["masked_whiten"])
