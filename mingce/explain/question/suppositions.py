"""What a question supposes of the example's numbers: "the critic is 0.3 too high everywhere", 最后的奖励是 −1 呢."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from mingce.explain.question.places import read_places
from mingce.explain.question.scalars import read_final_score, read_flat_values

_NUMBER = r"([-−+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\d.%]|\s*(?:[,，~/]|和|与|或|到|and|or|to)\s*[-−+]?\d)"


def _with_number(*patterns: str) -> tuple[re.Pattern[str], ...]:
    """Patterns in which `<n>` stands for the number that is read."""
    return tuple(re.compile(one.replace("<n>", _NUMBER), re.IGNORECASE) for one in patterns)


_CLAUSES = re.compile(r"[，,；;。？?！!\n]|\.\s")
_COLUMNS: tuple[tuple[Literal["values", "rewards", "scores"], re.Pattern[str]], ...] = (
    (
        "values",
        re.compile(
            r"(?<![a-z])critic|(?<![a-z])values?(?![a-z])|(?-i:(?<![A-Za-z])V(?![A-Za-z]))|价值|估值|baseline|基线",
            re.IGNORECASE,
        ),
    ),
    ("rewards", re.compile(r"(?<![a-z])rewards?(?![a-z])|(?-i:(?<![A-Za-z])r(?=[_\[(]))|奖励", re.IGNORECASE)),
    ("scores", re.compile(r"(?<![a-z])scores?(?![a-z])|得分|分数|打分", re.IGNORECASE)),
)
_EVERYWHERE = re.compile(
    r"都|全部?|整体|处处|统一|所有|每(?:一)?个|一律|\b(?:everywhere|every|all|each|uniformly|constantly|across)\b",
    re.IGNORECASE,
)
_LISTED = re.compile(r"\d\s*[,，、]\s*[-−]?\d[\d.]*\s*[,，、]\s*[-−]?\d|[\[［]")
_LAST = -1
_ONE_LAST = re.compile(r"最后|末尾|最终|\b(?:last|final|terminal|end)\b", re.IGNORECASE)
_IS = _with_number(
    r"(?:设置?[为成]|[改变换调][成为到]|是|为|等于|[=＝]|输出|给)\s*<n>",
    r"\b(?:(?:is|are|was|were)(?: (?:all|set to))?|becomes?|to|equals?|of)\b\s*<n>",
)
_MORE = _with_number(
    r"(?:高估|偏高|[加高大多](?:出|上|估|给|猜)?)了?\s*<n>",
    r"over-?estimat\w*\D{0,40}?\bby\s*<n>",
    r"(?:off|wrong|too high|high(?:er)?|shifted|raised|up|biased|increased?)\b[^.\d]{0,24}?\bby\s*<n>",
    r"\badd(?:ing)?\s+(?:a constant\s+)?<n>",
    r"<n>\s*(?:too high|higher|larger|above|more\b)",
)
_LESS = _with_number(
    r"(?:低估|偏低|[减低小少](?:去|掉|估|给|猜)?)了?\s*<n>",
    r"under-?estimat\w*\D{0,40}?\bby\s*<n>",
    r"(?:too low|lower(?:ed)?|down|decreased?|reduced?)\b[^.\d]{0,24}?\bby\s*<n>",
    r"\bsubtract(?:ing)?\s+<n>",
    r"<n>\s*(?:too low|lower|smaller|below|less\b)",
)
_TIMES = _with_number(
    r"(?:乘以?|放大|扩大|变成原来的?|×|[*](?!\*))\s*(?:到|了)?\s*<n>\s*倍?",
    r"\b(?:multipl\w+|scaled?|times)\b[^.\d]{0,30}?(?:\bby\s*)?<n>",
    r"<n>\s*(?:times|x)\b",
)
_DOUBLED = re.compile(r"翻倍|翻一倍|加倍|double[ds]?\b|twice\b", re.IGNORECASE)
_HALVED = re.compile(r"减半|一半|\bhal(?:f|ve[ds]?)\b", re.IGNORECASE)
_FLIPPED = re.compile(r"取反|反号|变号|\b(?:negated?|flip(?:ped)? (?:the )?sign|opposite sign)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Supposition:
    """A column's numbers, at one slot (−1: the last that was chosen) or everywhere: what they are, plus or times."""

    column: Literal["values", "rewards", "scores"]
    how: Literal["is", "plus", "times"]
    number: float
    slot: int | None = None

    def applied(self, column: list[float], slots: list[int]) -> list[float] | None:
        """The column as supposed; None if its slot was not chosen."""
        slot = slots[-1] if self.slot == _LAST and slots else self.slot
        if slot is not None and slot not in slots:
            return None
        return [self._made(x) if slot is None or t == slot else x for t, x in enumerate(column)]

    def _made(self, x: float) -> float:
        return {"is": self.number, "plus": x + self.number, "times": x * self.number}[self.how]


def read_suppositions(text: str) -> tuple[Supposition, ...]:
    """What is supposed, clause by clause, one thing a column; nothing where a clause names no number to suppose."""
    found: dict[str, Supposition] = {}
    whole: tuple[tuple[Literal["values", "scores"], float | None, int | None], ...] = (
        ("values", read_flat_values(text), None),
        ("scores", read_final_score(text), _LAST),
    )
    for column, number, slot in whole:
        if number is not None:
            found[column] = Supposition(column, "is", number, slot)
    if _LISTED.search(text):
        return ()  # rows are typed in: they are the example
    for clause in _CLAUSES.split(text):
        one = _of_clause(clause)
        if one is not None and not {one.column, "scores" if one.column == "rewards" else one.column} & set(found):
            found[one.column] = one
    return tuple(found.values())


def _of_clause(clause: str) -> Supposition | None:
    named = [name for name, pattern in _COLUMNS if pattern.search(clause)]
    everywhere = _EVERYWHERE.search(clause) is not None
    places = read_places(clause, (), (_LAST,))
    slot = places[0].index if len(places) == 1 else _LAST if not places and _ONE_LAST.search(clause) else None
    if len(places) > 1 or len(named) > 1:
        return None
    change = _change(clause)
    if not named:
        unnamed = change is not None and everywhere and change[0] == "plus"
        return Supposition("values", change[0], change[1]) if unnamed and change is not None else None
    column = named[0]
    if change is not None:
        return Supposition(column, change[0], change[1], slot)
    number = _number(_IS, clause)
    if column == "scores" and slot is None and not everywhere:
        slot = _LAST  # an answer has one
    if number is None or (slot is None and not everywhere):
        return None
    return Supposition(column, "is", number, None if everywhere and not places else slot)


def _change(clause: str) -> tuple[Literal["plus", "times"], float] | None:
    """By how much something is more, or how many times itself."""
    if (factor := _number(_TIMES, clause)) is not None:
        return "times", factor
    for patterns, sign in ((_LESS, -1.0), (_MORE, 1.0)):
        if (number := _number(patterns, clause)) is not None:
            return "plus", sign * number
    for pattern, factor in ((_DOUBLED, 2.0), (_HALVED, 0.5), (_FLIPPED, -1.0)):
        if pattern.search(clause):
            return "times", factor
    return None


def _number(patterns: tuple[re.Pattern[str], ...], clause: str) -> float | None:
    match = next((found for pattern in patterns if (found := pattern.search(clause))), None)
    return None if match is None else float(match[1].replace("−", "-"))
