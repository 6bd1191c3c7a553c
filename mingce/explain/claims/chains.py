"""Chains in a line of text: `A_5 = δ_5 + 0.95*A_6 = 0.13 + 0.375 = 0.505`, and lists that stand alone.

The reader never fails: prose between formulae is stepped over, and nesting and length are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from mingce.explain.claims.expressions import (
    HOLE,
    UNREAD,
    Binary,
    Call,
    Listing,
    Negative,
    Node,
    Number,
    Symbol,
    literals,
    shown,
    symbols,
)
from mingce.explain.claims.names import SETTING_KINDS
from mingce.explain.claims.tokens import Token, tokens_of

DEEPEST = 24
MOST_TERMS = 120
"""Of a longer sum or product the rest is not read."""
_FUNCTIONS = {
    "mean", "avg", "average", "E", "sum", "std", "var", "sqrt", "exp", "log", "ln", "abs", "max", "min", "clip",
    "round", "whiten", "masked_whiten", "tensor", "array", "np", "torch",
}  # fmt: skip
HOLES = frozenset({"—", "–", "-", "_", "None", "none", "null", "nan", "NaN", "NA", "×", "x"})
"""What stands in a list for a token that nobody chose."""
_WRAPPERS = frozenset({"tensor", "array", "np", "torch", "list"})


@dataclass(frozen=True)
class Chain:
    """Sides joined by = or ≈ (one side: a lone list). `before` is the text in front of it, `start` its offset."""

    sides: tuple[Node, ...]
    starts: tuple[int, ...]
    before: str
    end: int
    approximate: bool = False


class _Stop(Exception):
    """What follows is no arithmetic."""


@dataclass
class _Reader:
    tokens: list[Token]
    at: int = 0
    budget: int = 0

    def peek(self, ahead: int = 0) -> Token | None:
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else None

    def take(self) -> Token:
        self.budget -= 1
        token = self.peek()
        if token is None or self.budget < 0:
            raise _Stop
        self.at += 1
        return token

    def next_is(self, kind: str, text: str | None = None) -> bool:
        token = self.peek()
        return token is not None and token.type == kind and (text is None or token.text in text.split())

    def expression(self, depth: int = 0) -> Node:
        left = self.term(depth)
        for _ in range(MOST_TERMS):
            after = self.peek(1)
            if not self.next_is("op", "+ -") or (isinstance(left, Listing) and after and after.type == "name"):
                break  # "advantages [0.1, 0.2] + values [0.3, 0.4]" are two lists with their names
            back = self.at
            operator = self.take().text
            try:
                left = Binary(operator, left, self.term(depth))
            except _Stop:
                self.at = back
                break
        return left

    def term(self, depth: int) -> Node:
        left = self.power(depth)
        for _ in range(MOST_TERMS):
            back = self.at
            if self.next_is("op", "* /"):
                operator = self.take().text
            elif self._implicit(left):
                operator = "*"
            else:
                return left
            try:
                left = Binary(operator, left, self.power(depth))
            except _Stop:
                self.at = back
                break
        return left

    def _implicit(self, left: Node) -> bool:
        """True for γλA, 0.95 A_6, (γλ)(…): a product without a sign."""
        token = self.peek()
        if token is None:
            return False
        if token.type == "name":
            symbol = token.node
            known = isinstance(symbol, Symbol) and symbol.kind is not None
            touching = token.start == self.tokens[self.at - 1].end
            if touching or not known:
                return known and not isinstance(left, Listing | Call)
            before = symbols(left)[-1:]  # words are no factors: "the values V"
            return bool(before) and len(before[0].name) == 1 and before[0].kind is not None
        return (
            token.text == "(" and self.tokens[self.at - 1].text == ")" and token.start == self.tokens[self.at - 1].end
        )

    def power(self, depth: int) -> Node:
        base = self.primary(depth)
        if self.next_is("op", "^ **"):
            back = self.at
            self.take()
            try:
                exponent = self.primary(depth)
            except _Stop:
                self.at = back
                return base
            if isinstance(base, Symbol) and base.name == "e":
                return Call("exp", (exponent,))
            return Binary("^", base, exponent)
        return base

    def primary(self, depth: int) -> Node:
        if depth > DEEPEST:
            raise _Stop
        token = self.take()
        if token.type == "op" and token.text in "+-":
            of = self.power(depth + 1)
            return Negative(of) if token.text == "-" else of
        if token.type == "number" and token.node is not None:
            return token.node
        if token.type == "open":
            return self.listing(depth + 1) if token.text == "[" else self.group(depth + 1, token.text)
        if token.type == "name" and isinstance(token.node, Symbol):
            return self._named(token, token.node, depth)
        raise _Stop

    def _named(self, token: Token, symbol: Symbol, depth: int) -> Node:
        follows = self.peek()
        if token.text in ("np", "torch") and follows and follows.text == ".":
            self.take()
            return self.primary(depth + 1)
        if token.text in _FUNCTIONS or (symbol.kind in ("mean", "std", "var") and token.text.isascii()):
            if follows and follows.text in ("(", "["):
                back = self.at
                try:
                    return self._call(token.text, depth)
                except _Stop:
                    self.at = back
            elif token.text in ("log", "ln", "exp") and follows and follows.type in ("name", "number"):
                return Call(token.text, (self.primary(depth + 1),))
        return symbol

    def _call(self, name: str, depth: int) -> Node:
        opening = self.take()
        if opening.text == "[":
            arguments: list[Node] = [self.listing(depth + 1)]
        else:
            arguments = [self.expression(depth + 1)]
            while self.next_is("comma"):
                self.take()
                arguments.append(self.expression(depth + 1))
            self._close(")")
        return arguments[0] if name in _WRAPPERS else Call(name, tuple(arguments))

    def group(self, depth: int, opening: str) -> Node:
        """( … ) in a formula, or a list in parentheses."""
        inside = self.expression(depth)
        if not self.next_is("comma"):
            self._close(")" if opening == "(" else "}")
            return inside
        items = [inside]
        while self.next_is("comma"):
            self.take()
            items.append(self.expression(depth))
        self._close(")" if opening == "(" else "}")
        return Listing(tuple(items), round=True)

    def listing(self, depth: int) -> Node:
        items: list[Node] = []
        gap: int | None = None
        while not self.next_is("close", "]"):
            if self.next_is("dots"):
                self.take()
                gap = len(items) if gap is None else gap
            elif self._next_is_hole():
                self.take()
                items.append(HOLE)
            else:
                items.append(self._item(depth))
            if self.next_is("comma") or self.next_is("word", ";"):
                self.take()
        self._close("]")
        return Listing(tuple(items), gap)

    def _next_is_hole(self) -> bool:
        """True for the dash, or nothing, that stands for a token nobody chose."""
        token, after = self.peek(), self.peek(1)
        if token is None or after is None or (after.type != "comma" and after.text != "]"):
            return False
        return token.text in HOLES

    def _item(self, depth: int) -> Node:
        """One item. In a list without commas, as numpy prints it, ` -0.2` begins the next item."""
        token, after = self.peek(), self.peek(1)
        if token and after and token.type == "number" and token.node and after.type == "number":
            return self.take().node or Number(0.0, 0)
        if token and token.text == "-" and after and after.type == "number" and after.node:
            third = self.peek(2)
            if third is None or third.type in ("number", "comma", "close") or self._next_item_is_negative(2):
                self.take()
                node = self.take().node
                assert isinstance(node, Number)
                return Negative(node)
        if token and token.type == "number" and token.node and self._next_item_is_negative(1):
            return self.take().node or Number(0.0, 0)
        return self.expression(depth)

    def _next_item_is_negative(self, ahead: int) -> bool:
        sign, number = self.peek(ahead), self.peek(ahead + 1)
        if sign is None or number is None or sign.text != "-" or number.type != "number":
            return False
        return sign.start > self.tokens[self.at + ahead - 1].end and number.start == sign.end

    def _close(self, mark: str) -> None:
        if self.take().text != mark:
            raise _Stop


@lru_cache(maxsize=4096)
def chains(text: str) -> tuple[Chain, ...]:
    """Every chain of a line and every lone list, from left to right."""
    return tuple(_chains(tokens_of(text), text))


def _chains(tokens: list[Token], text: str) -> Iterator[Chain]:
    reader = _Reader(tokens, budget=20 * len(tokens) + 200)
    boundary = 0
    while reader.at < len(tokens) and reader.budget > 0:
        begin = reader.at
        token = tokens[begin]
        if token.type not in ("number", "name", "open", "op") or _is_word(tokens, begin):
            reader.at += 1
            if token.type in ("comma", "word") and token.text in (";", "；", "。", "#", "|"):
                boundary = token.end
            continue
        try:
            sides, starts, approximate = _chain(reader)
        except _Stop:
            reader.at = begin + 1
            continue
        if _cut_off(tokens, begin):
            sides[0] = UNREAD
        if len(sides) > 1 or isinstance(sides[0], Listing):
            end = tokens[reader.at - 1].end
            yield Chain(tuple(sides), tuple(starts), text[boundary : token.start], end, approximate)
            if any(literals(side) for side in sides):
                boundary = end
        elif reader.at == begin:
            reader.at += 1


def _is_word(tokens: list[Token], at: int) -> bool:
    """True for a word in front of a negative number: "the total is -0.02 + 0.01"."""
    token = tokens[at]
    if (
        not isinstance(token.node, Symbol)
        or token.node.kind is not None
        or len(token.text) < 2
        or at + 2 >= len(tokens)
    ):
        return False
    sign, number = tokens[at + 1], tokens[at + 2]
    return sign.text == "-" and sign.start > token.end and number.start == sign.end and token.text not in _FUNCTIONS


def _cut_off(tokens: list[Token], begin: int) -> bool:
    """True if what is read is the rest of something that could not be: an operator stands in front of it."""
    if begin == 0:
        return False
    before = tokens[begin - 1]
    if _is_word(tokens, begin - 1):
        return False
    if before.type == "op":
        return before.text not in ("+", "-") or begin > 1
    return before.type in ("close", "number", "name") and before.end == tokens[begin].start


def _chain(reader: _Reader) -> tuple[list[Node], list[int], bool]:
    starts = [reader.tokens[reader.at].start]
    sides = [reader.expression()]
    approximate = False
    while reader.next_is("rel"):
        back = reader.at
        approximate |= reader.take().text == "≈"
        if reader.next_is("word", "~"):
            reader.take()
        try:
            start = reader.tokens[reader.at].start if reader.at < len(reader.tokens) else 0
            sides.append(reader.expression())
            starts.append(start)
        except _Stop:
            reader.at = back
            reader.take()
            break
    if len(sides) > 1 and isinstance(sides[-1], Number | Negative) and isinstance(sides[0], Symbol):
        sides[-1] = _bare_list(reader, sides[0], sides[-1])
    return sides, starts, approximate


def _bare_list(reader: _Reader, subject: Symbol, first: Node) -> Node:
    """`rewards = 0, 0, 1` without brackets is a list too."""
    if subject.index is not None or subject.kind is None or subject.kind in SETTING_KINDS:
        return first
    items, back = [first], reader.at
    while reader.next_is("comma"):
        reader.take()
        try:
            item = reader.power(0)
        except _Stop:
            break
        if shown(item) is None or reader.next_is("rel") or reader.next_is("op"):
            break
        items.append(item)
        back = reader.at
    reader.at = back
    return Listing(tuple(items)) if len(items) > 1 else first
