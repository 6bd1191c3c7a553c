"""The policy's gradient and the methods built on it: their baselines, what a sign does, whose samples count."""

from __future__ import annotations

import math
from typing import Any

from mingce.algorithms import reference
from mingce.explain.topic import Grid, Values, listed, topic
from mingce.explain.topics.baselines import group_baseline, whitening
from mingce.explain.topics.chosen import chosen_slots, each, equation, log_probs, mean, plain, spoken_of, token_of
from mingce.explain.topics.steps import walk
from mingce.record.rollout import Rollout

_STEP = 0.5  # how far the two-way pictures move a logit per unit of advantage
_SPREADS = (0.02, 0.05, 0.1)  # of a token's log-ratio, old against new
_LENGTHS = (100, 1000, 4000)
_EPOCHS, _ROLLOUTS, _MINIBATCH = 2, 256, 128  # mingce's own defaults
_RAREST, _FARTHEST = 30.0, 300.0  # bounds of exponents, for numbers of strangers' files
_COLD, _NUCLEUS = 0.7, 0.9  # a usual sampling temperature and a usual top-p


def _prob(log_prob: float) -> float:
    """Above 0 and at most 1, whatever a file says."""
    return math.exp(max(-_RAREST, min(log_prob, 0.0)))


# ── REINFORCE, RLOO, GRPO, DAPO, PPO ─────────────────────────────────────────────────────────────────────────────────


@topic
def methods_compared(rollout: Rollout, t: int) -> Values:
    """One answer's credit by every method: its prompt's group, and the critic."""
    numbers = group_baseline.numbers(rollout, t)
    w = walk(rollout)
    k = w.place(numbers["t"])
    to_go = reference.reinforce_plus_plus([w.rewards], [[1] * len(w.slots)], w.gamma)[0]
    return numbers | {
        "by_reinforce": plain(to_go[k]),
        "by_ppo": w.advantages[k],
        "value": w.values[k],
        "first_ppo": w.advantages[0],
        "last_ppo": w.advantages[-1],
        "least_ppo": min(w.advantages),
        "most_ppo": max(w.advantages),
        "gamma": w.gamma,
        "lam": w.lam,
    }


@methods_compared.with_grid
def _methods_grid(rollout: Rollout, t: int) -> Grid:
    v, w = methods_compared.numbers(rollout, t), walk(rollout)
    places = list(dict.fromkeys((w.slots[0], v["t"], w.slots[-1])))
    to_go = reference.reinforce_plus_plus([w.rewards], [[1] * len(w.slots)], w.gamma)[0]

    def per_token(column: list[float]) -> list[float]:
        return [plain(column[w.place(slot)]) for slot in places]

    rows: list[tuple[Any, ...]] = [
        ("REINFORCE", "0", "1", "—", *per_token(to_go)),
        ("RLOO", "mean_(j≠i)", "n", "—", *[v["by_rloo"]] * len(places)),
        ("GRPO", "mean, std", "n", "—", *[v["by_grpo"]] * len(places)),
        ("DAPO", "mean, std", "n", "—", *[v["by_grpo"]] * len(places)),
        ("PPO", "V(s_t)", "1", "✓", *per_token(w.advantages)),
    ]
    return Grid(("method", "baseline", "samples", "critic", *(f"A_{slot}" for slot in places)), tuple(rows))


# ── the log-derivative trick ─────────────────────────────────────────────────────────────────────────────────────────


@topic
def policy_gradient(rollout: Rollout, t: int) -> Values:
    old, new = log_probs(rollout)
    slot = spoken_of(rollout, t)
    raw, prob = rollout.columns["advantages"], _prob(new[slot])
    numbers: Values = {
        "t": slot,
        "token": token_of(rollout, slot),
        "advantage": raw[slot],
        "prob": prob,
        "rest": 1 - prob,
        "log_prob": new[slot],
        "ratio": reference.policy_term(old[slot], new[slot], 0.0).ratio,
        "log_loss": plain(-raw[slot] * new[slot]),
        "ratio_loss": plain(reference.cpi_term(old[slot], new[slot], raw[slot])),
        "pull": plain(raw[slot] * (1 - prob)),
        "log_losses": listed(each(rollout, lambda s: plain(-raw[s] * new[s]))),
        "pulls": listed(each(rollout, lambda s: plain(raw[s] * (1 - _prob(new[s]))))),
    }
    return numbers | {
        "log_equation": equation("−{advantage}·{log_prob} = {log_loss}", numbers),
        "pull_equation": equation("{advantage}·(1 − {prob}) = {pull}", numbers),
        "zero_equation": equation("{prob}·(1 − {prob}) + (1 − {prob})·(0 − {prob}) = 0", numbers),
    }


# ── the sign of an advantage ─────────────────────────────────────────────────────────────────────────────────────────


def _moved(prob: float, advantage: float) -> float:
    """The token's probability against all others as one, after a step of _STEP along ∇log π·A in the two logits."""
    push = max(-_FARTHEST, min(_STEP * advantage * (1 - prob), _FARTHEST))
    up, down = prob * math.exp(push), (1 - prob) * math.exp(-push)
    return up / (up + down)


