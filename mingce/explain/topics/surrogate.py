"""The policy's objective: TRPO's surrogate, PPO's clip, the ratio in both."""

from __future__ import annotations

import math

from mingce.algorithms import reference
from mingce.explain.topic import Grid, Values, listed, topic
from mingce.explain.topics.chosen import chosen_slots, clip_range, each, log_probs, mean
from mingce.record.rollout import Rollout


@topic
def cpi_objective(rollout: Rollout, t: int) -> Values:
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


@topic
def ppo_clip(rollout: Rollout, t: int) -> Values:
    old, new = log_probs(rollout)
    low, high = clip_range(rollout)
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


@ppo_clip.with_grid
def _clip_grid(rollout: Rollout, t: int) -> Grid:
    """min(ρA, clip(ρ)A) for a good and a bad token of the size of token t's advantage, over ρ."""
    low, high = clip_range(rollout)
    size = abs(rollout.columns["advantages"][t])
    rows = []
    for ratio in ((1 - low) / 2, 1 - low, 1.0, 1 + high, 2 * (1 + high)):
        if ratio > 0:
            good, bad = (reference.policy_term(0.0, math.log(ratio), sign * size, low, high, None) for sign in (1, -1))
            rows.append((ratio, -good.loss, int(not good.clipped), -bad.loss, int(not bad.clipped)))
    return Grid(("ρ", "good", "gradient", "bad", "gradient"), tuple(rows))


@topic
def ratio_first_update(rollout: Rollout, t: int) -> Values:
    old, new = log_probs(rollout)
    ratios = each(rollout, lambda s: reference.policy_term(old[s], new[s], 0.0).ratio)
    return {
        "old_prob": math.exp(old[t]),
        "new_prob": math.exp(new[t]),
        "ratios": listed(ratios),
        "ratio_mean": mean(ratios),
    }
