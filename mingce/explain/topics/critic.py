"""Topics of the critic: what a value is, what it is fitted to, and how the critic's own guesses enter its targets."""

from __future__ import annotations

import math
from typing import Any

from mingce.algorithms import reference
from mingce.record.rollout import Rollout
from mingce.explain.topic import SILENT, Grid, Phrase, Values, topic
from mingce.explain.topics.chosen import equation, plain, rows_of, token_of
from mingce.explain.topics.steps import Walk, spread, step, walk

_COST = 0.01  # a price a token for rollouts that have no KL worth showing
_LEAST_COST = 0.001
_CLIP = 0.5  # the trainer's own default, for rollouts whose value clip is off or not known


# ── why values rise or fall ──────────────────────────────────────────────────────────────────────────────────────────


class _Shapes:
    """The value of every state of a walk of n tokens under four kinds of reward, exactly, by the twin."""

    def __init__(self, rollout: Rollout, w: Walk):
        n, columns, beta = len(w.slots), rollout.columns, rollout.settings.beta or 0.0
        drift = [abs(columns["kl"][s] or 0.0) for s in w.slots] if "kl" in columns else [0.0]
        self.own_cost = beta * math.fsum(drift) / len(drift) >= _LEAST_COST
        self.cost = beta * math.fsum(drift) / len(drift) if self.own_cost else _COST
        self.stay = 0.5 ** (1 / n)
        self.piece = 1 / n
        end = [0.0] * (n - 1) + [1.0]
        self.costly = _to_go([r - self.cost for r in end], w.gamma)
        self.hope = _to_go([r * self.stay for r in end], w.gamma * self.stay)
        self.sure = _to_go(end, w.gamma)
        self.dense = _to_go([self.piece] * n, w.gamma)


def _to_go(rewards: list[float], gamma: float, after: float = 0.0) -> list[float]:
    return reference.monte_carlo([rewards], [[0.0] * len(rewards)], [[1] * len(rewards)], gamma, [after]).returns[0]


