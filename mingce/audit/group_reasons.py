"""Comparisons within groups that nobody means: with another baseline than the mean, or of another outcome."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mingce.audit.comparisons import Compared, Outcome, compare
from mingce.audit.evidence import Floats
from mingce.audit.finding import Fault, Finding, Place, phrase
from mingce.audit.group_batch import Batch
from mingce.audit.steps_of_credit import SURE
from mingce.specs.comparisons import MEAN, WITHIN

OTHER_BASELINE = Fault.of("group-other-baseline", "suspicious", (1,), "A_i = x_i − mean of its group", "")
OTHER_X = Fault.of("group-of-other-outcome", "suspicious", (1, 33), "A_i = f(x_i, rows of the same prompt)", "")
MOST_ROWS = 4096

_BASELINES: dict[str, Callable[[Floats], float]] = {
    "audit.base_smallest": lambda x: float(x.min()),
    "audit.base_largest": lambda x: float(x.max()),
    "audit.base_first": lambda x: float(x[0]),
    "audit.base_last": lambda x: float(x[-1]),
    "audit.base_median": lambda x: float(np.median(x)),
    "audit.base_lower_median": lambda x: float(np.sort(x)[(len(x) - 1) // 2]),
}


def _spread(b: Batch, x: Floats, of: Callable[[Floats], float]) -> Floats:
    """[B] a statistic of each prompt's outcomes, for each of its rows."""
    made = np.array([of(x[b.part == one]) for one in range(int(b.part.max(initial=-1)) + 1)])
    spread: Floats = made[b.part]
    return spread


def other_baseline(b: Batch) -> Finding | None:
    """x less another number of its group than the mean: the smallest, the largest, the first, the middle one."""
    if len(b.part) > MOST_ROWS:
        return None
    for x in b.outcomes:
        deviation = np.maximum(_spread(b, x.x, lambda rows: float(rows.std(ddof=1)) if len(rows) > 1 else 1.0), 1e-9)
        for key, of in _BASELINES.items():
            gap = x.x - _spread(b, x.x, of)
            if np.allclose(gap, 0):
                continue
            for unit in (np.ones_like(gap), deviation):
                room = (2 * SURE * x.error + 1e-5 * np.abs(x.x)) / unit + 2e-4 * np.abs(gap / unit) + 1e-6
                if not b.misses(Compared(gap / unit, room)).any():
                    return Finding(OTHER_BASELINE, b.column, phrase("what", key), _places(b, x))
    return None


def other_outcome(b: Batch) -> Finding | None:
    """A known comparison, but of another outcome: over or times the row's length, of another row, cut …"""
    lengths = np.maximum(b.lengths, 1).astype(np.float64)
    for x in b.outcomes:
        tries = {
            "audit.outcome_over_length": (x.x / lengths, x.error / lengths),
            "audit.outcome_times_length": (x.x * lengths, x.error * lengths),
            "audit.outcome_of_next_row": (np.roll(x.x, -1), np.roll(x.error, -1)),
            "audit.outcome_of_previous_row": (np.roll(x.x, 1), np.roll(x.error, 1)),
            "audit.outcome_magnitude": (np.abs(x.x), x.error), "audit.outcome_whole": (np.trunc(x.x), x.error),
            "audit.outcome_square": (x.x**2, 2 * np.abs(x.x) * x.error),
            "audit.outcome_sign": (np.sign(x.x), 0 * x.error),
        }  # fmt: skip
        for key, (numbers, error) in tries.items():
            if np.allclose(numbers, x.x):
                continue
            for formula in WITHIN:
                made = compare(Outcome(x.name, numbers, error), b.part, formula, b.lengths, b.e.coarse)
                if made.tells(b.found) and not b.misses(made).any():
                    classes = (37, 1) if "row" in key else None
                    said = phrase("what", key) | {"how": formula}
                    return Finding(OTHER_X, b.column, said, _places(b, x), classes=classes)
    return None


def _places(b: Batch, x: Outcome) -> tuple[Place, ...]:
    return b.places(compare(x, b.part, MEAN, b.lengths, b.e.coarse).numbers, b.judged)
