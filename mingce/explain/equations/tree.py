"""An equation's sides as trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Num:
    """A number as it is written, with its decimals."""

    value: float
    decimals: int = 0


@dataclass(frozen=True)
class Var:
    """A letter that counts: t, T, l, k."""

    name: str


@dataclass(frozen=True)
class Sym:
    """A column at an index, or a setting; without an index it is at t. `text` is how it was written."""

    kind: str
    index: Node | None = None
    text: str = ""


@dataclass(frozen=True)
class Op:
    sign: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Minus:
    of: Node


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Sum:
    """Σ over `variable` from `lower` to `upper` (None: as far as the row goes); without a variable over t itself."""

    variable: str | None
    lower: Node | None
    upper: Node | None
    body: Node


@dataclass(frozen=True)
class Series:
    """`a + b + … + z`: the terms before the dots, and the last one, if it is written."""

    terms: tuple[Node, ...]
    last: Node | None


@dataclass(frozen=True)
class Mean:
    """E[…]: an expectation."""

    of: Node


Node = Num | Var | Sym | Op | Minus | Call | Sum | Series | Mean


class Unknown(Exception):
    """The world has no such number, or the tree no such meaning."""


class Hole(Unknown):
    """The policy did not choose the token in that slot."""


def children(node: Node) -> Iterator[Node]:
    """The nodes right below."""
    match node:
        case Sym(_, index, _) if index is not None:
            yield index
        case Op(_, left, right):
            yield from (left, right)
        case Minus(of) | Mean(of):
            yield of
        case Call(_, arguments):
            yield from arguments
        case Sum(_, lower, upper, body):
            yield from (one for one in (lower, upper, body) if one is not None)
        case Series(terms, last):
            yield from terms
            if last is not None:
                yield last


def nodes(node: Node) -> Iterator[Node]:
    """All nodes of a tree."""
    yield node
    for child in children(node):
        yield from nodes(child)


def symbols(node: Node) -> list[Sym]:
    """All symbols that are not settings' and not in an index."""
    return [one for one in nodes(node) if isinstance(one, Sym)]


def has(node: Node, kind: type) -> bool:
    return any(isinstance(one, kind) for one in nodes(node))
