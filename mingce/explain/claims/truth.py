"""What the numbers should be: the float64 twins (algorithms/reference.py) on the numbers a text gives.

Rows are tuples, so that what was worked out once is remembered.
"""

from __future__ import annotations

import math
from functools import lru_cache

from mingce.algorithms import reference
from mingce.specs import KL_KINDS

Rows = tuple[tuple[float, ...], ...]
COMMON_GAMMAS = (1.0, 0.99, 0.95, 0.9, 0.98, 0.995, 0.97, 0.999, 0.8, 0.5)
COMMON_LAMS = (0.95, 1.0, 0.9, 0.97, 0.98, 0.99, 0.8, 0.5, 0.0)
COMMONEST = ((1.0, 0.95), (0.99, 0.95), (1.0, 1.0), (0.99, 1.0))
"""The pairs (γ, λ) that are offered when no pair gives the numbers of a text."""
KL_ESTIMATORS = tuple(KL_KINDS)


def _mask(rows: Rows) -> list[list[int]]:
    return [[1] * len(row) for row in rows]


def _rows(matrix: list[list[float]]) -> Rows:
    return tuple(tuple(row) for row in matrix)


@lru_cache(maxsize=65536)
def credit(rewards: Rows, values: Rows, gamma: float, lam: float, after: tuple[float, ...]) -> dict[str, Rows]:
    """Deltas, advantages and returns by GAE; `after` is the value behind each row's last token."""
    gae = reference.gae(rewards, values, _mask(rewards), gamma, lam, after)
    return {"deltas": _rows(gae.deltas), "advantages": _rows(gae.advantages), "returns": _rows(gae.returns)}


@lru_cache(maxsize=4096)
def credit_slack(
    shape: tuple[int, ...], gamma: float, lam: float, reward_unit: float, value_unit: float
) -> dict[str, Rows]:
    """How far deltas, advantages and returns may be off when rewards and values are shown rounded to these units."""
    half_r, half_v = reward_unit / 2, value_unit / 2
    step = half_r + gamma * (1 - lam) * half_v
    returns = discounted(tuple((step,) * n for n in shape), gamma * lam)
    return {
        "deltas": tuple((half_r + (1 + gamma) * half_v,) * n for n in shape),
        "advantages": tuple(tuple(x + half_v for x in row) for row in returns),
        "returns": returns,
    }


@lru_cache(maxsize=4096)
def discounted(rows: Rows, decay: float) -> Rows:
    """x_t + decay·x_{t+1} + decay²·x_{t+2} + … for every token: returns of rewards, advantages of TD errors."""
    return tuple(tuple(reference.discounted_sum(row, decay)) for row in rows)


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


def plus(one: Rows, other: Rows, sign: int = 1) -> Rows:
    """Two columns added, or with sign −1 the second taken from the first."""
    return tuple(tuple(a + sign * b for a, b in zip(x, y, strict=True)) for x, y in zip(one, other, strict=True))


def mean(rows: Rows) -> float:
    return reference.masked_mean(rows, _mask(rows))


def deviation(rows: Rows, unbiased: bool) -> float:
    """The standard deviation over all tokens, with n − 1 (Bessel) or n below."""
    return math.sqrt(reference.masked_var(rows, _mask(rows), unbiased))


def standardised(rows: Rows, mu: float, sigma: float) -> Rows:
    """(A − μ)/σ."""
    return tuple(tuple((x - mu) / sigma for x in row) for row in rows)
