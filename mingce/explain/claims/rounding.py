"""When a number shown agrees with the number it should be: the digits shown decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mingce.explain.claims.expressions import Binary, Call, Listing, Negative, Node, Number, evaluate
from mingce.explain.claims.quantities import Row, Series
from mingce.explain.claims.truth import COMMON_GAMMAS, COMMON_LAMS, Rows

Slots = tuple[int, ...] | None
FLOAT_NOISE = 1e-9
HALF = 0.5005
"""Half a unit, and what rounding first to three decimals more, as base/numbers does, may add."""
LEAST_DECIMALS = 2
ROUNDED_DIGITS = 3
"""From so many decimals and significant digits on a number is taken to be rounded: 0.3 is exact, 0.6211 is not."""
EXACT = frozenset({*COMMON_GAMMAS, *COMMON_LAMS, 0.1, 0.2, 0.01})
"""Factors that stand in a formula as settings, not as something rounded."""


def seems_rounded(number: Number) -> bool:
    """True if a number has so many digits that more may have been cut off."""
    if number.decimals < ROUNDED_DIGITS or not number.value:
        return False
    return (
        number.decimals > ROUNDED_DIGITS
        or len(f"{abs(number.value):.{number.decimals}f}".replace(".", "").lstrip("0")) >= ROUNDED_DIGITS
    )


def unit_of_rounded(numbers: Iterable[Number | None]) -> float:
    """One unit of the last digit of a list that seems to be rounded, else 0."""
    decimals = max((number.decimals for number in numbers if number and seems_rounded(number)), default=0)
    return float(10.0**-decimals) if decimals else 0.0


def unit_of(number: Number, decimals: int = LEAST_DECIMALS) -> float:
    """One unit of the last digit; a whole number such as 1 among 0.58 stands for 1.00."""
    return number.unit if number.decimals > 0 else float(10.0 ** -max(decimals, LEAST_DECIMALS))


def near(number: Number, truth: float, units: float, decimals: int = LEAST_DECIMALS, off: float = 0.0) -> bool:
    """True if they are at most so many units of the last digit apart, and what the truth itself may be `off`."""
    allowed = unit_of(number, decimals) * units + off + FLOAT_NOISE * max(1.0, abs(truth))
    return abs(number.value - truth) <= allowed


def agrees(number: Number, truth: float, decimals: int = LEAST_DECIMALS) -> bool:
    """True if the truth, rounded to the digits shown, is the number."""
    return near(number, truth, HALF, decimals)


def fits(number: Number, truth: float, off: float, most: tuple[float, float], decimals: int = LEAST_DECIMALS) -> bool:
    """True if they agree when the truth is `off` because its inputs are rounded.

    `most` is how many units of the last digit are granted for it, and the least such unit: that of the inputs.
    """
    return near(number, truth, HALF, decimals, min(off, most[0] * max(unit_of(number, decimals), most[1])))


def most_decimals(rows: Sequence[Row]) -> int:
    return max((number.decimals for row in rows for number in row if number is not None), default=0)


def same_shape(series: Series, rows: Rows, slots: Slots = None) -> bool:
    """True if a series can be a column of this shape, with holes beside the `slots` if these are known."""
    if series.gap is not None:
        return len(rows) == 1 and len(rows[0]) > len(series.rows[0])
    if series.holes:
        return len(rows) == 1 and len(series.values[0]) == len(rows[0]) and slots in (None, series.slots)
    if slots and series.width > slots[-1] and len(slots) < series.width:
        return len(series.rows) == 1
    return [len(row) for row in series.rows] == [len(row) for row in rows]


def aligned(series: Series, rows: Rows, slots: Slots = None) -> Iterator[tuple[int, int, Number, float]]:
    """(row, place, number shown, truth) of every number of a series that has the shape of `rows`.

    A number with one decimal among others with two is as exact as they are: 0.4 is 0.40.
    """
    least = min(most_decimals(series.rows), LEAST_DECIMALS)
    for b, (row, truths) in enumerate(zip(series.rows, rows, strict=True)):
        if series.gap is not None:  # the tokens that dots stand for
            places: Sequence[int] = [*range(series.gap), *range(series.gap + len(truths) - len(row), len(truths))]
            row = tuple(row)
        elif len(row) != len(truths):
            row = tuple(row[t] for t in series.slots or slots or ())
            places = range(len(truths))
        else:
            places = range(len(truths))
        for t, number in zip(places, row, strict=True):
            if number is not None:
                yield b, t, Number(number.value, max(number.decimals, least)) if number.decimals else number, truths[t]


def slack(node: Node, every: bool = False, least: int = 0) -> float:
    """How far a side's value may be off because numbers are shown rounded: those that seem to be, or `every` one.

    `least`: so many decimals the result has; from four on, numbers with fewer may have lost zeros, 2.9700 as 2.97.
    """

    def off(one: Node) -> float:
        return slack(one, every, least)

    match node:
        case Number():
            if node.decimals > 0 and (every or seems_rounded(node)):
                return node.unit / 2
            return 10.0**-least / 2 if least > ROUNDED_DIGITS and 0 < node.decimals < least else 0.0
        case Negative(of):
            return off(of)
        case Binary("+" | "-", left, right):
            return off(left) + off(right)
        case Binary("*", left, right):
            exact = isinstance(left, Number) and left.value in EXACT
            first = 0.0 if exact else abs(evaluate(right) or 0.0) * off(left)
            return first + abs(evaluate(left) or 0.0) * off(right)
        case Binary("/", left, right):
            below = abs(evaluate(right) or 1.0)
            return off(left) / below + abs(evaluate(left) or 0.0) * off(right) / below**2
        case Binary("^", left, Number(power, _)):
            base = abs(evaluate(left) or 0.0)
            return abs(power) * base ** max(power - 1, 0.0) * off(left) if power < 9 else 0.0
        case Call("exp", (of,)):
            return abs(evaluate(node) or 0.0) * off(of)
        case Call(_, arguments):
            return sum(map(off, arguments))
        case Listing(items):
            return max(map(off, items), default=0.0)
    return 0.0
