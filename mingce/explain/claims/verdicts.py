"""What comes of checking a claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mingce.explain.claims.facts import Row, Where
from mingce.explain.claims.truth import Rows

Status = Literal["right", "wrong", "unknown"]
Pair = tuple[str, str]
"""(中文, English)."""


@dataclass(frozen=True)
class Answer:
    """Numbers that would be right, and under which settings."""

    label: Pair
    rows: Rows


@dataclass(frozen=True)
class Verdict:
    """One claim: right, wrong or not to be checked, with the right numbers, the formula and the reasons.

    `notes` say why; `basis` which settings and inputs the right numbers rest on. `claimed` is None for a claim in
    words, whose rule `claim` names. `wrong_at` are the places (row, token) that are wrong, counted from 0; `loose` if
    the numbers are right only because they were rounded on the way; `lines` are other lines that say the same.
    """

    status: Status
    where: Where
    kind: str
    claim: str
    claimed: tuple[Row, ...] | None = None
    right: tuple[Answer, ...] = ()
    wrong_at: tuple[tuple[int, int], ...] = ()
    formulas: tuple[str, ...] = ()
    notes: tuple[Pair, ...] = ()
    basis: tuple[Pair, ...] = ()
    loose: bool = False
    lines: tuple[int, ...] = ()
