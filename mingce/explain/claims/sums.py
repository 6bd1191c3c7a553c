"""A chain's sums: do they give what they say, which numbers were put in for which symbols, how they are written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from mingce.explain.claims.chains import Chain
from mingce.explain.claims.expressions import (
    Binary,
    Call,
    Listing,
    Negative,
    Node,
    Number,
    Symbol,
    evaluate,
    shown,
    symbols,
    terms,
)
from mingce.explain.claims.formulas import show
from mingce.explain.claims.rounding import LEAST_DECIMALS, slack
from mingce.explain.claims.verdicts import Pair, note


def step_faults(chain: Chain | None, result_is_right: bool = False) -> Iterator[Pair]:
    """Neighbouring sides that are numbers and not equal. A right result may come from digits that are not shown."""
    sides = [side for side in chain.sides if not isinstance(side, Listing)] if chain else []
    for left, right in pairwise(sides):
        value, other, number = evaluate(left), evaluate(right), shown(right)
        if chain is None or value is None or other is None:
            continue
        if number is None:
            allowed = slack(left, True) + slack(right, True) + 1e-6 * max(1.0, abs(value))
        else:
            unit = number.unit if number.decimals > 0 or chain.approximate else 10.0**-LEAST_DECIMALS
            allowed = unit / 2 + slack(left, result_is_right, number.decimals) + 1e-9 * max(1.0, abs(value))
        if abs(value - other) > allowed:
            yield note("check_log.wrong_step", left=written(left), value=show(value), shown=show(other))


def last_sum(chain: Chain | None) -> float | None:
    """What the last worked side of a chain really gives."""
    for side in reversed(chain.sides if chain else ()):
        if shown(side) is None and (value := evaluate(side)) is not None:
            return value
    return None


def put_in(chain: Chain | None) -> Iterator[tuple[Node, Number]]:
    """The numbers put in for symbols: of `δ_5 + 0.95·A_6 = 0.13 + 0.95·0.395` δ_5 → 0.13 and A_6 → 0.395."""
    for left, right in pairwise(chain.sides) if chain else ():
        if not symbols(left) or symbols(right) or isinstance(right, Listing):
            continue
        if isinstance(left, Symbol) and shown(right) is not None:
            continue  # the claim itself
        ours, theirs = terms(left), terms(right)
        if len(ours) != len(theirs):
            continue
        for (sign, term), (other_sign, other) in zip(ours, theirs, strict=True):
            while isinstance(term, Binary) and isinstance(other, Binary) and term.operator == other.operator == "*":
                term, other = term.right, other.right
            if (number := shown(other)) is not None and symbols(term):
                yield term, Number(sign * other_sign * number.value, number.decimals)


def written(node: Node) -> str:
    """A side as people write it."""
    match node:
        case Number(value, decimals):
            return f"{value:.{max(decimals, 0)}f}"
        case Symbol(name=name, index=index):
            return name if index is None else f"{name}_{index}"
        case Negative(of):
            return f"−{_factor(of)}"
        case Binary("+", left, right):
            return f"{written(left)} + {_factor(right)}"
        case Binary("-", left, right):
            return f"{written(left)} − {_factor(right)}"
        case Binary(operator, left, right):
            return f"{_factor(left)}{operator.replace('*', '·')}{_factor(right)}"
        case Call(name, arguments):
            return f"{name}({', '.join(written(argument) for argument in arguments)})"
        case Listing(items):
            return "[" + ", ".join(written(item) for item in items[:12]) + (", …" if len(items) > 12 else "") + "]"
    return "…"


def _factor(node: Node) -> str:
    compound = isinstance(node, Negative) or (isinstance(node, Binary) and node.operator in "+-")
    return f"({written(node)})" if compound else written(node)
