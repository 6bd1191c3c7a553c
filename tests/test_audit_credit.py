"""The audit of rewards, advantages, whitening and groups: it agrees with the twins, reads settings off the numbers, and
names what it was given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from batches import Batch, batches, unit
from hypothesis import HealthCheck, assume, given, settings
from torch import Tensor

from mingce.algorithms import reference
from mingce.algorithms.advantage import gae, grpo, rloo, td_errors
from mingce.algorithms.kl import kl_penalty, kl_rewards
from mingce.algorithms.masking import masked_whiten
from mingce.audit import credit, derived, groups, recursion, rewards, scores, whitening
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Finding
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings
from mingce.testing import assert_clean

GAMMA, LAM, BETA = 0.98, 0.9, 0.05
Columns = dict[str, Tensor]


def clean(seed: int, rows: int = 24, width: int = 40, estimator: str = "k1") -> Columns:
    """A batch as mingce's own functions make it: ragged, tool holes, a score on the last chosen token."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(6, width, (rows,), generator=g)
    lengths[:3] = width
    attended = torch.arange(width) < lengths[:, None]
    mask = attended.clone()
    for row in range(0, rows, 2):
        mask[row, 2:4] = False
    old = -3 * torch.rand(rows, width, generator=g)
    ref = old + 0.3 * torch.randn(rows, width, generator=g)
    scores = torch.zeros(rows, width)
    scores[torch.arange(rows), lengths - 1] = 0.5 + torch.rand(rows, generator=g)
    made = {
        "response_mask": mask,
        "attention_mask": attended,
        "old_log_probs": old,
        "ref_log_probs": ref,
        "scores": scores,
        "values": 0.5 + 0.3 * torch.randn(rows, width, generator=g),
    }
    return made | credited(made, kl_rewards(scores, kl_penalty(old, ref, estimator), mask, BETA))


def credited(c: Columns, reward: Tensor) -> Columns:
    """Everything that follows from the rewards."""
    made = gae(reward, c["values"], c["response_mask"], GAMMA, LAM)
    assert made.returns is not None
    whitened = masked_whiten(made.advantages, c["response_mask"])
    return {"rewards": reward, "returns": made.returns, "advantages": whitened}


def look(c: Columns, rows: dict[str, list[Any]] | None = None, **given_settings: Any) -> tuple[Evidence, list[Finding]]:
    evidence = Evidence(
        Dump({name: column.numpy() for name, column in c.items()}, rows or {}, DumpSettings(**given_settings))
    )
    found: list[Finding] = []
    for family in (rewards, scores, credit, derived, whitening, groups):
        for check in family.CHECKS:
            if evidence.has(*check.needs):
                found.extend(check.findings(evidence) or ())
    return evidence, found


def codes(found: Iterable[Finding], *levels: str) -> list[str]:
    return [finding.fault.code for finding in found if finding.level in (levels or ("bug", "suspicious"))]


@given(batch=batches(), gamma=unit, lam=unit)
def test_one_step_of_the_twins_advantages_gives_them_back(batch: Batch, gamma: float, lam: float) -> None:
    twin = reference.gae(batch.rewards.tolist(), batch.values.tolist(), batch.mask.tolist(), gamma, lam)
    columns = recursion.Columns(
        batch.rewards.double().numpy(),
        batch.values.double().numpy(),
        np.array(twin.advantages).reshape(batch.mask.shape),
    )
    mask = batch.mask.numpy()
    again = recursion.one_step(columns, mask, gamma, gamma * lam, "skip", "end")
    assert again[mask] == pytest.approx(columns.advantages[mask], rel=1e-9, abs=1e-9)


@given(batch=batches(min_rows=3, max_rows=6, min_width=24, max_width=40), gamma=unit, lam=unit)
@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much])
def test_gamma_and_lambda_are_read_off_the_numbers(batch: Batch, gamma: float, lam: float) -> None:
    gamma, lam = round(0.5 + gamma / 2, 2), round(lam, 2)
    assume(int((batch.mask[:, 1:] & batch.mask[:, :-1]).sum()) >= 30)
    made = gae(batch.rewards, batch.values, batch.mask, gamma, lam)
    assert made.returns is not None
    columns = {"response_mask": batch.mask, "values": batch.values, "returns": made.returns}
    columns["rewards"] = torch.where(batch.mask, batch.rewards, 0.0)
    evidence, found = look(columns)
    assert codes(found) == []
    assert evidence.settings.gamma == pytest.approx(gamma, abs=1e-3)
    assert evidence.settings.lam == pytest.approx(lam, abs=1e-3)


