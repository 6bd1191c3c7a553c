"""The audit where the settings are the trainer's own, as mingce.watch reads them: each loss is one formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_audit_watched import ROWS, SIZE, WIDTH, alarms, step

from mingce.audit.audit import audit
from mingce.importers.memory import dump_in_memory

EPS_LOW, EPS_HIGH = 0.2, 0.3


def later(seed: int = 0, **settings: Any) -> dict[str, Any]:
    """A step of a later pass without a KL, whose ratios lie on both sides of the clip."""
    made = step(seed, {"kl_loss_coef": 0.0, "clip_low": EPS_LOW, "clip_high": EPS_HIGH} | settings)
    rng = np.random.default_rng(seed + 1)
    old = made["old_per_token_logps"]
    made["per_token_logps"] = (old + rng.normal(0, 0.3, old.shape)).clip(max=-1e-4).astype(np.float32)
    made["importance_sampling_ratio"] = rng.uniform(0.7, 1.2, old.shape).astype(np.float32)
    made["micro_batch"] = np.arange(ROWS) // 8
    return made


def parts(made: dict[str, Any]) -> tuple[Any, Any, Any]:
    ratio = np.exp(made["per_token_logps"].astype(float) - made["old_per_token_logps"])
    return ratio, made["advantages"].astype(float)[:, None], made["completion_mask"]


def ppo(made: dict[str, Any], *, cap: float = np.inf, clip: bool = True, weighted: bool = True) -> Any:
    ratio, a, _ = parts(made)
    held = np.minimum(ratio, cap)
    terms = -np.minimum(held * a, ratio.clip(1 - EPS_LOW, 1 + EPS_HIGH) * a) if clip else -held * a
    return terms * made["importance_sampling_ratio"] if weighted else terms


def named(made: dict[str, Any], terms: Any) -> list[str]:
    """What is found where the logged loss is the mean of these terms over the loss's tokens."""
    loss = float(np.broadcast_to(terms, made["completion_mask"].shape)[made["completion_mask"]].mean())
    return alarms(made | {"metrics": {"pg_loss": loss}})


def test_what_the_settings_say_is_in_the_loss_must_be_in_it() -> None:
    made = later(ratio_cap=1.1)
    assert named(made, ppo(made, cap=1.1)) == []
    assert named(made, ppo(made)) == ["loss-other-terms"]
    assert named(made, ppo(made, cap=1.1, weighted=False)) == ["loss-other-terms"]
    assert named(made, ppo(made, clip=False)) == ["loss-other-terms"]


def test_cispo_is_held_at_its_bound() -> None:
    made = later(policy_loss="cispo", loss_agg_mode="cispo", clip_high=1.05)
    ratio, a, _ = parts(made)
    terms = -a * made["per_token_logps"].astype(float) * made["importance_sampling_ratio"]
    assert named(made, terms * np.minimum(ratio, 1.05)) == []
    assert named(made, terms * ratio) == ["loss-no-fit"]


@pytest.mark.parametrize("name", ["cispo", "gspo"])
def test_a_kl_beside_a_loss_that_is_not_ppo_s(name: str) -> None:
    made = later(policy_loss=name, loss_agg_mode="dapo", clip_high=1.05, kl_loss_coef=0.1, kl_loss_weighted=False)
    ratio, a, mask = parts(made)
    away = made["per_token_logps"].astype(float) - made["old_per_token_logps"]
    whole = np.exp((away * mask).sum(1) / mask.sum(1))[:, None]
    held = -np.minimum(whole * a, whole.clip(1 - EPS_LOW, 2.05) * a)
    policy = held if name == "gspo" else -a * made["per_token_logps"].astype(float) * np.minimum(ratio, 1.05)
    gap = made["ref_per_token_logps"].astype(float) - made["per_token_logps"]
    kl = np.exp(gap) - gap - 1
    for sign, expected in ((1, []), (-1, ["kl-loss-sign"])):
        terms = policy * made["importance_sampling_ratio"] + sign * 0.1 * kl
        assert alarms(made | {"metrics": {"loss": float(terms[mask].mean())}}) == expected


