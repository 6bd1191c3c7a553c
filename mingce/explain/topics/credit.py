"""Credit: Monte Carlo, TD, GAE, and who gets what for which token."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.explain import simulation
from mingce.explain.topic import Grid, Values, listed, register, topic
from mingce.explain.topics.chosen import equation, plain, rows_of, token_of
from mingce.explain.topics.sides import Sides, credit_numbers, place_of, sides
from mingce.record.rollout import Rollout

MANY = 64
_BY_RETURN = "G_{t} = {reward} + {gamma}·{next_return} = {mc_return},  A_{t} = {mc_return} − {value} = {mc_advantage}"
_SURPRISE = "δ_{t} = {reward} + {gamma}·{next_value} − {value} = {delta}"
_RECURSION = "A_{t} = {delta} + {gamma_lam}·{next_advantage} = {advantage}"


@topic
def mc_vs_gae(rollout: Rollout, t: int) -> Values:
    """The last three tokens worked out by Monte Carlo and by GAE."""
    side = sides(rollout)
    lines: dict[str, list[str]] = {"mc": [], "gae": []}
    for k in reversed(range(max(0, len(side.slots) - 3), len(side.slots))):
        numbers = credit_numbers(rollout, side.slots[k])
        for name, line in (("mc", _BY_RETURN), ("gae", f"{_SURPRISE},  {_RECURSION}")):
            lines[name].append("    " + equation(line, numbers))
    found = {f"{name}_lines": "\n".join(written) for name, written in lines.items()}
    return credit_numbers(rollout, t) | found | {"shown_count": len(lines["mc"])}


@mc_vs_gae.with_grid
def _both_grid(rollout: Rollout, t: int) -> Grid:
    side = sides(rollout)
    columns = (
        side.rewards,
        side.values,
        side.deltas,
        side.mc_returns,
        side.mc_advantages,
        side.returns,
        side.advantages,
    )

    def row(k: int) -> tuple[Any, ...]:
        return side.slots[k], token_of(rollout, side.slots[k]), *(column[k] for column in columns)

    headings = "t", "token", "r", "V", "δ", "G", "A (MC)", "R^λ", "A (GAE)"
    return Grid(headings, tuple(rows_of(len(side.slots), row)))


advantage_from_returns = register("advantage_from_returns", credit_numbers)
a_not_delta = register("a_not_delta", credit_numbers)


@a_not_delta.with_grid
def _unrolled_grid(rollout: Rollout, t: int) -> Grid:
    """Token t's advantage term by term, undamped and damped."""
    side = sides(rollout)
    k, decay = place_of(side, t), side.gamma * side.lam

    def row(j: int) -> tuple[Any, ...]:
        delta = side.deltas[k + j]
        token = token_of(rollout, side.slots[k + j])
        return j, token, delta, plain(side.gamma**j * delta), decay**j, plain(decay**j * delta)

    total = ("Σ", "", "", side.mc_advantages[k], "", side.advantages[k])
    headings = "l", "token", "δ_(t+l)", "γ^l·δ", "(γλ)^l", "(γλ)^l·δ"
    return Grid(headings, (*rows_of(len(side.slots) - k, row), total))


@topic
def excess_sum(rollout: Rollout, t: int) -> Values:
    """The whole response's excess against the sum of its TD errors and against the sum of its advantages."""
    side = sides(rollout)
    decay = side.gamma * side.lam
    times = reference.discounted_sum([1.0] * len(side.slots), decay)[::-1]  # how often A_0 … A_k count δ_k
    whole = {
        "first_value": side.values[0],
        "first_return": side.mc_returns[0],
        "first_excess": side.mc_advantages[0],
    }
    return (
        credit_numbers(rollout, t)
        | whole
        | {
            "first_equation": equation("{first_return} − {first_value} = {first_excess}", whole),
            "first_sum": plain(math.fsum(side.gamma**k * delta for k, delta in enumerate(side.deltas))),
            "first_advantage": side.advantages[0],
            "weights": listed([decay**k for k in range(len(side.slots))]),
            "terms": listed([plain(decay**k * delta) for k, delta in enumerate(side.deltas)]),
            "advantage_sum": plain(math.fsum(side.advantages)),
            "counted": listed(times),
            "counted_sum": plain(math.fsum(n * delta for n, delta in zip(times, side.deltas, strict=True))),
        }
    )


@topic
def gae_variance(rollout: Rollout, t: int) -> Values:
    """The simulation of the example's own world."""
    common = credit_numbers(rollout, t)
    found = simulation.simulated(rollout)
    world, lam = found.world, common["lam"]
    mean, variance = simulation.exact(world, lam)
    zero, one = found.rows[0], found.rows[-1]
    best = min(found.rows, key=lambda row: row.exact_bias**2 + row.exact_variance)
    best_many = min(found.rows, key=lambda row: row.exact_bias**2 + row.exact_variance / MANY)
    start = sides(rollout).slots[-len(world.rewards)]
    return common | {
        "steps": len(world.rewards),
        "start_token": token_of(rollout, start),
        "start_value": world.values[0],
        "stay": world.stay,
        "kept": world.kept,
        "samples": found.samples,
        "finished": found.finished,
        "sim_values": listed(world.values),
        "true_q": found.true_q,
        "target": plain(found.target),
        "bias_zero": zero.bias,
        "bias_one": one.bias,
        "bias_lam": plain(mean - found.target),
        "bias_formula": simulation.sum_of_errors(world, lam),
        "off_one": abs(one.bias),
        "var_zero": zero.variance,
        "var_one": one.variance,
        "var_lam": variance,
        "sd_zero": math.sqrt(zero.variance),
        "sd_one": math.sqrt(one.variance),
        "sd_lam": math.sqrt(variance),
        "perfect_variance": simulation.exact(simulation.with_true_critic(world), lam)[1],
        "squares": simulation.sum_of_squares(world, lam),
        "many": MANY,
        "best_lam": best.lam,
        "best_lam_many": best_many.lam,
    }