@pytest.mark.parametrize("estimator", ["k1", "abs", "k2", "k3"])
@pytest.mark.parametrize("rounded", [False, True])
def test_clean_batches_are_clean(estimator: str, rounded: bool) -> None:
    for seed in range(5):
        c = clean(seed, estimator=estimator)
        if rounded:
            c = {name: x.bfloat16().float() if x.is_floating_point() else x for name, x in c.items()}
        evidence, found = look(c, kl_estimator=estimator)
        assert codes(found) == []
        assert evidence.settings.beta == pytest.approx(BETA, rel=0.05 if rounded else 1e-3)
        assert evidence.settings.lam == pytest.approx(LAM, abs=0.02 if rounded else 1e-3)


def test_another_estimator_or_coefficient_than_the_settings_say() -> None:
    assert codes(look(clean(0, estimator="k3"), kl_estimator="kl")[1]) == ["kl-estimator"]
    assert codes(look(clean(0), beta=BETA / 2)[1]) == ["kl-coefficient"]
    assert codes(look(clean(0), gamma=1.0, lam=LAM)[1]) == ["gamma-lambda-differ"]


def test_the_convention_of_trl_is_one() -> None:
    """The score one slot after the last token, values kept up to there, the recursion run over it."""
    c = clean(1)
    rows, width = c["scores"].shape
    mask = c["attention_mask"]
    after = mask.sum(dim=1).clamp(max=width - 1)
    reach = mask.clone()
    reach[torch.arange(rows), after] = True
    scores = torch.zeros(rows, width)
    scores[torch.arange(rows), after] = 1.0
    values = torch.where(reach, c["values"], 0.0)
    reward = scores - BETA * (c["old_log_probs"] - c["ref_log_probs"]) * mask
    made = gae(reward, values, reach, GAMMA, LAM)
    assert made.returns is not None
    c |= {"response_mask": mask, "scores": scores, "values": values, "rewards": reward, "returns": made.returns}
    c["advantages"] = masked_whiten(made.returns - values, mask)
    evidence, found = look(c)
    assert codes(found) == []
    assert "score-after-last" in codes(found, "convention")
    assert evidence.settings.gamma == pytest.approx(GAMMA)
    c["values"] = torch.where(mask, values, 0.0)  # without the value after the end the score is only misplaced
    del c["returns"], c["advantages"]
    assert codes(look(c)[1]) == ["score-index"]


@pytest.mark.parametrize(
    ("column", "code"),
    [
        ("returns", "returns-broken"),
        ("rewards", "credit-of-few-rows"),
        ("values", "credit-of-few-rows"),
        ("deltas", "td-error-disagrees"),
        ("kl", "kl-disagrees"),
        ("ratio", "ratio-disagrees"),
    ],
)
def test_one_wrong_number_is_found_where_it_is(column: str, code: str) -> None:
    c = clean(5)
    c["deltas"] = td_errors(c["rewards"], c["values"], c["response_mask"], GAMMA)
    c["kl"] = kl_penalty(c["old_log_probs"], c["ref_log_probs"], "k1")
    c["new_log_probs"] = c["old_log_probs"] - 0.1
    c["ratio"] = torch.exp(c["new_log_probs"] - c["old_log_probs"])
    assert codes(look(c)[1]) == []
    c[column] = c[column].clone()
    c[column][7, 5] += 0.5
    found = look(c)[1]
    assert code in codes(found, "bug")
    (finding,) = [one for one in found if one.fault.code == code]
    assert any(place.row == 7 and place.token in (4, 5) for place in finding.places)


def test_dense_scores_have_no_one_place() -> None:
    c = clean(2)
    c["scores"] = torch.where(c["response_mask"], torch.rand(c["scores"].shape), 0.0)
    c |= credited(c, c["scores"])
    assert codes(look(c)[1]) == []


def test_rewards_of_another_shaping_are_suspicious_and_not_a_bug() -> None:
    c = clean(3)
    c |= credited(c, torch.where(c["response_mask"], torch.randn(c["rewards"].shape), 0.0))
    assert codes(look(c)[1]) == ["reward-unexplained"]


@pytest.mark.parametrize("estimator", [grpo, rloo])
@pytest.mark.parametrize("shuffled", [False, True])
def test_groups(estimator: Any, shuffled: bool) -> None:
    c = clean(4)
    prompts = np.repeat(np.arange(6), 4)
    if shuffled:
        prompts = np.random.default_rng(0).permutation(prompts)
    made = {name: c[name] for name in ("response_mask", "attention_mask", "scores")}
    made["rewards"] = made["scores"]
    rows = {"prompt_ids": [[int(p), 7] for p in prompts]}
    made["advantages"] = estimator(made["rewards"], made["response_mask"], prompts.tolist()).advantages
    assert codes(look(made, rows)[1]) == []
    assert "group-advantage" in codes(look(made, rows)[1], "convention")
    made["advantages"] = estimator(
        made["rewards"], made["response_mask"], np.repeat(np.arange(6), 4).tolist()
    ).advantages
    assert codes(look(made, rows)[1]) == (["groups-misformed"] if shuffled else [])


