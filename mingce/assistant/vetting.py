"""Every number of a model's reply, judged before anyone reads it: traced to what was computed, corrected, or marked.

A number is traced if it is, to the digits it shows, one of those computed for this turn: the rollout's columns and
settings, the tutor's own answer, the results of tools. A number that a name claims (`A_3 = 0.5`) must be that number;
an equation must hold. What is none of this is marked: the judge would rather mark too much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mingce.assistant.evidence import Evidence, cleaned
from mingce.assistant.literals import literals, spelled
from mingce.assistant.verdicts import Reading, Status
from mingce.base.texts import sentence


@dataclass(frozen=True)
class Segment:
    """A piece of the reply; `right` is the number that a wrong one should have been."""

    text: str
    status: Status = "plain"
    right: str | None = None


def judge(text: str, evidence: Evidence) -> list[Segment]:
    """The reply in pieces, every number one of its own with its verdict."""
    text = cleaned(text)
    reading = Reading(text, evidence)
    segments, at = [], 0
    for number in sorted([*literals(text), *spelled(text)], key=lambda one: one.start):
        if number.start < at:
            continue
        status, right = reading.verdict(number)
        segments += [Segment(text[at : number.start]), Segment(text[number.start : number.end], status, right)]
        at = number.end
    return [one for one in (*segments, Segment(text[at:])) if one.text]


def rendered(segments: Iterable[Segment], lang: str) -> str:
    """The reply as it is shown: a wrong number struck out before the right one, an untraced one marked."""
    mark = sentence("assistant.mark_unverified", lang)
    shapes = {"wrong": "~~{text}~~ {right}", "unverified": "{text} {mark}"}
    return "".join(
        shapes.get(one.status, "{text}").format(text=one.text, right=one.right, mark=mark) for one in segments
    )