def test_a_loss_that_has_collapsed_is_not_told_apart() -> None:
    made = later()
    made["advantages"] = made["advantages"] * np.float32(1e-9)
    made["rewards"] = made["rewards"] * np.float32(0)
    assert alarms(made | {"metrics": {"pg_loss": 3e-10}}) == []


@pytest.mark.parametrize("wrong", ["sum", "over padding"])
def test_a_sequence_s_ratio_is_the_mean_over_its_tokens(wrong: str) -> None:
    made = later(policy_loss="gspo", clip_low=0.05, clip_high=0.05)
    _, a, mask = parts(made)
    away = made["per_token_logps"].astype(float) - made["old_per_token_logps"]

    def loss(log_ratio: Any) -> Any:
        ratio = np.exp(log_ratio)[:, None]
        return -np.minimum(ratio * a, ratio.clip(0.95, 1.05) * a) * made["importance_sampling_ratio"]

    summed = (away * mask).sum(1)
    assert named(made, loss(summed / mask.sum(1))) == []
    assert named(made, loss(summed if wrong == "sum" else away.mean(1))) == ["loss-no-fit"]


def test_the_loss_of_the_most_uncertain_tokens() -> None:
    share = 0.3
    made = later(entropy_share=share)
    mask, entropy = made["completion_mask"], -made["old_per_token_logps"] * 1.01
    made["entropies"] = entropy.astype(np.float32)
    kept = np.zeros_like(mask)
    for part in range(ROWS // 8):
        rows = (made["micro_batch"] == part)[:, None] & mask
        kept |= rows & (made["entropies"] >= np.quantile(made["entropies"][rows], 1 - share))
    assert "loss-other-terms" not in named(made, ppo(made) * kept)
    assert "loss-no-fit" not in named(made, ppo(made) * kept)
    assert "loss-other-terms" in named(made, ppo(made))
    assert "loss-other-terms" in named(made, ppo(made) * ~kept)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_the_bonus_for_entropy_is_taken_off_the_loss(beta: float) -> None:
    made = later(entropy_coef=0.05, kl_loss_coef=beta, kl_loss_weighted=False)
    mask = made["completion_mask"]
    gap = made["ref_per_token_logps"].astype(float) - made["per_token_logps"]
    policy, kl = float(ppo(made)[mask].mean()), float((np.exp(gap) - gap - 1)[mask].mean())
    logged = {"entropy": 2.0} | ({} if beta else {"pg_loss": policy})
    for sign, expected in ((-1.0, []), (1.0, ["loss-no-fit"])):
        loss = policy + beta * kl + sign * 0.05 * 2.0
        assert alarms(made | {"metrics": logged | {"loss": loss}}) == expected


@pytest.mark.parametrize(("over", "found"), [("group", []), ("batch", ["estimator-differs"]), (None, [])])
def test_whose_deviation_divides_is_what_the_settings_say(over: str | None, found: list[str]) -> None:
    made = step(settings={} if over is None else {"std_over": over})
    assert alarms(made) == found


@pytest.mark.parametrize("over", ["group", "batch"])
def test_rewards_so_small_that_the_epsilon_decides(over: str) -> None:
    made = step(settings={"std_over": over})
    made["rewards"] = (made["rewards"] * 2e-5).astype(np.float32)
    grouped = made["rewards"].astype(float).reshape(-1, SIZE)
    std = grouped.std(1, ddof=1, keepdims=True) if over == "group" else grouped.std(ddof=1)
    made["advantages"] = ((grouped - grouped.mean(1, keepdims=True)) / (std + 1e-4)).reshape(-1).astype(np.float32)
    assert alarms(made) == []


@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_a_mean_of_micro_batches_counts_the_empty_ones(kl: float) -> None:
    made = later(loss_agg_mode="bnpo", kl_loss_coef=kl, kl_loss_weighted=False)
    made["completion_mask"] = made["completion_mask"] & (made["micro_batch"] != 1)[:, None]
    mask = made["completion_mask"]
    gap = made["ref_per_token_logps"].astype(float) - made["per_token_logps"]
    terms = ppo(made) + kl * (np.exp(gap) - gap - 1)
    sums = [
        float(terms[rows][mask[rows]].sum())
        for part in range(4)
        if len(rows := np.flatnonzero(made["micro_batch"] == part))
    ]
    counts = [max(int(mask[made["micro_batch"] == part].sum()), 1) for part in range(4)]
    loss = sum(one / count for one, count in zip(sums, counts, strict=True)) / 4
    name = "loss" if kl else "pg_loss"
    assert alarms(made | {"metrics": {name: loss}}) == []
    assert alarms(made | {"metrics": {name: 2 * loss}}) != []


def test_rows_that_the_limit_cut_are_masked_out_where_the_settings_say_so() -> None:
    made = step(settings={"mask_truncated": True, "max_response_length": WIDTH, "pad_id": 0})
    cut = np.flatnonzero(made["completion_mask"].all(1))
    assert len(cut) > 1
    assert alarms(made) == []
    made["completion_ids"][cut, -1] = 50
    assert alarms(made) == ["truncated-row-chosen"]
    made["completion_mask"][cut] = False
    assert alarms(made) == []
    made["completion_mask"][:] = ~made["completion_mask"].any(1)[:, None] & (made["completion_ids"] != 0)
    assert "truncated-row-chosen" in alarms(made)


def test_rloo_compares_what_is_left_after_the_kl() -> None:
    made = step(settings={"estimator": "rloo", "kl_loss_coef": None, "beta": 0.1, "kl_in_reward": True})
    mask = made["completion_mask"]
    kl = ((made["old_per_token_logps"].astype(float) - made["ref_per_token_logps"]) * mask).sum(1)
    for outcome, found in ((made["rewards"] - 0.1 * kl, False), (made["rewards"].astype(float), True)):
        grouped = outcome.reshape(-1, SIZE)
        others = (grouped.sum(1, keepdims=True) - grouped) / (SIZE - 1)
        assert bool(alarms(made | {"advantages": (grouped - others).reshape(-1).astype(np.float32)})) == found


def test_a_policy_that_writes_one_token_again_and_again() -> None:
    """Rows that begin alike have the same log-prob, and a stretch of one token is like that of any other row."""
    made = step(settings={"kl_loss_coef": 0.0})
    ids, mask = made["completion_ids"], made["completion_mask"]
    ids[:] = np.where(mask, 20, 0)
    made["old_per_token_logps"][:, :] = -0.002 * np.arange(1, WIDTH + 1)[::-1] / WIDTH
    made["per_token_logps"] = made["old_per_token_logps"].copy()
    rng = np.random.default_rng(3)
    made["ref_per_token_logps"] = -rng.exponential(1.0, (1, WIDTH)).astype(np.float32).repeat(ROWS, 0) - 0.2
    assert {"not-log-probs", "few-rows-out-of-line"}.isdisjoint(alarms(made))


def test_a_policy_that_gives_one_answer_again_and_again() -> None:
    """Few numbers, which many a function of the reference's gives."""
    made = step(settings={"kl_loss_coef": 0.0})
    made["completion_mask"][:] = True
    ref = -np.random.default_rng(4).exponential(1.0, (1, WIDTH)).astype(np.float32) - 0.1
    made["ref_per_token_logps"] = ref.repeat(ROWS, 0)
    made["old_per_token_logps"] = made["per_token_logps"] = (ref / WIDTH).repeat(ROWS, 0)
    assert "not-log-probs" not in alarms(made)
    made["ref_per_token_logps"] = step(7)["old_per_token_logps"]
    made["old_per_token_logps"] = made["per_token_logps"] = made["ref_per_token_logps"] / WIDTH
    assert "not-log-probs" in alarms(made)


def test_a_row_that_moved_far_is_not_that_of_another_with_the_same_tokens() -> None:
    made = step(settings={"kl_loss_coef": 0.0})
    old, ids = made["old_per_token_logps"], made["completion_ids"]
    made["completion_mask"][:] = True
    new = (old + np.random.default_rng(5).normal(0, 0.02, old.shape)).clip(max=-1e-4).astype(np.float32)
    ids[4, 4:] = ids[9, 4:] = 6
    old[4, 4:] = -0.1 - 0.02 * np.arange(WIDTH - 4)
    new[4, 4:] = -0.6 - 0.1 * np.arange(WIDTH - 4)
    old[9, 4:] = -0.03
    new[9, 4:] = -0.1 - 0.02 * np.arange(WIDTH - 4)
    moved = made | {"per_token_logps": new, "minibatch": np.arange(ROWS) // 8, "epoch": np.ones(ROWS)}
    assert "few-rows-out-of-line" not in alarms(moved)


def test_no_other_base_is_seen_where_unlikely_tokens_are_never_drawn() -> None:
    """The surprise is the entropy over ln 2 at high and at low entropies; with a cut it may be so by chance."""
    made = step(settings={"kl_loss_coef": 0.0})
    rng = np.random.default_rng(0)
    entropy = rng.uniform(0.5, 2.0, made["old_per_token_logps"].shape)
    made["old_per_token_logps"] = -(entropy * np.log(2.0) + rng.normal(0, 0.05, entropy.shape)).astype(np.float32)
    made["per_token_logps"] = made["ref_per_token_logps"] = made["old_per_token_logps"]
    made["entropies"] = entropy.astype(np.float32)
    assert "entropy-unit" in alarms(made)
    made["settings"] |= {"min_p": 0.1}
    assert "entropy-unit" not in alarms(made)


@pytest.mark.parametrize(("estimator", "found"), [("remax", False), ("grpo", True)])
def test_rows_that_are_uneven_by_less_than_single_precision_shows(estimator: str, found: bool) -> None:
    """ReMax's advantages hold the KL that is still to be paid, which huge scores hide but for a digit."""
    made = step(settings={"estimator": estimator, "kl_loss_coef": 0.0})
    spread = np.broadcast_to(made["advantages"][:, None], made["completion_mask"].shape).astype(np.float64) * 1e4
    spread = spread * (1 + 3e-6 * np.linspace(0, 1, WIDTH) * (np.arange(ROWS) < 2)[:, None])
    assert ("advantage-varies" in alarms(made | {"advantages": spread})) == found


@pytest.mark.parametrize("source", ["openrlhf", "trl_grpo"])
def test_openrlhf_adds_the_kl_up_behind_the_comparison(source: str) -> None:
    made = step(settings={"kl_loss_coef": None, "beta": 0.05, "kl_in_reward": True})
    kl = (made["old_per_token_logps"].astype(float) - made["ref_per_token_logps"]) * made["completion_mask"]
    paid = made["advantages"][:, None] - 0.05 * kl[:, ::-1].cumsum(1)[:, ::-1]
    dump = dump_in_memory(made | {"advantages": (paid * made["completion_mask"]).astype(np.float32)})
    dump.source = source
    assert ("advantage-varies" in [one.fault.code for one in audit(dump).findings]) == (source != "openrlhf")


def test_a_mean_over_passes_is_not_held_against_the_last_one() -> None:
    """TRL's PPO logs the mean over its epochs, whose ratios are nearly 1."""
    made = later(policy_loss=None, loss_agg_mode="token-mean", ppo_epochs=2)
    _, a, mask = parts(made)
    weights = made.pop("importance_sampling_ratio")
    assert weights.shape == mask.shape
    near = float(np.broadcast_to(-a, mask.shape)[mask].mean())
    dump = dump_in_memory(made | {"metrics": {"pg_loss": near + 2e-6}})
    dump.source = "trl"
    assert "loss-other-terms" not in [one.fault.code for one in audit(dump).findings]
