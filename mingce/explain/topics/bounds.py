"""What holds the policy back: DAPO's wider upper bound, the third bound for bad tokens, and a price that adapts."""

from __future__ import annotations

import math
from typing import Any

from mingce.algorithms import reference
from mingce.explain.topic import Grid, Values, listed, topic
from mingce.explain.topics.averages import loss_aggregation
from mingce.explain.topics.chosen import chosen_slots, equation, log_probs, mean, plain, spoken_of, token_of
from mingce.record.rollout import Rollout

_USUAL, _HIGHER = 0.2, 0.28  # PPO's clip, and the upper one of the DAPO paper
_EVEN = 0.5
_RARE = (0.001, 0.01, 0.1)
_CAP = 3.0  # the trainer's own default, for rollouts whose dual clip is off or not known
_TARGET, _HORIZON, _SAMPLES = 0.1, 10_000, 256  # the defaults of mingce's controller, and rollouts of a step
_LIMIT = 0.2  # by which the controller bounds its error
_DISTANCES = (0.5, 0.9, 1.0, 1.1, 2.0, 10.0)
_MANY = 100


# ── DAPO's clip ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _rounds(prob: float, high: float) -> int:
    """After how many steps at the bound a token of this probability is as likely as not."""
    return max(0, math.ceil(math.log(_EVEN / prob) / math.log1p(high)))


@topic
def clip_higher(rollout: Rollout, t: int) -> Values:
    slot = spoken_of(rollout, t)
    prob = math.exp(min(rollout.columns["old_log_probs"][slot], 0.0))
    rare = _RARE[1]
    return loss_aggregation.numbers(rollout, t) | {
        "t": slot,
        "token": token_of(rollout, slot),
        "prob": prob,
        "usual": _USUAL,
        "higher": _HIGHER,
        "usual_bound": 1 + _USUAL,
        "higher_bound": 1 + _HIGHER,
        "low_bound": 1 - _USUAL,
        "reach_usual": min(1.0, prob * (1 + _USUAL)),
        "reach_higher": min(1.0, prob * (1 + _HIGHER)),
        "rare": rare,
        "rare_usual": rare * (1 + _USUAL),
        "rare_higher": rare * (1 + _HIGHER),
        "rounds_usual": _rounds(rare, _USUAL),
        "rounds_higher": _rounds(rare, _HIGHER),
        "even": _EVEN,
        "count_chosen": len(chosen_slots(rollout)),
    }


@clip_higher.with_grid
def _reach_grid(rollout: Rollout, t: int) -> Grid:
    """How far a token may rise in one step, and how many steps it needs to be as likely as not."""
    rows: list[tuple[Any, ...]] = []
    for prob in (*_RARE, _EVEN):
        reach = [min(1.0, prob * (1 + high)) for high in (_USUAL, _HIGHER)]
        rows.append((prob, *reach, *(_rounds(prob, high) for high in (_USUAL, _HIGHER))))
    return Grid(("old_prob", "reach_usual", "reach_higher", "rounds_usual", "rounds_higher"), tuple(rows))


# ── the third bound ──────────────────────────────────────────────────────────────────────────────────────────────────


def _clip(rollout: Rollout) -> tuple[float, float, float]:
    low, high, cap = rollout.settings.clip_low, rollout.settings.clip_high, rollout.settings.dual_clip
    return _USUAL if low is None else low, _USUAL if high is None else high, _CAP if cap is None else cap


