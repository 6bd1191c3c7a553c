"""A clause taken apart: the things it speaks of, what it says of them, and the small words that turn its meaning.

texts/notions has the words of both languages. Of what overlaps the longest is read ("没有梯度" before "梯度"); a frame
keeps the order of what it found, for "A before B" and "B before A" differ in nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from mingce.base.lang import LANGS
from mingce.base.texts import named, texts
from mingce.explain.patterns import alternatives

LONGEST, REMEMBERED = 300, 2048
THING, RELATION, MARK = "thing", "relation", "mark"
NONE = "-"
_KINDS = (("things", THING), ("poled", THING), ("relations", RELATION), ("marks", MARK))
_WORD = re.compile(r"[A-Za-z]{2,}|[一-鿿]")
_CHINESE = re.compile(r"[一-鿿]")
_TAKEN = "\ufffc"


@dataclass(frozen=True)
class Item:
    """Something read in a clause: a thing (`pole` 0, or ±1 if the word says a direction too), a relation or a mark."""

    name: str
    kind: str
    pole: int
    start: int
    end: int


@dataclass(frozen=True)
class Frame:
    """A clause: its items in order, and how many of its words were not understood (a Chinese character is half one)."""

    text: str
    items: tuple[Item, ...]
    strange: float

    def of(self, kind: str) -> Iterator[Item]:
        return (item for item in self.items if item.kind == kind)

    def named(self, *names: str) -> list[Item]:
        return [item for item in self.items if item.name in names]

    def things(self) -> frozenset[str]:
        return frozenset(item.name for item in self.of(THING))


@dataclass(frozen=True)
class Word:
    """A pattern of the lexicon and what it stands for."""

    pattern: re.Pattern[str]
    name: str
    kind: str
    pole: int


@cache
def lexicon() -> tuple[Word, ...]:
    """All words of texts/notions; of equally long ones the first counts."""
    words = []
    for section, kind in _KINDS:
        by_lang = [named(texts("notions", lang)[section]) for lang in LANGS]
        for entries in by_lang:
            for name, entry in entries.items():
                sides = entry.split(" / ") if section in ("poled", "relations") else [entry]
                for place, side in enumerate(sides):
                    if side.strip() != NONE:
                        pole = 0 if len(sides) == 1 else 1 - 2 * place
                        words.append(Word(re.compile(side, re.IGNORECASE), name, kind, pole))
    return tuple(words)


@lru_cache(REMEMBERED)
def read_frame(text: str) -> Frame:
    """What a clause says."""
    text = text[:LONGEST]
    found = [
        (match.start() - match.end(), rank, Item(word.name, word.kind, word.pole, match.start(), match.end()))
        for rank, word in enumerate(lexicon())
        for match in word.pattern.finditer(text)
        if match.end() > match.start()
    ]
    taken = [False] * len(text)
    items = []
    for _, _, item in sorted(found, key=lambda one: one[:2]):
        if not any(taken[item.start : item.end]):
            taken[item.start : item.end] = [True] * (item.end - item.start)
            items.append(item)
    rest = "".join(_TAKEN if hidden else sign for sign, hidden in zip(text, taken, strict=True))
    rest = alternatives("notions", "glue").sub(" ", rest)
    strange = sum(0.5 if _CHINESE.match(word) else 1.0 for word in _WORD.findall(rest))
    return Frame(text, tuple(sorted(items, key=lambda item: item.start)), strange)
