"""The distance to the reference model: how it is estimated, where it is charged."""

from __future__ import annotations

import math

from mingce.algorithms import reference
from mingce.explain.example import Rollout, changed
from mingce.explain.topic import Grid, Values, listed, topic
from mingce.explain.topics.chosen import chosen_slots, each, mean


@topic
def reference_not_in_loss(rollout: Rollout, t: int) -> Values:
    """The same rollout with β = 0: what the reference changed in the advantages."""
    with_kl, free = changed(rollout).columns, changed(rollout, beta=0.0).columns
    return {
        "advantage_with_kl": with_kl["advantages"][t],
        "advantage_free": free["advantages"][t],
        "advantages_free": listed(each(rollout, lambda s: free["advantages"][s])),
        "kl_effect": with_kl["advantages"][t] - free["advantages"][t],
        "kl_list": listed(with_kl["kl"]),
    }


def _estimate(rollout: Rollout, name: str) -> list[float | None]:
    old, ref = rollout.columns["old_log_probs"], rollout.columns["ref_log_probs"]
    return each(rollout, lambda s: reference.kl_penalty(old[s], ref[s], name))


@topic
def kl_estimators(rollout: Rollout, t: int) -> Values:
    found: Values = {}
    for number, name in (("one", "k1"), ("two", "k2"), ("three", "k3")):
        column = _estimate(rollout, name)
        found |= {f"k_{number}": column[t], f"k_{number}_list": listed(column), f"k_{number}_mean": mean(column)}
        if name == "k1":
            found["negative_count"] = sum(x is not None and x < 0 for x in column)
    return found


@kl_estimators.with_grid
def _estimator_grid(rollout: Rollout, t: int) -> Grid:
    names = ("k1", "k2", "k3")
    columns = {name: _estimate(rollout, name) for name in names}
    rows = []
    for name, column in columns.items():
        known = [x for x in column if x is not None]
        rows.append((name, min(known), mean(column), max(known)))
    return Grid(("estimator", "least", "mean", "largest"), tuple(rows))


@topic
def kl_where(rollout: Rollout, t: int) -> Values:
    columns, beta = rollout.columns, rollout.settings.beta
    slots = chosen_slots(rollout)
    scores, kl = math.fsum(columns["scores"][s] for s in slots), math.fsum(columns["kl"][s] for s in slots)
    gentle = mean(_estimate(rollout, "k3"))
    price = beta or 0.0
    return {
        "kl_list": listed(columns["kl"]),
        "kl_total": kl,
        "kl_cost": price * kl,
        "score_total": scores,
        "reward_total": scores - price * kl,
        "kl_loss_mean": gentle,
        "kl_loss_cost": price * gentle,
    }
