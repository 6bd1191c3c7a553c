"""Which quantities of the account a question names, in the order it names them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from mingce.base.lang import LANGS
from mingce.base.texts import named, texts
from mingce.columns import TOKEN_COLUMNS
from mingce.explain.question.places import Place

_BEFORE_ASKED = re.compile(r"(?:分别|各|大概|大约)?(?:会?是|等于|为)?多少|是几|怎么算|怎么得")
_BEHIND_ASKED = re.compile(
    r"\b(?:what(?:'?s| is| are| would| will| do| does)|how much|how big|compute|calculate)\b", re.IGNORECASE
)
_ASIDE = re.compile(r"[（(][^（()）]*[）)](?!\d)")
_CLAUSES = re.compile(r"[，,;；。？?\n]|\band (?=what|how)\b|以及", re.IGNORECASE)
MOST = 4
_SYMBOLS = {
    "whitened_advantages": r"Â",
    "mc_return": r"\bG(?=_)",
    "advantages": r"(?<![A-Za-z_])A(?=[_\[(ₜ₀-₉]|\s*[=−+*·≈<>?？，,、一-鿿]|\s*(?:vs|and)\b|\s*$)",
    "returns": r"(?<![A-Za-z_])R(?=[_\[ₜ₀-₉]|\s*[=−+*·≈<>?？，,、一-鿿]|\s*(?:vs|and)\b|\s*$)",
    "rewards": r"(?<![A-Za-z_])r(?=[_\[ₜ₀-₉])",
    "values": r"(?<![A-Za-z_])V(?=[_\[(ₜ₀-₉]|\s*[=−+*·≈<>?？，,、一-鿿]|\s*(?:vs|and)\b|\s*$)",
}
"""Letters that stand for a quantity as they are written; words may have any case."""


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    zh, en = (named(texts("quantities", lang)["names"]) for lang in LANGS)
    words = [(name, re.compile(f"{zh[name]}|{en[name]}", re.IGNORECASE | re.ASCII)) for name in en]
    return (*words, *((name, re.compile(pattern)) for name, pattern in _SYMBOLS.items()))


def read_quantities(text: str) -> list[str]:
    """The names of the column table or of mingce.explain.derive."""
    places: list[tuple[int, str]] = []
    taken: list[tuple[int, int]] = []
    for name, pattern in _patterns():
        for match in pattern.finditer(text):
            if not any(a < match.end() and match.start() < b for a, b in taken):
                taken.append(match.span())
                places.append((match.start(), name))
    return list(dict.fromkeys(name for _, name in sorted(places)))


def without_quantities(text: str) -> str:
    """The text with the names of quantities and what is no letter taken out."""
    for _, pattern in _patterns():
        text = pattern.sub(" ", text)
    return re.sub(r"[\W\d_]+", "", text)


def read_statistics(text: str, column: str | None = None) -> list[str]:
    """`sum(deltas)` for "the sum of the deltas": numbers of the whole row, of the first column that is named.

    `column` is meant where none is named.
    """
    columns = [name for name in [*read_quantities(text), column] if name in TOKEN_COLUMNS]
    zh, en = (named(texts("quantities", lang)["statistics"]) for lang in LANGS)
    if not columns:
        return []
    return [
        f"{name}({columns[0]})" for name in en if re.search(f"{zh[name]}|{en[name]}", text, re.IGNORECASE | re.ASCII)
    ]


def asked_quantity(text: str) -> str | None:
    """Of several quantities the one whose number is asked for: next to "how much", or behind "what is"."""
    names = read_quantities(text)
    if len(names) < 2:
        return names[0] if names else None
    for pattern, behind in ((_BEFORE_ASKED, False), (_BEHIND_ASKED, True)):
        if match := pattern.search(text):
            near = read_quantities(text[match.end() :] if behind else text[: match.start()])
            if near:
                return near[0] if behind else near[-1]
    return names[0]


def numbers_asked(
    text: str, places_of: Callable[[str], list[Place]], *, wanted: bool
) -> list[tuple[str, Place | None]]:
    """Which numbers a question asks for, clause by clause: a quantity at a token, at all, or of the whole row.

    A clause that names only a token asks for the quantity of the clause before it, and one that names only a quantity
    takes no token from another.
    """
    asked: list[tuple[str, Place | None]] = []
    last: str | None = None
    clauses = _CLAUSES.split(_ASIDE.sub(" ", text))
    pointed = [clause for clause in clauses if _BEFORE_ASKED.search(clause) or _BEHIND_ASKED.search(clause)]
    for clause in clauses:
        statistics = read_statistics(clause, last) if wanted else []
        name, places = asked_quantity(clause) or last, places_of(clause)
        last = name
        if pointed and clause not in pointed and not places:
            continue  # it only sets the scene
        if statistics and not places:
            asked += [(statistic, None) for statistic in statistics]
        elif name is not None and places:
            asked += [(name, place) for place in places]
        elif name is not None and asked_quantity(clause) is not None and wanted:
            asked.append((name, None))
    if any(place is not None for _, place in asked):  # "in the example, what is A_0": the rest only sets the scene
        asked = [(name, place) for name, place in asked if place is not None or "(" in name]
    return list(dict.fromkeys(asked))[:MOST]
