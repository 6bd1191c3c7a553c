"""A few wrong sentences that people and models write again and again, each known by the patterns of its text.

texts/misconceptions.<lang>.md has a heading per sentence: how it is said in that language (`says`), what excuses it
(`unless`, anywhere in the sentence) and what is right. It must fire on the wrong sentence and stay silent on the right
one, its negation, a quotation and a supposition; it would rather miss one than accuse one. Only answers are judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from mingce.base.texts import pair, texts
from mingce.explain.claims.context import Context
from mingce.explain.claims.quantities import Where
from mingce.explain.claims.reading import Passage
from mingce.explain.claims.verdicts import Pair, Verdict
from mingce.explain.patterns import patterns

FILE = "misconceptions"
MONTE_CARLO = "return_is_monte_carlo"
LONGEST = 4000
SHORT = 60
_ENDS = re.compile(r"[。！？!?；;\n]|\.(?=\s|$)")
Patterns = tuple[re.Pattern[str], ...]


@dataclass(frozen=True)
class Misconception:
    """One wrong statement. `with_` must stand somewhere in the passage, `but` not between the words that say it."""

    id: str
    says: Patterns
    unless: Patterns
    but: Patterns
    with_: Patterns
    right: Pair

    def said_in(self, sentence: str) -> bool:
        for match in _matches(self.says, sentence):
            between = match.groupdict().get("between") or ""
            if not any(_matches(self.but, between)) and not any(_matches(self.unless, sentence)):
                return True
        return False


def judge_words(passage: Passage, context: Context) -> Iterator[Verdict]:
    """One verdict per misconception and passage, with every line that says it."""
    if passage.by_user:
        return
    text = "\n".join(statement.text for statement in passage.statements)
    for one in misconceptions():
        if one.with_ and not any(_matches(one.with_, text)):
            continue
        if one.id == MONTE_CARLO and context.stated_in("lam", passage.question) == {1.0}:
            continue
        if places := list(_places(passage, one)):
            lines = tuple(where.line for where in places[1:])
            yield Verdict("wrong", places[0], "words", one.id, notes=(one.right,), lines=lines)


def _places(passage: Passage, one: Misconception) -> Iterator[Where]:
    before = ""
    for statement in passage.statements:
        text = statement.text[:LONGEST]
        said = any(one.said_in(sentence) for sentence in _ENDS.split(text))
        warned = len(before) < SHORT and any(_matches(patterns(FILE, "warned"), before))
        if said and not warned and not any(_matches(patterns(FILE, "denied"), text)):
            yield passage.where(statement)
        before = statement.text


def _matches(among: Patterns, text: str) -> Iterator[re.Match[str]]:
    return (match for pattern in among if (match := pattern.search(text)))


@cache
def misconceptions() -> tuple[Misconception, ...]:
    """All that the texts know, with the patterns of both languages."""
    keys = [key.removesuffix(".says") for key in texts(FILE, "zh") if key.endswith(".says")]
    return tuple(
        Misconception(
            key.partition("/")[0],
            patterns(FILE, f"{key}.says"),
            patterns(FILE, f"{key}.unless"),
            patterns(FILE, f"{key}.but"),
            patterns(FILE, f"{key}.with"),
            pair(FILE, f"{key}.right"),
        )
        for key in keys
    )
