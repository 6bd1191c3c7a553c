"""Arithmetic as a tree: numbers as they are written, symbols with an index, lists, sums; and what a tree is worth."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True)
class Number:
    """A number as it is written: `decimals` digits after the point."""

    value: float
    decimals: int

    @property
    def unit(self) -> float:
        """One unit of the last digit shown."""
        return float(10.0**-self.decimals)


@dataclass(frozen=True)
class Symbol:
    """A name with its index, if it has one: `A_5`, `values[0]` (`from_zero`), `V(s_{t+1})` (`letter` "t+1").

    `settings` are those written on the symbol itself, as in A^{GAE}_{λ=0.95}; `mark` is what else stands there.
    """

    name: str
    kind: str | None
    index: int | None = None
    letter: str = ""
    from_zero: bool = False
    settings: tuple[tuple[str, float], ...] = ()
    mark: str = ""


@dataclass(frozen=True)
class Listing:
    """`[a, b, …, c]`; `gap` is where the dots stand; `round` if it stands in parentheses."""

    items: tuple[Node, ...]
    gap: int | None = None
    round: bool = False


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Binary:
    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Negative:
    of: Node


HOLE = Symbol("—", None)
"""Stands in a list for a token that the policy did not choose."""
UNREAD = Symbol("…", None)
"""Stands for a side of which only the end could be read."""
Node = Number | Symbol | Listing | Call | Binary | Negative
Lookup = Callable[[Symbol], float | None]


def shown(node: Node) -> Number | None:
    """The number a side shows, if it is one literal."""
    if isinstance(node, Number):
        return node
    if isinstance(node, Negative) and isinstance(node.of, Number):
        return Number(-node.of.value, node.of.decimals)
    return None


def _nodes(node: Node) -> Iterator[Node]:
    """A formula's nodes from left to right."""
    yield node
    match node:
        case Negative(of):
            yield from _nodes(of)
        case Binary(_, left, right):
            yield from (*_nodes(left), *_nodes(right))
        case Call(_, inside) | Listing(inside):
            yield from (inner for one in inside for inner in _nodes(one))


def literals(node: Node) -> list[Number]:
    """Every number written in a formula."""
    return [one for one in _nodes(node) if isinstance(one, Number)]


def symbols(node: Node) -> list[Symbol]:
    """Every symbol of a formula."""
    return [one for one in _nodes(node) if isinstance(one, Symbol)]


def terms(node: Node, sign: int = 1) -> list[tuple[int, Node]]:
    """The summands of a side with their signs."""
    match node:
        case Binary("+", left, right):
            return terms(left, sign) + terms(right, sign)
        case Binary("-", left, right):
            return terms(left, sign) + terms(right, -sign)
        case Negative(of) if not isinstance(of, Number):
            return terms(of, -sign)
    return [(sign, node)]


def evaluate(node: Node, lookup: Lookup = lambda _: None) -> float | None:
    """A side's value, None if it has a symbol that `lookup` does not know or cannot be computed."""
    try:
        value = _evaluate(node, lookup)
    except (ArithmeticError, ValueError):
        return None
    return value if value is not None and math.isfinite(value) else None


def _evaluate(node: Node, lookup: Lookup) -> float | None:
    match node:
        case Number(value, _):
            return value
        case Symbol():
            return lookup(node)
        case Negative(of):
            inner = _evaluate(of, lookup)
            return None if inner is None else -inner
        case Binary(sign, left, right):
            a, b = _evaluate(left, lookup), _evaluate(right, lookup)
            return None if a is None or b is None else _OPERATORS[sign](a, b)
        case Call(name, (Listing(items, None),)):
            return _call(name, items, lookup)
        case Call(name, arguments):
            return _call(name, arguments, lookup)
    return None


def _call(name: str, arguments: tuple[Node, ...], lookup: Lookup) -> float | None:
    values = [_evaluate(node, lookup) for node in arguments]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values) or not numbers:
        return None
    if name in _OF_ONE and len(numbers) == 1:
        return _OF_ONE[name](numbers[0])
    if name == "clip" and len(numbers) == 3:
        return max(numbers[1], min(numbers[2], numbers[0]))
    return _OF_MANY[name](numbers) if name in _OF_MANY else None


_OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "^": math.pow,
}  # fmt: skip
_OF_ONE: dict[str, Callable[[float], float]] = {
    "exp": math.exp, "log": math.log, "ln": math.log, "sqrt": math.sqrt, "abs": abs,
}  # fmt: skip
_OF_MANY: dict[str, Callable[[list[float]], float]] = {
    **dict.fromkeys(("mean", "avg", "average", "E"), fmean), "sum": math.fsum, "min": min, "max": max,
}  # fmt: skip
