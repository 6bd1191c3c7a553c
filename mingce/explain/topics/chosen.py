"""Columns of a rollout as the topics of the policy need them: one number a chosen token, None in the holes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mingce.algorithms import reference
from mingce.explain.example import Rollout


def each(rollout: Rollout, make: Callable[[int], float]) -> list[float | None]:
    """A column of one number a chosen token, None in the holes."""
    mask = rollout["columns"]["response_mask"]
    return [make(s) if m else None for s, m in enumerate(mask)]


def mean(column: Sequence[float | None]) -> float:
    """Over the known ones."""
    known = [x for x in column if x is not None]
    return math.fsum(known) / len(known)


def log_probs(rollout: Rollout) -> tuple[list[float], list[float]]:
    """Old and new; the same before the first update."""
    columns = rollout["columns"]
    return columns["old_log_probs"], columns.get("new_log_probs") or columns["old_log_probs"]


def chosen_slots(rollout: Rollout) -> list[int]:
    """The chosen ones."""
    return reference.chosen(rollout["columns"]["response_mask"])
