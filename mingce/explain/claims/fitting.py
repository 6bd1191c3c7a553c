"""How well a list fits what it should be under one reading."""

from __future__ import annotations

from dataclasses import dataclass

from mingce.explain.claims.expected import Expected
from mingce.explain.claims.facts import Series
from mingce.explain.claims.rounding import agrees, aligned, fits, most_decimals, same_shape
from mingce.explain.claims.truth import Rows

Place = tuple[int, int]
"""(row, token)."""


@dataclass(frozen=True)
class Fit:
    """A reading and where a series disagrees with it."""

    reading: Expected
    wrong: tuple[Place, ...]
    total: int
    error: float
    loose: bool = False

    @property
    def hits(self) -> int:
        return self.total - len(self.wrong)


def fit_of(series: Series, reading: Expected) -> Fit:
    decimals, off = most_decimals(series.rows), reading.off
    compared = list(aligned(series, reading.rows))
    apart = [(b, t, number, should) for b, t, number, should in compared if not agrees(number, should, decimals)]
    wrong = tuple(
        (b, t)
        for b, t, n, should in apart
        if off is None or not fits(n, should, off[b][t], reading.most_units, decimals)
    )
    error = sum((number.value - should) ** 2 for _, _, number, should in compared)
    return Fit(reading, wrong, len(compared), error, len(wrong) < len(apart))


def is_that(series: Series, rows: Rows) -> bool:
    """True if a series is these numbers."""
    return same_shape(series, rows) and not fit_of(series, Expected(series.kind, rows, "")).wrong
