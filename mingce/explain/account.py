"""One token's account with its own numbers: recomputed in float64 by the definitions and held against the ledger.

`account(rollout, t, "engineer", "zh")` gives its entries in reading order. Where ledger and definition agree the
ledger's number is shown; where they do not, the definition's is, and `agrees` is False. `row_account` is the same for
every token of a rollout at once, in numbers alone: the page puts them into the words it has.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mingce.base.numbers import number as shown
from mingce.explain.account_texts import LEVELS, SECTIONS, Section, names_in
from mingce.explain.recomputed import Computed, group_of, recompute, used_advantages, value_losses
from mingce.record.rollout import Columns, Rollout
from mingce.specs.facts import SMALL as SMALL
from mingce.specs.facts import STATE_END as STATE_END
from mingce.specs.facts import Facts, Row, row_of, section_applies, section_case, token_facts, token_texts

TOLERANCE = 2e-5
RESULTS = {  # which number a section arrives at, and the column that records it
    "kl": ("kl", "kl"),
    "reward": ("reward", "rewards"),
    "delta": ("delta", "deltas"),
    "advantage": ("advantage", "advantages"),
    "return": ("return", "returns"),
    "whitening": ("whitened", "whitened_advantages"),
    "ratio": ("ratio", "ratio"),
    "policy": ("policy_loss", "policy_loss"),
    "value_loss": ("value_loss", "value_loss"),
}
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
OPERATORS = "+−·/"
"""A negative number behind one of these stands in parentheses."""
Values = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One section of a token's account, written out."""

    id: str
    title: str
    formula: str
    substituted: str
    meaning: str
    recorded: float | None
    computed: float | None
    agrees: bool


def account(rollout: Rollout, t: int, level: str, lang: str) -> list[Entry]:
    """The account of token t at one of LEVELS in zh or en."""
    assert level in LEVELS, level
    assert lang in ("zh", "en"), lang
    values, recorded = token_values(rollout, t)
    which, language = LEVELS.index(level), 0 if lang == "zh" else 1
    entries = []
    for section in SECTIONS:
        if not applies(section, rollout, values):
            continue
        name, column = RESULTS.get(section.id, ("", ""))
        words = section.words[which][language]
        case = section.cases.get(case_of(section.case_of, rollout, t, values) or "")
        if case:
            words += (" " if lang == "en" else "") + case[language]
        entries.append(
            Entry(
                section.id,
                section.title[language],
                section.formula,
                substituted(section.numbers, values, formula=True),
                substituted(words, values, plain=level == "child"),
                recorded.get(column),
                values.get(f"computed_{name}"),
                values.get(f"agrees_{name}", True),
            )
        )
    return entries


def applies(section: Section, rollout: Rollout, values: Values) -> bool:
    """Whether a section is about this token of this rollout."""
    return section_applies(section, values, rollout.settings.as_dict())


def case_of(rule: str | None, rollout: Rollout, t: int, values: Values) -> str | None:
    """Which of a section's cases this token is."""
    return section_case(rule, values, rollout.columns, t)


# ── the numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Book:
    """A rollout's columns as its account has them: the ledger's numbers where the definitions confirm them."""

    columns: Columns
    computed: Computed
    row: Row
    disagreeing: Mapping[str, Sequence[int]]
    """By column, the tokens whose number in the ledger the definitions do not confirm."""


@lru_cache(maxsize=8)
def book_of(rollout: Rollout) -> Book:
    """The book of a rollout; kept, for its tokens are asked for in turn."""
    computed = recompute(rollout)
    columns, wrong = _settle(rollout.columns, computed)
    losses = value_losses(rollout, columns.get("returns"))
    columns, wrong_losses = _settle(columns, losses)
    used = used_advantages(rollout)
    if used is not None:
        columns["used"] = used
    row = row_of(columns, rollout.settings.as_dict(), rollout.bootstrap, rollout.whitening, group_of(rollout))
    return Book(columns, computed | losses, row, wrong | wrong_losses)


