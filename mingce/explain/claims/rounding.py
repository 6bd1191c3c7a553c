"""When a number shown agrees with the number it should be: the digits shown decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mingce.explain.claims.digits import seems_rounded
from mingce.explain.claims.expressions import Binary, Call, Listing, Negative, Node, Number, evaluate
from mingce.explain.claims.facts import Row, Series
from mingce.explain.claims.truth import COMMON_GAMMAS, COMMON_LAMS, Rows

FLOAT_NOISE = 1e-9
LEAST_DECIMALS = 2
EXACT = frozenset({*COMMON_GAMMAS, *COMMON_LAMS, 0.1, 0.2, 0.01})
"""Factors that stand in a formula as settings, not as something rounded."""


def unit_of(number: Number, decimals: int = LEAST_DECIMALS) -> float:
    """One unit of the last digit; a whole number such as 1 among 0.58 stands for 1.00."""
    return number.unit if number.decimals > 0 else float(10.0 ** -max(decimals, LEAST_DECIMALS))


def agrees(number: Number, truth: float, decimals: int = LEAST_DECIMALS) -> bool:
    """True if the truth, rounded to the digits shown, is the number."""
    return abs(number.value - truth) <= unit_of(number, decimals) * 0.5 + FLOAT_NOISE * max(1.0, abs(truth))


def fits(number: Number, truth: float, off: float, most_units: float, decimals: int = LEAST_DECIMALS) -> bool:
    """True if they agree when the truth may be `off` by so much because what it is made of is shown rounded.

    That counts for so many units of the last digit at most.
    """
    unit = unit_of(number, decimals)
    return abs(number.value - truth) <= unit / 2 + min(off, most_units * unit) + FLOAT_NOISE * max(1.0, abs(truth))


def near(number: Number, truth: float, units: float, decimals: int = LEAST_DECIMALS) -> bool:
    """True if they are at most so many units of the last digit apart."""
    return abs(number.value - truth) <= unit_of(number, decimals) * units + FLOAT_NOISE * max(1.0, abs(truth))


def most_decimals(rows: Sequence[Row]) -> int:
    return max((number.decimals for row in rows for number in row if number is not None), default=0)


def aligned(series: Series, rows: Rows) -> Iterator[tuple[int, int, Number, float]]:
    """(row, token, number shown, truth) of every number of a series; nothing if the shapes differ."""
    if series.gap is not None:
        items, whole = series.rows[0], rows[0]
        for place, number in enumerate(items):
            token = place if place < series.gap else len(whole) - len(items) + place
            if number is not None:
                yield 0, token, number, whole[token]
        return
    for b, (row, should) in enumerate(zip(series.rows, rows, strict=True)):
        for t, (number, truth) in enumerate(zip(row, should, strict=True)):
            if number is not None:
                yield b, t, number, truth


def same_shape(series: Series, rows: Rows) -> bool:
    """True if a series can be a column of this shape."""
    if series.gap is not None:
        return len(rows) == 1 and len(rows[0]) > len(series.rows[0])
    return [len(row) for row in series.rows] == [len(row) for row in rows]


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
