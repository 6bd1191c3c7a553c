"""The distance to the reference model: how it is estimated, where it is charged."""

from __future__ import annotations

import math

from mingce.algorithms import reference
from mingce.explain.example import Rollout, changed
from mingce.explain.topic import Grid, Topic, Values, listed
from mingce.explain.topics.chosen import chosen_slots, each, mean


def _without_kl(rollout: Rollout, t: int) -> Values:
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


def _estimators(rollout: Rollout, t: int) -> Values:
    found: Values = {}
    for number, name in (("one", "k1"), ("two", "k2"), ("three", "k3")):
        column = _estimate(rollout, name)
        found |= {f"k_{number}": column[t], f"k_{number}_list": listed(column), f"k_{number}_mean": mean(column)}
        if name == "k1":
            found["negative_count"] = sum(x is not None and x < 0 for x in column)
    return found


def _estimator_grid(rollout: Rollout, t: int) -> Grid:
    names = ("k1", "k2", "k3")
    columns = {name: _estimate(rollout, name) for name in names}
    rows = []
    for name, column in columns.items():
        known = [x for x in column if x is not None]
        rows.append((name, min(known), mean(column), max(known)))
    return Grid(("estimator", "least", "mean", "largest"), tuple(rows))


def _kl_price(rollout: Rollout, t: int) -> Values:
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


_REFERENCE = Topic(
    "reference_not_in_loss",
    needs=("scores", "old_log_probs", "ref_log_probs", "kl", "rewards", "values", "advantages"),
    formula="π_ref → k_t → r_t = score_t − β·k_t → A_t → L(θ) = −Ê_t[ρ_t·A_t]",
    numbers=_without_kl,
    table=("old_log_probs", "ref_log_probs", "kl", "rewards", "advantages"),
    code=("mingce.algorithms.kl.kl_rewards", "mingce.algorithms.losses.compute_policy_loss"),
    related=("kl_where", "kl_estimators", "cpi_objective", "modules"),
)

_KL_ESTIMATORS = Topic(
    "kl_estimators",
    needs=("old_log_probs", "ref_log_probs"),
    formula="x = log π(a_t) − log π_ref(a_t);   k1 = x,   k2 = ½x²,   k3 = e^{−x} − 1 + x",
    numbers=_estimators,
    each="x_{t} = {old_log_prob} − {ref_log_prob} = {k_one};  k2 = {k_two};  k3 = {k_three}",
    grid=_estimator_grid,
    code=("mingce.algorithms.kl.kl_penalty",),
    related=("kl_where", "reference_not_in_loss"),
)

_KL_WHERE = Topic(
    "kl_where",
    needs=("scores", "old_log_probs", "ref_log_probs", "kl", "rewards"),
    formula="r_t = score_t − β·k_t;   L = L^π + c·mean_t k_t",
    numbers=_kl_price,
    each="r_{t} = {score} − {beta}·{kl} = {reward}",
    table=("scores", "kl", "rewards"),
    code=("mingce.algorithms.kl.kl_rewards", "mingce.algorithms.losses.compute_kl_loss"),
    related=("kl_estimators", "reference_not_in_loss", "reward_sparse_dense"),
)

TOPICS: tuple[Topic, ...] = (_REFERENCE, _KL_ESTIMATORS, _KL_WHERE)
