"""A small recursive-descent parser for the sides of equations; nothing is evaluated by Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from mingce.explain.equations.names import LOG_PROBS, SETTINGS, VARIABLES, kind_of
from mingce.explain.equations.pieces import (
    ONE,
    NotAnExpression,
    index_node,
    kind_with_mark,
    name_and_index,
    next_index,
    number_of,
    split_at_commas,
)  # fmt: skip
from mingce.explain.equations.tokens import Token
from mingce.explain.equations.tree import Call, Mean, Minus, Node, Num, Op, Series, Sum, Sym, Var, nodes, symbols

DEEPEST = 24
_FUNCTIONS = {"exp", "log", "ln", "sqrt", "abs", "min", "max", "clip", "mean", "avg", "average", "std", "var", "sum"}
_SAME = {"ln": "log", "avg": "mean", "average": "mean"}
_POLICY = {"old": "old", "ref": "ref", "θold": "old", "thetaold": "old", "θ": "new", "theta": "new", "new": "new"}
_NEXT = re.compile(r"s'|s_?\{?t\+1\}?|s_?\{t\}\+1|s_next|snext|t\+1")
_MARK = re.compile(r"[A-Za-zπ*][\w,π()*γλ=.]{0,24}|\(\w\)")


def parse(words: Sequence[Token], depth: int = 0) -> Node:
    """The tree of all these tokens; raises NotAnExpression."""
    if depth > DEEPEST:
        raise NotAnExpression
    parser = _Parser(words, depth)
    node = parser.sum_of_terms()
    if parser.at < len(words):
        raise NotAnExpression
    return node


class _Parser:
    def __init__(self, words: Sequence[Token], depth: int) -> None:
        self.words, self.at, self.depth, self.last_word = words, 0, depth, ""

    def parsed(self, words: Sequence[Token]) -> Node:
        """The tree of tokens inside this expression."""
        return parse(words, self.depth + 1)

    # ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def peek(self, ahead: int = 0) -> Token:
        place = self.at + ahead
        return self.words[place] if place < len(self.words) else Token("end", "", -1, -1)

    def take(self, text: str = "") -> Token:
        token = self.peek()
        if token.kind == "end" or (text and token.text != text):
            raise NotAnExpression
        self.at += 1
        return token

    def inside(self) -> list[Token]:
        """The tokens of the bracket that opens here, without its ends; the parser goes behind it."""
        self.take()
        depth, first = 1, self.at
        while depth:
            token = self.take()
            depth += (token.kind == "open") - (token.kind == "close")
        return list(self.words[first : self.at - 1])

    # ── grammar ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def sum_of_terms(self) -> Node:
        """Terms with + and − between them; dots stand for those that are left out."""
        terms = [self.product()]
        node = terms[0]
        while self.peek().text in ("+", "-") or self.peek().kind == "dots":
            sign = "+" if self.peek().kind == "dots" else self.take().text
            if self.peek().kind == "dots":
                self.take()
                ends = self.peek().text != "+"
                if not ends:
                    self.take()
                node = Series(tuple(terms), None if ends else self.product())
                terms = [node]
                continue
            term = self.product()
            terms.append(term if sign == "+" else Minus(term))
            node = Op(sign, node, term)
        return node

    def product(self) -> Node:
        node = self.factor()
        while True:
            token = self.peek()
            if token.text in ("*", "/"):
                sign = self.take().text
                node = Op(sign, node, self.factor())
            elif self._touches(token):
                node = Op("*", node, self.factor())
            else:
                return node

    def _touches(self, token: Token) -> bool:
        """Whether two factors stand side by side without a sign: γλ, 2A, γ V, (γλ)^l δ."""
        before = self.peek(-1)
        loose = before.kind in ("num", "greek", "close") or len(self.last_word) == 1 or self.last_word in _GREEK_WORDS
        if not loose:
            return False
        if token.kind in ("greek", "sum") or (token.kind == "open" and token.text != "{"):
            return token.kind != "open" or before.kind in ("num", "greek", "close") or self.last_word in _GREEK_WORDS
        if token.kind != "name":
            return False
        head = token.text.partition("_")[0]
        return len(head) == 1 or head in _GREEK_WORDS or head in ("log", "min", "max", "clip", "exp")

    def factor(self) -> Node:
        if self.peek().text == "-":
            self.take()
            return Minus(self.factor())
        if self.peek().text == "+":
            self.take()
            return self.factor()
        node = self.atom()
        if self.peek().kind == "post":  # δ 之和
            self.take()
            node = Sum(None, None, None, node)
        if self.peek().text == "^":
            self.take()
            node = Op("^", node, self.exponent())
        return node

    def exponent(self) -> Node:
        if self.peek().text in ("{", "("):
            return self.parsed(self.inside())
        if self.peek().text == "-":
            self.take()
            return Minus(self.exponent())
        return self.atom()

    def atom(self) -> Node:
        token, self.last_word = self.peek(), ""
        if token.kind == "num":
            return number_of(self.take().text)
        if token.kind == "sum":
            return self.sigma()
        if token.kind == "open":
            return self.parsed(self.inside())
        if token.kind == "bar":
            return self.absolute()
        if token.kind in ("name", "greek", "zh"):
            return self.named()
        raise NotAnExpression

    def absolute(self) -> Node:
        self.take()
        first = self.at
        while self.peek().kind not in ("bar", "end"):
            self.at += 1
        inner = self.parsed(self.words[first : self.at])
        self.take("|")
        return Call("abs", (inner,))

    def sigma(self) -> Node:
        """`Σ_{l=0}^{∞} body`, `Σ_l body`, `Σ body`."""
        self.take()
        variable, lower, upper = None, None, None
        if self.peek().text == "_":
            self.take()
            below = self.inside() if self.peek().kind == "open" else [self.take()]
            variable, lower, upper = _bounds(below)
        if self.peek().text == "^":
            self.take()
            above = self.inside() if self.peek().kind == "open" else [self.take()]
            upper = None if above and above[0].kind == "inf" else self.parsed(above)
        body = self.product()
        return make_sum(variable, lower, upper, body)

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def named(self) -> Node:
        """A function, an expectation, a letter that counts, or a symbol with its index."""
        token = self.take()
        name, index = name_and_index(token)
        self.last_word = name
        if name in _FUNCTIONS and self.peek().text != "_":
            return self.call(_SAME.get(name, name))
        if name == "E" and self.peek().text in ("[", "(", "_"):
            return self.expectation()
        if name in VARIABLES and index is None and self.peek().text not in ("_", "[") and kind_of(name) is None:
            return Var(name)
        kind = "kl" if name == "k" and (index is not None or self.peek().text == "_") else kind_of(name)
        if kind is None:
            raise NotAnExpression
        return self.symbol(kind, name, index)

    def call(self, name: str) -> Node:
        if self.peek().kind == "open" and self.peek().text != "{":
            arguments = tuple(self.parsed(part) for part in split_at_commas(self.inside()))
        else:
            arguments = (self.factor(),)
        self.last_word = ""
        if name == "sum" and len(arguments) == 1:
            return make_sum(None, None, None, arguments[0])
        if name == "log" and isinstance(arguments[0], Sym) and arguments[0].kind in LOG_PROBS:
            return replace(arguments[0], kind=LOG_PROBS[arguments[0].kind])
        return Call(name, arguments)

    def expectation(self) -> Node:
        if self.peek().text == "_":
            self.take()
            if self.peek().kind == "open":
                self.inside()
            else:
                self.take()
        if self.peek().kind != "open":
            raise NotAnExpression
        inner = self.inside()
        bar = next((k for k, one in enumerate(inner) if one.kind == "bar"), len(inner))
        return Mean(self.parsed(inner[:bar]))

    def symbol(self, kind: str, name: str, index: Node | None) -> Node:
        """The symbol with its marks and index, whatever their order: A^{GAE}_t, V^π(s_t), r_t(θ), log π_old(a|s)."""
        start = self.at - 1
        if kind in SETTINGS:
            index = None
            if kind == "eps" and self.peek().text == "_":
                self.take()
                self.inside() if self.peek().kind == "open" else self.take()
            return Sym(kind, None, name)
        for _ in range(6):
            token = self.peek()
            if token.text == "_" and index is None:
                self.take()
                kind, index = self.subscript(kind, index)
            elif token.text == "^" and (mark := self._mark()) is not None:
                kind = kind_with_mark(kind, mark)
            elif token.text == "'":
                self.take()
                updated = kind == "values" and (index is not None or self.peek().text == "(")
                kind, index = ("new_values", index) if updated else (kind, next_index(index))
            elif token.text in ("[", "(") and (found := self._argument(kind)) is not None:
                kind, given = found
                index = index if given is None else given
            else:
                break
        if kind == "next_values":
            kind, index = "values", next_index(index)
        text = "".join(token.text for token in self.words[start : self.at])
        return Sym(kind, index, text)

    def subscript(self, kind: str, index: Node | None) -> tuple[str, Node | None]:
        """What stands below a symbol: whose policy, or which token."""
        below = self.inside() if self.peek().kind == "open" else [self.take()]
        word = "".join(token.text for token in below).replace("_", "").replace("{", "").replace("}", "")
        if kind in LOG_PROBS and word in _POLICY:
            return f"{_POLICY[word]}_probs", index
        if word in ("clip", "CLIP"):
            return "objective", index
        if kind == "policy_loss" and word.lower() in ("v", "vf", "value", "critic"):
            return "value_loss", index
        if kind == "policy_loss" and word.lower() in ("π", "pi", "policy", "actor", "pg"):
            return kind, index
        if kind == "kl" and word.lower() == "kl":
            return kind, index
        return kind, self._index_of(below)

    def _index_of(self, below: Sequence[Token]) -> Node:
        node = self.parsed(below)
        if symbols(node):
            raise NotAnExpression
        return node

    def _mark(self) -> str | None:
        """A superscript that is a mark and no power."""
        after = self.peek(1)
        if after.kind == "open":
            depth, place = 0, self.at + 1
            while place < len(self.words):
                depth += (self.words[place].kind == "open") - (self.words[place].kind == "close")
                place += 1
                if not depth:
                    break
            word = "".join(token.text for token in self.words[self.at + 2 : place - 1])
            if _MARK.fullmatch(word) and word not in VARIABLES:
                self.at = place
                return word
            return None
        if (after.kind in ("name", "greek") and after.text not in VARIABLES) or after.text == "*":
            self.at += 2
            return after.text
        return None

    def _argument(self, kind: str) -> tuple[str, Node | None] | None:
        """What stands in brackets behind a symbol: an index, a state, or θ; None if it is a factor."""
        before = self.at
        inner = self.inside()
        word = "".join(token.text for token in inner)
        if word in ("θ", "theta"):
            return ("ratio" if kind == "rewards" else kind), None
        head = re.split(r"[,|;]", word)[0].replace(" ", "")
        if _NEXT.fullmatch(head):
            return kind, Op("+", Var("t"), ONE)
        if re.fullmatch(r"s|s_?\{?t\}?|a|a_?\{?t\}?|y_?\{?t\}?|x", head):
            return kind, (Var("t") if "t" in head else None)
        if state := re.fullmatch(r"[sa]_?\{?(\d{1,5}|T(?:-1)?)\}?", head):
            return kind, index_node(state[1])
        try:
            index = self.parsed(inner)
        except NotAnExpression:
            self.at = before
            return None
        if isinstance(index, Num | Var | Op | Minus) and not symbols(index):
            return kind, index
        self.at = before
        return None


_GREEK_WORDS = frozenset({"gamma", "lambda", "lam", "beta", "delta"})


def make_sum(variable: str | None, lower: Node | None, upper: Node | None, body: Node) -> Sum:
    """A sum; without a variable over the letter that its body counts with, if there is one."""
    if variable is None:
        letters = [one.name for one in nodes(body) if isinstance(one, Var) and one.name not in ("t", "T")]
        variable = letters[0] if letters else None
    if variable is not None and variable != "t" and lower is None:
        relative = any(isinstance(one, Var) and one.name == "t" for one in nodes(body))
        lower = Num(0.0) if relative else None
    return Sum(variable, lower, upper, body)


def _bounds(below: Sequence[Token]) -> tuple[str | None, Node | None, Node | None]:
    """What stands below Σ: `l=0`, `l`, `l≥0`, `l<n`, `k=t`."""
    if not below or below[0].text not in VARIABLES:
        raise NotAnExpression
    variable = below[0].text
    if len(below) == 1:
        return variable, None, None
    if len(below) < 3 or below[1].kind != "rel":
        raise NotAnExpression
    bound = parse(below[2:])
    if below[1].text == "<":
        return variable, Num(0.0), Op("-", bound, ONE)
    if below[1].text == "≤":
        return variable, Num(0.0), bound
    return variable, bound, None
