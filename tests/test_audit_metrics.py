"""Logged numbers beside the columns: each follows, is named for what it is instead, or is said to be unexplained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mingce.audit.audit import audit
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

ROWS, WIDTH, CLIP = 32, 24, 0.2


def made(seed: int = 0, source: str = "verl", **settings: Any) -> Dump:
    """A batch of log-probs, advantages and values with everything that verl logs of it."""
    r = np.random.default_rng(seed)
    lengths = r.integers(8, WIDTH + 1, ROWS)
    mask = np.arange(WIDTH) < lengths[:, None]
    old = np.where(mask, -np.abs(r.normal(0, 1.5, mask.shape)) - 2.0, 0.0)
    moved = {name: np.where(mask, r.normal(0, size, mask.shape), 0.0) for name, size in (("new", 0.25), ("ref", 0.4))}
    scores = np.zeros(mask.shape)
    scores[np.arange(ROWS), lengths - 1] = r.normal(0.4, 1, ROWS)
    values = np.where(mask, r.normal(0.2, 0.5, mask.shape), 0.0)
    raw = np.zeros(mask.shape)
    for t in range(WIDTH - 1, -1, -1):  # γ = λ = 1
        raw[:, t] = scores[:, t:].sum(1) - values[:, t]
    advantages = np.where(mask, (raw - raw[mask].mean()) / raw[mask].std(ddof=1), 0.0)
    columns = {
        "old_log_probs": old, "new_log_probs": old + moved["new"], "ref_log_probs": old + moved["ref"],
        "scores": scores, "rewards": scores.copy(), "values": values, "returns": np.where(mask, raw + values, 0.0),
        "advantages": advantages, "new_values": values + np.where(mask, r.normal(0, 0.3, mask.shape), 0.0),
    }  # fmt: skip
    named: dict[str, Any] = {name: column.astype(np.float32) for name, column in columns.items()}
    named |= {"response_mask": mask, "attention_mask": mask.copy()}
    given = DumpSettings(**({"clip": CLIP, "value_clip": 0.2, "gamma": 1.0, "lam": 1.0, "ppo_epochs": 1} | settings))
    return logged(Dump(named, {}, given, source=source))


def logged(dump: Dump) -> Dump:
    mask = dump.mask
    x = {name: dump.wide(name)[mask] for name in dump.columns if dump.columns[name].dtype.kind == "f"}
    ratio, a = np.exp(x["new_log_probs"] - x["old_log_probs"]), x["advantages"]
    held = (np.clip(x["new_values"], x["values"] - 0.2, x["values"] + 0.2) - x["returns"]) ** 2
    square = (x["new_values"] - x["returns"]) ** 2
    kl = x["ref_log_probs"] - x["new_log_probs"]
    sums = {name: dump.wide(name).sum(1) for name in ("scores", "rewards")}
    dump.scalars = {
        "pg_loss": float(np.maximum(-a * ratio, -a * np.clip(ratio, 1 - CLIP, 1 + CLIP)).mean()),
        "pg_clipfrac": float((((ratio > 1 + CLIP) & (a > 0)) | ((ratio < 1 - CLIP) & (a < 0))).mean()),
        "approx_kl": float((x["old_log_probs"] - x["new_log_probs"]).mean()),
        "kl_loss": float((np.expm1(kl) - kl).mean()),
        "vf_loss": 0.5 * float(np.maximum(held, square).mean()),
        "vf_clipfrac": float((held > square).mean()),
        "vf_explained_var": 1 - float(np.var(x["returns"] - x["values"], ddof=1) / np.var(x["returns"], ddof=1)),
        "response_length_mean": float(mask.sum(1).mean()),
        **{f"{n}_{k}": float(getattr(x[n], k)()) for n in ("advantages", "returns", "values") for k in ("mean", "max")},
        **{f"{name}_mean": float(column.mean()) for name, column in sums.items()},
    }
    return dump


def told(dump: Dump) -> list[tuple[str, str]]:
    return [(f.fault.code, f.column) for f in audit(dump).findings if f.level in ("bug", "suspicious")]


def words(dump: Dump, code: str) -> str:
    found = next(f for f in audit(dump).findings if f.fault.code == code)
    return found.fault.title[1].format(**found.values)


@pytest.mark.parametrize("seed", range(4))
def test_what_follows_is_silent(seed: int) -> None:
    assert told(made(seed)) == []
    assert told(made(seed, source="generic")) == []


def _scaled(name: str, by: float) -> Callable[[Dump], None]:
    return lambda dump: dump.scalars.update({name: dump.scalars[name] * by})


def _kl_loss_of_old(dump: Dump) -> None:
    x = (dump.wide("old_log_probs") - dump.wide("new_log_probs"))[dump.mask]
    dump.scalars["kl_loss"] = float((np.expm1(x) - x).mean())


def _approx_kl_of_reference(dump: Dump) -> None:
    x = (dump.wide("new_log_probs") - dump.wide("ref_log_probs"))[dump.mask]
    dump.scalars["approx_kl"] = float(x.mean())


def _returns_over_pads(dump: Dump) -> None:
    dump.scalars["returns_mean"] = float(dump.wide("returns").mean())


def _values_for_returns(dump: Dump) -> None:
    dump.scalars["returns_max"] = dump.scalars["values_max"]


def _not_from_one(dump: Dump) -> None:
    dump.scalars["vf_explained_var"] = 1 - dump.scalars["vf_explained_var"]


def _padded_width(dump: Dump) -> None:
    dump.scalars["response_length_mean"] = float(WIDTH)


WRONG: tuple[tuple[Callable[[Dump], None], str, str, str], ...] = (
    (_scaled("pg_clipfrac", 0.5), "metric-of-something-else", "pg_clipfrac", "2 times too small"),
    (_scaled("pg_clipfrac", 3.7), "metric-unexplained", "pg_clipfrac", "other logged numbers do"),
    (_scaled("pg_loss", 0.125), "loss-scaled", "pg_loss", "8 times too small"),
    (_kl_loss_of_old, "metric-of-something-else", "kl_loss", "log π_old"),
    (_approx_kl_of_reference, "metric-of-something-else", "approx_kl", "log π − log π_ref"),
    (_returns_over_pads, "metric-over-pads", "returns_mean", "all slots"),
    (_values_for_returns, "metric-of-something-else", "returns_max", "that of values"),
    (_not_from_one, "metric-of-something-else", "vf_explained_var", "not taken from 1"),
    (_padded_width, "metric-of-something-else", "response_length_mean", "the padded width"),
    (_scaled("scores_mean", 1.37), "metric-unexplained", "scores_mean", "other logged numbers do"),
)


@pytest.mark.parametrize(("plant", "code", "column", "said"), WRONG)
def test_a_wrong_number_is_named(plant: Callable[[Dump], None], code: str, column: str, said: str) -> None:
    dump = made(1)
    plant(dump)
    assert told(dump) == [(code, column)]
    assert said in words(dump, code)


def test_the_scale_of_a_loss_is_told_without_settings() -> None:
    dump = made(2)
    dump.scalars = {"pg_loss": dump.scalars["pg_loss"] / 8}
    dump.settings = DumpSettings()
    assert told(dump) == [("loss-scaled", "pg_loss")]


def test_a_log_of_another_batch_is_one_finding() -> None:
    dump, other = made(1), made(5)
    names = ("scores_mean", "rewards_mean", "returns_mean", "values_mean", "returns_max")
    dump.scalars = {name: other.scalars[name] for name in names}
    assert told(dump) == [("metrics-of-other-rows", "scores_mean")] or len(told(dump)) == 1


def test_an_unequal_split_into_micro_batches_is_no_fault() -> None:
    """verl logs the mean of its micro-batches' means, and the dump does not say how the rows were split."""
    dump = made(3)
    mask = dump.mask
    ratio, a = np.exp(dump.wide("new_log_probs") - dump.wide("old_log_probs")), dump.wide("advantages")
    out = ((ratio > 1 + CLIP) & (a > 0)) | ((ratio < 1 - CLIP) & (a < 0))
    x = dump.wide("old_log_probs") - dump.wide("new_log_probs")
    parts = np.array_split(np.arange(ROWS), 3)
    dump.scalars["pg_clipfrac"] = float(np.mean([out[rows][mask[rows]].mean() for rows in parts]))
    dump.scalars["approx_kl"] = float(np.mean([x[rows][mask[rows]].mean() for rows in parts]))
    assert told(dump) == []


