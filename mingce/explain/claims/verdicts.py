"""What comes of checking a claim, and its notes in both languages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mingce.base.texts import sentence
from mingce.explain.claims.formulas import show
from mingce.explain.claims.quantities import Row, Where
from mingce.explain.claims.truth import Rows
from mingce.specs.settings import SYMBOLS

Status = Literal["right", "wrong", "unknown"]
Pair = tuple[str, str]
"""(中文, English)."""


@dataclass(frozen=True)
class Answer:
    """Numbers that would be right, and under which settings."""

    rows: Rows
    label: Pair = ("", "")


@dataclass(frozen=True)
class Verdict:
    """One claim: right, wrong or not to be checked, with the right numbers, the formula and the reasons.

    `notes` say why; `basis` which settings and inputs the right numbers rest on. `claimed` is None for a claim in
    words, whose rule `claim` names. `wrong_at` are the places (row, token) that are wrong, counted from 0; `loose` if
    the numbers are right only because they were rounded on the way; `lines` are other lines that say the same.
    `rows` are the lines in which the numbers of a table's column stand, `wrong_rows` those of the wrong ones.
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
    rows: tuple[int, ...] = ()
    wrong_rows: tuple[int, ...] = ()


def note(key: str, **values: object) -> Pair:
    """A sentence in Chinese and in English; a value that differs by language is a pair."""
    zh = {name: value[0] if isinstance(value, tuple) else value for name, value in values.items()}
    en = {name: value[1] if isinstance(value, tuple) else value for name, value in values.items()}
    return sentence(key, "zh", **zh), sentence(key, "en", **en)


def settings_note(settings: Mapping[str, float], inferred: frozenset[str] = frozenset()) -> Pair:
    """`γ = 1, λ = 0.95 (λ inferred from the numbers)`."""
    listed = [f"{SYMBOLS[name]} = {show(value)}" for name, value in settings.items()]
    both = ("，".join(listed), ", ".join(listed))
    names = [SYMBOLS[name] for name in settings if name in inferred]
    if not names:
        return both
    if len(names) == len(listed):
        return note("check_log.all_inferred", settings=both)
    return note("check_log.some_inferred", settings=both, names=("、".join(names), " and ".join(names)))


def lines_note(lines: tuple[int, ...]) -> Pair:
    """Where inputs were taken from."""
    numbers = [str(line) for line in sorted(set(lines))]
    return note("check_log.inputs_from", lines=("、".join(numbers), ", ".join(numbers)))
