"""The λ picture: the world's true values, what is sampled from it, and what variance and bias do over λ."""

from __future__ import annotations

import itertools

import pytest

from mingce.algorithms import reference
from mingce.explain.example import Rollout, changed, typed, worked
from mingce.explain.simulation import (
    LAMBDAS,
    LONGEST,
    World,
    drawn,
    exact,
    probabilities,
    sample_of,
    simulated,
    sum_of_errors,
    sum_of_squares,
    true_values,
    with_true_critic,
    world_of,
)

THREE: dict[str, list[float]] = {"rewards": [0, 0, 1], "values": [0.3, 0.4, 0.6]}


def _examples() -> list[Rollout]:
    dense = {"rewards": [0.2, 0.1, 0.3, 0.2], "values": [0.9, 0.6, 0.5, 0.1]}
    return [worked(), typed(THREE), typed(dense, gamma=0.9), typed(THREE, after=0.7, gamma=0.99)]


def _enumerated(world: World, start: int) -> float:
    """V^π(s_start) on the path, over every sequence of staying and leaving."""
    total = 0.0
    for moves in itertools.product((True, False), repeat=len(world.rewards) - start):
        chance, earned, on = 1.0, 0.0, True
        for step, stays in enumerate(moves):
            chance *= world.stay if stays else 1 - world.stay
            on = on and stays
            earned += world.gamma**step * world.rewards[start + step] if on else 0.0
        total += chance * (earned + (world.gamma ** len(moves) * world.after if on else 0.0))
    return total


@pytest.mark.parametrize("rollout", _examples())
def test_true_values_are_those_of_an_enumeration(rollout: Rollout) -> None:
    world = world_of(rollout)
    enumerated = [_enumerated(world, start) for start in range(len(world.rewards) + 1)]
    assert true_values(world) == pytest.approx(enumerated, abs=1e-12)


@pytest.mark.parametrize("rollout", _examples())
def test_variance_rises_with_lambda_and_bias_ends_at_zero(rollout: Rollout) -> None:
    rows = simulated(rollout).rows
    assert [row.lam for row in rows] == list(LAMBDAS)
    variances = [row.variance for row in rows]
    assert variances[0] == 0.0  # given the first token, its own TD error has no chance in it
    assert all(later > earlier for earlier, later in itertools.pairwise(variances))
    assert abs(rows[-1].bias) < 0.05 * max(abs(row.bias) for row in rows)
    assert rows[-1].exact_bias == 0.0


def test_bias_falls_with_lambda_on_the_worked_example() -> None:
    sizes = [abs(row.bias) for row in simulated(worked()).rows]
    assert all(later < earlier for earlier, later in itertools.pairwise(sizes))


@pytest.mark.parametrize("rollout", _examples())
def test_samples_agree_with_the_exact_moments(rollout: Rollout) -> None:
    simulation = simulated(rollout)
    assert simulation.finished / simulation.samples == pytest.approx(0.5, abs=0.02)
    for row in simulation.rows:
        noise = (row.exact_variance / simulation.samples) ** 0.5
        assert abs(row.bias - row.exact_bias) <= 3 * noise + 1e-12
        assert row.variance == pytest.approx(row.exact_variance, rel=0.1)
        assert row.squared_error == pytest.approx(row.bias**2 + row.variance)


@pytest.mark.parametrize("rollout", _examples())
@pytest.mark.parametrize("lam", LAMBDAS)
def test_a_true_critic_has_no_bias_and_uncorrelated_surprises(rollout: Rollout, lam: float) -> None:
    world = with_true_critic(world_of(rollout))
    mean, variance = exact(world, lam)
    assert mean == pytest.approx(world.rewards[0] + world.gamma * true_values(world)[1] - world.values[0], abs=1e-12)
    assert variance == pytest.approx(sum_of_squares(world, lam), abs=1e-12)


@pytest.mark.parametrize("rollout", _examples())
def test_the_bias_is_made_of_the_critic_s_errors(rollout: Rollout) -> None:
    for row in simulated(rollout).rows:
        assert row.exact_bias == pytest.approx(sum_of_errors(world_of(rollout), row.lam), abs=1e-12)


def test_the_path_itself_is_the_example() -> None:
    rollout = worked()
    world = world_of(rollout)
    path = sample_of(world, len(world.rewards))
    assert list(path.rewards) == rollout.columns["rewards"]
    assert list(path.values) == rollout.columns["values"]
    lost = sample_of(world, 2)
    assert lost.rewards == (*world.rewards[:2], 0.0, 0.0, 0.0, 0.0)
    assert lost.values == (*world.values[:3], *(value / 2 for value in world.values[3:]))
    assert lost.after == 0.0


def test_it_is_the_same_every_time_and_another_with_another_seed() -> None:
    world = world_of(worked())
    assert drawn(world, 1000, 0) == drawn(world, 1000, 0)
    assert drawn(world, 1000, 0) != drawn(world, 1000, 1)
    assert simulated(worked()) == simulated(worked())
    assert sum(probabilities(world).values()) == pytest.approx(1.0)


def test_one_token_has_nothing_to_sample() -> None:
    simulation = simulated(typed({"rewards": [0.5], "values": [0.3]}))
    for row in simulation.rows:
        assert (row.bias, row.variance) == (0.0, 0.0)
        assert row.mean == pytest.approx(0.2)


def test_holes_are_stepped_over_and_long_rollouts_keep_their_end() -> None:
    holed = typed({"rewards": [0.0, 9, 0, 1], "values": [0.3, 9, 0.4, 0.6], "response_mask": [1.0, 0, 1, 1]})
    assert world_of(holed) == world_of(typed(THREE))
    length = 3 * LONGEST
    long = typed({"rewards": [0.0] * (length - 1) + [1.0], "values": [t / length for t in range(length)]})
    assert world_of(long).values == tuple(long.columns["values"][-LONGEST:])


def test_the_discount_is_the_example_s() -> None:
    assert world_of(changed(worked(), gamma=0.9)).gamma == 0.9
    assert world_of(changed(worked(), lam=0.5)) == world_of(worked())


def test_an_unsampled_mean_at_lambda_one_is_the_monte_carlo_advantage() -> None:
    world = world_of(worked())
    expected = 0.0
    for lost, chance in probabilities(world).items():
        sample = sample_of(world, lost)
        credit = reference.monte_carlo([sample.rewards], [sample.values], [[1] * 6], world.gamma, [sample.after])
        expected += chance * credit.advantages[0][0]
    assert exact(world, 1.0)[0] == pytest.approx(expected, abs=1e-12)
