"""Lists of numbers in a question, each by the name that stands before it (or behind it)."""

from __future__ import annotations

import re
from functools import cache

from mingce.base.lang import LANGS
from mingce.base.texts import named, texts

NUMBER = r"[-−+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
MOST = 4096
_GAP = r"(?:\s*[,，、;；]\s*(?:and\s+|[和与]\s*)?|\s+(?:and\s+|[和与]\s*)?|\s*[和与]\s*)"
_LIST = re.compile(
    rf"(?<![A-Za-zα-ω\d_.\-−]){NUMBER}(?:{_GAP}{NUMBER})+(?![A-Za-zα-ω\d_.%]|\s*[)）]?\s*[岁年月个条轮次步题道组])"
)
_NUMERALS = {"零": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9}
_UNITS = {"十": 10, "百": 100, "千": 1000}
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_COUNT = rf"{NUMBER}|[{''.join((*_NUMERALS, *_UNITS))}]{{1,9}}|\b(?:{'|'.join(_WORDS)})\b"
_BEFORE, _BEHIND = 48, 16
UNNAMED = ""


def read_lists(text: str) -> dict[str, list[float]]:
    """The lists of at least two numbers by name; of two with one name the first, and UNNAMED where none is said."""
    found: dict[str, list[float]] = {}
    spans = [match.span() for match in _LIST.finditer(text)][:MOST]
    for k, (start, end) in enumerate(spans):
        after = spans[k + 1][0] if k + 1 < len(spans) else len(text)
        before = text[max(start - _BEFORE, spans[k - 1][1] if k else 0) : start]
        name = _last_name(before) or _last_name(text[end : min(end + _BEHIND, after)])
        found.setdefault(name or UNNAMED, [number(one) for one in re.findall(NUMBER, text[start:end])])
    return found


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def count(text: str) -> float:
    """A number in figures or in words: `8`, 十六, 两百, `three`."""
    if text.lower() in _WORDS:
        return float(_WORDS.index(text.lower()))
    if text[0] not in _NUMERALS and text[0] not in _UNITS:
        return number(text)
    total, digit = 0, None
    for sign in text:
        if sign in _UNITS:
            total, digit = total + (1 if digit is None else digit) * _UNITS[sign], None
        else:
            digit = (digit or 0) * 10 + _NUMERALS[sign]
    return float(total + (digit or 0))


def _last_name(text: str) -> str | None:
    """The name that stands last; of those that overlap the first in the table."""
    best: tuple[int, str] | None = None
    taken: list[tuple[int, int]] = []
    for name, pattern in row_names():
        for match in pattern.finditer(text):
            if any(a < match.end() and match.start() < b for a, b in taken):
                continue
            taken.append(match.span())
            if best is None or match.end() > best[0]:
                best = match.end(), name
    return None if best is None else best[1]


@cache
def row_names() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """What lists are called, by the names of both languages."""
    return _patterns("rows")


@cache
def _patterns(key: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    zh, en = (named(texts("quantities", lang)[key]) for lang in LANGS)
    return tuple((name, re.compile(rf"(?:{zh[name]}|{en[name]})", re.IGNORECASE | re.ASCII)) for name in en)


def named_in(text: str, key: str) -> list[str]:
    """Which names of a table of texts/quantities a text has, in the table's order."""
    return [name for name, pattern in _patterns(key) if pattern.search(text)]


def number_after(text: str, key: str) -> dict[str, float]:
    """The single number behind each name of a table of texts/quantities: `n=8`, `8 responses each`, 两个 epoch."""
    found: dict[str, float] = {}
    zh, en = (named(texts("quantities", lang)[key]) for lang in LANGS)
    for name in en:
        for one in (zh[name], en[name]):
            match = re.search(one.replace("<n>", rf"({_COUNT})"), text, re.IGNORECASE | re.ASCII)
            if match:
                found.setdefault(name, count(next(part for part in match.groups() if part)))
    return found