@topic
def dual_clip(rollout: Rollout, t: int) -> Values:
    low, high, cap = _clip(rollout)
    old, new = log_probs(rollout)
    slot, raw = spoken_of(rollout, t), rollout.columns["advantages"]
    size, runaway = abs(raw[slot]), 2 * cap
    terms = [reference.policy_term(old[s], new[s], raw[s], low, high, cap) for s in chosen_slots(rollout)]
    numbers: Values = {
        "t": slot,
        "token": token_of(rollout, slot),
        "cap": cap,
        "log_cap": math.log(cap),
        "size": size,
        "runaway": runaway,
        "open_loss": reference.policy_term(0.0, math.log(runaway), -size, low, high, None).loss,
        "capped_loss": reference.policy_term(0.0, math.log(runaway), -size, low, high, cap).loss,
        "capped_count": sum(term.dual_clipped for term in terms),
        "negative_count": sum(raw[s] < 0 for s in chosen_slots(rollout)),
        "count_chosen": len(terms),
        "low_bound": 1 - low,
        "high_bound": 1 + high,
        "ratios": listed([term.ratio for term in terms]),
    }
    return numbers | {
        "open_equation": equation("{runaway}·{size} = {open_loss}", numbers),
        "capped_equation": equation("{cap}·{size} = {capped_loss}", numbers),
    }


@dual_clip.with_grid
def _dual_grid(rollout: Rollout, t: int) -> Grid:
    """The loss of a bad token of the size of t's advantage over ρ, with two bounds and with three."""
    low, high, cap = _clip(rollout)
    size = abs(rollout.columns["advantages"][spoken_of(rollout, t)])
    rows = []
    for ratio in ((1 - low) / 2, 1.0, 1 + high, (1 + high + cap) / 2, 2 * cap, 10 * cap):
        if ratio > 0:
            two, three = (reference.policy_term(0.0, math.log(ratio), -size, low, high, bound) for bound in (None, cap))
            rows.append((ratio, two.loss, int(not two.clipped), three.loss, int(not three.clipped)))
    return Grid(("ρ", "two_bounds", "gradient", "three_bounds", "gradient"), tuple(rows))


# ── the price that adapts ────────────────────────────────────────────────────────────────────────────────────────────


def _adapted(beta: float, kl: float, times: int = 1) -> float:
    for _ in range(times):
        beta = reference.adaptive_kl(beta, kl, _TARGET, _HORIZON, _SAMPLES)
    return beta


@topic
def adaptive_kl(rollout: Rollout, t: int) -> Values:
    slots, beta = chosen_slots(rollout), rollout.settings.beta
    kl = mean([rollout.columns["kl"][s] for s in slots])
    fastest = 1 + _LIMIT * _SAMPLES / _HORIZON
    error = max(-_LIMIT, min(_LIMIT, kl / _TARGET - 1))
    numbers: Values = {
        "beta": beta,
        "kl_mean": plain(kl),
        "kl_total": plain(kl * len(slots)),
        "kl_list": listed([rollout.columns["kl"][s] for s in slots]),
        "count_chosen": len(slots),
        "target": _TARGET,
        "horizon": _HORIZON,
        "samples": _SAMPLES,
        "limit": _LIMIT,
        "error": plain(error),
        "factor": 1 + error * _SAMPLES / _HORIZON,
        "fastest": fastest,
        "doubling": math.ceil(math.log(2) / math.log(fastest)),
        "next_beta": None if beta is None else _adapted(beta, kl),
        "later_beta": None if beta is None else _adapted(beta, kl, _MANY),
        "many": _MANY,
    }
    return numbers | {
        "factor_equation": equation("1 + {error}·{samples}/{horizon} = {factor}", numbers),
        "fastest_equation": equation("1 + {limit}·{samples}/{horizon} = {fastest}", numbers),
    }


@adaptive_kl.with_grid
def _controller_grid(rollout: Rollout, t: int) -> Grid:
    """What the controller makes of the price when the KL is so many times its target."""
    beta = rollout.settings.beta or 0.0
    rows = []
    for times in _DISTANCES:
        kl = times * _TARGET
        error = plain(max(-_LIMIT, min(_LIMIT, times - 1)))
        rows.append((times, error, _adapted(beta, kl), _adapted(beta, kl, _MANY)))
    return Grid(("distance", "error", "beta_next", "beta_later"), tuple(rows))