@gae_variance.with_grid
def _lambda_grid(rollout: Rollout, t: int) -> Grid:
    headings = "λ", "mean", "bias", "variance", "squared_error", "exact_bias", "exact_variance"
    return Grid(headings, tuple(tuple(row) for row in simulation.simulated(rollout).rows))


@topic
def credit_backward(rollout: Rollout, t: int) -> Values:
    """The same credit summed forwards, and what comes out when rewards are added in place of TD errors."""
    side = sides(rollout)
    k, decay = place_of(side, t), side.gamma * side.lam
    wrong = reference.discounted_sum([*side.rewards[:-1], side.deltas[-1]], decay)
    return credit_numbers(rollout, t) | {
        "forward": plain(math.fsum(decay**j * delta for j, delta in enumerate(side.deltas[k:]))),
        "last_weight": decay ** (len(side.slots) - 1),
        "last_delta": side.deltas[-1],
        "last_reward": side.rewards[-1],
        "last_share": plain(decay ** (len(side.slots) - 1) * side.deltas[-1]),
        "wrong": plain(wrong[k]),
    }


def _allocations(rollout: Rollout) -> tuple[Sides, int, dict[str, list[float]]]:
    """Every allocation's credit of every chosen token; attention grows with the place where none was recorded."""
    side = sides(rollout)
    k = rollout.settings.k or 3
    mask = [[1] * len(side.slots)]
    recorded = rollout.columns.get("attention_weights")
    attention = [float(place) for place in range(1, len(side.slots) + 1)]
    if recorded is not None:
        attention = [float(recorded[t]) for t in side.slots]
    found = {
        "uniform": reference.uniform([side.rewards], mask)[0],
        "last_k": reference.last_k([side.rewards], mask, k)[0],
        "attention": reference.attention([side.rewards], mask, [attention])[0],
        "td0": side.deltas,
        "monte_carlo": side.mc_advantages,
        "gae": side.advantages,
    }
    return side, k, {name: [plain(x) for x in row] for name, row in found.items()}


@topic
def credit_allocations(rollout: Rollout, t: int) -> Values:
    side, k, found = _allocations(rollout)
    here = place_of(side, t)
    return (
        credit_numbers(rollout, t)
        | {"k": k, "total": plain(math.fsum(side.rewards)), "gae_sum": plain(math.fsum(side.advantages))}
        | {f"by_{name}": row[here] for name, row in found.items()}
    )


@credit_allocations.with_grid
def _shares_grid(rollout: Rollout, t: int) -> Grid:
    side, k, found = _allocations(rollout)

    def row(place: int) -> tuple[Any, ...]:
        slot = side.slots[place]
        return slot, token_of(rollout, slot), *(credit[place] for credit in found.values())

    total = ("Σ", "", *(plain(math.fsum(credit)) for credit in found.values()))
    names = (f"last_k ({k})" if name == "last_k" else name for name in found)
    return Grid(("t", "token", *names), (*rows_of(len(side.slots), row), total))


@topic
def gamma_lambda(rollout: Rollout, t: int) -> Values:
    """What γ and λ leave of the last token for the first, and GAE as a mixture of n-step estimates."""
    side = sides(rollout)
    k, reach = place_of(side, t), len(side.slots) - 1
    decay = side.gamma * side.lam
    partial = list(accumulate(side.gamma**j * delta for j, delta in enumerate(side.deltas[k:])))
    mixed = [(1 - side.lam) * side.lam**j * estimate for j, estimate in enumerate(partial[:-1])]
    mixture = math.fsum([*mixed, side.lam ** (len(partial) - 1) * partial[-1]])
    return credit_numbers(rollout, t) | {
        "reach": reach,
        "gamma_power": side.gamma**reach,
        "lam_power": side.lam**reach,
        "both_power": decay**reach,
        "horizon": "∞" if decay >= 1 else 1 / (1 - decay),
        "n_steps": listed([plain(x) for x in partial]),
        "mixture": plain(mixture),
    }


@gamma_lambda.with_grid
def _knobs_grid(rollout: Rollout, t: int) -> Grid:
    """A_t over λ (down) and γ (across), the critic's values kept as they are."""
    side = sides(rollout)
    k = place_of(side, t)
    gammas = sorted({1.0, 0.99, 0.9, side.gamma}, reverse=True)
    lams = sorted({0.0, 0.5, 0.9, 0.95, 1.0, side.lam})
    mask = [[1] * len(side.slots)]

    def advantage(gamma: float, lam: float) -> float:
        credit = reference.gae([side.rewards], [side.values], mask, gamma, lam, [side.after])
        return plain(credit.advantages[0][k])

    rows = tuple((lam, *(advantage(gamma, lam) for gamma in gammas)) for lam in lams)
    return Grid(("λ", *(f"A, γ = {shown(g)}" for g in gammas)), rows)
