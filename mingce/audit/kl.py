"""The kinds of KL on whole columns, by the definitions of `mingce.specs.kl`."""

from __future__ import annotations

import numpy as np

from mingce.audit.evidence import Floats
from mingce.specs.kl import KL_KINDS

LARGEST = 20.0
"""Differences of log-probs beyond this are held there, so that no exponential overflows."""


def kl_estimates(x: Floats, *, clamp: bool = False) -> dict[str, Floats]:
    """Every kind of KL of x = log π − log π_ref; with `clamp` within the limits that verl sets."""
    estimates = {}
    for kind in KL_KINDS.values():
        with np.errstate(all="ignore"):
            held = x if kind.verl_clamp is None else np.clip(x, -LARGEST, LARGEST)
            estimate = kind.twin(held) + (0 if kind.verl_clamp is None else x - held)
        limit = kind.verl_clamp if clamp else None
        estimates[kind.name] = estimate if limit is None else np.clip(estimate, -limit, limit)
    return estimates


def kl_slopes(x: Floats) -> dict[str, Floats]:
    """|dk/dx| of every kind, by central differences: how much a rounded log-prob moves it."""
    step = 1e-6
    above, below = kl_estimates(x + step), kl_estimates(x - step)
    with np.errstate(all="ignore"):
        return {name: np.abs(above[name] - below[name]) / (2 * step) for name in above}
