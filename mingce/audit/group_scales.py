"""Comparisons with the right mean and a divisor of each group's own that is not the group's deviation."""

from __future__ import annotations

import numpy as np

from mingce.audit.comparisons import Groups, Outcome
from mingce.audit.evidence import Floats
from mingce.audit.finding import Fault, Finding, phrase
from mingce.audit.group_batch import Batch
from mingce.audit.steps_of_credit import SURE
from mingce.specs.comparisons import WITHIN_PROMPT

SCALES = Fault.of("group-scales-differ", "suspicious", (1, 30), "A_i = (x_i − mean_g)/std_g", "")
TELLING = 3  # different outcomes that a group needs, so that a straight line through them is no chance
LEAST_GROUPS = 3
NEAR = 2e-3  # of a deviation


def scales_differ(b: Batch) -> Finding | None:
    """In each group a multiple of x − mean, by factors that no known divisor gives."""
    if b.e.coarse:
        return None
    for x in b.outcomes:
        factors = _factors(b, x)
        if factors is None:
            continue
        groups, factor, deviation = factors
        others = all(_of_another(one, factor, deviation) for one in range(len(groups)))
        said = phrase("what", "audit.scale_of_other_group" if others else "audit.scale_unknown")
        size = factor * deviation
        values = {"low": float(size.min()), "high": float(size.max()), **said}
        wrong = b.judged & (np.abs(b.found) > 0)
        places = b.places((x.x - Groups(b.part).mean(x.x)) / np.maximum(_spread(b, x), 1e-12), wrong)
        return Finding(SCALES, b.column, values, places)
    return None


def _spread(b: Batch, x: Outcome) -> Floats:
    """[B] the deviation of each row's group."""
    g = Groups(b.part)
    gap = x.x - g.mean(x.x)
    return np.asarray(np.sqrt(g.sum(gap * gap) / np.maximum(g.size - 1, 1)))


def _factors(b: Batch, x: Outcome) -> tuple[list[int], Floats, Floats] | None:
    """The groups that tell, the factor of each, and its deviation; None where they are no multiples."""
    g, spread = Groups(b.part), _spread(b, x)
    gap = x.x - g.mean(x.x)
    power = g.sum(gap * gap)
    sure = (power > 1e-12) & (spread > SURE * (x.error + 1e-9))
    factor = np.where(sure, g.sum(gap * b.found) / np.where(sure, power, 1.0), 0.0)
    room = 1e-4 * (np.abs(b.found) + np.abs(factor) * spread) + SURE * (b.error + np.abs(factor) * 2 * x.error) + 1e-7
    if (np.abs(b.found - factor * gap) > room)[b.judged].any():
        return None
    named = b.e.settings.estimator in WITHIN_PROMPT and b.e.dump.source != "trl_grpo"
    first = [int(np.flatnonzero(b.part == one)[0]) for one in np.unique(b.part[sure])]
    telling = [row for row in first if len(np.unique(x.x[b.part == b.part[row]].round(9))) >= TELLING]
    groups = first if named else telling
    if len(telling) < LEAST_GROUPS and not (named and len(groups) >= LEAST_GROUPS):
        return None
    factors, deviation = factor[groups], spread[groups]
    if (factors <= 0).any():
        return None
    plain = min(float(np.ptp(factors * by) / (factors * by).mean()) for by in (1.0, deviation))
    return (groups, factors, deviation) if plain > 1e-2 else None


def _of_another(one: int, factor: Floats, deviation: Floats) -> bool:
    """Whether the divisor is the deviation of another group."""
    near = np.abs(factor[one] * deviation - 1) < NEAR
    near[one] = False
    return bool(near.any())
