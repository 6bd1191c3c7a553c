"""The accounts of all tokens of a rollout at once, in numbers alone: the page puts them into the words it has."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mingce.explain.account import RESULTS, Book, book_of
from mingce.explain.account_texts import SECTIONS, names_in
from mingce.record.rollout import Rollout
from mingce.specs.facts import Facts, section_applies, section_case, token_facts

FEW = 8
"""A fact is said to be a column where it differs from it at one token in so many, or fewer."""
Choice = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class RowAccount:
    """Every token's account in numbers. A fact is shared by all chosen tokens, or a column, or a list of its own.

    `choices` are the different selections of sections that tokens have, each section with its case, and `choice` says
    which of them is each token's: `[[0, ""]]` is the first section without a case.
    """

    shared: Mapping[str, float | str | None]
    columns: Mapping[str, str]
    exceptions: Mapping[str, Mapping[int, float | None]]
    """By fact, the tokens at which it is not what the column says."""
    lists: Mapping[str, Sequence[float | None]]
    choices: Sequence[Choice]
    choice: Sequence[int]
    disagreeing: Mapping[str, Sequence[int]]
    """By section, the tokens whose number in the ledger the definitions do not confirm."""
    float32: bool
    """Whether the rollout's columns are float32, which JSON has in the fewest digits that say so."""


def row_account(rollout: Rollout) -> RowAccount:
    """The accounts of all tokens of a rollout."""
    book, settings = book_of(rollout), rollout.settings.as_dict()
    facts = [token_facts(t, book.columns, book.row) for t in range(len(rollout.tokens))]
    choices: dict[Choice, int] = {}
    known: dict[tuple[bool, ...], list[int]] = {}
    choice = [choices.setdefault(_sections(one, book, settings, known), len(choices)) for one in facts]
    used = {name for sections in choices for place, _ in sections for name in names_in(SECTIONS[place])}
    shared = {name: value for name, value in book.row.shared.items() if name in used}
    columns: dict[str, str] = {}
    exceptions: dict[str, dict[int, float | None]] = {}
    lists: dict[str, list[float | None]] = {}
    for name in [name for name in facts[0] if name in used and name not in shared and name != "t"] if facts else []:
        numbers = [one[name] for one in facts]
        column, others = _nearest_column(name, numbers, rollout)
        if column is None:
            lists[name] = [_brief(x) for x in numbers]
            continue
        columns[name] = column
        if others:
            exceptions[name] = {t: _brief(numbers[t]) for t in others}
    wrong = {one: column for one, (_, column) in RESULTS.items() if column in book.disagreeing}
    return RowAccount(
        shared=shared,
        columns=columns,
        exceptions=exceptions,
        lists=lists,
        choices=list(choices),
        choice=choice,
        disagreeing={one: book.disagreeing[column] for one, column in wrong.items()},
        float32=any(isinstance(column, array) for column in rollout.columns.values()),
    )


_DECIDING = sorted({name for section in SECTIONS for name in (*section.needs, *section.lacks)})


def _sections(
    facts: Facts, book: Book, settings: Mapping[str, Any], known: dict[tuple[bool, ...], list[int]]
) -> Choice:
    """The sections of a token by their places in SECTIONS, with their cases; `known` by which facts there are."""
    key = (facts["chosen"], *(facts[name] is None for name in _DECIDING))
    if key not in known:
        known[key] = [k for k, section in enumerate(SECTIONS) if section_applies(section, facts, settings)]
    rules = ((place, SECTIONS[place].case_of) for place in known[key])
    return tuple((place, section_case(rule, facts, book.columns, facts["t"]) or "") for place, rule in rules)


_COLUMNS = {
    "score": "scores", "value": "values", "entropy": "entropy", "rollout_log_prob": "rollout_log_probs",
    "old_log_prob": "old_log_probs", "ref_log_prob": "ref_log_probs", "new_log_prob": "new_log_probs",
    "new_value": "new_values", "near_value": "new_values", "clipped_ratio": "ratio",
} | dict(RESULTS.values())  # fmt: skip


def _nearest_column(name: str, numbers: Sequence[Any], rollout: Rollout) -> tuple[str | None, list[int]]:
    """The ledger's column that the fact is at nearly every token, and the tokens where it is not."""
    column = _COLUMNS.get(name)
    if name == "used":
        column = "whitened_advantages" if "whitened_advantages" in rollout.columns else "advantages"
    if column is None or column not in rollout.columns:
        return None, []
    pairs = zip(numbers, rollout.columns[column], strict=True)
    others = [t for t, (ours, theirs) in enumerate(pairs) if ours != theirs]
    return (column, others) if len(others) * FEW <= len(numbers) else (None, [])


def _brief(x: Any) -> Any:
    """A number in nine digits, more than are ever shown."""
    if x is None or isinstance(x, int):
        return x
    return float(f"{x:.9g}") if math.isfinite(x) else None
