"""What the dots of `a + b + … + z` stand for: products whose indices and powers go on by equal steps."""

from __future__ import annotations

from dataclasses import dataclass

from mingce.explain.equations.names import SETTINGS
from mingce.explain.equations.tree import Minus, Node, Num, Op, Sym, Unknown, Var


@dataclass(frozen=True)
class Linear:
    """`t + 2`, `T − 1`: letters with whole factors, and a constant."""

    letters: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    def plus(self, other: Linear, times: int = 1) -> Linear:
        counts = dict(self.letters)
        for name, n in other.letters:
            counts[name] = counts.get(name, 0) + times * n
        letters = tuple(sorted((name, n) for name, n in counts.items() if n))
        return Linear(letters, self.constant + times * other.constant)

    def node(self) -> Node:
        made: Node | None = Num(float(self.constant)) if self.constant or not self.letters else None
        for name, n in self.letters:
            one: Node = Var(name) if n == 1 else Op("*", Num(float(n)), Var(name))
            made = one if made is None else Op("+", one, made)
        assert made is not None
        return made


def linear(node: Node) -> Linear:
    """The tree of an index or exponent as letters and a constant; raises Unknown where it is none."""
    match node:
        case Num(value, _) if value == int(value):
            return Linear((), int(value))
        case Var(name):
            return Linear(((name, 1),))
        case Minus(of):
            return Linear().plus(linear(of), -1)
        case Op("+" | "-" as sign, left, right):
            return linear(left).plus(linear(right), 1 if sign == "+" else -1)
    raise Unknown("not linear")


@dataclass(frozen=True)
class Monomial:
    """A factor, powers of settings, and columns at an index: (γλ)²·δ_{t+2}."""

    factor: float
    powers: tuple[tuple[str, Linear], ...]
    columns: tuple[tuple[str, Linear], ...]

    def step_from(self, before: Monomial) -> Monomial:
        """What changes from the term before to this one."""
        if [kind for kind, _ in before.columns] != [kind for kind, _ in self.columns] or before.factor != self.factor:
            raise Unknown("terms differ")
        names = dict.fromkeys(name for name, _ in (*before.powers, *self.powers))
        powers = tuple((name, self._power(name).plus(before._power(name), -1)) for name in names)
        columns = tuple(
            (kind, here.plus(there, -1)) for (kind, here), (_, there) in zip(self.columns, before.columns, strict=True)
        )
        return Monomial(1.0, powers, columns)

    def step_to(self, end: Monomial | None) -> Monomial:
        """One index further; powers grow with the index if they do so up to the end."""
        one = Linear((), 1)
        if end is None:
            return Monomial(1.0, (), tuple((kind, one) for kind, _ in self.columns))
        change = end.step_from(self)
        distance = change.columns[0][1] if change.columns else one
        powers = tuple((name, one) for name, power in change.powers if power == distance and power != Linear())
        return Monomial(1.0, powers, tuple((kind, one) for kind, _ in self.columns))

    def moved(self, step: Monomial, times: int) -> Monomial:
        """So many steps on."""
        names = dict.fromkeys(name for name, _ in (*self.powers, *step.powers))
        powers = tuple((name, self._power(name).plus(step._power(name), times)) for name in names)
        columns = tuple(
            (kind, index.plus(move, times)) for (kind, index), (_, move) in zip(self.columns, step.columns, strict=True)
        )
        return Monomial(self.factor, powers, columns)

    def _power(self, name: str) -> Linear:
        return dict(self.powers).get(name, Linear())

    def node(self) -> Node:
        made: Node = Num(self.factor)
        for name, power in self.powers:
            made = Op("*", made, Op("^", Sym(name), power.node()))
        for kind, index in self.columns:
            made = Op("*", made, Sym(kind, index.node()))
        return made


def monomial(node: Node) -> Monomial:
    """The tree as one product; raises Unknown where it is none."""
    match node:
        case Num(value, _):
            return Monomial(value, (), ())
        case Minus(of):
            inner = monomial(of)
            return Monomial(-inner.factor, inner.powers, inner.columns)
        case Sym(kind, _, _) if kind in SETTINGS:
            return Monomial(1.0, ((kind, Linear((), 1)),), ())
        case Sym(kind, index, _):
            return Monomial(1.0, (), ((kind, Linear((("t", 1),)) if index is None else linear(index)),))
        case Op("*", left, right):
            a, b = monomial(left), monomial(right)
            names = dict.fromkeys(name for name, _ in (*a.powers, *b.powers))
            powers = tuple((name, a._power(name).plus(b._power(name))) for name in names)
            return Monomial(a.factor * b.factor, powers, (*a.columns, *b.columns))
        case Op("^", base, exponent):
            inner, power = monomial(base), linear(exponent)
            if inner.columns or inner.factor != 1 or any(p != Linear((), 1) for _, p in inner.powers):
                raise Unknown("power")
            return Monomial(1.0, tuple((name, power) for name, _ in inner.powers), ())
    raise Unknown("no product")
