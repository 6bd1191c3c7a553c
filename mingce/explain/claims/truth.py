"""What the numbers should be: the float64 twins (algorithms/reference.py) on the numbers a text gives.

Rows are tuples, so that what was worked out once is remembered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from mingce.algorithms import reference
from mingce.specs import KL_KINDS

Rows = tuple[tuple[float, ...], ...]
COMMON_GAMMAS = (1.0, 0.99, 0.95, 0.9, 0.98, 0.995, 0.97, 0.999, 0.8, 0.5)
COMMON_LAMS = (0.95, 1.0, 0.9, 0.97, 0.98, 0.99, 0.8, 0.5, 0.0)
COMMONEST = ((1.0, 0.95), (0.99, 0.95), (1.0, 1.0), (0.99, 1.0))
"""The pairs (γ, λ) that are offered when no pair gives the numbers of a text."""
COMMON_BETAS = (0.1, 0.01, 0.001, 0.05, 0.02, 0.2, 0.5, 0.005, 0.04, 1.0)
KL_ESTIMATORS = tuple(KL_KINDS)


def _mask(rows: Rows) -> list[list[int]]:
    return [[1] * len(row) for row in rows]


@lru_cache(maxsize=65536)
def credit(rewards: Rows, values: Rows, gamma: float, lam: float, after: tuple[float, ...]) -> dict[str, Rows]:
    """Deltas, advantages and returns by GAE; `after` is the value behind each row's last token."""
    found = reference.gae(rewards, values, _mask(rewards), gamma, lam, after)
    return {"deltas": _rows(found.deltas), "advantages": _rows(found.advantages), "returns": _rows(found.returns)}


@lru_cache(maxsize=4096)
def credit_slack(
    shape: tuple[int, ...], gamma: float, lam: float, reward_unit: float, value_unit: float
) -> dict[str, Rows]:
    """How far deltas, advantages and returns may be off when rewards and values are shown rounded to these units."""
    half_r, half_v = reward_unit / 2, value_unit / 2
    zeros = tuple((0.0,) * n for n in shape)
    ahead = credit(
        tuple((half_r + gamma * (1 - lam) * half_v,) * n for n in shape), zeros, gamma, lam, (0.0,) * len(shape)
    )
    returns = ahead["advantages"]
    return {
        "deltas": tuple((half_r + (1 + gamma) * half_v,) * n for n in shape),
        "advantages": tuple(tuple(x + half_v for x in row) for row in returns),
        "returns": returns,
    }


@lru_cache(maxsize=4096)
def monte_carlo_returns(rewards: Rows, gamma: float) -> Rows:
    """G of each token, from rewards alone."""
    nothing = [[0.0] * len(row) for row in rewards]
    return _rows(reference.monte_carlo(rewards, nothing, _mask(rewards), gamma).returns)


@lru_cache(maxsize=4096)
def advantages_from_deltas(deltas: Rows, decay: float) -> Rows:
    """A_t = δ_t + γλ·A_{t+1} where only the δ are given; `decay` is γλ."""
    return tuple(tuple(reference.discounted_sum(row, decay)) for row in deltas)


def rewards(scores: Rows, kl: Rows, beta: float) -> Rows:
    """r = score − β·KL."""
    return _rows(reference.kl_rewards(scores, kl, _mask(scores), beta))


def kl(old: Rows, ref: Rows, estimator: str = "k1") -> Rows:
    """KL of each token by one of KL_ESTIMATORS."""
    return tuple(
        tuple(reference.kl_penalty(a, b, estimator) for a, b in zip(one, other, strict=True))
        for one, other in zip(old, ref, strict=True)
    )


def probabilities(log_probs: Rows) -> Rows:
    """exp of log-probabilities."""
    return tuple(tuple(math.exp(min(x, 700.0)) for x in row) for row in log_probs)


def ratios(old: Rows, new: Rows) -> Rows:
    """π_new/π_old."""
    return tuple(
        tuple(reference.policy_term(a, b, 0.0).ratio for a, b in zip(one, other, strict=True))
        for one, other in zip(old, new, strict=True)
    )


def mean(rows: Rows) -> float:
    return reference.masked_mean(rows, _mask(rows))


def deviation(rows: Rows, unbiased: bool) -> float:
    """The standard deviation over all tokens, with n − 1 (Bessel) or n below."""
    return math.sqrt(reference.masked_var(rows, _mask(rows), unbiased))


def whitened(rows: Rows, unbiased: bool) -> Rows | None:
    """(A − μ)/σ over all tokens; None if they are all equal."""
    bessel, wanted = deviation(rows, True), deviation(rows, unbiased)
    if not wanted:
        return None
    standard = reference.masked_whiten(rows, _mask(rows))
    exact = math.sqrt(bessel**2 + 1e-8)  # the twin adds 1e-8 to the variance; a dialogue's numbers do without
    return tuple(tuple(x * exact / wanted for x in row) for row in standard)


def whitened_with(rows: Rows, mu: float, sigma: float) -> Rows:
    """(A − μ)/σ with a μ and σ as a text shows them."""
    shift, scale = mean(rows) - mu, sigma
    exact = whitened(rows, False)
    assert exact is not None
    spread = deviation(rows, False)
    return tuple(tuple((x * spread + shift) / scale for x in row) for row in exact)


def plus(one: Rows, other: Rows, sign: int = 1) -> Rows:
    """Two columns added, or with sign −1 the second taken from the first."""
    return tuple(tuple(a + sign * b for a, b in zip(x, y, strict=True)) for x, y in zip(one, other, strict=True))


def _rows(matrix: Sequence[Sequence[float]]) -> Rows:
    return tuple(tuple(row) for row in matrix)