def _settle(recorded: Columns, computed: Computed) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Of each column the ledger's numbers, but the definition's where they do not agree or the ledger has none."""
    columns: dict[str, Any] = dict(recorded)
    wrong: dict[str, list[int]] = {}
    for name, theirs in computed.items():
        ours = recorded.get(name)
        if ours is None:
            columns[name] = theirs
            continue
        odd = [t for t, pair in enumerate(zip(ours, theirs, strict=True)) if not _agree(*pair)]
        missing = [t for t, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a is None and b is not None]
        if odd or missing:
            columns[name] = list(ours)
            for t in (*odd, *missing):
                columns[name][t] = theirs[t]
        if odd:
            wrong[name] = odd
    return columns, wrong


def _agree(recorded: float | None, computed: float | None) -> bool:
    if recorded is None or computed is None:
        return True
    return abs(computed - recorded) <= TOLERANCE * max(1.0, abs(recorded))


def token_values(rollout: Rollout, t: int) -> tuple[Values, dict[str, float | None]]:
    """What stands for each placeholder at token t (None where it is not known), and what the ledger records."""
    book = book_of(rollout)
    recorded = {name: column[t] for name, column in rollout.columns.items()}
    texts, glyphs = [token.text for token in rollout.tokens], [token.glyph for token in rollout.tokens]
    values = token_texts(t, rollout.prompt, texts, glyphs, book.row.following[t])
    if book.row.left[t] is None:
        return {"t": t, "T": len(texts), "chosen": False} | values, recorded
    values |= {"uid": rollout.uid} | token_facts(t, book.columns, book.row)
    for name, column in RESULTS.values():
        computed = book.computed.get(column)
        values[f"computed_{name}"] = None if computed is None else computed[t]
        if recorded.get(column) is not None and values[f"computed_{name}"] is not None:
            values[f"agrees_{name}"] = t not in book.disagreeing.get(column, ())
    return values, recorded


# ── a whole rollout for the page ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class RowAccount:
    """Every token's account in numbers. A fact is shared by all chosen tokens, or a column, or a list of its own.

    `choices` are the different selections of sections that tokens have, each section with its case, and `choice` says
    which of them is each token's: `[[0, ""]]` is the first section without a case.
    """

    shared: Mapping[str, float | str | None]
    columns: Mapping[str, str]
    lists: Mapping[str, Sequence[float | None]]
    choices: Sequence[Sequence[tuple[int, str]]]
    choice: Sequence[int]
    disagreeing: Mapping[str, Sequence[int]]
    """By section, the tokens whose number in the ledger the definitions do not confirm."""
    float32: bool
    """Whether the rollout's columns are float32, which JSON has in the fewest digits that say so."""


_TEXTS = ("token", "next_token", "state_end")


def row_account(rollout: Rollout) -> RowAccount:
    """The accounts of all tokens of a rollout."""
    book, settings = book_of(rollout), rollout.settings.as_dict()
    facts = [token_facts(t, book.columns, book.row) for t in range(len(rollout.tokens))]
    choices: dict[tuple[tuple[int, str], ...], int] = {}
    choice = [choices.setdefault(_sections(one, book, settings), len(choices)) for one in facts]
    used = {name for sections in choices for place, _ in sections for name in names_in(SECTIONS[place])}
    shared = {name: value for name, value in book.row.shared.items() if name in used}
    names = [name for name in facts[0] if name in used and name not in shared and name != "t"] if facts else []
    columns = {name: known for name in names if (known := _recorded_as(name, rollout, book))}
    wrong = {one: column for one, (_, column) in RESULTS.items() if column in book.disagreeing}
    return RowAccount(
        shared=shared,
        columns=columns,
        lists={name: _brief([one[name] for one in facts]) for name in names if name not in columns},
        choices=list(choices),
        choice=choice,
        disagreeing={one: book.disagreeing[column] for one, column in wrong.items()},
        float32=any(isinstance(column, array) for column in rollout.columns.values()),
    )


def _sections(facts: Facts, book: Book, settings: Mapping[str, Any]) -> tuple[tuple[int, str], ...]:
    """The sections of a token by their places in SECTIONS, with their cases."""
    return tuple(
        (place, section_case(section.case_of, facts, book.columns, facts["t"]) or "")
        for place, section in enumerate(SECTIONS)
        if section_applies(section, facts, settings)
    )


_COLUMNS = {
    "score": "scores", "value": "values", "entropy": "entropy", "rollout_log_prob": "rollout_log_probs",
    "old_log_prob": "old_log_probs", "ref_log_prob": "ref_log_probs", "new_log_prob": "new_log_probs",
    "new_value": "new_values",
} | dict(RESULTS.values())  # fmt: skip


def _recorded_as(name: str, rollout: Rollout, book: Book) -> str | None:
    """The column of the ledger that is the fact, number by number."""
    column = _COLUMNS.get(name)
    if name == "used":
        column = "whitened_advantages" if "whitened_advantages" in rollout.columns else "advantages"
        return column if column in rollout.columns else None
    same = column is not None and column in rollout.columns and book.columns[column] is rollout.columns[column]
    return column if same else None


def _brief(column: Sequence[float | None]) -> list[float | None]:
    """The numbers in nine digits, more than are ever shown."""
    return [None if x is None or not math.isfinite(x) else float(f"{x:.9g}") for x in column]


# ── writing them ─────────────────────────────────────────────────────────────────────────────────────────────────────


def substituted(template: str, values: Values, *, formula: bool = False, plain: bool = False) -> str:
    """The template with its values; in a formula a negative number after an operator stands in parentheses.

    `plain` spares the reader powers of ten: what is very small reads 0.
    """

    def put(found: re.Match[str]) -> str:
        if found[1] not in values:
            return found[0]
        value = values[found[1]]
        text = value if isinstance(value, str) else shown(value, powers=not plain)
        before = template[: found.start()].rstrip()
        if formula and text.startswith("−") and before and before[-1] in OPERATORS:
            return f"({text})"
        return text

    return _PLACEHOLDER.sub(put, template)
