"""What a tree is worth in a world: one row's numbers with its settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from mingce.explain.equations.names import SETTINGS
from mingce.explain.equations.series import Linear, Monomial, monomial
from mingce.explain.equations.tree import (
    Call,
    Hole,
    Mean,
    Minus,
    Node,
    Num,
    Op,
    Series,
    Sum,
    Sym,
    Unknown,
    Var,
    has,
)  # fmt: skip

MOST_STEPS = 100_000
"""An evaluation that takes more has lost its way."""


class World(Protocol):
    """What trees are evaluated in: `count` chosen tokens of `length` slots, their columns and settings."""

    @property
    def count(self) -> int: ...
    @property
    def length(self) -> int: ...
    def number(self, kind: str, position: int) -> float: ...
    def setting(self, kind: str) -> float: ...
    def position(self, slot: int) -> int: ...


class Evaluation:
    """One evaluation: the world, and how many steps are left."""

    def __init__(self, world: World, spread: bool = True) -> None:
        self.world, self.spread, self.steps = world, spread, MOST_STEPS

    def value(self, node: Node, env: Mapping[str, int]) -> float:
        """What the tree is worth; `env` has the letters. Raises Unknown."""
        self.steps -= 1
        if self.steps < 0:
            raise Unknown("too long")
        match node:
            case Num(value, _):
                return value
            case Var(name):
                return float(self._letter(name, env))
            case Sym(kind, _, _) if kind in SETTINGS:
                return self.world.setting(kind)
            case Sym(kind, index, _):
                return self.world.number(kind, self._position(index, env))
            case Minus(of):
                return -self.value(of, env)
            case Mean(of):
                return self.value(of, env)
            case Op(sign, left, right):
                return _apply(sign, self.value(left, env), self.value(right, env))
            case Call(name, arguments):
                return self._call(name, arguments, env)
            case Sum() | Series():
                return math.fsum(self.terms(node, env))
        raise Unknown(str(node))

    def terms(self, node: Sum | Series, env: Mapping[str, int]) -> list[float]:
        """The numbers that a sum adds."""
        return list(self._sum(node, env) if isinstance(node, Sum) else self._series(node.terms, node.last, env))

    def _letter(self, name: str, env: Mapping[str, int]) -> int:
        if name == "T":
            return self.world.count
        if name not in env:
            raise Unknown(name)
        return env[name]

    def _position(self, index: Node | None, env: Mapping[str, int]) -> int:
        if index is None:
            return self._letter("t", env)
        x = self.value(index, env)
        if x != int(x):
            raise Unknown("index")
        if has(index, Var):
            return int(x)
        return self.world.count - 1 if x == -1 else self.world.position(int(x))

    def _call(self, name: str, arguments: tuple[Node, ...], env: Mapping[str, int]) -> float:
        if name in ("mean", "std", "var", "sum") and len(arguments) == 1:
            return _statistic(name, self._row(arguments[0], env))
        numbers = [self.value(one, env) for one in arguments]
        if name == "clip" and len(numbers) < 3:  # clip(ρ) and clip(ρ, ε) mean 1 ± ε
            room = numbers[1] if len(numbers) == 2 else self.world.setting("eps")
            numbers = [numbers[0], 1 - room, 1 + room]
        return _function(name, numbers)

    def _row(self, body: Node, env: Mapping[str, int]) -> list[float]:
        return [self.value(body, {**env, "t": position}) for position in range(self.world.count)]

    def _sum(self, node: Sum, env: Mapping[str, int]) -> Iterator[float]:
        count = self.world.count
        variable = node.variable or "t"
        first = env["t"] if node.variable != "t" and "t" in env and self.spread else 0
        if node.lower is not None:
            first = int(self.value(node.lower, env))
        last = count if node.upper is None else int(min(self.value(node.upper, env), 2 * count))
        for k in range(first, last + 1):
            if variable != "t" or 0 <= k < count:
                yield self.value(node.body, {**env, variable: k})

    def _series(self, terms: tuple[Node, ...], last: Node | None, env: Mapping[str, int]) -> Iterator[float]:
        """The terms that are written, those that the dots stand for, and the last."""
        yield from (self.value(one, env) for one in terms)
        before = monomial(terms[-1])
        step = before.step_from(monomial(terms[-2])) if len(terms) > 1 else None
        end = None if last is None else monomial(last)
        if step is None:
            step = before.step_to(end)
        limit = self.world.length + 1
        for k in range(1, limit + 1):
            term = before.moved(step, k)
            if any(self._place(index, env) > limit for _, index in term.columns):
                return
            yield self._term(term, env)
            if end is not None and self._reached(term, end, env):
                return

    def _term(self, term: Monomial, env: Mapping[str, int]) -> float:
        """A term that is not written; a slot that the policy did not choose adds nothing."""
        try:
            return self.value(term.node(), env)
        except Hole:
            return 0.0

    def _reached(self, term: Monomial, end: Monomial, env: Mapping[str, int]) -> bool:
        return bool(term.columns) and self._place(term.columns[0][1], env) >= self._place(end.columns[0][1], env)

    def _place(self, index: Linear, env: Mapping[str, int]) -> int:
        return index.constant + sum(n * self._letter(name, env) for name, n in index.letters)


def _apply(sign: str, a: float, b: float) -> float:
    try:
        match sign:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "/":
                return a / b
            case "^":
                return math.pow(a, b)
    except (ArithmeticError, ValueError) as error:
        raise Unknown(sign) from error
    raise Unknown(sign)


def _statistic(name: str, numbers: list[float]) -> float:
    total, n = math.fsum(numbers), len(numbers)
    if name == "sum":
        return total
    mean = total / n
    if name == "mean":
        return mean
    if n < 2:
        raise Unknown(name)
    variance = math.fsum((x - mean) ** 2 for x in numbers) / (n - 1)
    return variance if name == "var" else math.sqrt(variance)


_OF_ONE: dict[str, Callable[[float], float]] = {"exp": math.exp, "log": math.log, "sqrt": math.sqrt, "abs": abs}


def _function(name: str, numbers: list[float]) -> float:
    try:
        if name == "clip" and len(numbers) == 3:
            return max(numbers[1], min(numbers[2], numbers[0]))
        if name in ("min", "max") and len(numbers) > 1:
            return min(numbers) if name == "min" else max(numbers)
        if len(numbers) == 1:
            return _OF_ONE[name](numbers[0])
    except (ArithmeticError, ValueError, KeyError) as error:
        raise Unknown(name) from error
    raise Unknown(name)
