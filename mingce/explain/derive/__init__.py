"""The numbers of a rollout with the way to them: derived, traced back, compared. Pure functions; nothing is printed."""

from __future__ import annotations

from mingce.explain.derive.compare import compare_quantities, compare_settings, compare_tokens, moves
from mingce.explain.derive.derivation import as_answer, derive, missing_for, name_of
from mingce.explain.derive.origins import origins
from mingce.explain.derive.work import Derivation

__all__ = [
    "Derivation",
    "as_answer",
    "compare_quantities",
    "compare_settings",
    "compare_tokens",
    "derive",
    "missing_for",
    "moves",
    "name_of",
    "origins",
]
