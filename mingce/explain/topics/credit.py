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
from mingce.explain.topics.steps import Walk, credit_numbers, walk
from mingce.record.rollout import Rollout

MANY = 64
_BY_RETURN = "G_{t} = {reward} + {gamma}·{next_return} = {mc_return},  A_{t} = {mc_return} − {value} = {mc_advantage}"
_SURPRISE = "δ_{t} = {reward} + {gamma}·{next_value} − {value} = {delta}"
_RECURSION = "A_{t} = {delta} + {gamma_lam}·{next_advantage} = {advantage}"


@topic
def mc_vs_gae(rollout: Rollout, t: int) -> Values:
    """The last three tokens worked out by Monte Carlo and by GAE."""
    w = walk(rollout)
    lines: dict[str, list[str]] = {"mc": [], "gae": []}
    for k in reversed(range(max(0, len(w.slots) - 3), len(w.slots))):
        numbers = credit_numbers(rollout, w.slots[k])
        for name, line in (("mc", _BY_RETURN), ("gae", f"{_SURPRISE},  {_RECURSION}")):
            lines[name].append("    " + equation(line, numbers))
    found = {f"{name}_lines": "\n".join(written) for name, written in lines.items()}
    return credit_numbers(rollout, t) | found | {"shown_count": len(lines["mc"])}


@mc_vs_gae.with_grid
def _both_grid(rollout: Rollout, t: int) -> Grid:
    w = walk(rollout)
    columns = (
        w.rewards,
        w.values,
        w.deltas,
        w.mc_returns,
        w.mc_advantages,
        w.returns,
        w.advantages,
    )

    def row(k: int) -> tuple[Any, ...]:
        return w.slots[k], token_of(rollout, w.slots[k]), *(column[k] for column in columns)

    headings = "t", "token", "r", "V", "δ", "G", "A (MC)", "R^λ", "A (GAE)"
    return Grid(headings, tuple(rows_of(len(w.slots), row)))


advantage_from_returns = register("advantage_from_returns", credit_numbers)
a_not_delta = register("a_not_delta", credit_numbers)


@a_not_delta.with_grid
def _unrolled_grid(rollout: Rollout, t: int) -> Grid:
    """Token t's advantage term by term, undamped and damped."""
    w = walk(rollout)
    k, decay = w.place(t), w.decay

    def row(j: int) -> tuple[Any, ...]:
        delta = w.deltas[k + j]
        token = token_of(rollout, w.slots[k + j])
        return j, token, delta, plain(w.gamma**j * delta), decay**j, plain(decay**j * delta)

    total = ("Σ", "", "", w.mc_advantages[k], "", w.advantages[k])
    headings = "l", "token", "δ_(t+l)", "γ^l·δ", "(γλ)^l", "(γλ)^l·δ"
    return Grid(headings, (*rows_of(len(w.slots) - k, row), total))


