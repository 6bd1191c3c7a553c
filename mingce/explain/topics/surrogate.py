"""The policy's objective: TRPO's surrogate, PPO's clip, the ratio in both."""

from __future__ import annotations

import math

from mingce.algorithms import reference
from mingce.explain.example import Rollout
from mingce.explain.topic import Grid, Topic, Values, listed
from mingce.explain.topics.chosen import chosen_slots, each, log_probs, mean


def _clip(rollout: Rollout) -> tuple[float, float]:
    low, high = rollout.settings.clip_low, rollout.settings.clip_high
    return 0.2 if low is None else low, 0.2 if high is None else high


def _surrogate(rollout: Rollout, t: int) -> Values:
    old, new = log_probs(rollout)
    raw = rollout.columns["advantages"]
    terms = each(rollout, lambda s: -reference.cpi_term(old[s], new[s], raw[s]))
    ratios = each(rollout, lambda s: reference.policy_term(old[s], new[s], 0.0).ratio)
    return {
        "old_prob": math.exp(old[t]),
        "new_prob": math.exp(new[t]),
        "old_probs": listed(each(rollout, lambda s: math.exp(old[s]))),
        "ratios": listed(ratios),
        "cpi_terms": listed(terms),
        "cpi_term": terms[t],
        "cpi_objective": mean(terms),
        "cpi_sum": mean(terms) * sum(x is not None for x in terms),
        "advantage_mean": mean(each(rollout, lambda s: raw[s])),
    }


def _clipping(rollout: Rollout, t: int) -> Values:
    old, new = log_probs(rollout)
    low, high = _clip(rollout)
    raw = rollout.columns["advantages"]
    terms = {s: reference.policy_term(old[s], new[s], raw[s], low, high, None) for s in chosen_slots(rollout)}
    return {
        "low_bound": 1 - low,
        "high_bound": 1 + high,
        "objective_terms": listed(each(rollout, lambda s: -terms[s].loss)),
        "clipped_count": sum(term.clipped for term in terms.values()),
        "ratios": listed(each(rollout, lambda s: terms[s].ratio)),
        "size": abs(raw[t]),
    }


def _clip_grid(rollout: Rollout, t: int) -> Grid:
    """min(ρA, clip(ρ)A) for a good and a bad token of the size of token t's advantage, over ρ."""
    low, high = _clip(rollout)
    size = abs(rollout.columns["advantages"][t])
    rows = []
    for ratio in ((1 - low) / 2, 1 - low, 1.0, 1 + high, 2 * (1 + high)):
        if ratio > 0:
            good, bad = (reference.policy_term(0.0, math.log(ratio), sign * size, low, high, None) for sign in (1, -1))
            rows.append((ratio, -good.loss, int(not good.clipped), -bad.loss, int(not bad.clipped)))
    return Grid(("ρ", "good", "gradient", "bad", "gradient"), tuple(rows))


def _ratio(rollout: Rollout, t: int) -> Values:
    old, new = log_probs(rollout)
    ratios = each(rollout, lambda s: reference.policy_term(old[s], new[s], 0.0).ratio)
    return {
        "old_prob": math.exp(old[t]),
        "new_prob": math.exp(new[t]),
        "ratios": listed(ratios),
        "ratio_mean": mean(ratios),
    }


_CPI = Topic(
    "cpi_objective",
    needs=("old_log_probs", "advantages"),
    formula="L^CPI(θ) = Ê_t[π_θ(a_t|s_t)/π_old(a_t|s_t)·A_t] = Ê_t[ρ_t·A_t]",
    numbers=_surrogate,
    each="π_old = exp({old_log_prob}) = {old_prob};  ρ_{t}·A_{t} = {ratio}·{advantage} = {cpi_term}",
    table=("old_log_probs", "advantages"),
    code=("mingce.algorithms.losses.policy_ratio", "mingce.algorithms.losses.cpi"),
    related=("ppo_clip", "ratio_first_update", "reference_not_in_loss"),
)

_CLIP = Topic(
    "ppo_clip",
    needs=("old_log_probs", "advantages"),
    formula="L^CLIP(θ) = Ê_t[min(ρ_t·A_t, clip(ρ_t, 1−ε_low, 1+ε_high)·A_t)]",
    numbers=_clipping,
    grid=_clip_grid,
    code=("mingce.algorithms.losses.compute_policy_loss", "mingce.algorithms.losses.policy_ratio"),
    related=("cpi_objective", "ratio_first_update", "value_clipping"),
)

_RATIO = Topic(
    "ratio_first_update",
    needs=("old_log_probs",),
    formula="ρ_t = π_θ(a_t|s_t)/π_old(a_t|s_t) = exp(log π_θ − log π_old)",
    numbers=_ratio,
    each="ρ_{t} = exp({new_log_prob} − {old_log_prob}) = {ratio}",
    code=("mingce.algorithms.losses.policy_ratio",),
    related=("cpi_objective", "ppo_clip"),
)

TOPICS: tuple[Topic, ...] = (_CPI, _CLIP, _RATIO)