@topic
def values_shape(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    shapes, own, k = _Shapes(rollout, w), _to_go(w.rewards, w.gamma, w.after), w.place(t)
    for name in ("costly", "hope", "sure", "dense"):
        row = getattr(shapes, name)
        v |= {name: spread(rollout, w, row), f"{name}_first": row[0], f"{name}_last": row[-1], f"{name}_here": row[k]}
    changes = [b - a for a, b in zip(w.values, w.values[1:], strict=False)]
    v |= {
        "cost": shapes.cost, "stay": shapes.stay, "piece": shapes.piece, "to_go": spread(rollout, w, own),
        "to_go_here": plain(own[k]), "to_go_next": plain(w.following(own, k, w.after)),
        "hope_next": w.following(shapes.hope, k, 1.0), "ups": sum(x > 0 for x in changes),
        "downs": sum(x < 0 for x in changes), "changes": len(changes),
        "cost_from": Phrase("cost_from.example" if shapes.own_cost else "cost_from.nowhere"),
        "alone": Phrase("alone") if len(w.slots) == 1 else SILENT,
    }  # fmt: skip
    v["bellman"] = equation("{reward} + {gamma}·{to_go_next} = {to_go_here}", v)
    inside = k + 1 < len(w.slots)
    v["fair"] = (
        equation("{stay}·{gamma}·{hope_next} + (1 − {stay})·0 = {hope_here}", v)
        if inside
        else (equation("{stay}·1 + (1 − {stay})·0 = {hope_here}", v))
    )
    return v


@values_shape.with_grid
def _shape_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    shapes, own = _Shapes(rollout, w), _to_go(w.rewards, w.gamma, w.after)

    def row(k: int) -> tuple[Any, ...]:
        worlds = shapes.costly[k], shapes.hope[k], shapes.sure[k], shapes.dense[k]
        return (token_of(rollout, w.slots[k]), w.rewards[k], plain(own[k]), w.values[k], *worlds)

    headings = "token", "r_here", "came", "critic", "costly", "hope", "sure", "dense"
    return Grid(headings, rows_of(len(w.slots), row))


# ── what the critic is fitted to ─────────────────────────────────────────────────────────────────────────────────────


def target_parts(w: Walk, k: int, lam: float | None = None) -> tuple[float, float]:
    """R of the k-th token as (what rewards give, what the critic's later values give)."""
    rewards_only = w.credit(values=[0.0] * len(w.values), lam=lam, after=0.0).advantages[0][k]
    return plain(rewards_only), plain(w.credit(lam=lam).returns[0][k] - rewards_only)


@topic
def critic_fits_return(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    returns = w.credit().returns[0]
    row = [[1] * len(returns)]

    def loss(share: float) -> float:
        moved = [value + share * (target - value) for value, target in zip(w.values, returns, strict=True)]
        terms = [
            reference.value_term(new, target, old, None).loss
            for new, target, old in zip(moved, returns, w.values, strict=True)
        ]
        return reference.agg_loss([terms], row)

    mean, spread_ = reference.masked_mean([returns], row), reference.masked_var([returns], row, unbiased=False)
    reward_part, value_part = target_parts(w, w.place(t))
    v |= {
        "loss_now": plain(loss(0.0)), "loss_half": plain(loss(0.5)),
        "own_loss": reference.value_term(v["value"], v["return"], v["value"], None).loss,
        "reward_part": reward_part, "value_part": value_part, "half_value": v["value"] + (v["return"] - v["value"]) / 2,
        "mean_return": mean, "var_return": plain(spread_), "gap_mean": plain(v["value"] - mean),
        "square_mean": plain(math.fsum((v["value"] - target) ** 2 for target in returns) / len(returns)),
        "to_go": spread(rollout, w, _to_go(w.rewards, w.gamma, w.after)),
    }  # fmt: skip
    v["target"] = equation("{advantage} + {value} = {return}", v)
    v["gap_square"] = equation("({gap_mean})² + {var_return} = {square_mean}", v)
    return v


# ── the critic and the TD error ──────────────────────────────────────────────────────────────────────────────────────


@topic
def critic_td_error(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    k = w.place(t)
    one, all_ = w.credit(lam=0.0).returns[0][k], w.credit(lam=1.0).returns[0][k]
    v |= {"td_target": plain(one), "mc_target": plain(all_), "mc_error": plain(all_ - v["value"])}
    v["td_loss"] = reference.value_term(v["value"], one, v["value"], None).loss
    v["lam_loss"] = reference.value_term(v["value"], v["return"], v["value"], None).loss
    v["one_minus_lam"] = 1 - w.lam
    v["td_equation"] = equation("{reward} + {gamma}·{next_value} = {td_target}", v)
    v["delta_equation"] = equation("{td_target} − {value} = {delta}", v)
    v["recursion"] = equation("{reward} + {gamma}·({one_minus_lam}·{next_value} + {lam}·{next_return}) = {return}", v)
    return v


@critic_td_error.with_grid
def _td_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    k = w.place(t)
    rows = []
    for lam in sorted({0.0, 0.5, w.lam, 1.0}):
        credit = w.credit(lam=lam)
        target = credit.returns[0][k]
        error = credit.advantages[0][k]
        rows.append(
            (lam, plain(target), plain(error), reference.value_term(w.values[k], target, w.values[k], None).loss)
        )
    return Grid(("λ", "target", "R_t − V(s_t) = A_t", "½(V − R)²"), tuple(rows))


# ── V(s_0) contains r_0 ──────────────────────────────────────────────────────────────────────────────────────────────


@topic
def v0_contains_r0(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    own = _to_go(w.rewards, w.gamma, w.after)
    without = [g - r for g, r in zip(own, w.rewards, strict=True)]
    v |= {
        "first_reward": w.rewards[0], "first_value": w.values[0], "first_to_go": plain(own[0]),
        "second_to_go": plain(w.following(own, 0, w.after)), "first_without": plain(without[0]),
        "to_go": spread(rollout, w, own), "without": spread(rollout, w, without),
        "right_deltas": spread(rollout, w, w.credit(values=own).deltas[0]),
        "wrong_deltas": spread(rollout, w, w.credit(values=without).deltas[0]),
        "first_delta": plain(w.credit().deltas[0][0]),
    }  # fmt: skip
    v["sum"] = equation("{first_reward} + {gamma}·{second_to_go} = {first_to_go}", v)
    v["to_go_here"] = plain(own[w.place(t)])
    v["to_go_next"] = plain(w.following(own, w.place(t), w.after))
    v["after"] = Phrase("after") if w.after else SILENT
    return v


# ── what an advantage is made of ─────────────────────────────────────────────────────────────────────────────────────


@topic
def advantage_inputs(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    k = w.place(t)
    reward_part = w.credit(values=[0.0] * len(w.values), after=0.0).advantages[0][k]
    v |= {"reward_part": plain(reward_part), "value_part": plain(w.credit().advantages[0][k] - reward_part)}
    one, all_ = w.credit(lam=0.0).advantages[0][k], w.credit(lam=1.0).advantages[0][k]
    v |= {"one_step": plain(one), "all_steps": plain(all_)}
    v["surprise"] = equation("{reward} + {gamma}·{next_value} − {value} = {delta}", v)
    v["recursion"] = equation("{delta} + {gamma_lam}·{next_advantage} = {advantage}", v)
    v["parts"] = equation("{reward_part} + {value_part} = {advantage}", v)
    return v


def weights_in_advantage(w: Walk, k: int) -> list[tuple[float, float]]:
    """What r and V of every token from the k-th on count in A of the k-th."""
    decay = w.gamma * w.lam
    later = [(decay**j, w.gamma * (1 - w.lam) * decay ** (j - 1)) for j in range(1, len(w.slots) - k)]
    return [(1.0, -1.0), *later]


@advantage_inputs.with_grid
def _input_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    k = w.place(t)
    weights = weights_in_advantage(w, k)

    def row(j: int) -> tuple[Any, ...]:
        reward, value, (of_reward, of_value) = w.rewards[k + j], w.values[k + j], weights[j]
        both = plain(of_reward * reward + of_value * value)
        return (token_of(rollout, w.slots[k + j]), reward, of_reward, value, of_value, both)

    rows = list(rows_of(len(weights), row))
    if w.after:
        weight = w.gamma * (w.gamma * w.lam) ** (len(w.slots) - 1 - k)
        rows.append(("V(s_T)", "", "", w.after, weight, weight * w.after))
    rows.append(("Σ", "", "", "", "", plain(w.credit().advantages[0][k])))
    headings = "token", "r", "weight_r", "V", "weight_V", "both"
    return Grid(headings, tuple(rows))


# ── value clipping ───────────────────────────────────────────────────────────────────────────────────────────────────


def _reach(rollout: Rollout) -> float:
    found = rollout.settings.value_clip
    return _CLIP if found is None else float(found)


@topic
def value_clipping(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    reach, off = _reach(rollout), rollout.settings.value_clip is None
    k = w.place(t)
    advantages = w.credit().advantages[0]
    ahead = 1.0 if advantages[k] >= 0 else -1.0
    beyond, target = v["value"] + ahead * 2 * reach, v["return"]
    slot = int(v["t"])
    recorded = rollout.columns.get("new_values")
    new = v["value"] if recorded is None or recorded[slot] is None else float(recorded[slot])
    term, at_target = (
        reference.value_term(new, target, v["value"], reach),
        reference.value_term(target, target, v["value"], reach),
    )
    v |= {
        "reach": reach, "low": v["value"] - reach, "high": v["value"] + reach, "edge": v["value"] + ahead * reach,
        "new_value": new, "near": min(max(new, v["value"] - reach), v["value"] + reach), "term": term.loss,
        "far": sum(abs(a) > reach for a in advantages), "target_loss": plain(at_target.loss),
        "target_gap": plain(abs(v["return"] - v["value"])), "beyond": beyond,
        "beyond_loss": reference.value_term(beyond, target, v["value"], reach).loss,
        "plain_square": plain((new - target) ** 2),
    }  # fmt: skip
    v["near_square"] = plain((v["near"] - target) ** 2)
    within = "within" if v["target_gap"] <= reach else "beyond"
    v |= {
        "off": Phrase("off") if off else SILENT,
        "reached": Phrase(f"reached.{within}"),
        "kept": Phrase(f"kept.{within}"),
    }
    return v


@value_clipping.with_grid
def _clip_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    k = w.place(t)
    reach, value = _reach(rollout), w.values[k]
    target, advantage = w.credit().returns[0][k], w.credit().advantages[0][k]
    ahead = 1.0 if advantage >= 0 else -1.0
    sign, other = ("+", "−") if ahead > 0 else ("−", "+")
    places = (
        ("V", value),
        ("V + A/2", value + advantage / 2),
        (f"V {sign} ε_V", value + ahead * reach),
        ("R", target),
        (f"V {sign} 2ε_V", value + ahead * 2 * reach),
        (f"V {other} 2ε_V", value - ahead * 2 * reach),
    )
    rows = []
    for name, new in places:
        near = min(max(new, value - reach), value + reach)
        term = reference.value_term(new, target, value, reach)
        rows.append(
            (
                name,
                new,
                plain((new - target) ** 2),
                plain((near - target) ** 2),
                plain(term.loss),
                int(term.clipped),
                0.0 if term.clipped else plain(new - target),
            )
        )
    headings = "moved_to", "V'", "(V' − R)²", "(clip(V') − R)²", "loss", "clipped", "derivative"
    return Grid(headings, tuple(rows))
