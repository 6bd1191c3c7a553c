"""Generation as a decision process: states and episodes, Q, V and A, the discount, the networks, the run as a whole."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from mingce.algorithms import reference
from mingce.explain.topic import Grid, Values, topic
from mingce.explain.topics.chosen import chosen_slots, equation, log_probs, mean, plain, rows_of, token_of
from mingce.explain.topics.steps import credit_numbers, step, walk
from mingce.record.rollout import Rollout

_GAMMAS = (1.0, 0.999, 0.99, 0.9)
_GAMMA = 0.99
_LENGTHS = (100, 1000)
_PART = 0.1  # TRL's weight of the value loss beside the policy loss
_BILLIONS, _BYTES, _HIDDEN = 7, 16, 4096  # a model that is often trained; bf16 weights and gradients, fp32 AdamW


# ── generation as a Markov decision process ──────────────────────────────────────────────────────────────────────────


@topic
def token_mdp(rollout: Rollout, t: int) -> Values:
    v = step(rollout, t)
    old = rollout.columns["old_log_probs"]
    total = math.fsum(old[s] for s in chosen_slots(rollout))
    return v | {
        "prob": math.exp(min(old[v["t"]], 0.0)),
        "sequence_log_prob": plain(total),
        "sequence_prob": math.exp(min(total, 0.0)),
        "surprise": equation("{reward} + {gamma}·{next_value} − {value} = {delta}", v),
    }


@token_mdp.with_grid
def _episode_grid(rollout: Rollout, t: int) -> Grid:
    w, old = walk(rollout), rollout.columns["old_log_probs"]

    def row(k: int) -> tuple[Any, ...]:
        slot, done = w.slots[k], int(k + 1 == len(w.slots) and not w.after)
        return f"s_{slot}", token_of(rollout, slot), math.exp(min(old[slot], 0.0)), w.rewards[k], done

    return Grid(("state", "action", "prob", "reward", "terminal"), rows_of(len(w.slots), row))


# ── Q, V and A ───────────────────────────────────────────────────────────────────────────────────────────────────────


@topic
def q_v_a(rollout: Rollout, t: int) -> Values:
    v, w = credit_numbers(rollout, t), walk(rollout)
    v |= {"next_value": w.following(w.values, w.place(t), w.after)}
    v |= {"q_step": plain(v["reward"] + v["gamma"] * v["next_value"])}
    return v | {
        "q_equation": equation("{reward} + {gamma}·{next_value} = {q_step}", v),
        "td_equation": equation("{q_step} − {value} = {delta}", v),
        "gae_equation": equation("{return} − {value} = {advantage}", v),
    }


@q_v_a.with_grid
def _estimates_grid(rollout: Rollout, t: int) -> Grid:
    v = q_v_a.numbers(rollout, t)
    rows = (
        ("r_t + γ·V(s_(t+1))", v["q_step"], v["value"], v["delta"]),
        ("R_t^λ", v["return"], v["value"], v["advantage"]),
        ("G_t", v["mc_return"], v["value"], v["mc_advantage"]),
    )
    return Grid(("estimate", "Q", "V", "Q − V"), rows)


# ── the discount ─────────────────────────────────────────────────────────────────────────────────────────────────────


@topic
def gamma_one(rollout: Rollout, t: int) -> Values:
    """The example with γ = 1 and with less, and what a discount leaves of a score at the end of a long answer."""
    w, v = walk(rollout), step(rollout, t)
    k, reach = w.place(t), len(w.slots) - 1
    one, less = (replace(w, gamma=gamma) for gamma in (1.0, _GAMMA))
    return v | {
        "other_gamma": _GAMMA,
        "to_go_one": one.mc_returns[k],
        "to_go_less": less.mc_returns[k],
        "advantage_one": one.advantages[k],
        "advantage_less": less.advantages[k],
        "reach": reach,
        "weight_here": _GAMMA**reach,
        "short": _LENGTHS[0],
        "long": _LENGTHS[1],
        "weight_short": _GAMMA ** _LENGTHS[0],
        "weight_long": _GAMMA ** _LENGTHS[1],
        "half_life": round(math.log(2) / -math.log(_GAMMA)),
        "horizon": 1 / (1 - _GAMMA),
        "lam_reach": "∞" if w.lam >= 1 else 1 / (1 - w.lam),
    }


@gamma_one.with_grid
def _discount_grid(rollout: Rollout, t: int) -> Grid:
    """What is left at the first token of a score of 1 on the last."""
    reach = len(walk(rollout).slots) - 1
    rows = tuple((g, g**reach, *(g**n for n in _LENGTHS)) for g in _GAMMAS)
    return Grid(("γ", "here", *(f"γ^{n}" for n in _LENGTHS)), rows)


# ── one network or two ───────────────────────────────────────────────────────────────────────────────────────────────


@topic
def shared_trunk(rollout: Rollout, t: int) -> Values:
    """The two losses before the first update, and what weights, gradients and moments take."""
    w, v = walk(rollout), step(rollout, t)
    policy = -mean(w.advantages)
    value = mean([reference.value_term(x, r, x, None).loss for x, r in zip(w.values, w.returns, strict=True)])
    memory = _BILLIONS * _BYTES
    v |= {
        "policy_mean": plain(policy),
        "value_mean": plain(value),
        "part": _PART,
        "joint": plain(policy + _PART * value),
        "value_loss": plain(v["advantage"] ** 2 / 2),
        "billions": _BILLIONS,
        "bytes": _BYTES,
        "memory": memory,
        "memory_two": 2 * memory,
        "hidden": _HIDDEN,
        "head": _HIDDEN + 1,
    }
    return v | {
        "error_equation": equation("{return} − {value} = {advantage}", v),
        "joint_equation": equation("{policy_mean} + {part}·{value_mean} = {joint}", v),
    }


# ── a healthy run ────────────────────────────────────────────────────────────────────────────────────────────────────


def _explained(returns: list[float], values: list[float]) -> float:
    mask = [[1] * len(returns)]
    total = reference.masked_var([returns], mask, unbiased=False)
    rest = reference.masked_var([[r - v for r, v in zip(returns, values, strict=True)]], mask, unbiased=False)
    return 1 - rest / total if total > 0 else 0.0


@topic
def training_health(rollout: Rollout, t: int) -> Values:
    """The metrics of a run, computed for the one answer at hand."""
    columns, slots, w = rollout.columns, chosen_slots(rollout), walk(rollout)
    old, new = log_probs(rollout)
    scores = math.fsum(columns["scores"][s] for s in slots)
    kl = [columns["kl"][s] for s in slots]
    low, high = rollout.settings.clip_low, rollout.settings.clip_high
    low, high = 0.2 if low is None else low, 0.2 if high is None else high
    raw = columns["advantages"]
    clipped = sum(reference.policy_term(old[s], new[s], raw[s], low, high, None).clipped for s in slots)
    return {
        "score_total": plain(scores),
        "reward_total": plain(math.fsum(w.rewards)),
        "kl_mean": plain(mean(kl)),
        "advantage_mean": plain(mean([raw[s] for s in slots])),
        "explained": plain(_explained(w.returns, w.values)),
        "entropy_estimate": mean([-old[s] for s in slots]),
        "moved": plain(mean([old[s] - new[s] for s in slots])),
        "clipped_count": clipped,
        "clipped_share": clipped / len(slots),
        "count_chosen": len(slots),
    }


@training_health.with_grid
def _metrics_grid(rollout: Rollout, t: int) -> Grid:
    v = training_health.numbers(rollout, t)
    rows = (
        ("critic/score/mean", v["score_total"]),
        ("critic/rewards/mean", v["reward_total"]),
        ("critic/kl", v["kl_mean"]),
        ("critic/advantages/mean", v["advantage_mean"]),
        ("critic/vf_explained_var", v["explained"]),
        ("−mean log π_old", v["entropy_estimate"]),
        ("actor/ppo_kl", v["moved"]),
        ("actor/pg_clipfrac", v["clipped_share"]),
        ("response_length/mean", v["count_chosen"]),
    )
    return Grid(("metric", "here"), rows)
