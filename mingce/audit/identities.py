"""Three identities that tokens drawn from q and scored by p obey without any model at hand.

    I1  E[exp(log p − log q)] = 1      below 1: q is truncated; above 1: log q is not what was drawn from
    I2  E[log q − log p] ≥ 0           it is KL(q‖p)
    I3  E[−log p] = E[H(p)]            when the tokens were drawn from p itself

Given the past, each term less its right-hand side has mean 0, so sums over the tokens of a response are martingales and
their z-scores hold although the tokens depend on one another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mingce.audit.evidence import Bools, Floats

SURE = 5.0  # |z| from which a statistic counts
CAP = 4.0  # exp(d) counts at most this much: one outlier must not decide, and a cap can only lower an excess


@dataclass(frozen=True)
class Mean:
    """A mean over tokens and how many standard errors it lies from 0."""

    mean: float
    z: float


def mean(term: Floats, use: Bools) -> Mean:
    """The mean of `term` [B, T] where `use`, with the larger of the errors over tokens and over rows."""
    seen = np.where(use, term, 0.0)
    total = int(use.sum())
    if total < 2:
        return Mean(0.0, 0.0)
    average = float(seen.sum()) / total
    centred = np.where(use, term - average, 0.0)
    rows = centred.sum(axis=1)
    error = float(np.sqrt(max((centred**2).sum(), (rows**2).sum() if (use.any(axis=1)).sum() >= 16 else 0.0))) / total
    return Mean(average, average / error if error > 0 else 0.0)


@dataclass(frozen=True)
class Gap:
    """What d = log p − log q shows on tokens drawn from q."""

    size: float  # mean |d|
    p95: float
    largest: float
    outside: float  # share of exp(d) outside [0.9, 1.1]
    ratio: Mean  # I1: exp(d) − 1, capped from above
    reverse: Mean  # I2: −d, held within ±2
    top: float  # the 95th percentile of d itself
    up: float  # mean of max(d, 0)²
    down: float  # mean of max(−d, 0)²

    @property
    def truncated(self) -> bool:
        """q kept only a part of p's vocabulary: d = log of the kept mass, never above 0 but for noise."""
        one_sided = self.up < 0.25 * self.down and self.top < 0.5 * self.size  # another policy has tails on both sides
        return self.ratio.z < -SURE and self.ratio.mean < -0.005 and one_sided

    @property
    def not_drawn_from(self) -> bool:
        """log q is not what the tokens were drawn from."""
        return self.ratio.z > SURE and self.ratio.mean > 0.004 and self.reverse.z < -SURE and self.reverse.mean < -0.002


def gap(p: Floats, q: Floats, use: Bools) -> Gap:
    """The statistics of log p − log q where `use`."""
    d = np.where(use, p - q, 0.0)
    seen = d[use]
    size = np.abs(seen)
    weight = np.minimum(np.exp(np.clip(d, -50.0, 50.0)), CAP)
    ratio = weight[use]
    return Gap(
        float(size.mean()),
        float(np.quantile(size, 0.95)),
        float(size.max()),
        float(((ratio < 0.9) | (ratio > 1.1)).mean()),
        mean(weight - 1.0, use),
        mean(-np.clip(d, -2.0, 2.0), use),
        float(np.quantile(seen, 0.95)),
        float((np.maximum(seen, 0.0) ** 2).mean()),
        float((np.minimum(seen, 0.0) ** 2).mean()),
    )


def explained(d: Floats, *causes: Floats) -> float:
    """R² of d on a straight line through the causes: near 1 when one temperature turns p into q."""
    spread = float(((d - d.mean()) ** 2).sum())
    if spread <= 1e-12:
        return 0.0
    design = np.stack([np.ones_like(d), *causes], axis=1)
    solution = np.linalg.lstsq(design, d, rcond=None)[0]
    return 1.0 - float(((d - design @ solution) ** 2).sum()) / spread


def surprise(p: Floats, entropy: Floats, use: Bools) -> Mean:
    """I3: −log p − H, a single token counting at most 12 nats.

    Its error is at least what p itself says: where nearly every draw is the one likely token, the rare others are not
    among the tokens seen, though the entropy counts them.
    """
    found = mean(np.minimum(-p, 12.0) - entropy, use)
    chance = np.clip(np.exp(np.where(use, p, -np.inf)), 0.0, 1.0 - 1e-12)
    likely = use & (chance > 0.5)
    spread = np.where(
        likely, chance * (1 - chance) * np.log(chance / (1 - chance), where=likely, out=np.zeros_like(chance)) ** 2, 0.0
    )
    least = float(np.sqrt(spread.sum())) / max(int(use.sum()), 1)
    return Mean(
        found.mean, min(abs(found.z), abs(found.mean) / least) * float(np.sign(found.z)) if least > 0 else found.z
    )