@topic
def negative_advantage(rollout: Rollout, t: int) -> Values:
    white = whitening.numbers(rollout, t)
    slot = white["t"]
    raw, prob = rollout.columns["advantages"], _prob(rollout.columns["old_log_probs"][slot])
    size = abs(raw[slot])
    signs = [raw[s] for s in chosen_slots(rollout)]
    return white | {
        "prob": prob,
        "size": size,
        "step_size": _STEP,
        "up_prob": _moved(prob, size),
        "down_prob": _moved(prob, -size),
        "negative_before": sum(x < 0 for x in signs),
        "negative_after": white["row_count"] - white["positive_after"],
        "count_chosen": len(signs),
    }


@negative_advantage.with_grid
def _sign_grid(rollout: Rollout, t: int) -> Grid:
    """A rare, an even and a common token, one step up and one down by an advantage of the same size."""
    size = abs(rollout.columns["advantages"][spoken_of(rollout, t)])
    rows = tuple((p, _moved(p, size), _moved(p, -size), size * (1 - p)) for p in (0.01, 0.1, 0.5, 0.9, 0.99))
    return Grid(("prob", "after_plus", "after_minus", "pull"), rows)


# ── whose samples ────────────────────────────────────────────────────────────────────────────────────────────────────


@topic
def on_policy(rollout: Rollout, t: int) -> Values:
    old, new = log_probs(rollout)
    slots, slot = chosen_slots(rollout), spoken_of(rollout, t)
    ratios = each(rollout, lambda s: reference.policy_term(old[s], new[s], 0.0).ratio)
    drift = math.fsum(new[s] - old[s] for s in slots)
    return {
        "t": slot,
        "token": token_of(rollout, slot),
        "ratio": ratios[slot],
        "ratios": listed(ratios),
        "ratio_mean": mean(ratios),
        "drift": plain(drift),
        "product": math.exp(max(-20.0, min(20.0, drift))),
        "count_chosen": len(slots),
        "epochs": _EPOCHS,
        "rollouts": _ROLLOUTS,
        "minibatch": _MINIBATCH,
        "updates": _EPOCHS * _ROLLOUTS // _MINIBATCH,
        "spread": _SPREADS[1],
        "long": _LENGTHS[1],
        "useful": math.exp(-_LENGTHS[1] * _SPREADS[1] ** 2),
        "short": _LENGTHS[0],
        "useful_short": math.exp(-_LENGTHS[0] * _SPREADS[1] ** 2),
    }


@on_policy.with_grid
def _useful_grid(rollout: Rollout, t: int) -> Grid:
    """Which share of the samples counts when whole answers are weighted: e^(−nσ²)."""
    rows = tuple((n, *(math.exp(-n * s**2) for s in _SPREADS)) for n in _LENGTHS)
    return Grid(("tokens", *(f"σ = {s}" for s in _SPREADS)), rows)


# ── temperature ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _at(prob: float, temperature: float) -> float:
    """The token's probability at a temperature, all other tokens taken as one."""
    own, rest = math.pow(prob, 1 / temperature), math.pow(1 - prob, 1 / temperature)
    return own / (own + rest)


def _two_way(prob: float) -> float:
    """The entropy of “this token or another”."""
    return reference.entropy([math.log(prob), math.log1p(-prob) if prob < 1 else -math.inf])


@topic
def temperature(rollout: Rollout, t: int) -> Values:
    old, slot = rollout.columns["old_log_probs"], spoken_of(rollout, t)
    low, high = rollout.settings.clip_low, rollout.settings.clip_high
    low, high = 0.2 if low is None else low, 0.2 if high is None else high
    prob = _prob(old[slot])
    cold = {s: _at(_prob(old[s]), _COLD) for s in chosen_slots(rollout)}
    ratios = each(rollout, lambda s: _prob(old[s]) / cold[s])
    return {
        "t": slot,
        "token": token_of(rollout, slot),
        "prob": prob,
        "cold": _COLD,
        "cold_prob": cold[slot],
        "entropy_here": _two_way(prob),
        "entropy_cold": _two_way(cold[slot]),
        "false_ratio": ratios[slot],
        "false_ratios": listed(ratios),
        "outside": sum(x is not None and not 1 - low <= x <= 1 + high for x in ratios),
        "count_chosen": len(cold),
        "low_bound": 1 - low,
        "high_bound": 1 + high,
        "nucleus": _NUCLEUS,
        "nucleus_gap": math.log(_NUCLEUS),
    }


@temperature.with_grid
def _temperature_grid(rollout: Rollout, t: int) -> Grid:
    prob = _prob(rollout.columns["old_log_probs"][spoken_of(rollout, t)])
    rows = tuple((tau, _at(prob, tau), _two_way(_at(prob, tau)), prob / _at(prob, tau)) for tau in (0.5, 0.7, 1.0, 1.5))
    return Grid(("τ", "drawn_with", "entropy", "false_ratio"), rows)