@topic
def excess_sum(rollout: Rollout, t: int) -> Values:
    """The whole response's excess against the sum of its TD errors and against the sum of its advantages."""
    w = walk(rollout)
    decay = w.decay
    times = reference.discounted_sum([1.0] * len(w.slots), decay)[::-1]  # how often A_0 … A_k count δ_k
    whole = {
        "first_value": w.values[0],
        "first_return": w.mc_returns[0],
        "first_excess": w.mc_advantages[0],
    }
    return (
        credit_numbers(rollout, t)
        | whole
        | {
            "first_equation": equation("{first_return} − {first_value} = {first_excess}", whole),
            "first_sum": plain(math.fsum(w.gamma**k * delta for k, delta in enumerate(w.deltas))),
            "first_advantage": w.advantages[0],
            "weights": listed([decay**k for k in range(len(w.slots))]),
            "terms": listed([plain(decay**k * delta) for k, delta in enumerate(w.deltas)]),
            "advantage_sum": plain(math.fsum(w.advantages)),
            "counted": listed(times),
            "counted_sum": plain(math.fsum(n * delta for n, delta in zip(times, w.deltas, strict=True))),
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
    start = walk(rollout).slots[-len(world.rewards)]
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
    w = walk(rollout)
    k, decay = w.place(t), w.decay
    wrong = reference.discounted_sum(w.rewards, decay)
    return credit_numbers(rollout, t) | {
        "forward": plain(math.fsum(decay**j * delta for j, delta in enumerate(w.deltas[k:]))),
        "last_weight": decay ** (len(w.slots) - 1),
        "last_delta": w.deltas[-1],
        "last_reward": w.rewards[-1],
        "last_share": plain(decay ** (len(w.slots) - 1) * w.deltas[-1]),
        "wrong": plain(wrong[k]),
    }


def _allocations(rollout: Rollout) -> tuple[Walk, int, dict[str, list[float]]]:
    """Every allocation's credit of every chosen token; attention grows with the place where none was recorded."""
    w = walk(rollout)
    k = rollout.settings.k or 3
    mask = [[1] * len(w.slots)]
    recorded = rollout.columns.get("attention_weights")
    attention = [float(place) for place in range(1, len(w.slots) + 1)]
    if recorded is not None:
        attention = [float(recorded[t]) for t in w.slots]
    found = {
        "uniform": reference.uniform([w.rewards], mask)[0],
        "last_k": reference.last_k([w.rewards], mask, k)[0],
        "attention": reference.attention([w.rewards], mask, [attention])[0],
        "td0": w.deltas,
        "monte_carlo": w.mc_advantages,
        "gae": w.advantages,
    }
    return w, k, {name: [plain(x) for x in row] for name, row in found.items()}


@topic
def credit_allocations(rollout: Rollout, t: int) -> Values:
    w, k, found = _allocations(rollout)
    here = w.place(t)
    return (
        credit_numbers(rollout, t)
        | {"k": k, "total": plain(math.fsum(w.rewards)), "gae_sum": plain(math.fsum(w.advantages))}
        | {f"by_{name}": row[here] for name, row in found.items()}
    )


@credit_allocations.with_grid
def _shares_grid(rollout: Rollout, t: int) -> Grid:
    w, k, found = _allocations(rollout)

    def row(place: int) -> tuple[Any, ...]:
        slot = w.slots[place]
        return slot, token_of(rollout, slot), *(credit[place] for credit in found.values())

    total = ("Σ", "", *(plain(math.fsum(credit)) for credit in found.values()))
    names = (f"last_k ({k})" if name == "last_k" else name for name in found)
    return Grid(("t", "token", *names), (*rows_of(len(w.slots), row), total))


@topic
def gamma_lambda(rollout: Rollout, t: int) -> Values:
    """What γ and λ leave of the last token for the first, and GAE as a mixture of n-step estimates."""
    w = walk(rollout)
    k, reach = w.place(t), len(w.slots) - 1
    decay = w.decay
    partial = list(accumulate(w.gamma**j * delta for j, delta in enumerate(w.deltas[k:])))
    mixed = [(1 - w.lam) * w.lam**j * estimate for j, estimate in enumerate(partial[:-1])]
    mixture = math.fsum([*mixed, w.lam ** (len(partial) - 1) * partial[-1]])
    return credit_numbers(rollout, t) | {
        "reach": reach,
        "gamma_power": w.gamma**reach,
        "lam_power": w.lam**reach,
        "both_power": decay**reach,
        "horizon": "∞" if decay >= 1 else 1 / (1 - decay),
        "n_steps": listed([plain(x) for x in partial]),
        "mixture": plain(mixture),
    }


@gamma_lambda.with_grid
def _knobs_grid(rollout: Rollout, t: int) -> Grid:
    """A_t over λ (down) and γ (across), the critic's values kept as they are."""
    w = walk(rollout)
    k = w.place(t)
    gammas = sorted({1.0, 0.99, 0.9, w.gamma}, reverse=True)
    lams = sorted({0.0, 0.5, 0.9, 0.95, 1.0, w.lam})
    mask = [[1] * len(w.slots)]

    def advantage(gamma: float, lam: float) -> float:
        credit = reference.gae([w.rewards], [w.values], mask, gamma, lam, [w.after])
        return plain(credit.advantages[0][k])

    rows = tuple((lam, *(advantage(gamma, lam) for gamma in gammas)) for lam in lams)
    return Grid(("λ", *(f"A, γ = {shown(g)}" for g in gammas)), rows)
