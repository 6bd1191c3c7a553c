"""Claims that a point decides: its own statements, each with a verdict, and what says the same or the opposite."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mingce.explain.answer import Judgement
from mingce.explain.question.features import wide_features
from mingce.explain.question.frames import read_frame
from mingce.explain.question.judging import short_quote
from mingce.explain.question.propositions import exchanged, likeness, orientation, turned
from mingce.explain.question.retrieval import subjects
from mingce.explain.topic import POINT, TOPICS

if TYPE_CHECKING:
    from mingce.explain.conversation import Turn

NEAREST, CLOSE, NEAR, ALIKE, ALIKE_OWN, LIKELY, SHORTEST = 4, 0.5, 0.65, 0.34, 0.28, 0.4, 6
"""So many of the likeliest points are asked; how alike a statement must be, be to be denied, or be to be told as the
nearest, of any of them or of the one that is likely meant; the shortest clause."""
_CHINESE = re.compile(r"[一-鿿]")
_CODE = re.compile(r"\b(?:torch|np)\.\w+\(|\w\.\w+\(\)|\)\.\w+\(")
_NUMBERS = re.compile(r"\d+(?:\.\d+)?")
_CLAUSES = re.compile(r"[，,；;。]|\bso\b|所以", re.IGNORECASE)
_OPPOSITE = {"right": "wrong", "wrong": "right", "half": "half"}


def verdict_of(text: str, names: list[str]) -> str | None:
    """Whether what a text says holds, by the statement of these points that is most like it or one of its clauses.

    What says the opposite of a statement must be nearer to it than what says the same.
    """
    clauses = [text, *(part for part in _CLAUSES.split(text) if len(part.strip()) >= SHORTEST)]
    best, verdict = CLOSE, None
    for name in names:
        for stated, statement in _statements(name):
            for clause in clauses:
                alike = likeness(clause, statement)
                if alike >= best and _things(clause) == _things(statement):
                    denies = turned(orientation(clause), orientation(statement)) != exchanged(clause, statement)
                    opposite = _OPPOSITE[stated] if alike >= NEAR else None
                    best, verdict = alike, opposite if denies else stated
    return verdict


def _things(text: str) -> set[str]:
    """What a clause speaks of: terms, notions of facts, numbers; with another of them it is another claim."""
    terms = {name for name in wide_features(text) if name.startswith("#")}
    return terms | read_frame(text).things() | set(_NUMBERS.findall(text))


def judged_by_points(turn: Turn, judged: list[Judgement], *, asked: bool) -> list[Judgement]:
    """The judgements, or where none is sure what the likeliest points say of the claim; their text is the reason."""
    if any(not one.near for one in judged):
        return judged
    text = turn.request.text
    names = [guess.name for guess in turn.points[:NEAREST]]
    verdict = verdict_of(text, names)
    if verdict is not None:
        return [Judgement(short_quote(text), verdict, "", asked=asked)]
    if _CODE.search(text):
        return judged  # lines of code are no sentences that another is near to
    if turn.outside or not subjects(text):
        return judged
    known = nearest_statement(text, names, sure=bool(turn.points) and turn.points[0].probability >= LIKELY)
    if known is None or (judged and likeness(text, judged[0].reading) > likeness(text, known[1])):
        return judged
    return [Judgement(short_quote(text), known[0], "", reading=known[1], near=True, asked=asked)]


def nearest_statement(text: str, names: list[str], *, sure: bool) -> tuple[str, str] | None:
    """The statement of these points that is most like a text or one of its clauses, with its verdict.

    Where the first point is `sure` to be meant, one of its own need not be as much like it.
    """
    lang, own = _CHINESE.search(text) is not None, ALIKE - ALIKE_OWN
    clauses = [text, *(part for part in _CLAUSES.split(text) if len(part.strip()) >= SHORTEST)]
    best = max(
        (
            (max(likeness(clause, statement) for clause in clauses) + own * (sure and not place), stated, statement)
            for place, name in enumerate(names)
            for stated, statement in _statements(name)
            if (_CHINESE.search(statement) is not None) == lang
        ),
        default=(0.0, "", ""),
    )
    return best[1:] if best[0] >= ALIKE else None


def _statements(name: str) -> tuple[tuple[str, str], ...]:
    topic, _, key = name.partition(POINT)
    point = TOPICS[topic].points.get(f"{POINT}{key}") if topic in TOPICS else None
    return point.claims if point else ()
