"""Topics of practice, the critic's part: how good it is and how that shows, its warm-up, its slice, its gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mingce.algorithms import reference
from mingce.config.table import Config
from mingce.explain.topic import Grid, Phrase, Values, topic
from mingce.explain.topics.chosen import clip_range, equation, plain, rows_of, token_of, used_advantages
from mingce.explain.topics.steps import Walk, spread, step, walk
from mingce.record.rollout import Rollout

_SHIFT = 0.1  # by how much a critic is made to overrate every state
_NEAR = 0.1  # an explained variance up to this is called near 0


def _rms(row: Sequence[float]) -> float:
    return math.sqrt(math.fsum(x * x for x in row) / len(row))


def _variance(row: Sequence[float]) -> float:
    return reference.masked_var([row], [[1] * len(row)])


def _explained(returns: Sequence[float], values: Sequence[float]) -> float:
    """1 − Var(R − V)/Var(R); 0 where the returns do not vary, as mingce.metrics has it."""
    total = _variance(returns)
    rest = _variance([target - value for target, value in zip(returns, values, strict=True)])
    return 1.0 - rest / total if total > 0 else 0.0


# ── a poor critic ────────────────────────────────────────────────────────────────────────────────────────────────────


def _critics(w: Walk) -> list[tuple[str, list[float]]]:
    """The critic at hand, the same if it could not tell states apart, and one that has learned nothing."""
    flat = math.fsum(w.values) / len(w.slots)
    return [("V(s_t)", list(w.values)), ("mean(V)", [flat] * len(w.slots)), ("0", [0.0] * len(w.slots))]


@topic
def critic_quality(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    k = w.place(t)
    lifted = w.credit(values=[value + _SHIFT for value in w.values])
    lifted_mc = w.credit(values=[value + _SHIFT for value in w.values], lam=1.0)
    later = w.gamma * (1 - w.lam) * math.fsum(w.decay**j for j in range(v["chosen_left"]))
    for name, (_, values) in zip(("own", "flat", "zero"), _critics(w), strict=True):
        credit = w.credit(values=values)
        v |= {f"{name}_advantage": plain(credit.advantages[0][k]), f"{name}_size": plain(_rms(credit.advantages[0]))}
    v |= {
        "explained": plain(_explained(w.returns, w.values)), "flat_value": plain(math.fsum(w.values) / len(w.slots)),
        "mc_return": w.mc_returns[k], "mc_error": plain(w.mc_returns[k] - w.values[k]), "shift": _SHIFT,
        "later_weight": plain(later), "shift_effect": plain(lifted.advantages[0][k] - w.advantages[k]),
        "mc_shift_effect": plain(lifted_mc.advantages[0][k] - w.mc_advantages[k]),
        "shifted_advantage": plain(lifted.advantages[0][k]),
    }  # fmt: skip
    v["surprise"] = equation("{reward} + {gamma}·{next_value} − {value} = {delta}", v)
    v["shift_equation"] = equation("−{shift}·(1 − {later_weight}) = {shift_effect}", v)
    return v


@critic_quality.with_grid
def _quality_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    k = w.place(t)
    rows = []
    for name, values in _critics(w):
        credit, full = w.credit(values=values), w.credit(values=values, lam=1.0)
        size, explained = _rms(credit.advantages[0]), _explained(credit.returns[0], values)
        numbers = credit.advantages[0][k], full.advantages[0][k], size, explained
        rows.append((name, *(plain(x) for x in numbers)))
    return Grid(("critic", "here", "monte_carlo", "size", "explained"), tuple(rows))


# ── explained variance ───────────────────────────────────────────────────────────────────────────────────────────────


@topic
def explained_variance(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    total, rest = _variance(w.returns), _variance(w.advantages)
    count, square = len(w.slots), math.fsum(x * x for x in w.advantages)
    spread_of_returns = reference.masked_var([w.returns], [[1] * count], unbiased=False)
    explained = _explained(w.returns, w.values)
    fits = 1.0 - square / count / spread_of_returns if spread_of_returns > 0 else 0.0
    v |= {
        "explained": plain(explained), "std_returns": math.sqrt(total), "std_rest": math.sqrt(rest),
        "mean_error": plain(math.fsum(w.advantages) / count), "fits": plain(fits),
        "mc_explained": plain(_explained(w.mc_returns, w.values)), "mc_std": math.sqrt(_variance(w.mc_returns)),
        "mc_rest": math.sqrt(_variance(w.mc_advantages)), "mc_returns": spread(rollout, w, w.mc_returns),
    }  # fmt: skip
    known = "flat" if total == 0 else "near" if abs(explained) <= _NEAR else "below" if explained < 0 else "above"
    v["verdict"] = Phrase(f"verdict.{known}")
    v["ev_equation"] = equation("1 − ({std_rest}/{std_returns})² = {explained}", v) if total > 0 else "0"
    return v


# ── warming the critic up ────────────────────────────────────────────────────────────────────────────────────────────


@topic
def critic_warmup(rollout: Rollout, t: int) -> Values:
    w, v, config = walk(rollout), step(rollout, t), Config()
    k, count = w.place(t), len(w.slots)
    blank = w.credit(values=[0.0] * count)
    v |= {
        "blank_advantage": plain(blank.advantages[0][k]), "blank_advantages": spread(rollout, w, blank.advantages[0]),
        "blank_delta": plain(blank.deltas[0][k]), "blank_size": plain(_rms(blank.advantages[0])),
        "own_size": plain(_rms(w.advantages)), "blank_loss": plain(_rms(blank.returns[0]) ** 2 / 2),
        "own_loss": plain(_rms(w.advantages) ** 2 / 2),
        "actor_rate": config.actor.lr, "critic_rate": config.critic.lr, "warmup": config.critic.warmup,
        "critic_epochs": config.critic.epochs, "critic_rollouts": config.critic.minibatch_rollouts,
        "actor_rollouts": config.minibatch_rollouts,
    }  # fmt: skip
    rollouts = config.prompts_per_step * config.samples_per_prompt
    v["rollouts"] = rollouts
    v["critic_updates"] = config.critic.epochs * math.ceil(rollouts / config.critic.minibatch_rollouts)
    v["actor_updates"] = config.actor.epochs * math.ceil(rollouts / config.minibatch_rollouts)
    return v


@critic_warmup.with_grid
def _warmup_grid(rollout: Rollout, t: int) -> Grid:
    """The credit of every token when the critic knows nothing, and now."""
    w = walk(rollout)
    blank = w.credit(values=[0.0] * len(w.slots)).advantages[0]

    def row(k: int) -> tuple[Any, ...]:
        return token_of(rollout, w.slots[k]), w.rewards[k], plain(blank[k]), w.values[k], w.advantages[k]

    return Grid(("token", "r", "blank", "V", "now"), rows_of(len(w.slots), row))


# ── which slice ──────────────────────────────────────────────────────────────────────────────────────────────────────


@topic
def slices(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    width, slot = len(rollout.tokens), int(v["t"])
    late = w.credit(values=[*w.values[1:], w.after])
    v |= {
        "width": width, "first_index": -width - 1, "place_index": slot - width - 1, "own_index": slot - width,
        "read": Phrase("read.token" if slot else "read.prompt"), "seen": token_of(rollout, slot - 1) if slot else "x",
        "late_advantage": plain(late.advantages[0][w.place(t)]),
        "late_advantages": spread(rollout, w, late.advantages[0]),
    }  # fmt: skip
    return v


@slices.with_grid
def _slice_grid(rollout: Rollout, t: int) -> Grid:
    width = len(rollout.tokens)
    values, old = rollout.columns["values"], rollout.columns.get("old_log_probs")

    def row(s: int) -> tuple[Any, ...]:
        read = token_of(rollout, s - 1) if s else "x"
        return s - width - 1, read, values[s], token_of(rollout, s), None if old is None else old[s], s

    return Grid(("index", "read_at", "V", "predicts", "log_prob", "t"), rows_of(width, row))


# ── where gradients flow ─────────────────────────────────────────────────────────────────────────────────────────────


def _derivatives(rollout: Rollout, slot: int) -> tuple[float, float]:
    """Of the policy loss by log π and of the value loss by V', of one token's own terms."""
    columns, settings = rollout.columns, rollout.settings
    low, high = clip_range(rollout)
    old, new = columns["old_log_probs"][slot], columns["new_log_probs"][slot]
    advantage = used_advantages(rollout)[slot]
    term = reference.policy_term(old, new, advantage, low, high, settings.dual_clip)
    push = 0.0 if term.clipped else -term.ratio * advantage
    value, target, guess = (columns[name][slot] for name in ("values", "returns", "new_values"))
    clipped = reference.value_term(guess, target, value, settings.value_clip).clipped
    return plain(push), 0.0 if clipped else plain(guess - target)


@topic
def gradient_flow(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    slot = int(v["t"])
    push, pull = _derivatives(rollout, slot)
    columns = rollout.columns
    return v | {
        "push": push, "pull": pull, "used": used_advantages(rollout)[slot], "next_weight": w.gamma * (1 - w.lam),
        "return": columns["returns"][slot], "new_value": columns["new_values"][slot],
        "ratio": columns["ratio"][slot],
    }  # fmt: skip


@gradient_flow.with_grid
def _flow_grid(rollout: Rollout, t: int) -> Grid:
    """What of a token's numbers is differentiated, and what is a constant of the step."""
    w = walk(rollout)
    slot = w.slots[w.place(t)]
    push, pull = _derivatives(rollout, slot)
    constants = ("old_log_probs", "ref_log_probs", "rewards", "values", "advantages", "returns")
    rows: list[tuple[Any, ...]] = [("new_log_probs", rollout.columns["new_log_probs"][slot], push)]
    rows.append(("new_values", rollout.columns["new_values"][slot], pull))
    rows += [(name, rollout.columns[name][slot], None) for name in constants if name in rollout.columns]
    return Grid(("column", "here", "derivative"), tuple(rows))
