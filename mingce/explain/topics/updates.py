"""Topics of practice, the policy's part: its old log-probs, what its loss and metrics say, epochs and batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mingce.algorithms import reference
from mingce.config.table import Config
from mingce.explain.topic import Grid, Phrase, Values, listed, topic
from mingce.explain.topics.averages import loss_aggregation
from mingce.explain.topics.chosen import (
    chosen_slots,
    clip_range,
    each,
    log_probs,
    mean,
    plain,
    rows_of,
    token_of,
    used_advantages,
)
from mingce.explain.topics.steps import step
from mingce.record.rollout import Rollout

_NUDGE = 0.01  # by how much an update of the examples moves a log-prob
_MOVE = 0.1  # the same, of a whole step's updates
_DRIFT = 0.05  # the same, of one update of several
_REACH = 0.5  # the trainer's own default, for rollouts whose value clip is off or not known
_MOST_UPDATES = 8  # rows of the table of updates
_BITS = 256  # bfloat16 has 8 significant bits


def _slot(rollout: Rollout, t: int) -> int:
    """The chosen token at t or before it."""
    slots = chosen_slots(rollout)
    return max((s for s in slots if s <= t), default=slots[0])


def _sign(x: float) -> float:
    return 1.0 if x >= 0 else -1.0


# ── whose log-probs are the old ones ─────────────────────────────────────────────────────────────────────────────────


def _bfloat16(x: float) -> float:
    """The nearest number of 8 significant bits."""
    digits, power = math.frexp(x)
    return math.ldexp(round(digits * _BITS) / _BITS, power)


@topic
def old_log_probs(rollout: Rollout, t: int) -> Values:
    """The sampler's log-probs as recorded, or else as a sampler that rounds them to bfloat16 would report them."""
    slot, old = _slot(rollout, t), rollout.columns["old_log_probs"]
    recorded = rollout.columns.get("rollout_log_probs")
    drawn = each(rollout, lambda s: _bfloat16(old[s]) if recorded is None else float(recorded[s]))
    gaps = each(rollout, lambda s: plain(old[s] - (drawn[s] or 0.0)))
    known = [x for x in gaps if x is not None]
    return {
        "t": slot, "token": token_of(rollout, slot), "old_log_prob": old[slot], "drawn": drawn[slot],
        "drawn_list": listed(drawn), "gap": gaps[slot], "first_ratio": math.exp(gaps[slot] or 0.0),
        "first_ratios": listed(each(rollout, lambda s: math.exp(gaps[s] or 0.0))),
        "mean_gap": mean([abs(x) for x in known]), "largest_gap": max(map(abs, known)),
        "sequence_ratio": math.exp(math.fsum(known)), "count_chosen": len(known),
        "source": Phrase("source.made_up" if recorded is None else "source.recorded"),
    }  # fmt: skip


# ── a loss near 0 ────────────────────────────────────────────────────────────────────────────────────────────────────


@topic
def loss_near_zero(rollout: Rollout, t: int) -> Values:
    slot, slots, used = _slot(rollout, t), chosen_slots(rollout), used_advantages(rollout)
    low, high = clip_range(rollout)
    weights = [used[s] for s in slots]
    moved = [reference.policy_term(0.0, _sign(a) * _NUDGE, a, low, high, None).loss for a in weights]
    losses = [reference.cpi_term(0.0, 0.0, a) for a in weights]
    return {
        "t": slot, "token": token_of(rollout, slot), "whitened": used[slot], "push": plain(-used[slot]),
        "pushes": listed(each(rollout, lambda s: plain(-used[s]))),
        "whitened_list": listed(each(rollout, lambda s: used[s])),
        "first_loss": plain(mean(losses)), "mean_push": mean([abs(a) for a in weights]), "nudge": _NUDGE,
        "moved_loss": plain(mean(moved)), "gain": plain(mean(losses) - mean(moved)),
        "raw_mean": plain(mean([rollout.columns["advantages"][s] for s in slots])),
        "raw_loss": plain(-mean([rollout.columns["advantages"][s] for s in slots])), "count_chosen": len(slots),
    }  # fmt: skip


# ── how much is clipped ──────────────────────────────────────────────────────────────────────────────────────────────


def _far(low: float, high: float) -> tuple[float, float]:
    """A ratio well above the interval of the clip, and one well below it."""
    return 1 + 2 * high, (1 - low) / 2 if low < 1 else 0.5


