"""Lists of numbers in a question, each by the name that stands before it (or behind it)."""

from __future__ import annotations

import re
from functools import cache

from mingce.base.lang import LANGS
from mingce.base.texts import named, texts
from mingce.explain.patterns import becoming

NUMBER = r"[-−+]?(?:\d+(?:\.\d+|\.(?=\s*[,，\]]))?|\.\d+)(?:[eE][-+]?\d+)?"
"""A full stop belongs to it before digits, a comma or a bracket, not at a sentence's end."""
MOST = 4096
_GAP = r"(?:\s*[,，、;；]\s*(?:and\s+|[和与]\s*)?|\s+(?:and\s+|[和与]\s*)?|\s*[和与]\s*)"
_LIST = re.compile(
    rf"(?<![A-Za-zα-ω\d_.\-−/]){NUMBER}(?:{_GAP}{NUMBER})+(?![A-Za-zα-ω\d_%]|\.\d|\s*[)）]?\s*[岁年月个条轮次步题道组])"
)
_NUMERALS = {"零": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9}
_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10000}
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_COUNT = (
    rf"(?<!第)(?<!第 )(?:{NUMBER}|[{''.join((*_NUMERALS, *_UNITS))}]{{1,9}}|\b(?:{'|'.join(_WORDS)})\b(?!\s+[-−\d.]))"
)
"""How many: no ordinal, and not the `one` of "the sampled one 0.9"."""
_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:%|percent\b)")
_ORDINALS = re.compile(rf"第\s*\d+(?:{_GAP}\d+)*\s*(?=[个条步次轮位])")
_ASIDE = re.compile(r"[(（][^()（）\d]*[)）]")
"""A remark between a name and its numbers: `log ratios (new − old) = …`."""
_BEFORE, _BEHIND = 48, 16
UNNAMED, SETTINGS = "", "settings"
"""No name was said; several of a setting, which make no row."""


def read_lists(text: str) -> dict[str, list[float]]:
    """The lists of at least two numbers by name; of two with one name the first, UNNAMED where none is said."""
    found: dict[str, list[float]] = {}
    for name, row in lists_in_order(text):
        if name == SETTINGS:
            continue
        found.setdefault(name, row)
    return found


def lists_in_order(text: str) -> list[tuple[str, list[float]]]:
    """Every list with its name."""
    found: list[tuple[str, list[float]]] = []
    text = _ORDINALS.sub(lambda match: "·" * len(match[0]), text)
    spans = [match.span() for match in _LIST.finditer(text)][:MOST]
    for k, (start, end) in enumerate(spans):
        after = spans[k + 1][0] if k + 1 < len(spans) else len(text)
        before = _ASIDE.sub("", text[max(start - _BEFORE, spans[k - 1][1] if k else 0) : start])
        name = _last_name(before) or _last_name(text[end : min(end + _BEHIND, after)])
        found.append((name or UNNAMED, [number(one) for one in re.findall(NUMBER, text[start:end])]))
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
        if sign == "万":
            total, digit = (total + (digit or 0) or 1) * _UNITS[sign], None
        elif sign in _UNITS:
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
    return {name: row[0] for name, row in numbers_after(text, key).items()}


def numbers_after(text: str, key: str) -> dict[str, list[float]]:
    """All numbers behind each name of a table, where it is said more than once."""
    found: dict[str, list[float]] = {}
    for name, pattern in _counted(key):
        row = [count(next(part for part in match.groups() if part)) for match in pattern.finditer(text)]
        if row:
            found[name] = row
    return found


def told(name: str, text: str) -> list[re.Match[str]]:
    """Where a text tells something by counting, such as `3 of 8 correct`."""
    return [match for pattern in _tellings(name) for match in pattern.finditer(text)]


@cache
def _tellings(name: str) -> tuple[re.Pattern[str], ...]:
    words = [named(texts("quantities", lang)["told"])[name] for lang in LANGS]
    parts = {f"<{part}>": rf"(?P<{part}>{_COUNT})" for part in ("part", "whole", "right", "wrong")}
    parts["<paid>"] = rf"(?P<paid>{NUMBER})(?![\d.]*\d)(?!\s*(?:of|out|/|条|个|次))"
    return tuple(
        re.compile(re.sub(r"<\w+>(?!\w*>)", lambda match: parts.get(match[0], match[0]), one), re.IGNORECASE)
        for both in words
        for one in both.split(" ⏐ ")
    )


@cache
def _counted(key: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    zh, en = (named(texts("quantities", lang)[key]) for lang in LANGS)
    both = ((name, f"{zh[name]}|{en[name]}".replace("<n>", rf"({_COUNT})")) for name in en)
    return tuple((name, re.compile(pattern, re.IGNORECASE | re.ASCII)) for name, pattern in both)


def plain_numbers(text: str) -> str:
    """The text with `50k` as 50000, `1,024` as 1024, percentages as shares, and what becomes of a number."""
    text = re.sub(r"(?<![\d.,])(\d{1,3}(?:,\d{3})+)(?![\d,])", lambda match: match[0].replace(",", ""), text)
    text = re.sub(r"(?<![\w.])(\d+(?:\.\d+)?)[kK](?![A-Za-z])", lambda match: f"{float(match[1]) * 1000:g}", text)
    text = re.sub(r"(?<![\w.])(\d+(?:\.\d+)?)\s*万", lambda match: f"{float(match[1]) * 10000:.12g}", text)
    text = re.sub(
        rf"({_COUNT})分之\s*({_COUNT})",
        lambda match: f"{count(match[2]) / count(match[1]):.12g}" if count(match[1]) else match[0],
        text,
    )
    text = _PERCENTAGE.sub(lambda one: f"{number(one[1]) / 100:.12g}", text)
    return becoming(text)
