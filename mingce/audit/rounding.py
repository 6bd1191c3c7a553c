"""How far a stored number may lie from the one a trainer computed with: the format of each column, and its rounding.

A column that was rounded to 16 bits says what it says to two or three digits only. Checks add up the errors of the
columns they read (`Evidence.error`) through what they compute, and call wrong what is farther off than that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

HALF = ("bfloat16", "float16")
UNITS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-21}
"""The largest relative error of one rounding; of single precision, that of the few that a computation makes."""
SMALLEST = {"bfloat16": 0.0, "float16": 2.0**-25, "float32": 0.0}
"""The largest absolute error near 0, where a format has no more digits."""
VARIED = 8  # so many different numbers must sit on a grid before it means anything
SEEN = 4096  # numbers among which they are counted
Floats = NDArray[np.float64]


def kind_of(numbers: NDArray[Any]) -> str | None:
    """The coarsest format that holds all the numbers; None when they are too few different ones to say so."""
    seen = numbers[np.isfinite(numbers) & (numbers != 0)]
    if seen.dtype not in (np.float32, np.float64) or _telling(seen) < VARIED:
        return None
    return next((kind for kind in HALF if fits(seen, kind)), "float32")


def coarsest(numbers: NDArray[Any], others: Iterable[str] = ()) -> str:
    """The coarsest format that numbers may have been rounded to: one that all of them fit, and that is heard of.

    That is, that other columns of the dump have, or that some number tells of.
    """
    seen = numbers[np.isfinite(numbers) & (numbers != 0)]
    heard = HALF if len(seen) and _telling(seen) else tuple(others)
    return next((kind for kind in HALF if kind in heard and fits(seen, kind)), "float32")


def _telling(seen: NDArray[Any]) -> int:
    """How many different numbers are not on every grid, as counts, marks and halves are."""
    return int((np.mod(8 * np.unique(seen[:SEEN]), 1) != 0).sum())


def fits(numbers: NDArray[Any], kind: str) -> bool:
    """Whether a 16-bit format holds every one of the numbers."""
    if numbers.dtype == np.float64:
        with np.errstate(over="ignore"):
            narrow = numbers.astype(np.float32)
        if not np.array_equal(narrow.astype(np.float64), numbers):
            return False
        numbers = narrow
    if numbers.dtype != np.float32:
        return False
    spare = np.uint32(0xFFFF if kind == "bfloat16" else 0x1FFF)
    return not np.any(np.ascontiguousarray(numbers).view(np.uint32) & spare)


def error_of(numbers: Floats, kind: str) -> Floats:
    """The largest error that rounding to the format has made in each number."""
    found: Floats = UNITS[kind] * np.abs(numbers) + SMALLEST[kind]
    return found
