"""What the page is answered about a whole run, as types: worst tokens, and where a text was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class WorstToken:
    """A token with a large number, and the text around it."""

    step: int
    row: int
    token: int
    value: float
    question: str
    before: str
    text: str
    after: str


@dataclass(frozen=True)
class WorstTokens:
    """The tokens with the largest numbers by one of `measures`; `seen` of `total` rollouts, or steps, were read."""

    by: str
    measures: Sequence[str]
    tokens: Sequence[WorstToken]
    seen: int
    total: int


@dataclass(frozen=True)
class Hit:
    """A rollout whose response, or else prompt, has the text that was looked for."""

    row: int
    question: str
    before: str
    match: str
    after: str
    in_response: bool


@dataclass(frozen=True)
class StepHits:
    """The first of a step's hits, and how many it has."""

    step: int
    count: int
    hits: Sequence[Hit]


@dataclass(frozen=True)
class SearchResult:
    """The hits of `seen` steps, the newest first; `left` steps were not read, and `next` goes on before that step."""

    text: str
    steps: Sequence[StepHits]
    seen: int
    left: int
    next: int | None
