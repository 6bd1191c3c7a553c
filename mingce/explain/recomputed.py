"""A whole row computed anew by the float64 definitions: its credit, its group, its policy losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mingce.algorithms import reference
from mingce.columns import TOKEN_COLUMNS
from mingce.specs import ESTIMATORS, POLICY_LOSSES
from mingce.specs.losses import PolicyTerm


@dataclass(frozen=True)
class Recomputed:
    """One row by the definitions; None for what its columns and settings do not allow."""

    advantages: list[float] | None = None
    deltas: list[float] | None = None
    returns: list[float] | None = None
    group: dict[str, float] = field(default_factory=dict)
    losses: dict[int, PolicyTerm] | None = None
    sequence_ratio: float | None = None


_last: tuple[Any, Any, Any, Recomputed] | None = None


def recompute(rollout: Mapping[str, Any]) -> Recomputed:
    """The row's numbers; the last row's are kept, for its tokens are asked for in turn."""
    global _last
    key = rollout["columns"], rollout["settings"], rollout.get("bootstrap")
    if _last is None or _last[0] is not key[0] or _last[1] is not key[1] or _last[2] != key[2]:
        _last = *key, Recomputed(**_credit(rollout), **_losses(rollout))
    return _last[3]


def _credit(rollout: Mapping[str, Any]) -> dict[str, Any]:
    columns, settings = rollout["columns"], rollout["settings"]
    after = [float(rollout.get("bootstrap") or 0.0)]
    row: dict[str, list[Any]] = {name: [filled(column)] for name, column in columns.items()}
    mask = [columns["response_mask"]]
    known: dict[str, Any] = {}
    if "rewards" in row and "values" in row and settings.get("gamma") is not None:
        known["deltas"] = reference.td0(row["rewards"], row["values"], mask, settings["gamma"], after).deltas[0]
    spec = ESTIMATORS.get(settings.get("estimator") or "")
    if spec is None or spec.twin is None or any(settings.get(name) is None for name in spec.settings):
        return known
    own = 0
    if spec.grouped:
        siblings = _siblings(rollout)
        if siblings is None:
            return known
        row, own = siblings
        known["group"] = _group_statistics(row, own)
    if any(name not in row for name in spec.inputs):
        return known
    credit = spec.estimate(row, settings, after)
    known["advantages"] = credit.advantages[own]
    return known | ({} if credit.returns is None else {"returns": credit.returns[own]})


def _siblings(rollout: Mapping[str, Any]) -> tuple[dict[str, list[Any]], int] | None:
    """The columns of the samples of the same prompt and this one's place; None where some were left out."""
    siblings = rollout.get("siblings") or []
    own = next((b for b, sibling in enumerate(siblings) if sibling["row"] == rollout["row"]), None)
    if own is None or rollout.get("siblings_left_out") or any(one.get("rewards") is None for one in siblings):
        return None
    names = [name for name in TOKEN_COLUMNS if all(one.get(name) is not None for one in siblings)]
    rows: dict[str, list[Any]] = {name: [filled(one[name]) for one in siblings] for name in names}
    return rows | {"group": [0] * len(siblings)}, own


def _group_statistics(rows: Mapping[str, list[Any]], own: int) -> dict[str, float]:
    pairs = zip(rows["rewards"], rows["response_mask"], strict=True)
    totals = [math.fsum(r for r, m in zip(row, mask, strict=True) if m) for row, mask in pairs]
    mean = math.fsum(totals) / len(totals)
    if len(totals) < 2:
        return {"group_size": len(totals), "group_mean": mean}
    squares = math.fsum((total - mean) ** 2 for total in totals)
    return {
        "group_size": len(totals),
        "group_mean": mean,
        "group_std": math.sqrt(squares / (len(totals) - 1)),
        "others_mean": (math.fsum(totals) - totals[own]) / (len(totals) - 1),
    }


def _losses(rollout: Mapping[str, Any]) -> dict[str, Any]:
    columns, settings = rollout["columns"], rollout["settings"]
    mask = columns["response_mask"]
    whitened = columns.get("whitened_advantages")
    old, new = filled(columns.get("old_log_probs")), filled(columns.get("new_log_probs"))
    used = filled(columns.get("advantages") if whitened is None else whitened)
    slots = reference.chosen(mask)
    if old is None or new is None or not slots:
        return {}
    known: dict[str, Any] = {"sequence_ratio": math.exp(math.fsum(new[t] - old[t] for t in slots) / len(slots))}
    spec = POLICY_LOSSES.get(settings.get("policy_loss") or "ppo")
    if spec is None or spec.twin is None or used is None:
        return known
    if any(settings.get(name) is None for name in spec.settings if name != "dual_clip"):
        return known
    return known | {"losses": spec.terms(old, new, used, mask, settings)}


def filled(column: Sequence[float | None] | None) -> list[float] | None:
    """A column with 0 where nothing is recorded."""
    return None if column is None else [0.0 if x is None else x for x in column]
