"""The logged losses and metrics: every known way of averaging is recognised, and clean batches stay silent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from mingce.algorithms import losses
from mingce.algorithms.losses import agg_loss, ppo_loss
from mingce.audit import kl_places
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Finding
from mingce.audit.losses import CHECKS
from mingce.record.dump import Dump
from mingce.specs import AGGREGATIONS
from mingce.specs.settings import DumpSettings

ROWS, WIDTH, SEEDS = 16, 24, range(5)
Planter = Callable[[Dump], None]


def clean(seed: int, holes: bool = False, moved: float = 0.15) -> Dump:
    """A batch of ragged rows in four micro-batches, with the losses of our own functions as its scalars."""
    r = np.random.default_rng(seed)
    lengths = r.integers(3, WIDTH - 2, ROWS)
    lengths[: ROWS // 4] = r.integers(2, 5, ROWS // 4)  # one micro-batch of short rows
    slots = np.arange(WIDTH)
    attended = slots < lengths[:, None]
    mask = attended & ~((slots >= 2) & (slots < 5) & (lengths[:, None] > 10)) if holes else attended

    def normal(scale: float = 1.0) -> np.ndarray:
        return r.normal(size=mask.shape) * scale

    old = -np.abs(normal(1.5))
    columns: dict[str, Any] = {
        "response_mask": mask,
        "attention_mask": attended,
        "token_ids": r.integers(0, 99, mask.shape),
        "old_log_probs": old,
        "new_log_probs": old + normal(moved),
        "ref_log_probs": old + normal(0.3),
        "advantages": normal() + 0.3,
        "values": normal(),
        "returns": normal(),
        "entropy": np.abs(normal()),
        "scores": np.where(slots == lengths[:, None] - 1, 1.0, 0.0),
    }
    columns["new_values"] = columns["values"] + normal(0.4)
    columns["rewards"] = columns["scores"] - 0.1 * (old - columns["ref_log_probs"]) * mask
    columns = {n: c.astype(np.float32) if c.dtype == np.float64 else c for n, c in columns.items()}
    dump = Dump(
        columns,
        {"micro_batch": [row // (ROWS // 4) for row in range(ROWS)]},
        DumpSettings(clip=0.2, value_clip=0.3, ppo_epochs=1, loss_agg_mode="token-mean", kl_loss_coef=0.0),
        source="verl",
    )
    dump.scalars = {
        "pg_loss": aggregated(dump, policy_terms(dump)),
        "vf_loss": value_loss(dump, 0.3),
        "kl_loss": aggregated(dump, k3(dump)),
        "entropy_mean": masked_mean(dump, "entropy"),
        "advantages_mean": masked_mean(dump, "advantages"),
        "approx_kl": float(np.mean((dump.wide("old_log_probs") - dump.wide("new_log_probs"))[mask])),
        "vf_clipfrac": value_clipfrac(dump, 0.3),
    }
    return dump


def tensor(dump: Dump, name: str) -> torch.Tensor:
    return torch.from_numpy(dump.columns[name].copy())


def policy_terms(dump: Dump) -> torch.Tensor:
    """The clipped terms on all slots."""
    old, new, advantages = (tensor(dump, n) for n in ("old_log_probs", "new_log_probs", "advantages"))
    everywhere = torch.ones(dump.shape, dtype=torch.bool)
    loss = ppo_loss(old, new, advantages, everywhere, 0.2, clip_ratio_c=None)
    return loss.columns["policy_loss"]


def value_loss(dump: Dump, clip: float | None, mask: torch.Tensor | None = None) -> float:
    new, returns, old = (tensor(dump, n) for n in ("new_values", "returns", "values"))
    mask = tensor(dump, "response_mask") if mask is None else mask
    return float(losses.value_loss(new, returns, old, mask, clip).loss)


def value_clipfrac(dump: Dump, clip: float) -> float:
    new, returns, old = (dump.wide(n) for n in ("new_values", "returns", "values"))
    held = (np.clip(new, old - clip, old + clip) - returns) ** 2
    return float((held > (new - returns) ** 2)[dump.mask].mean())


def k3(dump: Dump) -> torch.Tensor:
    x = tensor(dump, "new_log_probs") - tensor(dump, "ref_log_probs")
    return torch.expm1(-x) + x


def aggregated(dump: Dump, terms: torch.Tensor, mode: str = "token-mean", **totals: Any) -> float:
    return float(agg_loss(terms, tensor(dump, "response_mask"), mode, **totals))


def masked_mean(dump: Dump, name: str) -> float:
    return float(dump.wide(name)[dump.mask].mean())


def findings(dump: Dump) -> list[Finding]:
    evidence = Evidence(dump)
    with np.errstate(all="raise"):
        return [
            f
            for check in (*CHECKS, *kl_places.CHECKS)
            if evidence.has(*check.needs)
            for f in check.findings(evidence) or ()
        ]


def told(dump: Dump) -> dict[str, tuple[int, ...]]:
    """Code and classes of what is more than a convention."""
    return {f.fault.code: f.named for f in findings(dump) if f.level in ("bug", "suspicious")}


def rounded(dump: Dump) -> Dump:
    """The same dump as bfloat16 would have stored it; the scalars are those of the full numbers."""
    columns = {
        n: torch.from_numpy(c).bfloat16().float().numpy() if c.dtype == np.float32 else c
        for n, c in dump.columns.items()
    }
    return dataclasses.replace(dump, columns=columns)


# ── clean ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_clean_batches_are_silent(seed: int, holes: bool) -> None:
    dump = clean(seed, holes)
    assert told(dump) == {}
    assert told(rounded(dump)) == {}


@pytest.mark.parametrize("mode", AGGREGATIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_mode_is_recognised(mode: str, seed: int) -> None:
    dump = clean(seed)
    dump.settings = replace(dump.settings, loss_agg_mode=mode, loss_norm=100.0)
    dump.scalars["pg_loss"] = aggregated(dump, policy_terms(dump), mode, loss_scale_factor=100)
    assert told(dump) == {}
    dump.settings = replace(dump.settings, loss_agg_mode=None)
    assert told(dump) == {}
    found = [f for f in findings(dump) if f.fault.code == "loss-aggregation"]
    assert [f.values["way_en"].split("（")[0] for f in found] == [mode]


def test_a_mean_of_minibatch_means_is_a_log_not_a_bug() -> None:
    dump = clean(3)
    dump.rows["minibatch"] = [row % 2 for row in range(ROWS)]
    dump.rows["micro_batch"] = [row // 4 % 2 for row in range(ROWS)]
    terms, mask = policy_terms(dump), tensor(dump, "response_mask")
    halves = [agg_loss(terms[k::2], mask[k::2], "token-mean") for k in range(2)]
    dump.scalars["pg_loss"] = float(sum(halves)) / 2
    assert told(dump) == {}


def test_dual_clip_and_unclipped_losses_are_recognised() -> None:
    for change in (3.0, None):
        dump = clean(5, moved=1.0)
        old, new, advantages = (tensor(dump, n) for n in ("old_log_probs", "new_log_probs", "advantages"))
        clip, high = (0.2, 0.2) if change else (1.0, 1e9)
        mask = tensor(dump, "response_mask")
        loss = ppo_loss(old, new, advantages, mask, clip, cliprange_high=high, clip_ratio_c=change)
        dump.scalars["pg_loss"] = float(loss.loss)
        assert told(dump) == {}


def test_several_epochs_are_not_compared() -> None:
    dump = clean(1)
    dump.settings = replace(dump.settings, ppo_epochs=4)
    dump.scalars["pg_loss"] += 0.5
    assert told(dump) == {"loss-no-fit": (4, 26, 27)}  # approx_kl is that of the columns, and so would the loss be
    dump.scalars["approx_kl"] *= 1.5
    assert told(dump) == {}


# ── planted ────────────────────────────────────────────────────────────────────────────────────────────────────────


def per_micro_batch(dump: Dump) -> None:
    terms, mask = policy_terms(dump), tensor(dump, "response_mask")
    parts = [agg_loss(terms[s : s + 4], mask[s : s + 4]) for s in range(0, ROWS, 4)]
    dump.scalars["pg_loss"] = float(torch.stack(parts).mean())


def per_rank_by_rows(dump: Dump) -> None:
    dump.rows["rank"] = [0] * 4 + [1] * 12
    del dump.rows["micro_batch"]
    terms, mask = policy_terms(dump), tensor(dump, "response_mask")
    dump.scalars["pg_loss"] = float(agg_loss(terms[:4], mask[:4]) * 0.25 + agg_loss(terms[4:], mask[4:]) * 0.75)


def attended_below(dump: Dump) -> None:
    terms = policy_terms(dump)[tensor(dump, "response_mask")].double()
    dump.scalars["pg_loss"] = float(terms.sum()) / int(dump.columns["attention_mask"].sum())


def all_below(dump: Dump) -> None:
    dump.scalars["pg_loss"] = float(policy_terms(dump)[tensor(dump, "response_mask")].sum()) / (ROWS * WIDTH)


def unmasked(dump: Dump) -> None:
    dump.scalars["pg_loss"] = float(policy_terms(dump).mean())


def tool_tokens(dump: Dump) -> None:
    dump.scalars["pg_loss"] = float(policy_terms(dump)[tensor(dump, "attention_mask")].mean())


def advantages_as_mask(dump: Dump) -> None:
    terms, advantages = policy_terms(dump).double(), tensor(dump, "advantages").double()
    dump.scalars["pg_loss"] = float((terms * advantages).sum() / advantages.sum())


def row_times_count(dump: Dump) -> None:
    counts = tensor(dump, "response_mask").sum(1)
    dump.scalars["pg_loss"] = float((policy_terms(dump).double().mean(1) * counts).sum() / counts.sum())


def padded_width(dump: Dump) -> None:
    dump.settings = replace(dump.settings, loss_agg_mode="seq-mean-token-sum-norm", loss_norm=100.0)
    dump.scalars["pg_loss"] = aggregated(dump, policy_terms(dump), "seq-mean-token-sum-norm")


def grows_with_the_micro_batch(dump: Dump) -> None:
    dump.settings = replace(dump.settings, loss_agg_mode="seq-mean-token-sum-norm", loss_norm=100.0)
    right = aggregated(dump, policy_terms(dump), "seq-mean-token-sum-norm", loss_scale_factor=100)
    dump.scalars["pg_loss"] = right * 4


def kl_sign(dump: Dump) -> None:
    dump.scalars["kl_loss"] *= -1


def kl_subtracted(dump: Dump) -> None:
    dump.settings = replace(dump.settings, kl_loss_coef=0.05)
    dump.scalars["loss"] = dump.scalars["pg_loss"] - 0.05 * dump.scalars["kl_loss"]
    dump.columns["rewards"] = dump.columns["scores"].copy()


def value_clip_unused(dump: Dump) -> None:
    dump.scalars["vf_loss"] = value_loss(dump, None)


def not_divided_by_the_micro_batches(dump: Dump) -> None:
    dump.settings = replace(dump.settings, loss_agg_mode="seq-mean-token-sum-norm")
    dump.scalars["pg_loss"] = aggregated(dump, policy_terms(dump), "seq-mean-token-sum-norm") * 4


def critic_mask_beside(dump: Dump) -> None:
    left = np.roll(dump.mask, -1, axis=1) & (np.arange(WIDTH) < WIDTH - 1)
    dump.scalars["vf_loss"] = value_loss(dump, 0.3, torch.from_numpy(left))


def critic_mask_dumped(dump: Dump) -> None:
    critic_mask_beside(dump)
    dump.columns["value_mask"] = np.roll(dump.mask, -1, axis=1) & (np.arange(WIDTH) < WIDTH - 1)


def clipfrac_zero(dump: Dump) -> None:
    dump.scalars["vf_clipfrac"] = 0.0


def same_values(dump: Dump) -> None:
    dump.columns["new_values"] = dump.columns["values"].copy()
    dump.scalars["vf_loss"] = value_loss(dump, 0.3)
    dump.scalars["vf_clipfrac"] = value_clipfrac(dump, 0.3)


def entropy_over_pads(dump: Dump) -> None:
    dump.scalars["entropy_mean"] = float(dump.wide("entropy").mean())


def approx_kl_over_zero_pads(dump: Dump) -> None:
    for name in ("old_log_probs", "new_log_probs"):
        dump.columns[name] = np.where(dump.mask, dump.columns[name], np.float32(1.0))
    x = dump.wide("new_log_probs") - dump.wide("old_log_probs")
    dump.scalars["approx_kl"] = float((0.5 * x**2).mean())


def kl_twice(dump: Dump) -> None:
    dump.settings = replace(dump.settings, kl_loss_coef=0.01)


def kl_never(dump: Dump) -> None:
    dump.settings = replace(dump.settings, kl_loss_coef=0.0, beta=0.0)
    dump.columns["rewards"] = dump.columns["scores"].copy()


def no_known_way(dump: Dump) -> None:
    dump.scalars["pg_loss"] = dump.scalars["pg_loss"] * 1.37 + 0.2


PLANTED: list[tuple[Planter, bool, str, tuple[int, ...]]] = [
    (per_micro_batch, False, "loss-micro-batch-mean", (4,)),
    (per_rank_by_rows, False, "loss-micro-batch-mean", (4,)),
    (attended_below, True, "loss-denominator", (26,)),
    (all_below, False, "loss-denominator", (26,)),
    (unmasked, False, "loss-mask", (27,)),
    (tool_tokens, True, "loss-mask", (3, 27)),
    (advantages_as_mask, False, "loss-mask", (27,)),
    (row_times_count, False, "loss-mask", (27,)),
    (padded_width, False, "loss-constant", (44,)),
    (grows_with_the_micro_batch, False, "loss-constant", (44,)),
    (not_divided_by_the_micro_batches, False, "loss-constant", (44,)),
    (critic_mask_beside, False, "value-mask-shift", (19,)),
    (critic_mask_dumped, False, "value-mask-shift", (19,)),
    (kl_sign, False, "kl-loss-sign", (23,)),
    (kl_subtracted, False, "kl-loss-sign", (23,)),
    (value_clip_unused, False, "value-clip-idle", (45,)),
    (clipfrac_zero, False, "value-clipfrac-zero", (45,)),
    (same_values, False, "value-clip-same-values", (45,)),
    (entropy_over_pads, False, "metric-over-pads", (47,)),
    (approx_kl_over_zero_pads, False, "metric-over-pads", (47,)),
    (kl_twice, False, "kl-twice", (25,)),
    (kl_never, False, "kl-never", (25,)),
    (no_known_way, False, "loss-no-fit", (4, 26, 27)),
]


@pytest.mark.parametrize(("plant", "holes", "code", "classes"), PLANTED, ids=lambda v: getattr(v, "__name__", None))
@pytest.mark.parametrize("seed", SEEDS)
def test_planted(plant: Planter, holes: bool, code: str, classes: tuple[int, ...], seed: int) -> None:
    dump = clean(seed, holes)
    plant(dump)
    assert told(dump) == {code: classes}


@pytest.mark.parametrize(("plant", "holes", "code", "classes"), PLANTED, ids=lambda v: getattr(v, "__name__", None))
def test_planted_in_rounded_dumps_are_named_rightly_if_at_all(
    plant: Planter, holes: bool, code: str, classes: tuple[int, ...]
) -> None:
    seen = []
    for seed in SEEDS:
        dump = clean(seed, holes)
        plant(dump)
        found = told(rounded(dump))
        assert all(set(classes) <= set(named) or code == "loss-no-fit" for named in found.values()), found
        seen.append(found)
    assert any(seen), "16 bits hide it on every batch"


# ── where nothing can be said ──────────────────────────────────────────────────────────────────────────────────────


def test_one_update_of_the_critic_leaves_its_values_as_they_were() -> None:
    dump = clean(2)
    same_values(dump)
    dump.settings = replace(dump.settings, critic_updates=1)
    assert told(dump) == {}


def test_equal_lengths_hide_the_micro_batch_mean() -> None:
    dump = clean(2)
    dump.columns["response_mask"] = dump.columns["attention_mask"] = np.ones(dump.shape, dtype=bool)
    per_micro_batch(dump)
    for name in ("vf_loss", "kl_loss", "entropy_mean", "approx_kl", "advantages_mean", "vf_clipfrac"):
        del dump.scalars[name]
    assert told(dump) == {}


def test_the_padded_width_is_doubtful_when_no_mode_is_given() -> None:
    dump = clean(2)
    all_below(dump)
    dump.settings = replace(dump.settings, loss_agg_mode=None)
    found = [f for f in findings(dump) if f.level == "suspicious"]
    assert [(f.fault.code, f.named) for f in found] == [("loss-denominator", (26, 44))]


def test_zeros_behind_the_mask_add_no_other_names() -> None:
    """Advantages that are 0 behind the mask make a sum without the mask the same as one with it."""
    dump = clean(2, holes=True)
    dump.columns["advantages"] = dump.columns["advantages"] * dump.mask
    per_micro_batch(dump)
    dump.scalars.pop("advantages_mean")
    assert told(dump) == {"loss-micro-batch-mean": (4,)}


def test_trl_averages_micro_batches_by_design() -> None:
    dump = clean(2)
    dump.source = "trl"
    per_micro_batch(dump)
    assert told(dump) == {}


def test_degenerate_batches() -> None:
    for shape in ((0, 0), (0, 5), (3, 0), (1, 1), (2, 3)):
        for fill in (0.0, np.nan, np.inf):
            for chosen in (False, True):
                columns: dict[str, Any] = {"response_mask": np.full(shape, chosen)}
                for name in (
                    "old_log_probs", "new_log_probs", "ref_log_probs", "advantages", "values", "new_values", "returns",
                    "entropy", "scores", "rewards", "kl",
                ):  # fmt: skip
                    columns[name] = np.full(shape, fill, dtype=np.float32)
                scalars = dict.fromkeys(
                    ("pg_loss", "vf_loss", "kl_loss", "entropy_mean", "kl_mean", "approx_kl", "pg_clipfrac",
                     "vf_clipfrac", "advantages_mean", "loss"), 0.1)  # fmt: skip
                dump = Dump(columns, {"rank": [0] * shape[0]}, DumpSettings(clip=0.2, value_clip=0.2, kl_loss_coef=0.1))
                dump.scalars = scalars
                assert not [f for f in findings(dump) if f.level == "bug"]


def test_verls_entropy_is_aggregated_as_the_loss_is_and_a_negative_one_is_said() -> None:
    dump = clean(0)
    summed = float(np.where(dump.mask, dump.wide("entropy"), 0.0).sum() / dump.mask.size)
    dump.scalars["entropy_mean"] = summed
    dump.settings = replace(dump.settings, loss_agg_mode="seq-mean-token-sum-norm", loss_norm=dump.shape[1])
    assert "metric-over-pads" not in told(dump)
    dump.scalars["entropy_mean"] = -float(dump.wide("entropy")[dump.mask].mean())
    assert told(dump)["metric-sign"] == (47,)
