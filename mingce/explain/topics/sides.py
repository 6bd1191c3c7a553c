"""A rollout's credit by Monte Carlo and by GAE, and the numbers that the topics on credit have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from mingce.algorithms import reference
from mingce.explain.topic import Values, listed
from mingce.explain.topics.chosen import equation, plain, token_of
from mingce.record.rollout import Rollout
from mingce.specs.estimator import lambda_of


class Sides(NamedTuple):
    """A rollout's credit both ways, one number a chosen token; `next_*` are those of the next chosen one."""

    slots: list[int]
    gamma: float
    lam: float
    after: float
    rewards: list[float]
    values: list[float]
    next_values: list[float]
    deltas: list[float]
    advantages: list[float]
    returns: list[float]
    mc_returns: list[float]
    mc_advantages: list[float]


def sides(rollout: Rollout) -> Sides:
    """By the twins, whichever estimator the rollout itself was given."""
    columns, settings, after = rollout.columns, rollout.settings.as_dict(), rollout.bootstrap
    rewards, values, mask = [columns["rewards"]], [columns["values"]], [columns["response_mask"]]
    gamma, lam = settings.get("gamma"), lambda_of(settings)
    gamma, lam = 1.0 if gamma is None else float(gamma), 0.95 if lam is None else float(lam)
    slots = reference.chosen(mask[0])
    credit = reference.gae(rewards, values, mask, gamma, lam, [after])
    mc = reference.monte_carlo(rewards, values, mask, gamma, [after])

    def of(row: Sequence[Any]) -> list[float]:
        return [plain(float(row[t])) for t in slots]

    critic = of(values[0])
    return Sides(
        slots, gamma, lam, after, of(rewards[0]), critic, [*critic[1:], after], of(credit.deltas[0]),
        of(credit.advantages[0]), of(credit.returns[0]), of(mc.returns[0]), of(mc.advantages[0]),
    )  # fmt: skip


def place_of(side: Sides, t: int) -> int:
    """Which of the chosen tokens slot t is; the first for a slot that was not chosen."""
    return side.slots.index(t) if t in side.slots else 0


def credit_numbers(rollout: Rollout, t: int) -> Values:
    """What the topics on credit have in common."""
    side = sides(rollout)
    k = place_of(side, t)
    count, decay = len(side.slots), side.gamma * side.lam
    ahead = [side.gamma**j * delta for j, delta in enumerate(side.deltas[k:])]
    found = {
        "t": side.slots[k],
        "token": token_of(rollout, side.slots[k]),
        "first": side.slots[0],
        "first_token": token_of(rollout, side.slots[0]),
        "gamma": side.gamma,
        "lam": side.lam,
        "gamma_lam": decay,
        "bootstrap": side.after,
        "left": count - k - 1,
        "reward": side.rewards[k],
        "value": side.values[k],
        "next_value": side.next_values[k],
        "delta": side.deltas[k],
        "advantage": side.advantages[k],
        "next_advantage": side.advantages[k + 1] if k + 1 < count else 0.0,
        "return": side.returns[k],
        "mc_return": side.mc_returns[k],
        "next_return": side.mc_returns[k + 1] if k + 1 < count else side.after,
        "mc_advantage": side.mc_advantages[k],
        "gap": plain(side.mc_advantages[k] - side.advantages[k]),
        "delta_sum": plain(math.fsum(ahead)),
        "later_sum": plain(math.fsum(ahead[1:])),
        "rewards": listed(side.rewards),
        "values": listed(side.values),
        "deltas": listed(side.deltas),
        "advantages": listed(side.advantages),
        "returns": listed(side.returns),
        "mc_returns": listed(side.mc_returns),
        "mc_advantages": listed(side.mc_advantages),
    }
    return found | {
        "mc_equation": equation("{mc_return} − {value} = {mc_advantage}", found),
        "step_equation": equation("{delta} + {gamma_lam}·{next_advantage} = {advantage}", found),
    }
