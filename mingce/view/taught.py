"""What somebody who asks the tutor or pastes a text is answered, as types; types.ts has them too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from mingce.explain.claims.marking import Segment


class Both(TypedDict):
    """A text in both languages."""

    zh: str
    en: str


@dataclass(frozen=True)
class Judged:
    """A claim of the question, its verdict (right, wrong, half, near) and that verdict in words."""

    quote: str
    verdict: str
    label: str
    reason: str


@dataclass(frozen=True)
class Grid:
    """A table of an answer; `texts` are the columns without numbers, a heading's second line is a symbol."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: Sequence[int]


@dataclass(frozen=True)
class CodePlace:
    """Where a function stands in mingce's files."""

    file: str
    line: int
    name: str


@dataclass(frozen=True)
class Choice:
    """A topic that can be opened."""

    topic: str
    title: str


@dataclass(frozen=True)
class Taught:
    """The tutor's answer; `token` is the one it is about, `action` what was asked for that the page does not do."""

    lang: str
    title: str
    judgements: Sequence[Judged]
    about: str
    text: str
    formula: str
    lines: Sequence[str]
    tables: Sequence[Grid]
    code: Sequence[CodePlace]
    peers: str
    choices: Sequence[Choice]
    token: int
    action: str
    declined: bool


@dataclass(frozen=True)
class Counts:
    """How many sentences of a text are what."""

    wrong: int
    right: int
    unverified: int


@dataclass(frozen=True)
class Checked:
    """A text sentence by sentence, and the same as a page of its own in both languages."""

    segments: Sequence[Segment]
    counts: Counts
    pages: Both
