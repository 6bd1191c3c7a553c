"""The equations of a text: where a relation stands, the longest sides around it that can be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from mingce.explain.equations.names import CHINESE, SETTINGS, kind_of
from mingce.explain.equations.parser import parse
from mingce.explain.equations.pieces import NotAnExpression
from mingce.explain.equations.tokens import Token, plain, tokens
from mingce.explain.equations.tree import Call, Mean, Minus, Node, Num, Sum, Sym, Var, children, has, nodes, symbols
from mingce.explain.question.request import each_set

LONGEST_SIDE = 90
"""Tokens of one side."""
MOST = 12
"""Equations of one text."""
DEEPEST_SUM, MOST_NODES = 2, 300
"""What goes beyond is not tried: sums inside sums take long."""
_NAME = rf"(?:{'|'.join(CHINESE)}|[A-Za-zα-ω][A-Za-z_]*)"
_TOKEN = r"(?:token|词|字|个位置|位置)"
_DIGITS = {name: n for n, name in enumerate("零一二三四五六七八九十")} | {"两": 2}
_PROSE = (
    (re.compile(rf"第\s*(\d{{1,5}}|[一二三四五六七八九十两])\s*个?\s*{_TOKEN}?\s*的?\s*({_NAME})"), "nth"),
    (re.compile(rf"{_TOKEN}\s*#?\s*(\d{{1,5}})\s*(?:的|'s)\s*({_NAME})", re.I), "at"),
    (
        re.compile(rf"(?:最后一个|末尾的?|最后的)\s*{_TOKEN}?\s*的?\s*({_NAME})|last\s+token'?s?\s+({_NAME})", re.I),
        "last",
    ),
    (re.compile(rf"(?<![A-Za-z_])({_NAME})\s+(?:of|at|for)\s+token\s*#?\s*(\d{{1,5}})", re.I), "of"),
    (re.compile(rf"(?<![A-Za-z_])({_NAME})\s+(?:of|at|for)\s+(?:the\s+)?last\s+token", re.I), "of_last"),
)
_AVERAGES = ("mean", "sum", "item")
"""Methods behind a formula that is claimed of every token all the same."""
_LAST = Minus(Num(1.0))
LAST_TOKEN = re.compile(
    r"最后一个\s*(?:token|词|字)?|末尾|at the last token|for the last token|last token|final token", re.I
)
FIRST_UPDATE = re.compile(
    r"第一次更新|首次更新|第一轮更新|first (?:gradient )?(?:update|epoch|step|pass)|on-policy|同策略", re.I
)


@dataclass(frozen=True)
class Equation:
    """Two sides and what is said to hold between them; `ordinal` if a token was counted as the n-th."""

    left: Node
    relation: str
    right: Node
    text: str
    ordinal: bool = False


@dataclass(frozen=True)
class Reading:
    """What a text claims, and under which settings."""

    equations: tuple[Equation, ...] = ()
    settings: dict[str, float] = field(default_factory=dict)
    last: bool = False
    first_update: bool = False


def read(text: str) -> Reading:
    """All equations of a text; `λ = 1` among others is the condition they are claimed under."""
    flat, ordinal = _with_indices(plain(each_set(text)))
    words = tokens(flat)
    found: list[Equation] = []
    settings: dict[str, float] = {}
    strong = [k for k, word in enumerate(words) if word.kind == "rel"]
    weak = [k for k, word in enumerate(words) if word.kind == "weak"]
    for place in [*strong, *weak]:
        if len(found) >= MOST:
            break
        one = _around(words, place, flat, ordinal)
        if one is None:
            continue
        if isinstance(one.left, Sym) and one.left.kind in SETTINGS and isinstance(one.right, Num):
            if one.relation == "=":
                settings[one.left.kind] = one.right.value
        elif _claims(one, words[place].kind == "weak"):
            found.append(one)
    found.sort(key=lambda one: flat.find(one.text))
    bare = not any(_fixed_index(side) for one in found for side in (one.left, one.right))
    return Reading(
        tuple(found), settings, bare and LAST_TOKEN.search(text[:2000]) is not None,
        FIRST_UPDATE.search(text[:2000]) is not None,
    )  # fmt: skip


def _fixed_index(node: Node) -> bool:
    """Whether a token other than the last is named by its number."""
    return any(sym.index is not None and not has(sym.index, Var) and sym.index != _LAST for sym in symbols(node))


def _with_indices(flat: str) -> tuple[str, bool]:
    """`第 4 个 token 的优势` → `优势[4]`, `the advantage of token 3` → `advantage[3]`."""
    ordinal = False
    for pattern, form in _PROSE:

        def put(match: re.Match[str], form: str = form) -> str:
            parts = [part for part in match.groups() if part]
            name, number = (parts[-1], parts[0]) if form in ("nth", "at") else (parts[0], parts[-1])
            if kind_of(name) is None:
                return match[0]
            index = "-1" if form in ("last", "of_last") else str(_DIGITS.get(number, number))
            return f" {name}[{index}] "

        changed = pattern.sub(put, flat)
        ordinal = ordinal or (form == "nth" and changed != flat)
        flat = changed
    return flat, ordinal


def _around(words: Sequence[Token], place: int, flat: str, ordinal: bool) -> Equation | None:
    """The equation of the relation at that place."""
    left = _longest(words, range(_reach(words, place, -1), place), place)
    if left is None:
        return None
    last = _reach(words, place, 1)
    for end in range(last, place + 1, -1):
        try:
            right = parse(words[place + 1 : end])
        except NotAnExpression:
            continue
        relation = "=" if words[place].kind == "weak" else words[place].text
        node, start = left
        if _goes_on(words, start - 1) or _goes_on(words, end):  # something of the formula could not be read
            return None
        return Equation(node, relation, right, flat[words[start].start : words[end - 1].end], ordinal)
    return None


def _goes_on(words: Sequence[Token], place: int) -> bool:
    """Whether the token there belongs to the formula next to it."""
    if not 0 <= place < len(words):
        return False
    if words[place].text == "." and place + 2 < len(words) and words[place + 2].text == "(":
        return words[place + 1].kind == "name" and words[place + 1].text not in _AVERAGES
    return words[place].kind in ("op", "open", "close", "sum", "greek", "bar", "dots", "inf", "num")


def _longest(words: Sequence[Token], starts: range, end: int) -> tuple[Node, int] | None:
    for start in starts:
        try:
            return parse(words[start:end]), start
        except NotAnExpression:
            continue
    return None


def _reach(words: Sequence[Token], place: int, way: int) -> int:
    """How far a side may go: to the next relation, unknown word or loose comma, LONGEST_SIDE tokens at most."""
    depth, k = 0, place + way
    while 0 <= k < len(words) and abs(k - place) <= LONGEST_SIDE:
        word = words[k]
        depth += way * ((word.kind == "open") - (word.kind == "close"))
        inside = depth > 0 if way > 0 else depth > 0 or word.kind == "open"
        stops = word.kind in ("rel", "weak", "comma", "word") and not inside
        if stops or depth < 0:
            break
        k += way
    return k if way > 0 else k + 1


def _claims(one: Equation, weak: bool) -> bool:
    """Whether it says something about a rollout: it names a column, and in prose something definite."""
    sides = (one.left, one.right)
    if any(_sums(side) > DEEPEST_SUM or sum(1 for _ in nodes(side)) > MOST_NODES for side in sides):
        return False
    columns = [sym for side in sides for sym in symbols(side) if sym.kind not in SETTINGS]
    if not columns:
        formula = any(not symbols(side) for side in sides) and all(not isinstance(side, Sym) for side in sides)
        return formula and any(symbols(side) for side in sides) and not any(has(side, Var) for side in sides)
    if not weak:
        return True
    if not isinstance(one.left, Sym):
        return False
    plain_number = not symbols(one.right)
    return one.left.index is not None if plain_number else True


def _sums(node: Node) -> int:
    """How many sums stand inside each other."""
    return isinstance(node, Sum) + max((_sums(child) for child in children(node)), default=0)


def free_of_index(node: Node) -> bool:
    """Whether the side speaks of any token t: a column without an index of its own, outside sums over t."""
    match node:
        case Sym(kind, index, _):
            if kind in SETTINGS:
                return False
            return index is None or any(isinstance(one, Var) and one.name == "t" for one in nodes(index))
        case Sum(variable, lower, upper, body):
            if variable in (None, "t"):
                return False
            return any(free_of_index(one) for one in (lower, upper, body) if one is not None)
        case Mean(of):
            return free_of_index(of)
        case Var(name):
            return name == "t"
    return any(free_of_index(child) for child in _below(node))


def _below(node: Node) -> list[Node]:
    if isinstance(node, Call) and node.name in ("mean", "std", "var"):
        return []
    return list(children(node))
