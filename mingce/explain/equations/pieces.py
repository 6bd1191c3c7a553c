"""Small parts of the parser: numbers, names with an index written behind them, marks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mingce.explain.equations.names import kind_of
from mingce.explain.equations.tokens import Token
from mingce.explain.equations.tree import Node, Num, Op, Var

ONE = Num(1.0)
_SUFFIX = re.compile(r"(?P<name>.+?)_(?P<index>t|T|i|j|k|l|n|\d{1,5}|last|final|next|tp1|tplus1)")


class NotAnExpression(Exception):
    """The tokens are no side of an equation."""


def number_of(text: str) -> Num:
    """A number as it is written."""
    if text == "½":
        return Num(0.5, 0)
    share = text.endswith("%")
    digits = text.rstrip("%")
    decimals = len(digits.lower().partition("e")[0].partition(".")[2])
    return Num(float(digits) / (100 if share else 1), decimals + (2 if share else 0))


def name_and_index(token: Token) -> tuple[str, Node | None]:
    """`delta_t` → delta at t; names that are known as they stand keep their underscores."""
    name = token.text
    if token.kind != "name" or kind_of(name) is not None:
        return name, None
    found = _SUFFIX.fullmatch(name)
    if found is None:
        return name, None
    index = found["index"]
    if index in ("next", "tp1", "tplus1"):
        return found["name"], Op("+", Var("t"), ONE)
    return found["name"], index_node({"last": "T-1", "final": "T-1"}.get(index, index))


def index_node(text: str) -> Node:
    """`T-1`, `t`, `5` as a tree."""
    if text.isdigit():
        return Num(float(text))
    return Op("-", Var("T"), ONE) if text == "T-1" else Var(text)


def next_index(index: Node | None) -> Node:
    """One token further."""
    return Op("+", Var("t") if index is None else index, ONE)


def kind_with_mark(kind: str, mark: str) -> str:
    """L^CLIP is the objective, L^V and L^VF the critic's loss."""
    if kind == "policy_loss":
        if "clip" in mark.lower():
            return "objective"
        if mark.upper() in ("V", "VF", "VALUE", "CRITIC"):
            return "value_loss"
    if kind == "advantages" and mark.upper() in ("MC", "(N)", "N"):
        raise NotAnExpression
    return kind


def split_at_commas(words: Sequence[Token]) -> list[list[Token]]:
    """The arguments of a call."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in words:
        depth += (token.kind == "open") - (token.kind == "close")
        if token.kind == "comma" and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
