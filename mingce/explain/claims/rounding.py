"""When a number shown agrees with the number it should be: the digits shown decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mingce.explain.claims.expressions import Binary, Call, Listing, Negative, Node, Number, evaluate
from mingce.explain.claims.quantities import Row, Series
from mingce.explain.claims.truth import COMMON_GAMMAS, COMMON_LAMS, Rows

FLOAT_NOISE = 1e-9
LEAST_DECIMALS = 2
ROUNDED_DIGITS = 3
"""From so many decimals and significant digits on a number is taken to be rounded: 0.3 is exact, 0.6211 is not."""
EXACT = frozenset({*COMMON_GAMMAS, *COMMON_LAMS, 0.1, 0.2, 0.01})
"""Factors that stand in a formula as settings, not as something rounded."""


def seems_rounded(number: Number) -> bool:
    """True if a number has so many digits that more may have been cut off."""
    if number.decimals < ROUNDED_DIGITS or not number.value:
        return False
    return len(f"{abs(number.value):.{number.decimals}f}".replace(".", "").lstrip("0")) >= ROUNDED_DIGITS


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
    return near(number, truth, 0.5, decimals)


def fits(number: Number, truth: float, off: float, most_units: float, decimals: int = LEAST_DECIMALS) -> bool:
    """True if they agree when the truth is `off` because its inputs are rounded; so many units are granted at most."""
    return near(number, truth, 0.5, decimals, min(off, most_units * unit_of(number, decimals)))


def most_decimals(rows: Sequence[Row]) -> int:
    return max((number.decimals for row in rows for number in row if number is not None), default=0)


def same_shape(series: Series, rows: Rows) -> bool:
    """True if a series can be a column of this shape."""
    if series.gap is not None:
        return len(rows) == 1 and len(rows[0]) > len(series.rows[0])
    return [len(row) for row in series.rows] == [len(row) for row in rows]


def aligned(series: Series, rows: Rows) -> Iterator[tuple[int, int, Number, float]]:
    """(row, token, number shown, truth) of every number of a series that has the shape of `rows`."""
    for b, (row, truths) in enumerate(zip(series.rows, rows, strict=True)):
        skipped = len(truths) - len(row)  # the tokens that dots stand for
        for place, number in enumerate(row):
            t = place if series.gap is None or place < series.gap else place + skipped
            if number is not None:
                yield b, t, number, truths[t]


def slack(node: Node, every: bool = False) -> float:
    """How far a side's value may be off because numbers are shown rounded: those that seem to be, or `every` one."""
    match node:
        case Number():
            return node.unit / 2 if node.decimals > 0 and (every or seems_rounded(node)) else 0.0
        case Negative(of):
            return slack(of, every)
        case Binary("+" | "-", left, right):
            return slack(left, every) + slack(right, every)
        case Binary("*", left, right):
            exact = isinstance(left, Number) and left.value in EXACT
            off = 0.0 if exact else abs(evaluate(right) or 0.0) * slack(left, every)
            return off + abs(evaluate(left) or 0.0) * slack(right, every)
        case Binary("/", left, right):
            below = abs(evaluate(right) or 1.0)
            return slack(left, every) / below + abs(evaluate(left) or 0.0) * slack(right, every) / below**2
        case Binary("^", left, Number(power, _)):
            base = abs(evaluate(left) or 0.0)
            return abs(power) * base ** max(power - 1, 0.0) * slack(left, every) if power < 9 else 0.0
        case Call("exp", (of,)):
            return abs(evaluate(node) or 0.0) * slack(of, every)
        case Call(_, arguments):
            return sum(slack(argument, every) for argument in arguments)
        case Listing(items):
            return max((slack(item, every) for item in items), default=0.0)
    return 0.0