def _spread_out(rollout: Rollout) -> list[tuple[int, float, reference.PolicyTerm]]:
    """Every chosen token with a ratio well outside, above and below by turns, and what the clip makes of it."""
    low, high = clip_range(rollout)
    used, ratios = used_advantages(rollout), _far(low, high)
    found = []
    for k, s in enumerate(chosen_slots(rollout)):
        term = reference.policy_term(0.0, math.log(ratios[k % 2]), used[s], low, high, None)
        found.append((s, ratios[k % 2], term))
    return found


@topic
def clip_fraction(rollout: Rollout, t: int) -> Values:
    slot, (low, high) = _slot(rollout, t), clip_range(rollout)
    old, new, used = *log_probs(rollout), used_advantages(rollout)
    now = [reference.policy_term(old[s], new[s], used[s], low, high, None) for s in chosen_slots(rollout)]
    far = _spread_out(rollout)
    decided = sum(term.clipped for _, _, term in far)
    return {
        "t": slot, "token": token_of(rollout, slot), "count_chosen": len(now),
        "low_bound": 1 - low, "high_bound": 1 + high, "up": far[0][1], "down": _far(low, high)[1],
        "clipped_count": sum(term.clipped for term in now),
        "clip_share": sum(term.clipped for term in now) / len(now),
        "outside_now": sum(not 1 - low <= term.ratio <= 1 + high for term in now),
        "decided_count": decided, "decided_share": decided / len(far), "pulling_count": len(far) - decided,
        "ratio": now[chosen_slots(rollout).index(slot)].ratio, "edge": math.log(1 + high),
    }  # fmt: skip


@clip_fraction.with_grid
def _fraction_grid(rollout: Rollout, t: int) -> Grid:
    far, used = _spread_out(rollout), used_advantages(rollout)

    def row(k: int) -> tuple[Any, ...]:
        slot, ratio, term = far[k]
        return token_of(rollout, slot), ratio, used[slot], int(term.clipped), int(not term.clipped)

    return Grid(("token", "moved", "weight", "counted", "gradient"), rows_of(len(far), row))


# ── how far the policy moved ─────────────────────────────────────────────────────────────────────────────────────────

_KINDS = (("one", "k1"), ("two", "k2"), ("three", "k3"))


def _moved(old: Sequence[float], new: Sequence[float], kind: str) -> float:
    """The mean of an estimate of KL(old‖new) over tokens drawn from the old policy."""
    return plain(mean([reference.kl_penalty(x, y, kind) for x, y in zip(old, new, strict=True)]))


@topic
def approx_kl(rollout: Rollout, t: int) -> Values:
    slot, slots, used = _slot(rollout, t), chosen_slots(rollout), used_advantages(rollout)
    old, new = ([column[s] for s in slots] for column in log_probs(rollout))
    then = [x + _sign(used[s]) * _MOVE for x, s in zip(old, slots, strict=True)]
    found: Values = {
        "move": _MOVE, "count_chosen": len(slots), "t": slot, "token": token_of(rollout, slot),
        "ups": sum(used[s] >= 0 for s in slots), "downs": sum(used[s] < 0 for s in slots),
        "reference_kl": plain(mean([rollout.columns["kl"][s] for s in slots])),
    }  # fmt: skip
    for number, kind in _KINDS:
        found |= {f"now_{number}": _moved(old, new, kind), f"then_{number}": _moved(old, then, kind)}
    return found


@approx_kl.with_grid
def _moved_grid(rollout: Rollout, t: int) -> Grid:
    numbers = approx_kl.numbers(rollout, t)
    return Grid(
        ("estimator", "now", "moved"),
        tuple((kind, numbers[f"now_{number}"], numbers[f"then_{number}"]) for number, kind in _KINDS),
    )


# ── min and max ──────────────────────────────────────────────────────────────────────────────────────────────────────


@topic
def min_max(rollout: Rollout, t: int) -> Values:
    v, (low, high) = step(rollout, t), clip_range(rollout)
    size, (up, down) = abs(v["advantage"]), _far(low, high)
    reach = _REACH if rollout.settings.value_clip is None else float(rollout.settings.value_clip)
    ahead = _sign(v["advantage"])
    guess = v["value"] + ahead * 2 * reach
    near = v["value"] + ahead * reach
    squares = (guess - v["return"]) ** 2, (near - v["return"]) ** 2
    return v | {
        "size": size, "up": up, "down": down, "low_bound": 1 - low, "high_bound": 1 + high,
        "up_plain": up * size, "up_limited": (1 + high) * size, "down_plain": down * size,
        "down_limited": (1 - low) * size, "reach": reach, "guess": guess, "near": near,
        "plain_square": plain(squares[0]), "near_square": plain(squares[1]), "larger_square": plain(max(squares)),
    }  # fmt: skip


