"""What is paid, where and on which scale: the score's slot, its size, its abuse, and tokens that earn nothing."""

from __future__ import annotations

import math
from typing import Any

from mingce.algorithms import reference
from mingce.explain.topic import Grid, Values, listed, topic
from mingce.explain.topics.chosen import chosen_slots, equation, mean, plain, rows_of, token_of
from mingce.explain.topics.steps import Walk, spread, step, walk
from mingce.record.rollout import Rollout

_SCALE = 10.0
_CLIP = 0.5  # the trainer's own default, for rollouts whose value clip is off or not known
_BONUS = 0.5  # what a trick of the scorer's is worth in the example
_BEST_OF = 16
_TOOL = 3  # tokens of tool output put in where the example has none


# ── where the score is put ───────────────────────────────────────────────────────────────────────────────────────────


def _placed(w: Walk) -> dict[str, list[float]]:
    """Advantages with the whole reward on the last token, one slot early, on the first, and nowhere."""
    n, total = len(w.slots), math.fsum(w.rewards)
    found = {}
    for name, place in (("last", n - 1), ("early", max(n - 2, 0)), ("first", 0), ("lost", n)):
        rewards = [total if k == place else 0.0 for k in range(n)]
        found[name] = [plain(x) for x in w.credit(rewards=rewards).advantages[0]]
    return found


@topic
def score_position(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    k, placed = w.place(t), _placed(w)
    ends = {"gamma": w.gamma, "bootstrap": w.after, "last_value": w.values[-1], "total": plain(math.fsum(w.rewards))}
    ends |= {"right_delta": plain(ends["total"] + w.gamma * w.after - w.values[-1])}
    ends |= {"lost_delta": plain(w.gamma * w.after - w.values[-1])}
    v |= ends | {f"{name}_here": row[k] for name, row in placed.items()}
    v |= {f"{name}_end": row[-1] for name, row in placed.items()}
    return v | {
        "last_list": listed(placed["last"]),
        "first_list": listed(placed["first"]),
        "lost_list": listed(placed["lost"]),
        "right_equation": equation("{total} + {gamma}·{bootstrap} − {last_value} = {right_delta}", ends),
        "lost_equation": equation("0 + {gamma}·{bootstrap} − {last_value} = {lost_delta}", ends),
    }


@score_position.with_grid
def _placed_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    placed = _placed(w)

    def row(k: int) -> tuple[Any, ...]:
        return w.slots[k], token_of(rollout, w.slots[k]), w.values[k], *(column[k] for column in placed.values())

    return Grid(("t", "token", "V", "on_last", "one_early", "on_first", "lost"), rows_of(len(w.slots), row))


# ── its scale ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _scaled(w: Walk) -> tuple[list[float], list[float]]:
    """Advantages of rewards _SCALE times as large, with a critic that has learned the scale and with one that has not.

    What follows a cut is scaled with the critic.
    """
    rewards, values = [_SCALE * r for r in w.rewards], [_SCALE * v for v in w.values]
    learned = w.credit(rewards=rewards, values=values, after=_SCALE * w.after).advantages[0]
    return [plain(x) for x in learned], [plain(x) for x in w.credit(rewards=rewards).advantages[0]]


def _white(column: list[float]) -> list[float]:
    if len(column) < 2:
        return [0.0] * len(column)
    return [plain(x) for x in reference.masked_whiten([column], [[1] * len(column)])[0]]


@topic
def reward_scale(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    k = w.place(t)
    learned, unlearned = _scaled(w)
    reach = rollout.settings.value_clip
    reach = _CLIP if reach is None else reach
    beta = rollout.settings.beta
    return v | {
        "scale": _SCALE,
        "scaled": learned[k],
        "unlearned": unlearned[k],
        "white": _white(w.advantages)[k],
        "white_scaled": _white(learned)[k],
        "white_list": listed(_white(w.advantages)),
        "scaled_list": listed(learned),
        "unlearned_list": listed(unlearned),
        "value_clip": reach,
        "big_return": plain(_SCALE * w.returns[k]),
        "clip_steps": math.ceil(abs(_SCALE * (w.returns[k] - w.values[k])) / reach),
        "loss_before": plain(w.advantages[k] ** 2 / 2),
        "loss_after": plain(learned[k] ** 2 / 2),
        "beta": beta,
        "beta_scaled": None if beta is None else beta * _SCALE,
    }


# ── its abuse ────────────────────────────────────────────────────────────────────────────────────────────────────────


@topic
def reward_hacking(rollout: Rollout, t: int) -> Values:
    """What the example paid for its drift, how much drift a trick would be worth, and how far best-of-n goes."""
    columns, slots, beta = rollout.columns, chosen_slots(rollout), rollout.settings.beta or 0.0
    kl = {s: columns["kl"][s] for s in slots}
    scores, total = math.fsum(columns["scores"][s] for s in slots), math.fsum(kl.values())
    far = max(kl, key=lambda s: kl[s])
    return {
        "beta": beta,
        "score_total": plain(scores),
        "kl_total": plain(total),
        "kl_cost": plain(beta * total),
        "reward_total": plain(scores - beta * total),
        "kl_mean": plain(mean(list(kl.values()))),
        "kl_list": listed(list(kl.values())),
        "far": far,
        "far_token": token_of(rollout, far),
        "far_kl": kl[far],
        "far_cost": plain(beta * kl[far]),
        "bonus": _BONUS,
        "budget": "∞" if beta == 0 else _BONUS / beta,
        "budget_each": "∞" if beta == 0 else _BONUS / beta / len(slots),
        "count_chosen": len(slots),
        "best_of": _BEST_OF,
        "best_of_kl": math.log(_BEST_OF) - (_BEST_OF - 1) / _BEST_OF,
    }


# ── tokens that the policy did not choose ────────────────────────────────────────────────────────────────────────────


def _with_tool(w: Walk, k: int) -> reference.Credit:
    """The recursion through _TOOL slots of tool output after the k-th token, rewards and values there 0."""
    cut, gap = k + 1, [0.0] * _TOOL
    rewards, values = ([*row[:cut], *gap, *row[cut:]] for row in (w.rewards, w.values))
    return reference.gae([rewards], [values], [[1] * len(rewards)], w.gamma, w.lam, [w.after])


@topic
def tool_tokens(rollout: Rollout, t: int) -> Values:
    w, v = walk(rollout), step(rollout, t)
    k = w.place(t)
    through = _with_tool(w, k)
    left = len(w.slots) - 1 - k
    after = w.following(w.values, k, w.after)
    v |= {
        "tool": _TOOL,
        "next_value": after,
        "through_delta": plain(through.deltas[0][k]),
        "through_advantage": plain(through.advantages[0][k]),
        "through_list": spread(rollout, w, [*through.advantages[0][: k + 1], *through.advantages[0][k + 1 + _TOOL :]]),
        "left": left,
        "weight": w.decay**left,
        "through_weight": w.decay ** (left + _TOOL),
        "lost_share": w.decay**_TOOL,
        "count_holes": len(rollout.columns["response_mask"]) - len(w.slots),
    }
    return v | {
        "over_equation": equation("{reward} + {gamma}·{next_value} − {value} = {delta}", v),
        "through_equation": equation("{reward} + {gamma}·0 − {value} = {through_delta}", v),
    }
