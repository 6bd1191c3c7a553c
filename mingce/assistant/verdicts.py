"""What each number of a reply is: an index, a marker of a list, a claim about a name, a side of an equation.

`Reading(text, evidence).verdict(number)` gives right, wrong with the right number, unverified, or plain for what claims
nothing. Where a number could be several things the strictest counts.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from typing import Literal as Choice

from mingce.assistant.evidence import Evidence
from mingce.assistant.literals import NOISE, Literal, literals
from mingce.base.numbers import number as shown
from mingce.columns import COLUMNS
from mingce.explain.claims.names import COLUMN_KINDS, SETTING_KINDS, label_kind, symbol_kind
from mingce.specs.settings import SYMBOLS

Status = Choice["plain", "right", "wrong", "unverified"]
Verdict = tuple[Status, str | None]
PLAIN: Verdict = ("plain", None)
RIGHT: Verdict = ("right", None)
UNVERIFIED: Verdict = ("unverified", None)
_OWN_SYMBOLS = {
    column.symbol.removesuffix("_t"): column.name for column in COLUMNS.values() if column.symbol.endswith("_t")
}
_MARKUP = r"[\s$`*_\\()（）]*"
_ABOUT = (
    r"(?:(?:about|roughly|nearly|approximately|almost|just|only|exactly|around|大约|大概|约|差不多|接近|正好|恰好)\s*)?"
)
_RELATION = r"(?:=|≈|:=|∈|→|\\approx\b|:|：|\bis\b|\bare\b|\bwas\b|\bequals?\b|等于|约为|约等于|为|是|\|)"
_NAMED = re.compile(
    rf"(?<![A-Za-z_])(?P<name>Â|δ|ρ|[A-Za-z]+(?:_[A-Za-z]+)*)(?:_\{{?\s?(?P<a>\d{{1,6}})\s?\}}?|\[(?P<b>\d{{1,6}})\]|\(s_\{{?(?P<c>\d{{1,6}})\}}?\))"
    rf"{_MARKUP}{_RELATION}{_MARKUP}{_ABOUT}"
)
_SETTING = re.compile(rf"(?P<name>γ|λ|β|\\?(?:gamma|lambda|lam|beta)\b){_MARKUP}{_RELATION}{_MARKUP}$", re.IGNORECASE)
_LIST = re.compile(
    r"(?P<label>[^\n\[\]]{1,60}?)[=≈:：是为]\s*[`$*]*"
    r"(?:\[(?P<items>[^\[\]\n]*)\]|(?P<bare>[-−]?\d[\d.]*(?:\s*[,，、]\s*[-−]?\d[\d.]*){2,}))"
)
_CLAUSE = re.compile(r"(?:[^\n，。；;、|,.]|[,.](?=\d)|(?<=\d)\.(?=\d))+")
_ENDS = re.compile(r"[\n。；;，]|[,.]\s")
_FUNCTION = re.compile(r"\b(?:sqrt|exp|log|ln|max|min|abs|round|sin|cos|tanh|pow)\b|√|\^", re.IGNORECASE)
_LETTER = re.compile(r"[A-Za-zα-ω一-鿿]")
WINDOW = 80
"""Characters before a number in which its name is looked for."""
_SIDES = re.compile(r"=|≈")
_GOES_ON = re.compile(r"\s*(?:[+×·⋅/÷^−–]|-\s*\S|\*(?!\*)\s*[\w(])")
_LABELLED = re.compile(rf"(?:{_RELATION}|\bof\b|\bhas\b.{{0,30}}|有|得到?){_MARKUP}{_ABOUT}$", re.IGNORECASE)
_TOKEN = re.compile(
    r"(?:\btoken\s*#?|\bt\s*=\s*|第\s*)(?P<at>\d{1,6})|(?P<first>\bfirst\b|第一个|首个|开头)|(?P<last>\b(?:last|final)\b|最后一?个?|末尾)",
    re.IGNORECASE,
)
_OF_WHICH = re.compile(
    r"\s*(?:is|was|=|是|为)\s*(?:the\s+|那?个?)?(?P<label>[^\d\n,.;，。；]{1,40}?(?:token\s*#?\s*\d{1,6}|token\b)|[^\d\n,.;，。；]{0,30}第\s*\d{1,6}[^\d\n,.;，。；]{0,20})",
    re.IGNORECASE,
)
"""What a number is said to be, behind it: `0.6 is the value of the first token`."""
_MARKER = re.compile(r"^[ \t]*(?:[-*>#]+[ \t]*)*[*_]{0,2}$")
_PLACE_BEFORE = re.compile(
    r"(?:\bt\s*=\s*|\b(?:tokens?|positions?|index|slots?|steps?|rows?|rollouts?)\s*#?\s*|第\s*|位置\s*|下标\s*|s_\{?t?[+−-]?)$",
    re.IGNORECASE,
)
_COUNT_AFTER = re.compile(r"\s*(?:个|步|tokens?\b|steps?\b)", re.IGNORECASE)
_INDEX_BEFORE = re.compile(
    r"(?:[^\W\d_]_\{?[a-zA-Z]?\s?[+−-]?\s?|\)_|[A-Za-z]\[[a-z]?\s?[+−-]?\s?|\b[tkl]\s?[+−-]\s?|[A-Za-z)\]}]\^\{?\s?)$"
)
_FILE_BEFORE = re.compile(r"[\w./-]+\.py:$")
_QUOTES = {"“": "”", "「": "」", "『": "』", '"': '"', "`": "`", "'": "'", "‘": "’", "《": "》"}
LONGEST_SIDE = 200
_SUM = r"(?P<sum>[-−–+(（\s]*\d(?:[\d.+\-−–*×·⋅/÷()（）]|\s(?=[\s\d.+\-−–*×·⋅/÷()（）]))*+)"
_FIRST = re.compile(rf"(?:^|(?<=[^\s+\-−–*×·⋅/÷^(（γλβδ])(?=\s|[:：])[\s:：]+){_SUM}$")
_MIDDLE = re.compile(_SUM)
_LAST = re.compile(rf"{_SUM}(?![\w%^{{\\])(?<![+\-−–*×·⋅/÷])(?!\s*[%γλβδ]|\s+\w[_(])")
_SIGNS = {
    "plus": "+", "minus": "-", "times": "*", "multiplied by": "*", "divided by": "/", "equals": "=", "gives": "=",
    "makes": "=", "加上": "+", "加": "+", "减去": "-", "减": "-", "乘以": "*", "乘": "*", "除以": "/", "等于": "=",
    "得": "=", "得到": "=",
}  # fmt: skip
_IN_WORDS = re.compile(
    r"(?<=\d)\s*(?:(?:plus|minus|times|multiplied by|divided by|equals|gives|makes)\b"
    r"|加上?|减去?|乘以?|除以|等于|得到?)"
    r"(?=\s*[-−(（]?\d)",
    re.IGNORECASE,
)
_OPERATORS: dict[type, Callable[..., float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_ARITHMETIC = str.maketrans(
    {"×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", "（": "(", "）": ")", "{": "(", "}": ")"}
)


class Reading:
    """A reply read once: which of its numbers are claimed by names and which stand in equations."""

    def __init__(self, text: str, evidence: Evidence):
        self.text, self.evidence = text, evidence
        self.size = len(evidence.rollout.tokens)
        self._numbers = literals(text)
        self._starts = [one.start for one in self._numbers]
        self._quoted = list(self._quotations())
        self._names: dict[int, tuple[str, int]] = {}
        self._sums: dict[int, Verdict] = {}
        self._doubtful: set[int] = set()
        self._claims()
        self.flat = in_signs(text)
        for clause in _CLAUSE.finditer(self.flat):
            if _SIDES.search(clause[0]):
                self._equations(clause.start(), clause.end())

    def verdict(self, number: Literal) -> Verdict:
        """What this number is."""
        if not math.isfinite(number.value):
            return UNVERIFIED
        if any(start <= number.start < end for start, end in self._quoted):
            return PLAIN
        if not number.plain and number.start in self._doubtful:
            return UNVERIFIED
        if not number.plain:
            return RIGHT if self.evidence.knows(number) else UNVERIFIED
        if number.start in self._names:
            return self._named(number, *self._names[number.start])
        if number.start in self._sums and self._sums[number.start][0] == "wrong":
            return self._sums[number.start]
        if number.start in self._doubtful:
            return UNVERIFIED
        if (setting := self._setting(number)) is not None:
            return setting
        is_whole = not number.decimals and not number.percent
        if is_whole and (place := self._place(number)) is not None:
            return place
        if not self._fits_label(number):
            return UNVERIFIED
        if self.evidence.knows(number):
            return RIGHT
        return self._sums.get(number.start, UNVERIFIED)

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _claims(self) -> None:
        """`A_3 = 0.5`, `V(s_3) is …`, `advantages = [0.6, 0.5]`: which number is claimed to be which."""
        for match in _NAMED.finditer(self.text):
            kind = column_of(match["name"])
            index = next(match[group] for group in "abc" if match[group] is not None)
            if kind is not None:
                for number in self._lone(match.end()):
                    self._names[number.start] = (kind, int(index))
                self._doubtful |= {one.start for one in self._composed(match.end(), kind, int(index))}
        for match in _LIST.finditer(self.text):
            kind = column_of(match["label"].strip(" `*$")) or _column(label_kind(match["label"]))
            items = "bare" if match["items"] is None else "items"
            inside = self._between(match.start(items), match.end(items))
            if kind is not None and len(inside) == self.size:
                for index, number in enumerate(inside):
                    self._names[number.start] = (kind, index)

    def _lone(self, at: int) -> Iterator[Literal]:
        """The numbers that are a whole side of what follows a name, up to the end of the clause."""
        clause = _CLAUSE.match(self.text, at, at + LONGEST_SIDE)
        for start, end in sides(self.text, at, clause.end() if clause else at):
            number = next(iter(self._between(start, end)), None)
            if number is None or self.text[start : number.start].strip(" $`*_(（[{"):
                continue
            if not _GOES_ON.match(self.text, number.end, end):
                yield number

    def _composed(self, at: int, kind: str, index: int) -> Iterator[Literal]:
        """The numbers of a side that is arithmetic, or a function, and not what the name stands for."""
        clause = _CLAUSE.match(self.text, at, at + LONGEST_SIDE)
        truths = self.evidence.truths(kind, index)
        for start, end in sides(self.text, at, clause.end() if clause else at):
            side, inside = self.text[start:end], self._between(start, end)
            if (len(inside) < 2 and not _FUNCTION.search(side)) or self.evidence.said(side):
                continue
            value, slack = value_of(side, False, True), self._slack(start, end)
            if value is None:
                yield from inside if _FUNCTION.search(side) or not _LETTER.search(side) else ()
            elif not any(abs(value - truth) <= slack for truth in truths):
                yield from inside

    def _slack(self, start: int, end: int) -> float:
        """How far a side may be off by the rounding of its numbers."""
        value, slack = value_of(self.text[start:end], False, True), 0.0
        for one in self._between(start, end):
            moved = f"{self.text[start : one.start]}({one.value + one.tolerance}){self.text[one.end : end]}"
            other = value_of(moved, False, True)
            slack += abs(other - value) if value is not None and other is not None else one.tolerance
        return slack

    def _named(self, number: Literal, kind: str, index: int) -> Verdict:
        truths = self.evidence.truths(kind, index)
        if not truths:
            return UNVERIFIED
        scale = 100.0 if number.percent else 1.0
        if any(abs(number.value / scale - truth) <= number.tolerance / scale for truth in truths):
            return RIGHT
        return "wrong", right_text(truths[0], number)

    def _setting(self, number: Literal) -> Verdict | None:
        """`λ = 0.95`: the setting, or what the computed texts say of it, such as λ = 0; else that of another world."""
        before = self.text[max(0, number.start - 24) : number.start]
        match = _SETTING.search(before)
        if match is None:
            return None
        kind = symbol_kind(match["name"].lstrip("\\"))
        if kind not in SETTING_KINDS:
            return None
        if any(abs(number.value - truth) <= number.tolerance for truth in self.evidence.truths(kind, None)):
            return RIGHT
        written = self.text[number.start : number.end]
        return RIGHT if self.evidence.said(f"{SYMBOLS[kind]}={written}") else UNVERIFIED

    def _fits_label(self, number: Literal) -> bool:
        """`the advantage of token 3 is 0.4`: it must be in that column, at that token if one is named."""
        before = _ENDS.split(self.text[max(0, number.start - WINDOW) : number.start])[-1]
        behind = _OF_WHICH.match(self.text, number.end, number.end + WINDOW)
        if _LABELLED.search(before):
            return self._fits(number, before)
        return behind is None or self._fits(number, behind["label"])

    def _fits(self, number: Literal, label: str) -> bool:
        """Whether the number is in the column that the words name, at the token they name."""
        kind = _column(label_kind(label))
        if kind is None:
            return True
        tokens = list(_TOKEN.finditer(label))
        if tokens and number.start not in self._sums:
            truths = [truth for at in self._slots(tokens[-1]) for truth in self.evidence.truths(kind, at)]
            return any(abs(number.value - truth) <= number.tolerance for truth in truths)
        if number.decimals or number.percent:
            return True
        column = self.evidence.rollout.columns.get(kind, ())
        return any(x is not None and abs(x - number.value) <= number.tolerance for x in column)

    def _slots(self, token: re.Match[str]) -> list[int]:
        """The slots that words for a token may mean."""
        if token["at"] is not None:
            return [int(token["at"])]
        chosen = [slot for slot, is_chosen in enumerate(self.evidence.rollout.mask) if is_chosen]
        return chosen[:1] if token["first"] else chosen[-1:]

    # ── equations ────────────────────────────────────────────────────────────────────────────────────────────────

    def _equations(self, start: int, end: int) -> None:
        """Sides that can be computed must be equal; the last number of a false one is wrong."""
        parts = list(sides(self.flat, start, end))
        last = len(parts) - 1
        found = [(a, b, value_of(self.flat[a:b], k == 0, k == last)) for k, (a, b) in enumerate(parts)]
        for (a, b, left), (c, d, right) in pairwise(found):
            inside = self._between(c, d)
            if left is None or right is None or not inside:
                continue
            slack = sum(one.unit / 2 for one in self._between(a, b) if one.decimals > 2)
            off = inside[-1].tolerance + slack + NOISE * max(1.0, abs(left))
            if abs(left - right) <= off:
                known = all(self.evidence.knows(one) for one in self._between(a, b))
                if known and len(inside) == 1:
                    self._sums[inside[0].start] = RIGHT
            elif len(inside) == 1:
                self._sums[inside[0].start] = ("wrong", right_text(left, inside[0]))
            else:
                self._sums.update({one.start: UNVERIFIED for one in inside})

    def _between(self, start: int, end: int) -> list[Literal]:
        at = bisect_right(self._starts, start - 1)
        found = []
        while at < len(self._numbers) and self._numbers[at].start < end:
            found.append(self._numbers[at])
            at += 1
        return found

    # ── whole numbers that count places ──────────────────────────────────────────────────────────────────────────

    def _place(self, number: Literal) -> Verdict | None:
        """An index, a marker of a list, a line of code: right if there is such a place; None if it is none of these."""
        text, start, end = self.text, number.start, number.end
        before, after = text[max(0, start - WINDOW) : start], text[end : end + 12]
        line = before.rpartition("\n")[2] if "\n" in before or start <= WINDOW else "…"
        if _MARKER.match(line) and re.match(r"[.)、](?!\d)", after) and number.value <= 99:
            return PLAIN
        there = 0 <= number.value <= self.size or number.value in self.evidence.counts
        if file := _FILE_BEFORE.search(before):
            return RIGHT if self.evidence.said(file[0] + text[start:end]) else UNVERIFIED
        if _PLACE_BEFORE.search(before) or _INDEX_BEFORE.search(before):
            return PLAIN if there else UNVERIFIED
        if _COUNT_AFTER.match(after):
            return RIGHT if number.value in self.evidence.counts else UNVERIFIED
        word = re.search(r"(?<!\\)\b[A-Za-z][A-Za-z_-]*$", before)
        if word and self.evidence.said(word[0] + text[start:end]):
            return PLAIN
        return None

    def _quotations(self) -> Iterator[tuple[int, int]]:
        """Where the prompt or the response is quoted word for word: its own words claim nothing."""
        for words in (self.evidence.rollout.prompt, self.evidence.rollout.response):
            if len(words) < 4:
                continue
            at = self.text.find(words)
            while at >= 0:
                end = at + len(words)
                if at and self.text[at - 1] in _QUOTES and self.text[end : end + 1] == _QUOTES[self.text[at - 1]]:
                    yield at, end
                at = self.text.find(words, end)


def right_text(value: float, number: Literal) -> str:
    """The right number, in percent where the reply has one."""
    return f"{shown(100 * value)}%" if number.percent else shown(value)


def column_of(name: str) -> str | None:
    """The column that a symbol or a name in code stands for."""
    return _OWN_SYMBOLS.get(name) or (name if name in COLUMNS else None) or _column(symbol_kind(name))


def _column(kind: str | None) -> str | None:
    if kind == "whitened":
        return "whitened_advantages"
    return kind if kind in COLUMN_KINDS and kind in COLUMNS else None


def in_signs(text: str) -> str:
    """The text with words for arithmetic between numbers as signs, every character in its place."""
    return _IN_WORDS.sub(lambda match: _SIGNS[match[0].strip().lower()].ljust(len(match[0])), text)


def sides(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of text[start:end] between equals signs."""
    at = start
    for match in _SIDES.finditer(text, start, end):
        yield at, match.start()
        at = match.end()
    yield at, end


def value_of(side: str, first: bool, last: bool) -> float | None:
    """A side of nothing but numbers and operations, computed; None for anything else.

    Words may stand before the arithmetic of the first side and after that of the last.
    """
    side = side.strip(" $`*_")
    if len(side) > LONGEST_SIDE:
        side = side[-LONGEST_SIDE:] if first else side[:LONGEST_SIDE]
    match = _FIRST.search(side) if first else _LAST.match(side) if last else _MIDDLE.fullmatch(side)
    if match is None:
        return None
    try:
        return _computed(ast.parse(match["sum"].translate(_ARITHMETIC).strip(), mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, TypeError, KeyError, MemoryError):
        return None


def _computed(node: Any) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_computed(node.left), _computed(node.right))
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](_computed(node.operand))
    raise ValueError(type(node).__name__)