@min_max.with_grid
def _bound_grid(rollout: Rollout, t: int) -> Grid:
    """ρA, clip(ρ)A, the smaller of the two and the loss, for a good and a bad token far on either side."""
    low, high = clip_range(rollout)
    size, rows = abs(step(rollout, t)["advantage"]), []
    for sign, name in ((1, "A > 0"), (-1, "A < 0")):
        for ratio in _far(low, high):
            limited = min(max(ratio, 1 - low), 1 + high)
            loss = reference.policy_term(0.0, math.log(ratio), sign * size, low, high, None).loss
            rows.append((name, ratio, *(plain(x) for x in (ratio * sign * size, limited * sign * size, -loss, loss))))
    return Grid(("case", "ρ", "ρ·A", "clip(ρ)·A", "min", "loss"), tuple(rows))


# ── epochs and batches ───────────────────────────────────────────────────────────────────────────────────────────────


def _sizes() -> Values:
    """The sizes of a step by the trainer's defaults."""
    config = Config()
    rollouts = config.prompts_per_step * config.samples_per_prompt
    parts = math.ceil(rollouts / config.minibatch_rollouts)
    return {
        "prompts": config.prompts_per_step, "samples": config.samples_per_prompt, "rollouts": rollouts,
        "minibatch": config.minibatch_rollouts, "epochs": config.actor.epochs, "parts": parts,
        "updates": parts * config.actor.epochs, "micro_tokens": config.micro_batch_tokens,
        "critic_minibatch": config.critic.minibatch_rollouts,
    }  # fmt: skip


def _first_outside(limit: float) -> int:
    """After how many updates of `_DRIFT` each exp(k·drift) leaves the interval at that edge."""
    return math.floor(abs(math.log(limit)) / _DRIFT) + 1


@topic
def epochs_ratio(rollout: Rollout, t: int) -> Values:
    slot, (low, high) = _slot(rollout, t), clip_range(rollout)
    old, new = log_probs(rollout)
    ratios = each(rollout, lambda s: reference.policy_term(old[s], new[s], 0.0).ratio)
    sizes = _sizes()
    return sizes | {
        "t": slot, "token": token_of(rollout, slot), "ratio": ratios[slot], "ratios": listed(ratios), "drift": _DRIFT,
        "low_bound": 1 - low, "high_bound": 1 + high, "last_up": math.exp((sizes["updates"] - 1) * _DRIFT),
        "last_down": math.exp(-(sizes["updates"] - 1) * _DRIFT), "up_after": _first_outside(1 + high),
        "down_after": _first_outside(1 - low if low < 1 else _DRIFT), "edge": math.log(1 + high),
    }  # fmt: skip


@epochs_ratio.with_grid
def _updates_grid(rollout: Rollout, t: int) -> Grid:
    """What each update sees of a good token and of a bad one, when every update before moved them alike."""
    low, high = clip_range(rollout)
    rows = []
    for k in range(_MOST_UPDATES):
        good, bad = (reference.policy_term(0.0, sign * k * _DRIFT, sign, low, high, None) for sign in (1.0, -1.0))
        rows.append((k + 1, good.ratio, int(not good.clipped), bad.ratio, int(not bad.clipped)))
    return Grid(("update", "good", "gradient", "bad", "gradient"), tuple(rows))


@topic
def batch_sizes(rollout: Rollout, t: int) -> Values:
    """The trainer's sizes, and what averaging micro-batches one by one makes of two rows of unequal length."""
    return _sizes() | loss_aggregation.numbers(rollout, t) | {"longer": len(chosen_slots(rollout))}


@batch_sizes.with_grid
def _sizes_grid(rollout: Rollout, t: int) -> Grid:
    sizes = _sizes()
    rows = (
        ("prompts_per_step", sizes["prompts"], 1),
        ("samples_per_prompt", sizes["samples"], 1),
        ("minibatch_rollouts", sizes["minibatch"], 1),
        ("critic.minibatch_rollouts", sizes["critic_minibatch"], 1),
        ("actor.epochs", sizes["epochs"], 1),
        ("micro_batch_tokens", sizes["micro_tokens"], 0),
        ("sampling.max_rows", Config().sampling.max_rows, 0),
    )
    return Grid(("setting", "default", "changes"), rows)
