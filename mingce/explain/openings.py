"""The yes or no that a stored answer opens with: said only to the question it was written for."""

from __future__ import annotations

import re

from mingce.explain.question.features import features
from mingce.explain.question.mood import is_open
from mingce.explain.topic import Point

CLOSE = 0.45
"""What share of the words a question must have in common with one that a point was written for."""
_VERDICT = re.compile(
    r"^(?:Yes(?:, that works)?|No(?: either)?|Right|Half right|Not (?:necessarily|guaranteed)|It (?:is|does)(?: not)?|"
    r"是的?|对|不对|成立|不成立|基本对|一半对|没错|可以|不?会|不?能|不?需要|不一定|不保证|不算|不是同一个)[.,:：，。]\s*"
)


def without_verdict(text: str) -> str:
    """The text without the yes or no it begins with."""
    rest = _VERDICT.sub("", text, count=1)
    return rest[:1].upper() + rest[1:] if rest != text and rest[:1].isascii() else rest


def fits(point: Point, question: str) -> bool:
    """Whether the point's yes or no answers this question: in nearly the words of one of its own."""
    words = features(question)
    if not words or is_open(question):
        return False
    own = [features(phrase) for phrase in (*point.asked[0], *point.asked[1])]
    return any(len(words & one) >= CLOSE * len(words | one) for one in own)
