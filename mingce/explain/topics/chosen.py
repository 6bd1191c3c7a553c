"""What several topics need of a rollout: columns over the chosen tokens, texts, equations, rows of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mingce.algorithms import reference
from mingce.explain.account import substituted
from mingce.explain.topic import Values
from mingce.record.rollout import Rollout

TINY = 1e-12
MOST_ROWS, HEAD, TAIL = 16, 8, 4


def each(rollout: Rollout, make: Callable[[int], float]) -> list[float | None]:
    """A column of one number a chosen token, None in the holes."""
    mask = rollout.columns["response_mask"]
    return [make(s) if m else None for s, m in enumerate(mask)]


def mean(column: Sequence[float | None]) -> float:
    """Over the known ones."""
    known = [x for x in column if x is not None]
    return math.fsum(known) / len(known)


def log_probs(rollout: Rollout) -> tuple[list[float], list[float]]:
    """Old and new; the same before the first update."""
    columns = rollout.columns
    return list(columns["old_log_probs"]), list(columns.get("new_log_probs") or columns["old_log_probs"])


def chosen_slots(rollout: Rollout) -> list[int]:
    """The chosen ones."""
    return reference.chosen(rollout.columns["response_mask"])


def spoken_of(rollout: Rollout, t: int) -> int:
    """Slot t, or the first chosen one where t was not chosen."""
    slots = chosen_slots(rollout)
    return t if t in slots else slots[0]


def token_of(rollout: Rollout, t: int) -> str:
    """The token's text as the account shows it: the pieces of one character all read as that character."""
    glyph = rollout.tokens[t].glyph
    return "".join(token.text for token in rollout.tokens if token.glyph == glyph).replace("\n", "↵")


def plain(x: float) -> float:
    """Without what rounding leaves of 0."""
    return 0.0 if abs(x) < TINY else x


def equation(template: str, values: Values) -> str:
    """With its numbers; a negative one after an operator stands in parentheses."""
    return substituted(template, values, formula=True)


def rows_of(count: int, row: Callable[[int], tuple[Any, ...]]) -> tuple[tuple[Any, ...], ...]:
    """The rows 0 … count − 1 of a table; of a long one only both ends are made."""
    if count <= MOST_ROWS:
        return tuple(row(k) for k in range(count))
    head, tail = [row(k) for k in range(HEAD)], [row(k) for k in range(count - TAIL, count)]
    return (*head, ("…",) * len(head[0]), *tail)


def clip_range(rollout: Rollout) -> tuple[float, float]:
    """ε below and above 1; the usual 0.2 where it is not known."""
    low, high = rollout.settings.clip_low, rollout.settings.clip_high
    return 0.2 if low is None else low, 0.2 if high is None else high


def used_advantages(rollout: Rollout) -> list[float]:
    """What the policy's loss weighs tokens by: whitened where that was done."""
    columns = rollout.columns
    return list(columns.get("whitened_advantages") or columns["advantages"])
