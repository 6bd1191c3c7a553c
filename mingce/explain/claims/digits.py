"""Which numbers of a text are exact and which are rounded: 0.3 is a number somebody chose, 0.6211 was worked out."""

from __future__ import annotations

from collections.abc import Iterable

from mingce.explain.claims.expressions import Number

ROUNDED_DIGITS = 3
"""From so many decimals and significant digits on a number is taken to be rounded."""


def seems_rounded(number: Number) -> bool:
    """True if a number has so many digits that more may have been cut off."""
    if number.decimals < ROUNDED_DIGITS or not number.value:
        return False
    digits = f"{abs(number.value):.{number.decimals}f}".replace(".", "").lstrip("0")
    return len(digits) >= ROUNDED_DIGITS


def unit_of_rounded(numbers: Iterable[Number]) -> float:
    """One unit of the last digit of a list that seems to be rounded, else 0."""
    decimals = max((number.decimals for number in numbers if seems_rounded(number)), default=0)
    return float(10.0**-decimals) if decimals else 0.0
