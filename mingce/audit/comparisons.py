"""The ways in which trainers compare a response's outcome x with those of the other samples: one number a row.

Each comes with how far rounding may have moved it, row by row: the error of x through the mean, and through the
deviation it is divided by. A deviation that rounding alone could make says nothing, and its rows are left open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mingce.audit.evidence import Bools, Floats, Ints
from mingce.audit.steps_of_credit import SURE
from mingce.specs.comparisons import (
    BEST,
    BEST_STD,
    CLEAN,
    GPG,
    ITSELF,
    MEAN,
    OTHERS,
    STD,
    WEIGHTED,
    WHITENED,
    WHITENED_ROWS,
)  # fmt: skip

LARGEST_EPSILON = 1e-4  # that trainers add to the deviation
OPEN = 0.7  # what rounding noise over almost no deviation may give in single precision


@dataclass(frozen=True)
class Outcome:
    """One number a row, and how far rounding may have moved it."""

    name: str
    x: Floats
    error: Floats

    def of(self, rows: Ints) -> Outcome:
        return Outcome(self.name, self.x[rows], self.error[rows])


@dataclass(frozen=True)
class Compared:
    """What a formula gives, and how far a stored number may be from it."""

    numbers: Floats
    room: Floats

    def misses(self, found: Floats, error: Floats) -> Bools:
        return np.asarray(np.abs(self.numbers - found) > self.room + SURE * error)

    def of(self, rows: Ints) -> Compared:
        return Compared(self.numbers[rows], self.room[rows])

    def tells(self, found: Floats) -> bool:
        """Whether it says anything of some rows: not where it divides by what rounding alone could make, or by less
        than what is added to it."""
        sure = self.room < 0.5 * np.abs(self.numbers)
        return int((sure & (self.room < 0.3 * np.abs(found).max(initial=0.0))).sum()) >= 2


class Groups:
    """Sums over the rows of each part, for every row."""

    def __init__(self, part: Ints):
        self.part = part
        self.parts = int(part.max(initial=-1)) + 1
        self.size = self.sum(np.ones(len(part)))

    def sum(self, x: Floats) -> Floats:
        sums: Floats = np.bincount(self.part, x, self.parts)[self.part].astype(np.float64)
        return sums

    def mean(self, x: Floats) -> Floats:
        return self.sum(x) / self.size

    def top(self, x: Floats) -> tuple[Floats, Bools]:
        """[B] the best less the second best of each part, and which row is the best."""
        order = np.lexsort((-x, self.part))
        first = np.ones(len(x), bool)
        first[1:] = self.part[order][1:] != self.part[order][:-1]
        ahead = np.zeros(len(x))
        starts = np.flatnonzero(first)
        several = starts[self.size[order[starts]] > 1]
        ahead[order[several]] = x[order[several]] - x[order[several + 1]]
        best = np.zeros(len(x), bool)
        best[order[starts]] = True
        return ahead, best


def compare(x: Outcome, part: Ints, formula: str, lengths: Ints, coarse: bool) -> Compared:
    """The outcomes by a formula within the parts; 0 for a row that is alone in its part, but for x itself."""
    for after, counted in ((WHITENED, lengths), (WHITENED_ROWS, np.ones_like(lengths))):
        if formula.endswith(after):
            return whitened(compare(x, part, formula.removesuffix(after), lengths, coarse), counted)
    g = Groups(part)
    noise = x.error + g.mean(x.error)
    if formula == ITSELF:
        return Compared(x.x, SURE * x.error + 1e-6 * np.abs(x.x))
    if formula == WEIGHTED:
        share = lengths / np.maximum(g.sum(lengths.astype(np.float64)), 1)
        gap = x.x - g.sum(share * x.x)
    else:
        gap = x.x - g.mean(x.x)
    gap = np.where(g.size > 1, gap, 0.0)
    size = g.mean(np.abs(x.x)) + np.abs(x.x)
    if formula in (BEST, BEST_STD):
        gap = g.top(x.x)[0]
    plain = Compared(gap, SURE * noise + 2e-6 * size)
    if formula in (MEAN, WEIGHTED, BEST):
        return plain
    if formula == OTHERS:
        return _times(plain, g.size / np.maximum(g.size - 1, 1))
    if formula == GPG:
        return _times(plain, np.full(len(gap), len(gap) / max(int(np.count_nonzero(x.x)), 1)))
    one = Groups(np.zeros_like(part))
    over, bessel = (one if "batch" in formula else g), "biased" not in formula
    return _divided(plain, *_deviation(x, over, bessel), coarse)


def _times(c: Compared, factor: Floats) -> Compared:
    return Compared(c.numbers * factor, c.room * np.abs(factor))


def _deviation(x: Outcome, over: Groups, bessel: bool) -> tuple[Floats, Floats]:
    """The deviation of each row's part, and how far rounding may have moved it."""
    gap = x.x - over.mean(x.x)
    count = np.maximum(over.size - bessel, 1)
    noise = np.sqrt(over.mean(np.square(x.error))) + 1e-7 * over.mean(np.abs(x.x))
    return np.sqrt(over.sum(gap * gap) / count), noise


def _divided(c: Compared, std: Floats, noise: Floats, coarse: bool) -> Compared:
    sure = std > 3 * noise
    safe = np.where(sure, std, 1.0)
    numbers = np.where(sure, c.numbers / safe, 0.0)
    loose = SURE * np.minimum(noise / safe, 1.0) + LARGEST_EPSILON / (safe + LARGEST_EPSILON) + 1e-5
    room = c.room / safe + np.abs(numbers) * loose
    return Compared(numbers, np.where(sure, room, np.inf if coarse else OPEN))


def whitened(c: Compared, lengths: Ints) -> Compared:
    """With each row counted as often as it has tokens."""
    count = max(int(lengths.sum()), 1)
    mean = float(c.numbers @ lengths) / count
    variance = float(np.square(c.numbers - mean) @ lengths) / max(count - 1, 1)
    room = np.where(c.room < OPEN, c.room, 0.0)
    noise = float(room @ lengths) / count
    std = (variance + 1e-8) ** 0.5
    numbers = (c.numbers - mean) / std
    loose = min(2 * noise / std, 1.0) + min(LARGEST_EPSILON / std, 0.5) + 2e-5
    spread = (c.room + noise) / std + np.abs(numbers) * loose
    return Compared(numbers, spread if variance > 9 * noise**2 else np.full(len(numbers), np.inf))


def clean_ways(x: Outcome, part: Ints, lengths: Ints, coarse: bool) -> Iterator[tuple[str, Compared]]:
    """Every comparison that some trainer means, by its formula."""
    after = (*(base + WHITENED for base in (MEAN, STD, OTHERS, ITSELF)), STD + WHITENED_ROWS, OTHERS + WHITENED_ROWS)
    for formula in (*CLEAN, *after):
        yield formula, compare(x, part, formula, lengths, coarse)
