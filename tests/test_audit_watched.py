"""The audit of steps as TRL's GRPO and RLOO make them: later passes, collapsed policies, losses logged whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mingce.audit.audit import audit
from mingce.importers.memory import dump_in_memory

ROWS, SIZE, WIDTH, BETA = 32, 4, 16, 0.1


def step(seed: int = 0, settings: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    """A right step of GRPO under TRL's names, in single precision."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(6, WIDTH + 1, ROWS)
    mask = np.arange(WIDTH) < lengths[:, None]
    old = -rng.exponential(0.7, (ROWS, WIDTH)).astype(np.float32)
    ids = rng.integers(3, 90, (ROWS, WIDTH)) * mask
    ids[np.arange(ROWS), lengths - 1] = 2
    made: dict[str, Any] = {
        "completion_ids": ids,
        "completion_mask": mask,
        "prompt_ids": np.repeat(rng.integers(3, 90, (ROWS // SIZE, 5)), SIZE, axis=0),
        "old_per_token_logps": old,
        "per_token_logps": (old + rng.normal(0, 0.05, old.shape)).clip(max=-1e-4).astype(np.float32),
        "ref_per_token_logps": (old * np.exp(rng.normal(0, 0.2, old.shape))).astype(np.float32),
        "rewards": rng.normal(size=ROWS).astype(np.float32),
        "settings": {
            "estimator": "grpo", "kl_loss_coef": BETA, "kl_estimator": "k3", "policy_loss": "ppo", "clip_low": 0.2,
            "clip_high": 0.2, "loss_agg_mode": "dapo", "group_size": SIZE, "ppo_epochs": 2, "step": 4, "eos_id": 2,
        } | (settings or {}),
    }  # fmt: skip
    made |= changed
    if "advantages" not in made:
        made["advantages"] = compared(made["rewards"]).astype(np.float32)
    return made


def compared(outcome: Any) -> Any:
    grouped = np.asarray(outcome, np.float64).reshape(-1, SIZE)
    return ((grouped - grouped.mean(1, keepdims=True)) / (grouped.std(1, ddof=1, keepdims=True) + 1e-4)).reshape(-1)


def total_loss(
    made: dict[str, Any], sign: float = 1.0, turned: bool = False, *, weighted: bool = False, power: float = 1.0,
    smaller: Any = np.minimum,
) -> float:  # fmt: skip
    """−min(ρA, clip(ρ)A) + sign·β·k3 over the tokens, in double precision; `power` −1 turns the ratio over."""
    new, old, ref = (made[f"{name}per_token_logps"].astype(float) for name in ("", "old_", "ref_"))
    ratio, a = np.exp(power * (new - old)), made["advantages"].astype(float)[:, None]
    policy = -smaller(ratio * a, ratio.clip(0.8, 1.2) * a)
    gap = (new - ref) if turned else (ref - new)
    kl = (np.exp(gap) - gap - 1) * (ratio if weighted else 1.0)
    return float((policy + sign * BETA * kl)[made["completion_mask"]].mean())


def alarms(made: dict[str, Any]) -> list[str]:
    report = audit(dump_in_memory(made))
    return [one.fault.code for one in (*report.of("bug"), *report.of("suspicious"))]


def test_a_right_step_is_clean() -> None:
    made = step()
    assert alarms(made | {"metrics": {"loss": total_loss(made)}}) == []


@pytest.mark.parametrize(
    ("sign", "turned", "code"),
    [(-1.0, False, "kl-loss-sign"), (1.0, True, "kl-loss-sign"), (0.0, False, "kl-loss-absent")],
)
def test_the_kl_in_a_loss_that_is_logged_whole(sign: float, turned: bool, code: str) -> None:
    made = step()
    assert alarms(made | {"metrics": {"loss": total_loss(made, sign, turned)}}) == [code]


@pytest.mark.parametrize("weighted", [True, False])
def test_a_kl_that_is_weighted_by_the_ratio(weighted: bool) -> None:
    """TRL 1.16 does so by default; where no setting tells, either is right."""
    made = step(settings={"kl_loss_weighted": weighted})
    made["per_token_logps"] = (made["old_per_token_logps"] * 1.3).astype(np.float32)
    unknown = made | {"settings": {k: v for k, v in made["settings"].items() if k != "kl_loss_weighted"}}
    loss = total_loss(made, weighted=weighted)
    assert alarms(made | {"metrics": {"loss": loss}}) == alarms(unknown | {"metrics": {"loss": loss}}) == []
    for wrong in (
        total_loss(made, weighted=weighted, power=-1.0),
        total_loss(made, weighted=weighted, smaller=np.maximum),
    ):
        assert alarms(made | {"metrics": {"loss": wrong}}) == ["loss-other-terms"]
    assert alarms(made | {"metrics": {"loss": total_loss(made, -1.0, weighted=weighted)}}) == ["kl-loss-sign"]


def test_a_kl_so_large_that_rounding_hides_the_policy_is_not_called_absent() -> None:
    made = step(settings={"kl_loss_weighted": False})
    made["ref_per_token_logps"] = np.where(np.arange(WIDTH) == 2, 16.0, made["ref_per_token_logps"]).astype(np.float32)
    assert "kl-loss-absent" not in alarms(made | {"metrics": {"loss": total_loss(made, weighted=True)}})


def test_a_ratio_that_is_capped_below_the_clip_is_counted_so() -> None:
    made = step(settings={"ratio_cap": 1.1, "kl_loss_coef": 0.0})
    made["per_token_logps"] = (made["old_per_token_logps"] * 1.3).astype(np.float32)
    made["per_token_logps"][::2] = (made["old_per_token_logps"][::2] * 0.6).astype(np.float32)
    ratio = np.exp(made["per_token_logps"] - made["old_per_token_logps"]).clip(max=1.1)
    a = made["advantages"][:, None]
    share = float(((ratio > 1.2) & (a > 0) | (ratio < 0.8) & (a < 0))[made["completion_mask"]].mean())
    assert "metric-of-something-else" not in alarms(made | {"metrics": {"clip_ratio/region_mean": share}})


def test_another_average_shows_beside_a_kl() -> None:
    made = step()
    mask = made["completion_mask"]
    ratio = np.exp(made["per_token_logps"].astype(float) - made["old_per_token_logps"])
    a = made["advantages"].astype(float)[:, None]
    policy = -np.minimum(ratio * a, ratio.clip(0.8, 1.2) * a)
    gap = made["ref_per_token_logps"].astype(float) - made["per_token_logps"]
    rows = np.where(mask, policy, 0).sum(1) / mask.sum(1)
    kl = float((np.exp(gap) - gap - 1)[mask].mean())
    found = alarms(made | {"metrics": {"loss": float(rows.mean()) + BETA * kl}})
    assert found == ["loss-other-mode"]


def test_a_policy_that_hardly_doubts_is_no_fill_value_and_no_shift() -> None:
    made, rng = step(), np.random.default_rng(1)
    sure = rng.random((ROWS, WIDTH)) < 0.93
    old = np.where(sure, -rng.integers(0, 3, sure.shape) * 2.0**-23, -rng.exponential(0.1, sure.shape))
    old[:, 4:9] = 0.0
    entropy = np.where(old > -1e-3, 1e-6, 0.3).astype(np.float32)
    ref = -rng.exponential(2.0, sure.shape).astype(np.float32)
    made |= {"old_per_token_logps": old.astype(np.float32), "per_token_logps": old.astype(np.float32)}
    made |= {"ref_per_token_logps": ref, "entropies": entropy}
    assert alarms(made | {"epoch": [0] * ROWS, "minibatch": [0] * ROWS}) == []
    filled = step()
    filled["old_per_token_logps"] = np.where(np.arange(WIDTH) % 16 < 5, filled["old_per_token_logps"], 0.0)
    filled["entropies"] = np.full((ROWS, WIDTH), 0.7, np.float32) + rng.random((ROWS, WIDTH)).astype(np.float32)
    assert "fill-value-as-log-prob" in alarms(filled)


def test_log_probs_near_zero_lie_on_any_grid() -> None:
    rng = np.random.default_rng(2)
    near = (-rng.integers(1, 1000, (ROWS, WIDTH)) * 2.0**-19).astype(np.float32)
    made = step(per_token_logps=near, old_per_token_logps=near)
    assert not {"half-precision-log-probs"} & set(alarms(made | {"epoch": [0] * ROWS, "minibatch": [0] * ROWS}))
    coarse = step()
    for name in ("per_token_logps", "old_per_token_logps"):
        coarse[name] = coarse[name].astype(np.float16).astype(np.float32)
    assert "half-precision-log-probs" in alarms(coarse)


def test_the_first_pass_is_where_it_was_and_a_later_one_is_not() -> None:
    made = step()
    same = made | {"per_token_logps": made["old_per_token_logps"], "minibatch": [0] * ROWS}
    assert alarms(same | {"epoch": [0] * ROWS}) == []
    assert alarms(same | {"epoch": [1] * ROWS}) == ["ratio-always-one"]


def test_a_reference_that_is_the_policy_is_right_before_the_first_update() -> None:
    made = step()
    made["ref_per_token_logps"] = made["old_per_token_logps"]
    assert alarms(made) == ["reference-equals-policy"]
    dump = dump_in_memory(made)
    dump.rows["policy_version"] = [0] * ROWS
    assert not audit(dump).of("suspicious")


def test_rloo_takes_the_kl_of_a_response_off_its_outcome() -> None:
    made = step(settings={"estimator": "rloo", "kl_loss_coef": 0.0, "beta": BETA, "kl_in_reward": True})
    gap = made["old_per_token_logps"].astype(float) - made["ref_per_token_logps"]
    kl = np.where(made["completion_mask"], gap, 0).sum(1)
    for sign, expected in ((-1.0, []), (1.0, ["group-by-another-outcome"])):
        paid = (made["rewards"] + sign * BETA * kl).reshape(-1, SIZE)
        others = (paid.sum(1, keepdims=True) - paid) / (SIZE - 1)
        advantages = (paid - others).reshape(-1)
        assert alarms(made | {"advantages": advantages.astype(np.float32)}) == expected
        white = (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-4)
        if sign < 0:
            named = made["settings"] | {"estimator": None}
            kept = {name: value for name, value in named.items() if value is not None}
            assert alarms(made | {"advantages": white.astype(np.float32), "settings": kept}) == []


def test_part_of_a_batch_is_not_held_against_the_batch() -> None:
    made = step(settings={"estimator": "grpo"})
    outcome = made["rewards"].astype(float)
    scaled = (outcome.reshape(-1, SIZE) - outcome.reshape(-1, SIZE).mean(1, keepdims=True)).reshape(-1)
    made["advantages"] = (scaled / (2.0 * outcome.std(ddof=1) + 1e-4)).astype(np.float32)  # that of all the rows
    del made["settings"]["estimator"]
    dump = dump_in_memory(made)
    assert audit(dump).of("suspicious")
    dump.rows_of = 4 * ROWS
    assert not audit(dump).of("suspicious")
