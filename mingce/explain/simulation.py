"""Why λ trades variance for bias, seen on the spot: the example at hand made into a small world and sampled.

The world is the example's own path. From the first token on, every later token stays on the path with probability
`stay`; one that does not has lost everything that was still to come. On the path the rewards are the example's, off it
they are 0, so the true value of every state is known in closed form. The critic is the example's, hence imperfect: on
the path it says what it said in the example, and once the path is lost half of that, where nothing is left to earn.

What is measured is the GAE advantage of the first token, always the example's own, over sampled continuations:

    variance   of Â_0 over the samples
    bias       mean of Â_0 − (Q(s_0, a_0) − V(s_0)), V being the critic: its error at s_0 shifts Â_0 alike for every
               action, so it is a matter of the baseline and does not bias the policy's gradient
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from mingce.algorithms import reference

LAMBDAS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
SAMPLES = 10_000
SEED = 0
LONGEST = 16
FINISHED = 0.5  # of the rollouts stay on the path to the end
KEPT = 0.5
TINY = 1e-12  # what rounding leaves of 0


class World(NamedTuple):
    """The example's path; `after` is what the state behind its last token is worth, and the critic knows it.

    Off the path the critic says `kept` times what it says on it.
    """

    rewards: tuple[float, ...]
    values: tuple[float, ...]
    after: float
    gamma: float
    stay: float
    kept: float = KEPT


class Sample(NamedTuple):
    """One rollout: what it earned, what the critic said before every token, and the value after the last."""

    rewards: tuple[float, ...]
    values: tuple[float, ...]
    after: float


class LambdaRow(NamedTuple):
    """The estimate of the first token's advantage with one λ: over the samples, and exactly over all rollouts."""

    lam: float
    mean: float
    bias: float
    variance: float
    squared_error: float
    exact_bias: float
    exact_variance: float


class Simulation(NamedTuple):
    """The rows over LAMBDAS and what they were measured against."""

    world: World
    true_q: float  # of the first token
    target: float  # true_q less the critic's value: what Â_0 should be on average
    samples: int
    finished: int  # samples that stayed on the path
    rows: tuple[LambdaRow, ...]


def world_of(rollout: Rollout) -> World:
    """The world of a rollout with rewards and values; of a long one the last LONGEST chosen tokens."""
    columns = rollout.columns
    slots = reference.chosen(columns["response_mask"])[-LONGEST:]
    rewards = tuple(float(columns["rewards"][t]) for t in slots)
    values = tuple(float(columns["values"][t]) for t in slots)
    gamma = rollout.settings.gamma
    stay = FINISHED ** (1 / (len(slots) - 1)) if len(slots) > 1 else 1.0
    return World(rewards, values, rollout.bootstrap, 1.0 if gamma is None else gamma, stay)


def true_values(world: World) -> list[float]:
    """V^π of the states on the path, s_0 … s_T; off the path it is 0."""
    values = [world.after]
    for reward in reversed(world.rewards):
        values.insert(0, world.stay * (reward + world.gamma * values[0]))
    return values


def with_true_critic(world: World) -> World:
    """The same world, judged by its true values."""
    return world._replace(values=tuple(true_values(world)[:-1]), kept=0.0)


def sum_of_squares(world: World, lam: float) -> float:
    """Σ_{l≥1} (γλ)^{2l}·E[δ_l²] with the true values: what the variance of Â_0 must be, its δ being uncorrelated."""
    true = true_values(world)
    terms = []
    for t in range(1, len(world.rewards)):
        stayed = world.rewards[t] + world.gamma * true[t + 1] - true[t]
        square = world.stay * stayed**2 + (1 - world.stay) * true[t] ** 2
        terms.append((world.gamma * lam) ** (2 * t) * world.stay ** (t - 1) * square)
    return _plain(math.fsum(terms))


def sum_of_errors(world: World, lam: float) -> float:
    """(1−λ)·Σ_{l≥1} γ^l·λ^{l−1}·E[V(s_l) − V^π(s_l)]: what the critic's errors must make of the bias of Â_0."""
    true = true_values(world)
    terms = []
    for t in range(1, len(world.rewards)):
        on = world.stay ** (t - 1)
        error = on * (world.values[t] - true[t]) + (1 - on) * world.kept * world.values[t]
        terms.append((1 - lam) * world.gamma**t * lam ** (t - 1) * error)
    return _plain(math.fsum(terms))


def exact(world: World, lam: float) -> tuple[float, float]:
    """Mean and variance of Â_0 over all rollouts of the world."""
    return _moments(first_advantages(world, lam), probabilities(world))


def sample_of(world: World, lost: int) -> Sample:
    """The rollout whose token `lost` left the path; the path itself if that is its length."""
    length = len(world.rewards)
    rewards = world.rewards[:lost] + (0.0,) * (length - lost)
    values = world.values[: lost + 1] + tuple(world.kept * value for value in world.values[lost + 1 :])
    return Sample(rewards, values, world.after if lost == length else 0.0)


def drawn(world: World, samples: int, seed: int) -> Counter[int]:
    """How many samples left the path at which token, the first one being given."""
    chance = random.Random(seed)
    length = len(world.rewards)
    return Counter(next((t for t in range(1, length) if chance.random() >= world.stay), length) for _ in range(samples))


def probabilities(world: World) -> dict[int, float]:
    """How likely each token is to be the one that leaves the path, the first one being given."""
    length = len(world.rewards)
    found = {lost: world.stay ** (lost - 1) * (1 - world.stay) for lost in range(1, length)}
    return found | {length: world.stay ** (length - 1)}


def first_advantages(world: World, lam: float) -> dict[int, float]:
    """Â_0 of every rollout the world has, by the token that leaves the path; computed by the twin."""
    lost = range(1, len(world.rewards) + 1)
    rows = [sample_of(world, t) for t in lost]
    credit = reference.gae(
        [row.rewards for row in rows], [row.values for row in rows], [[1] * len(world.rewards)] * len(rows),
        world.gamma, lam, [row.after for row in rows],
    )  # fmt: skip
    return {t: advantages[0] for t, advantages in zip(lost, credit.advantages, strict=True)}


def simulated(rollout: Rollout, samples: int = SAMPLES, seed: int = SEED) -> Simulation:
    """The example's world sampled; the same numbers every time."""
    return _simulated(world_of(rollout), samples, seed)


@lru_cache(maxsize=8)
def _simulated(world: World, samples: int, seed: int) -> Simulation:
    counts = drawn(world, samples, seed)
    true_q = world.rewards[0] + world.gamma * true_values(world)[1]
    target = true_q - world.values[0]
    rows = []
    for lam in LAMBDAS:
        shares = {t: count / samples for t, count in counts.items()}
        mean, variance = _moments(first_advantages(world, lam), shares)
        exact_mean, exact_variance = exact(world, lam)
        bias = _plain(mean - target)
        exact_bias = _plain(exact_mean - target)
        rows.append(LambdaRow(lam, mean, bias, variance, bias**2 + variance, exact_bias, exact_variance))
    return Simulation(world, true_q, target, samples, counts[len(world.rewards)], tuple(rows))


def _moments(estimates: Mapping[int, float], weights: Mapping[int, float]) -> tuple[float, float]:
    mean = math.fsum(weight * estimates[t] for t, weight in weights.items())
    variance = math.fsum(weight * (estimates[t] - mean) ** 2 for t, weight in weights.items())
    return _plain(mean), _plain(variance)


def _plain(x: float) -> float:
    return 0.0 if abs(x) < TINY else x
