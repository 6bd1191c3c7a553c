"""Steps beside each other: weight sync, reference, adaptive KL and data order, planted and clean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from mingce.algorithms.kl import AdaptiveKLController
from mingce.audit.finding import Finding
from mingce.audit.steps import audit_steps
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

ROWS, WIDTH, SEEDS = 8, 20, range(8)


def step_of(
    seed: int, step: int, prompts: list[list[int]], *, gap: float = 0.01, moved: float = 0.02, ref: float | None = None
) -> Dump:
    """One step: |old − rollout| about `gap`, |new − old| about `moved`, |old − ref| growing with the steps."""
    r = np.random.default_rng((seed, step))
    mask = np.arange(WIDTH) < r.integers(4, WIDTH - 2, ROWS)[:, None]
    old = -np.abs(r.normal(size=mask.shape))
    away = 0.02 * (step - 1) if ref is None else ref
    columns: dict[str, Any] = {
        "response_mask": mask,
        "token_ids": r.integers(0, 50, mask.shape),
        "old_log_probs": old,
        "rollout_log_probs": old + gap * r.normal(size=mask.shape) * r.uniform(0.85, 1.15),
        "new_log_probs": old + moved * r.normal(size=mask.shape),
        "ref_log_probs": old - away * (1 + r.normal(size=mask.shape)),
    }
    columns = {n: c.astype(np.float32) if c.dtype == np.float64 else c for n, c in columns.items()}
    return Dump(columns, {"prompt_ids": [list(p) for p in prompts]}, DumpSettings(beta=0.1), step=step)


def prompts_of(seed: int, batch: int, size: int = ROWS) -> list[list[int]]:
    """Batch `batch` of a large data set."""
    return [[seed, batch, row] for row in range(size)]


def run_of(seed: int, steps: int = 10, **options: Any) -> list[Dump]:
    return [step_of(seed, k, prompts_of(seed, k), **options) for k in range(1, steps + 1)]


def told(dumps: list[Dump]) -> list[str]:
    with np.errstate(all="raise"):
        return [f.fault.code for f in audit_steps(dumps)]


def the(code: str, dumps: list[Dump]) -> Finding:
    found = audit_steps(dumps)
    assert [f.fault.code for f in found] == [code]
    return found[0]


@pytest.mark.parametrize("seed", range(30))
def test_clean_runs_are_silent(seed: int) -> None:
    assert told(run_of(seed)) == []
    assert told(run_of(seed)[:3]) == []
    assert told([]) == []


# ── 6 and 20 ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", SEEDS)
def test_a_failed_sync_is_a_jump_that_stays(seed: int) -> None:
    """The numbers of TRL issue 5312: 0.018 up to step 2, 0.2 from step 3 on."""
    dumps = [step_of(seed, k, prompts_of(seed, k), gap=0.0225 if k < 3 else 0.25) for k in range(1, 9)]
    found = the("rollout-gap-jump", dumps)
    assert found.values["step"] == 3
    assert found.named == (6,)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_bad_step_is_no_jump(seed: int) -> None:
    assert told([step_of(seed, k, prompts_of(seed, k), gap=0.3 if k == 4 else 0.02) for k in range(1, 9)]) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_engine_noise_that_doubles_is_no_trend(seed: int) -> None:
    assert told([step_of(seed, k, prompts_of(seed, k), gap=0.02 * (1 + k / 10)) for k in range(1, 11)]) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_old_weights_are_a_trend(seed: int) -> None:
    dumps = [step_of(seed, k, prompts_of(seed, k), gap=0.03 * k**1.3) for k in range(1, 13)]
    assert the("rollout-gap-trend", dumps).named == (6,)
    idle = [step_of(seed, k, prompts_of(seed, k), gap=0.03 * k**1.3, moved=0.0) for k in range(1, 13)]
    assert the("idle-clip-growth", idle).named == (20,)


def test_versions_that_stand_still() -> None:
    dumps = run_of(1, 6)
    for dump in dumps:
        dump.settings = replace(dump.settings, learner_version=dump.step)
        dump.rows["policy_version"] = [dump.step] * ROWS
    assert told(dumps) == []
    for dump in dumps[2:]:
        dump.rows["policy_version"] = [2] * ROWS
    dumps[0].rows["policy_version"] = [2] * ROWS
    found = the("rollout-weights-stuck", dumps)
    assert (found.level, found.named) == ("bug", (6,))


# ── 22 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reference_that_is_the_policy(seed: int) -> None:
    found = the("reference-follows-policy", run_of(seed, 5, ref=0.0))
    assert (found.level, found.named) == ("bug", (22,))
    assert told(run_of(seed, 5, ref=0.0, moved=0.0)) == [], "a policy that does not move equals its reference"


def test_a_reference_that_is_the_policy_shows_without_new_log_probs() -> None:
    dumps = [step_of(1, k, prompts_of(1, 0), ref=0.0) for k in range(1, 4)]
    for dump in dumps:
        del dump.columns["new_log_probs"]
        dump.columns["token_ids"][:, 0] = 7  # the same first token, at another log-prob in every step
    assert "reference-follows-policy" in told(dumps)


# ── 43 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def with_controller(seed: int, kl_of: Any, n_of: Any, target: float = 0.1) -> list[Dump]:
    """Coefficients as our controller moves them, fed with what the planter says."""
    dumps = [step_of(seed, k, prompts_of(seed, k), ref=0.04 + 0.02 * k) for k in range(1, 8)]
    dumps[0].columns["ref_log_probs"] = dumps[0].columns["old_log_probs"] - np.float32(0.04)
    controller = AdaptiveKLController(0.05, target, 1000)
    for dump in dumps:
        dump.settings = replace(dump.settings, kl_target=target, kl_horizon=1000)
        dump.scalars["kl_coef"] = controller.value
        x = dump.wide("old_log_probs") - dump.wide("ref_log_probs")
        controller.update(kl_of(x, dump.mask), n_of(dump.mask))
    return dumps


def row_means(x: Any, m: Any) -> float:
    return float((np.where(m, x, 0).sum(1) / m.sum(1)).mean())


@pytest.mark.parametrize("seed", SEEDS)
def test_adaptive_coefficients(seed: int) -> None:
    right: list[Any] = [row_means, lambda x, m: float(x[m].mean()), lambda x, m: float(np.where(m, x, 0).sum(1).mean())]
    for kl in right:
        assert told(with_controller(seed, kl, len)) == []
    after = with_controller(seed, row_means, len)
    for one, two in zip(after, [*after[1:]], strict=False):
        one.scalars["kl_coef"] = two.scalars["kl_coef"]
    assert told(after[:-1]) == [], "logged after the update"
    found = the("adaptive-kl", with_controller(seed, row_means, lambda m: 1))
    assert "steps" in found.values["way"]
    found = the("adaptive-kl", with_controller(seed, lambda x, m: float(np.where(m, x, 0).mean()), len))
    assert "all slots" in found.values["way"]
    found = the("adaptive-kl", with_controller(seed, lambda x, m: float(x.mean()), len))
    assert "padding" in found.values["way"]
    assert found.named == (43,)
    found = the("adaptive-kl-no-fit", with_controller(seed, lambda x, m: 0.11, len))
    assert found.level == "suspicious"


def test_rounded_columns_do_not_accuse_the_controller() -> None:
    for seed in SEEDS:
        dumps = with_controller(seed, row_means, len)
        for dump in dumps:
            for name in ("old_log_probs", "ref_log_probs"):
                dump.columns[name] = torch.from_numpy(dump.columns[name]).bfloat16().float().numpy()
        assert "adaptive-kl" not in told(dumps)


def test_a_fixed_coefficient_is_fine() -> None:
    dumps = with_controller(1, row_means, len)
    for dump in dumps:
        dump.scalars["kl_coef"] = 0.05
    assert told(dumps) == []


# ── 48 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def run_with(batches: list[list[list[int]]]) -> list[Dump]:
    return [step_of(1, k, batch) for k, batch in enumerate(batches, 1)]


def test_a_batch_that_stays() -> None:
    order = [1, 2, 3, 3, 3, 4, 5]
    found = the("stuck-batch", run_with([prompts_of(1, k) for k in order]))
    assert (found.values["first"], found.values["last"], found.named) == (3, 5, (48,))


def test_an_order_that_starts_again() -> None:
    order = [1, 2, 3, 4, 1, 2, 3, 4, 5, 6]
    found = the("data-restarted", run_with([prompts_of(1, k) for k in order]))
    assert (found.values["step"], found.named) == (5, (48,))


@pytest.mark.parametrize("seed", SEEDS)
def test_epochs_over_little_data_are_fine(seed: int) -> None:
    assert told(run_with([prompts_of(1, 1)] * 6)) == [], "the batch is the whole data"
    assert told(run_with([prompts_of(1, k) for k in [1, 2, 3] * 4])) == [], "epochs without a shuffle"
    assert told(run_with([prompts_of(1, k) for k in [1, 2, 3, 4, 1, 2]])) == [], "the second epoch has begun"
    r = np.random.default_rng(seed)
    tiny = [[list(p) for p in r.permutation(prompts_of(1, 0, 4))[:2].tolist()] * 4 for _ in range(30)]
    assert told(run_with(tiny)) == [], "two of four prompts repeat by chance"
    data = prompts_of(1, 0, 40)
    shuffled = [
        [data[i] for i in epoch[k : k + 8]] for epoch in (r.permutation(40) for _ in range(4)) for k in range(0, 40, 8)
    ]
    assert told(run_with(shuffled)) == []


def test_degenerate_runs() -> None:
    empty = Dump({"response_mask": np.zeros((0, 0), dtype=bool)}, {"prompt_ids": []}, step=1)
    nans = [step_of(1, k, prompts_of(1, k)) for k in range(1, 8)]
    for dump in nans:
        for name in ("old_log_probs", "ref_log_probs", "new_log_probs"):
            dump.columns[name][:] = np.nan
        dump.scalars["kl_coef"] = 0.1 * (dump.step or 0)
        dump.settings = replace(dump.settings, kl_target=0.1, kl_horizon=100)
    assert told([empty, empty]) == []
    assert told(nans) == []


# ── rollouts and weights ───────────────────────────────────────────────────────────────────────────────────────────


def test_rollouts_of_an_earlier_step_are_told() -> None:
    run = run_of(3)
    for dump in run:  # rows that nobody draws twice
        for name in ("old_log_probs", "rollout_log_probs", "new_log_probs", "ref_log_probs"):
            dump.columns[name] = (dump.columns[name] - 8.0).astype(np.float32)
    assert told(run) == []
    run[6] = replace(run[2], step=7)
    finding = the("rollouts-repeated", run)
    assert (finding.values["first"], finding.values["last"]) == (3, 7)
    run[6] = replace(run[5], step=7)
    for dump in run:
        dump.settings = replace(dump.settings, ppo_epochs=2)
    assert "rollouts-repeated" not in told(run)  # a second epoch over the batch


def test_updates_that_reach_no_weights_are_told() -> None:
    run = [step_of(5, k, prompts_of(5, 1)) for k in range(1, 5)]
    first = run[0].columns["token_ids"][:, 0]
    for dump in run:
        dump.columns["token_ids"][:, 0] = first
        dump.rows["prompt_ids"] = [
            [*prompt, dump.step] if row > 20 else prompt for row, prompt in enumerate(prompts_of(5, 1))
        ]
    assert "update-lost" not in told(run)
    for dump in run[1:]:
        dump.columns["old_log_probs"][:, 0] = run[0].columns["old_log_probs"][:, 0]
    assert "update-lost" in told(run)
