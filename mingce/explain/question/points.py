"""Claims that a point decides: its own statements, each with a verdict, and what says the same or the opposite."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mingce.explain.answer import Judgement
from mingce.explain.question.features import wide_features
from mingce.explain.question.frames import read_frame
from mingce.explain.question.judging import short_quote
from mingce.explain.question.propositions import exchanged, likeness, orientation, turned
from mingce.explain.topic import POINT, TOPICS

if TYPE_CHECKING:
    from mingce.explain.conversation import Turn

NEAREST, CLOSE, NEAR, SHORTEST = 4, 0.5, 0.65, 6
"""So many of the likeliest points are asked; how alike a statement must be, or be to be denied; the shortest clause."""
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
        topic, _, key = name.partition(POINT)
        point = TOPICS[topic].points.get(f"{POINT}{key}") if topic in TOPICS else None
        for stated, statement in point.claims if point else ():
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
    verdict = verdict_of(text, [guess.name for guess in turn.points[:NEAREST]])
    return judged if verdict is None else [Judgement(short_quote(text), verdict, "", asked=asked)]
