"""The seeds' worked examples through the real functions; and their slips, where the code must disagree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mingce.algorithms import reference
from mingce.algorithms.advantage import gae, monte_carlo, td0, td_errors
from mingce.algorithms.kl import kl_penalty, kl_rewards
from mingce.algorithms.losses import policy_loss, ppo_loss
from mingce.algorithms.masking import masked_var, masked_whiten
from mingce.specs import POLICY_LOSSES

SEEDS = json.loads(Path(__file__).with_name("seed_examples.json").read_text(encoding="utf-8"))
EXAMPLES = {example["id"]: example for example in SEEDS["examples"]}
ERRATA = {erratum["seed"]: erratum for erratum in SEEDS["errata"]}


def row(numbers: list[float]) -> Tensor:
    return torch.tensor([numbers])


def ones(numbers: list[float]) -> Tensor:
    return torch.ones(1, len(numbers), dtype=torch.bool)


def through_the_real_functions(given: dict[str, Any]) -> dict[str, list[float]]:
    """Everything the code can say about what an example gives."""
    got: dict[str, Tensor] = {}
    if "values" in given:
        rewards, values = row(given["rewards"]), row(given["values"])
        credit = gae(rewards, values, ones(given["rewards"]), given["gamma"], given["lam"])
        got |= credit.columns() | {"deltas": td_errors(rewards, values, ones(given["rewards"]), given["gamma"])}
    elif "rewards" in given:
        rewards = row(given["rewards"])
        credit = monte_carlo(rewards, torch.zeros_like(rewards), rewards == rewards, given["gamma"])
        got["monte_carlo_returns"] = credit.columns()["returns"]
    if "ref_log_prob" in given:
        got["kl_k1"] = kl_penalty(row(given["old_log_probs"]), row(given["ref_log_prob"]), "kl")
        got["rewards"] = kl_rewards(row(given["scores"]), got["kl_k1"], ones(given["scores"]), given["beta"])
    elif "kl" in given:
        got["rewards"] = kl_rewards(row(given["scores"]), row(given["kl"]), ones(given["scores"]), given["beta"])
    if "advantages" in given:
        old = row(given["old_log_probs"])
        got["old_probs"] = old.exp()
        surrogate = policy_loss(POLICY_LOSSES["cpi"], old, old, row(given["advantages"]), torch.ones_like(old), {}).loss
        assert surrogate == ppo_loss(old, old, row(given["advantages"]), torch.ones_like(old)).loss
        got["cpi_objective"] = -surrogate.reshape(1, 1)
    return {name: column[0].tolist() for name, column in got.items()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_example(name: str) -> None:
    example = EXAMPLES[name]
    got = through_the_real_functions(example["given"])
    for column, wanted in example["expect"].items():
        # the examples are printed to three digits; the ones with a tolerance of their own are exact up to float32
        assert got[column] == pytest.approx(wanted, abs=max(example.get("tol", 6e-4), 1e-7)), column


def test_every_example_expects_something_the_code_computes() -> None:
    for example in EXAMPLES.values():
        assert set(example["expect"]) <= set(through_the_real_functions(example["given"]))


@pytest.mark.parametrize(
    "seed",
    [
        "002_5be43cbe59195d16.txt, question 3",
        "002_5be43cbe59195d16.txt, question 5, section 5",
        "003_84ff7ff9e6cbd30f.txt, question 1, section 2.4",
    ],
)
def test_erratum_in_the_recursion(seed: str) -> None:
    """The code gives the right numbers and not the seed's claim."""
    erratum = ERRATA[seed]
    got = through_the_real_functions(erratum["given"])
    for column, wanted in erratum["right"].items():
        assert got[column] == pytest.approx(wanted, abs=6e-5)
    claims = erratum["seed_claims"]
    claimed = claims["advantages"][0] if "advantages" in claims else claims["A1"]
    assert abs(got["advantages"][0] - claimed) > 0.01


def test_erratum_adding_rewards_where_td_errors_belong() -> None:
    """Seed 002, question 3 leaves out V(s_{t+1}) − V(s_t); its claim is what one gets by doing that."""
    erratum = ERRATA["002_5be43cbe59195d16.txt, question 3"]
    rewards, values = erratum["given"]["rewards"], erratum["given"]["values"]
    slip = [*rewards[:-1], rewards[-1] - values[-1]]
    assert reference.discounted_sum(slip, 0.95) == pytest.approx(erratum["seed_claims"]["advantages"], abs=0.02)


def test_erratum_no_gamma_and_lambda_give_the_claim_of_seed_000() -> None:
    erratum = ERRATA["000_5be9b0b86f4ee4f7.txt, question 1"]
    rewards, values = erratum["given"]["rewards"], erratum["given"]["values"]
    claimed = row(erratum["seed_claims"]["advantages"])
    nearest = gae(row(rewards), row(values), ones(rewards), 0.99, 0.95).advantages
    assert nearest[0].tolist() == pytest.approx([0.0382, 0.0287, 0.0294, 0.0199, 0.0101, 0.0], abs=6e-5)
    grid = torch.linspace(0, 1, 41).tolist()
    errors = [
        float((gae(row(rewards), row(values), ones(rewards), gamma, lam).advantages - claimed).abs().max())
        for gamma in grid
        for lam in grid
    ]
    assert min(errors) > 6e-4


def test_erratum_whitening() -> None:
    erratum = ERRATA["002_5be43cbe59195d16.txt, question 6"]
    raw, right = erratum["given"]["raw_advantages"], erratum["right"]
    x, mask = row(raw), ones(raw)
    assert masked_var(x, mask).sqrt().item() == pytest.approx(right["std_bessel"], abs=6e-6)
    assert masked_var(x, mask, unbiased=False).sqrt().item() == pytest.approx(right["std_biased"], abs=6e-6)
    assert masked_whiten(x, mask)[0].tolist() == pytest.approx(right["whitened_bessel"], abs=6e-4)
    assert masked_whiten(x, mask)[0].tolist() != pytest.approx(erratum["seed_claims"]["whitened"], abs=0.01)


def test_erratum_values_are_before_the_token_and_contain_its_reward() -> None:
    """V(s_0) of a critic that is always right is the sum of all rewards, r_0 included; then every TD error is 0."""
    rewards = [0.5, -0.1, 0.2, 1.0]
    perfect = reference.discounted_sum(rewards, 1.0)
    assert perfect[0] == pytest.approx(sum(rewards))
    assert td_errors(row(rewards), row(perfect), ones(rewards), 1.0).abs().max() < 1e-6
    after_the_token = [total - r for total, r in zip(perfect, rewards, strict=True)]
    assert td0(row(rewards), row(after_the_token), ones(rewards), 1.0).advantages.abs().max() > 0.1


def test_erratum_returns_are_monte_carlo_only_for_lambda_one() -> None:
    given = EXAMPLES["002-q1-gae-table"]["given"]
    rewards, values = row(given["rewards"]), row(given["values"])
    total = monte_carlo(rewards, values, rewards == rewards, 1.0).returns
    assert total is not None
    assert total[0].tolist() == pytest.approx(reference.discounted_sum(given["rewards"], 1.0))
    lambda_return = gae(rewards, values, rewards == rewards, 1.0, 0.95).returns
    assert lambda_return is not None
    assert (lambda_return - total).abs().max() > 0.1


def test_erratum_six_tokens() -> None:
    assert EXAMPLES["002-q1-gae-table"]["tokens"] == ["是", "的", "，", "等于", "2", "！"]
