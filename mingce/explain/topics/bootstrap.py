"""Topics of bootstrapping: a target that is partly the critic's own estimate, and how far such an estimate reaches."""

from __future__ import annotations

import math
from typing import Any

from mingce.algorithms import reference
from mingce.record.rollout import Rollout
from mingce.explain.topic import SILENT, Grid, Phrase, Values, listed, topic
from mingce.explain.topics.chosen import equation, plain, rows_of, token_of
from mingce.explain.topics.critic import target_parts, weights_in_advantage
from mingce.explain.topics.steps import Walk, step, walk

_STEPS_SHOWN = 6

# ── bootstrap ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _n_step_targets(w: Walk, k: int) -> list[tuple[float, float]]:
    """(rewards, guess) of the n-step target of the k-th token for n = 1 … as far as there are tokens."""
    found, total, discount = [], 0.0, 1.0
    for j in range(k, len(w.slots)):
        total += discount * w.rewards[j]
        discount *= w.gamma
        found.append((plain(total), plain(discount * w.following(w.values, j, w.after))))
    return found


def _mixture_weights(lam: float, count: int) -> list[float]:
    return [(1 - lam) * lam**n for n in range(count - 1)] + [lam ** (count - 1)]


@topic
def bootstrap(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    k = w.place(t)
    targets = _n_step_targets(w, k)
    reward_part, value_part = target_parts(w, k)
    weights = _mixture_weights(w.lam, len(targets))
    v |= {
        "td_target": plain(w.credit(lam=0.0).returns[0][k]), "mc_target": plain(w.credit(lam=1.0).returns[0][k]),
        "guess": plain(w.gamma * v["next_value"]), "reward_part": reward_part, "value_part": value_part,
        "mixture": plain(math.fsum(x * sum(target) for x, target in zip(weights, targets, strict=True))),
        "targets": listed([plain(sum(target)) for target in targets]), "weights": listed([plain(x) for x in weights]),
        "count_targets": len(targets),
    }  # fmt: skip
    v["td_equation"] = equation("{reward} + {gamma}·{next_value} = {td_target}", v)
    v["parts"] = equation("{reward_part} + {value_part} = {return}", v)
    v["mc_note"] = Phrase("mc_note") if w.after else SILENT
    return v


@bootstrap.with_grid
def _bootstrap_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    k = w.place(t)
    targets = _n_step_targets(w, k)
    weights = _mixture_weights(w.lam, len(targets))
    rows: list[tuple[Any, ...]] = [
        (n + 1, rewards, guess, plain(rewards + guess), plain(weight))
        for n, ((rewards, guess), weight) in enumerate(zip(targets, weights, strict=True))
    ]
    if len(rows) > _STEPS_SHOWN + 1:
        rows = [*rows[:_STEPS_SHOWN], ("…",) * 5, rows[-1]]
    headings = "n", "rewards", "guess", "target", "weight"
    return Grid(headings, (*rows, ("Σ", "", "", plain(w.credit().returns[0][k]), plain(math.fsum(weights)))))


# ── bootstrap enters by δ ────────────────────────────────────────────────────────────────────────────────────────────


def _nudged(w: Walk, k: int) -> reference.Credit:
    """The credit with V of the state after the k-th token 1 higher."""
    if k + 1 == len(w.values):
        return w.credit(after=w.after + 1)
    return w.credit(values=[*w.values[: k + 1], w.values[k + 1] + 1, *w.values[k + 2 :]])


@topic
def bootstrap_delta(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    k = w.place(t)
    before, after = w.credit(), _nudged(w, k)
    inside = k + 1 < len(w.slots)

    at_end = w.gamma * (w.gamma * w.lam) ** (len(w.slots) - 1 - k)

    def change(name: str, j: int) -> float:
        return plain(getattr(after, name)[0][j] - getattr(before, name)[0][j])

    v |= {
        "change_delta": change("deltas", k), "change_advantage": change("advantages", k),
        "change_return": change("returns", k), "change_first": change("advantages", 0),
        "change_next_delta": change("deltas", k + 1) if inside else 0.0,
        "change_next_advantage": change("advantages", k + 1) if inside else 0.0,
        "change_next_return": change("returns", k + 1) if inside else 0.0,
        "weights": listed([plain(x) for x in (*(of_value for _, of_value in weights_in_advantage(w, k)[1:]), at_end)]),
        "one_minus_lam": 1 - w.lam, "one_step": plain(w.credit(lam=0.0).advantages[0][k]),
        "all_steps": plain(w.credit(lam=1.0).advantages[0][k]),
    }  # fmt: skip
    v["weight_equation"] = (
        equation("{gamma}·{one_minus_lam} = {change_advantage}", v)
        if inside
        else equation("{gamma} = {change_advantage}", v)
    )
    v |= {name: Phrase(f"{name}.{'inside' if inside else 'last'}") for name in ("nudge", "back", "next")}
    return v


@bootstrap_delta.with_grid
def _nudge_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    k = w.place(t)
    before, after = w.credit(), _nudged(w, k)

    def row(j: int) -> tuple[Any, ...]:
        changes = (plain(new[0][j] - old[0][j]) for new, old in zip(after, before, strict=True))
        advantage, delta, target = changes
        return (token_of(rollout, w.slots[j]), delta, advantage, target)

    return Grid(("raised", "change_delta", "change_advantage", "change_return"), rows_of(len(w.slots), row))