def test_advantages_without_their_mean_or_division_are_unusual_where_a_trainer_always_whitens() -> None:
    for source, kind, alarmed in (
        ("verl", "scaled", True), ("verl", "raw", True), ("generic", "scaled", True), ("generic", "raw", False),
    ):  # fmt: skip
        dump = made(4, source)
        raw = np.where(dump.mask, dump.wide("returns") - dump.wide("values"), 0.0)
        deviation = raw[dump.mask].std(ddof=1) if kind == "scaled" else 1.0
        dump.columns["advantages"] = (raw / deviation).astype(np.float32)
        found = told(logged(dump))
        assert found == ([("not-whitened-as-usual", "advantages")] if alarmed else []), (source, kind, found)


def test_the_settings_price_and_the_logged_one_are_compared() -> None:
    dump = made(6, kl_estimator="k1", beta=0.01)
    kl = dump.wide("old_log_probs") - dump.wide("ref_log_probs")
    rewards = np.where(dump.mask, dump.wide("scores") - 0.1 * kl, 0.0)
    columns = {name: dump.columns[name] for name in dump.columns if name not in ("returns", "advantages", "values")}
    dump = dataclasses.replace(
        dump, columns=columns | {"rewards": rewards.astype(np.float32)}, scalars={"kl_coef": 0.1}
    )
    assert told(dump) == [("kl-coefficient-logged", "rewards")]
    dump.settings = dataclasses.replace(dump.settings, kl_target=0.1, kl_horizon=1e4)
    assert told(dump) == []
