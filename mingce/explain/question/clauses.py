"""The claims of a sentence: its clauses, each with what it leaves unsaid taken over from the one before."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mingce.explain.question.facts import Finding, find
from mingce.explain.question.frames import THING, read_frame

MOST, BESIDE = 8, 5
"""Clauses of a sentence that are read; how near a direction stands to its thing."""
_JOINTS = re.compile(
    r"[，,；;、：:](?!\s*[\d.]+\s*\])"
    r"(?!\s*(?:而不是|而是|而非|并不是|不是|not\b|rather than|instead of|but rather))"
    r"|(?:而且|并且|但是?|所以|因此|从而|因而|同时|而(?!不|非|是))"
    r"|\b(?:and(?! not\b)(?![^,;.?]{0,40}\bare (?:just |both |all |really |exactly )*(?:not )?"
    r"(?:the same|identical|equal|equivalent|different|"
    r"interchangeable|one\b|two\b))|but(?! rather\b)|so|therefore|hence|because|since|while|whereas|although|though)\b"
    r"|\bwhere (?=[A-Z]\b)|其中",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"它|其|这|那|(?:it|its|they|their|this|that)\b", re.IGNORECASE)
_LEFT_OUT = re.compile(
    rf"{_PRONOUN.pattern}|^\W*(?:就|也|都|会|能|不|没|is|are|has|have|does|do|can|will|not|no)", re.IGNORECASE
)
"""A clause that leaves its subject out, or refers to it."""
_OTHERWISE = re.compile(r"[，,；;]?\s*(?:否则|不然|要不然|\b(?:otherwise|or else)\b)", re.IGNORECASE)
_SUPPOSED = re.compile(
    r"如果|假如|若|要是|只要|当(?!前|成|作)|除非|(?:if|when|whenever|unless|suppose|provided|with|under)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Claim:
    """A clause and the fact that decides it; `finding` is None where there is none."""

    text: str
    finding: Finding | None


def claims_of(sentence: str, before: str = "") -> list[Claim]:
    """The sentence's claims in order: the shortest runs of clauses that a fact decides, and what is left between.

    `before` is the sentence in front, which "it" may mean. The shortest runs, for two claims are not to be judged as
    one; but what is only supposed ("if …") is no claim by itself.
    """
    sentence = _OTHERWISE.split(sentence)[0]
    places = [0, *(match.start() for match in _JOINTS.finditer(sentence)), len(sentence)]
    starts = [0, *(match.end() for match in _JOINTS.finditer(sentence))]
    count = min(len(starts), MOST)
    claims: list[Claim] = []
    subjects = _subjects(before) if _PRONOUN.match(sentence.strip()) else []
    first = 0
    while first < count:
        last, text, finding = first + 1, sentence[starts[first] : places[first + 1]], None
        for end in range(first + 1, count + 1):
            run = sentence[starts[first] : places[end]]
            supposed = _SUPPOSED.match(run.strip()) is not None
            found = None if supposed and end == first + 1 < count else _found(run, subjects if end == first + 1 else [])
            if found is None:
                continue
            if supposed or end == first + 1 or not _differs(found, find(sentence[starts[end - 1] : places[end]])):
                last, text, finding = end, run, found
            break
        claims.append(Claim(text.strip(), finding))
        subjects = _subjects(text) or subjects
        first = last
        if first < count and not _LEFT_OUT.search(sentence[starts[first] : places[first + 1]]):
            subjects = subjects[:1]
    return claims


def _differs(joined: Finding, alone: Finding | None) -> bool:
    """Whether the last clause of a run is judged otherwise by itself: what stands before it is another matter."""
    return alone is not None and alone.verdict != joined.verdict


def _found(text: str, subjects: list[str]) -> Finding | None:
    """The fact that decides a clause, said of what was spoken of before or by itself."""
    tried = [*(f"{subject} {text}" for subject in subjects), text]
    return next((one for words in tried if (one := find(words)) is not None), None)


def _subjects(text: str) -> list[str]:
    """What a clause may leave to the next: its first thing, with its direction ("λ 越大"), and its other things.

    Nothing that was said of them: only names.
    """
    frame = read_frame(text)
    things = [item for item in frame.items if item.kind == THING and not item.pole]
    if not things:
        return []
    first = things[0]
    limit = things[1].start if len(things) > 1 else len(text)
    near = [item for item in frame.named("size") if item.start < min(limit, first.end + BESIDE)]
    start = min([first.start, *(item.start for item in near)])
    begin = text[start : max([first.end, *(item.end for item in near)])]
    others = [text[item.start : item.end] for item in things[1:3]]
    return [begin, *(f"{begin} {other}" for other in others), *others]
