"""One price for a column: β in y = β·k, by the weighted median of y/k, which half of the tokens cannot mislead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mingce.audit.evidence import Bools, Floats, finite
from mingce.audit.kl import Penalty

SLACK = 1e-3  # of the penalty itself, for what a trainer computes in another order
SPREADS = 4.0  # of the error that rounding makes
LARGEST_SAMPLE = 20000


@dataclass(frozen=True)
class Sample:
    """The judged tokens as vectors: what is to be explained, the penalty, and the rounding errors of both."""

    y: Floats
    k: Floats
    y_error: Floats
    k_error: Floats

    @classmethod
    def of(cls, y: Floats, penalty: Penalty, where: Bools, error: Floats) -> Sample:
        at = np.flatnonzero(where)
        at = at[:: max(1, len(at) // LARGEST_SAMPLE)]
        return cls(y.flat[at], penalty.column.flat[at], error.flat[at], penalty.room.flat[at])

    def room(self, beta: float, slack: float = SLACK) -> Floats:
        return SPREADS * (self.y_error + abs(beta) * self.k_error) + slack * np.abs(beta * self.k) + 1e-12


@dataclass(frozen=True)
class Fit:
    """β and how well it explains the sample.

    `explained` is the share of the tokens that say something, `left` what it leaves there, in rooms, `missed` the share
    of all tokens that it does not explain, `doubt` how far β itself may be off, relative to it. A fit is `weak` where
    rounding hides the penalty on nearly every token that holds one.
    """

    beta: float
    explained: float
    left: float
    missed: float
    doubt: float
    weak: bool


def fit_beta(sample: Sample, slack: float = SLACK) -> Fit:
    """The β that explains most tokens."""
    beta = weighted_median(sample.y, sample.k)
    for _ in range(2):
        near = np.abs(sample.y - beta * sample.k) <= 3 * sample.room(beta, slack)
        power = float(np.square(sample.k[near]).sum())
        if near.sum() < 4 or power == 0:
            break
        beta = float((sample.y[near] * sample.k[near]).sum()) / power
    room, doubt = sample.room(beta, slack), _doubt(sample, beta)
    telling = (np.abs(sample.y) > room) | (np.abs(beta * sample.k) > room)
    weak = telling.sum() < 0.1 * (np.abs(sample.y) > SPREADS * sample.y_error).sum()
    if not telling.any():
        return Fit(beta, 1.0, 0.0, 0.0, doubt, bool(weak))
    gap = np.abs(sample.y - beta * sample.k)[telling] / room[telling]
    left, missed = float(np.sqrt(np.mean(np.minimum(gap, 100.0) ** 2))), float((gap > 1).sum() / len(room))
    return Fit(beta, float((gap <= 1).mean()), left, missed, doubt, bool(weak))


def _doubt(sample: Sample, beta: float) -> float:
    """What rounding leaves of β's certainty: it flattens the slope, and scatters the points."""
    power = float(np.square(sample.k).sum())
    if power == 0 or beta == 0:
        return np.inf
    scatter = (np.square(sample.k) * (np.square(sample.k_error) + np.square(sample.y_error / beta))).sum()
    return float(np.square(sample.k_error).sum() / 3 + 3 * np.sqrt(scatter)) / power


def weighted_median(y: Floats, k: Floats) -> float:
    """The β with the least Σ|y − βk|; 0 where every k is 0."""
    seen = np.abs(k) > 1e-9 * max(float(np.abs(k).max(initial=0.0)), 1e-300)
    if not seen.any():
        return 0.0
    with np.errstate(all="ignore"):
        ratio, weight = finite(y[seen] / k[seen]), np.abs(k[seen])
    order = np.argsort(ratio)
    middle = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
    return float(ratio[order][min(int(middle), len(order) - 1)])
