"""Arithmetic as a tree: numbers as they are written, symbols with an index, lists, sums; and what a tree is worth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


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


def literals(node: Node) -> list[Number]:
    """Every number written in a formula."""
    match node:
        case Number():
            return [node]
        case Negative(of):
            return literals(of)
        case Binary(_, left, right):
            return literals(left) + literals(right)
        case Call(_, arguments):
            return [number for argument in arguments for number in literals(argument)]
        case Listing(items):
            return [number for item in items for number in literals(item)]
    return []


def symbols(node: Node) -> list[Symbol]:
    """Every symbol of a formula."""
    match node:
        case Symbol():
            return [node]
        case Negative(of):
            return symbols(of)
        case Binary(_, left, right):
            return symbols(left) + symbols(right)
        case Call(_, arguments):
            return [symbol for argument in arguments for symbol in symbols(argument)]
        case Listing(items):
            return [symbol for item in items for symbol in symbols(item)]
    return []


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
        case Binary(operator, left, right):
            a, b = _evaluate(left, lookup), _evaluate(right, lookup)
            return None if a is None or b is None else _operate(operator, a, b)
        case Call(name, arguments):
            return _called(name, arguments, lookup)
    return None


def _operate(operator: str, a: float, b: float) -> float | None:
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b
    return math.pow(a, b)


def _called(name: str, arguments: tuple[Node, ...], lookup: Lookup) -> float | None:
    nodes = arguments[0].items if len(arguments) == 1 and isinstance(arguments[0], Listing) else arguments
    if isinstance(arguments[0], Listing) and arguments[0].gap is not None:
        return None
    numbers = [_evaluate(node, lookup) for node in nodes]
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers) or not known:
        return None
    match name:
        case "exp" if len(known) == 1:
            return math.exp(known[0])
        case "log" | "ln" if len(known) == 1:
            return math.log(known[0])
        case "sqrt" if len(known) == 1:
            return math.sqrt(known[0])
        case "abs" if len(known) == 1:
            return abs(known[0])
        case "mean" | "avg" | "average" | "E":
            return math.fsum(known) / len(known)
        case "sum":
            return math.fsum(known)
        case "min":
            return min(known)
        case "max":
            return max(known)
        case "clip" if len(known) == 3:
            return max(known[1], min(known[2], known[0]))
    return None