def test_nothing_is_said_of_nothing() -> None:
    for shape in ((0, 0), (0, 5), (3, 0), (3, 4)):
        columns = {name: torch.zeros(shape) for name in ("scores", "rewards", "values", "returns", "advantages")}
        columns |= {"old_log_probs": torch.full(shape, torch.nan), "ref_log_probs": torch.zeros(shape)}
        columns["response_mask"] = torch.zeros(shape, dtype=torch.bool)
        rows = {"prompt_ids": [[1]] * shape[0]}
        assert look(columns, rows)[1] == []


def test_a_recursion_that_runs_on_into_the_next_row_is_named_with_token_rewards_and_without() -> None:
    c = clean(11)
    c["response_mask"] = c["attention_mask"].clone()
    kl = kl_penalty(c["old_log_probs"], c["ref_log_probs"], "k1")
    reward = kl_rewards(c["scores"], kl, c["response_mask"], BETA)
    values, mask = c["values"], c["response_mask"]
    flat, value = reward[mask].tolist(), values[mask].tolist()
    credit_of, last, ahead = [0.0] * len(flat), 0.0, 0.0
    for t in reversed(range(len(flat))):
        last = flat[t] + GAMMA * ahead - value[t] + GAMMA * LAM * last
        ahead, credit_of[t] = value[t], last
    raw = torch.zeros_like(reward)
    raw[mask] = torch.tensor(credit_of)
    c |= {"rewards": reward, "returns": (raw + values) * mask, "advantages": masked_whiten(raw, mask)}
    assert codes(look(c)[1]) == ["recursion-across-rows"]
    outcome = c["scores"].sum(1).tolist()
    bare = {name: c[name] for name in c if name not in ("rewards", "scores")}
    assert codes(look(bare, {"outcome": outcome}, gamma=GAMMA, lam=LAM)[1]) == ["recursion-across-rows"]


def test_rewards_one_slot_early_are_named_where_only_returns_tell_of_them() -> None:
    c = clean(12)
    c["response_mask"] = mask = c["attention_mask"].clone()
    whole = kl_rewards(c["scores"], kl_penalty(c["old_log_probs"], c["ref_log_probs"], "k1"), mask, BETA)
    early = torch.cat([whole[:, 1:], whole[:, :1] * 0], dim=1) * mask
    bare = {name: c[name] for name in c if name not in ("rewards", "scores")} | credited(c, early)
    del bare["rewards"]
    for settings_given in ({}, {"gamma": GAMMA, "lam": LAM, "beta": BETA, "kl_estimator": "k1"}):
        found = codes(look(bare, {"outcome": c["scores"].sum(1).tolist()}, **settings_given)[1])
        assert found[:1] == ["kl-of-something-else"], found


def test_returns_without_a_critic_that_are_no_sums_are_named() -> None:
    c = clean(13)
    mask = c["response_mask"] = c["attention_mask"].clone()
    dense = torch.where(mask, 0.1 * c["values"], 0.0)
    early = torch.cat([dense[:, 1:], dense[:, :1] * 0], dim=1) * mask
    returns = early.flip(1).cumsum(1).flip(1) * mask
    bare = {name: c[name] for name in ("response_mask", "attention_mask")} | {"rewards": dense}
    bare |= {"returns": returns, "advantages": masked_whiten(returns, mask)}
    found = look(bare, estimator="reinforce_plus_plus", gamma=1.0)[1]
    assert codes(found) == ["returns-are-no-sums"]
    assert "one slot early" in next(f for f in found if f.fault.code == "returns-are-no-sums").values["what"]
    right = dense.flip(1).cumsum(1).flip(1) * mask
    bare |= {"returns": right, "advantages": masked_whiten(right, mask)}
    assert codes(look(bare, estimator="reinforce_plus_plus", gamma=1.0)[1]) == []


@pytest.mark.parametrize("seed", range(10))
def test_a_batch_that_earned_nothing_is_no_bug_where_gamma_and_lambda_show_as_one(seed: int) -> None:
    """With no reward and λ = 1 each advantage is −V: next values and next advantages say the same."""
    made = clean(seed, rows=33, width=18)
    mask, rewards = made["response_mask"], torch.zeros(33, 18)
    values = 0.3 + 0.18 * torch.randn(33, 18, generator=torch.Generator().manual_seed(seed))
    found = gae(rewards, values, mask, 1.0, 1.0)
    columns = {name: made[name] for name in ("response_mask", "attention_mask", "old_log_probs")} | {
        "values": values, "rewards": rewards, "scores": rewards, "returns": found.returns,
        "advantages": masked_whiten(found.advantages, mask),
    }  # fmt: skip
    assert_clean(columns, settings={"gamma": 1.0, "lam": 1.0})
