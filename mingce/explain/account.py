"""One token's account with its own numbers: recomputed in float64 by the definitions and held against the ledger.

`account(rollout, t, "engineer", "zh")` gives its entries in reading order. Where ledger and definition agree the
ledger's number is shown; where they do not, the definition's is, and `agrees` is False.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mingce.base.numbers import number as shown
from mingce.explain.account_texts import LEVELS, SECTIONS, Section, case_text
from mingce.explain.recomputed import Computed, group_of, recompute, used_advantages, value_losses
from mingce.record.rollout import Columns, Rollout
from mingce.specs.estimator import row_inputs
from mingce.specs.facts import SMALL as SMALL
from mingce.specs.facts import Row, row_of, section_applies, section_case, token_facts, token_texts

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
        case = case_text(section.cases, case_of(section.case_of, rollout, t, values), level)
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
    return section_case(rule, values, book_of(rollout).columns, t)


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
    others = {**group_of(rollout), **dict.fromkeys(row_inputs()), **rollout.row_inputs}
    row = row_of(columns, rollout.settings.as_dict(), rollout.bootstrap, rollout.whitening, others)
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
