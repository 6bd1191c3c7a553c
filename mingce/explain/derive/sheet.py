"""The numbers that a derivation is made of: one row's columns, who follows whom, and the settings in force.

Inputs are taken as the ledger records them; what follows from them is taken as the account has it (`book_of`): the
ledger's number where the definitions confirm it, the definition's where they do not. So every equation that is written
out holds between the numbers it shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.base.numbers import rounded
from mingce.explain.account import Values, book_of, substituted
from mingce.record.rollout import Rollout
from mingce.specs import ESTIMATORS, POLICY_LOSSES, Estimator, PolicyLoss
from mingce.specs.estimator import lambda_of
from mingce.specs.kl import kl_name
from mingce.specs.losses import policy_ratio

MEASURES = (
    "scores", "kl", "rewards", "values", "old_log_probs", "ref_log_probs", "new_log_probs", "new_values",
)  # fmt: skip
"""Columns that others are computed from: of these the ledger's own number is the input."""
MOST_TERMS = 16
"""A sum of more terms, or a recursion of more steps, is written with its two ends."""
HEAD, TAIL = 6, 8


class Sheet:
    """One rollout, ready to be computed with."""

    def __init__(self, rollout: Rollout) -> None:
        book = book_of(rollout)
        self.rollout, self.book = rollout, book
        self.columns: dict[str, Sequence[Any]] = dict(book.columns)
        self.slots = reference.chosen(rollout.mask)
        self.place = {t: k for k, t in enumerate(self.slots)}
        settings = rollout.settings
        self.gamma, self.beta, self.lam = settings.gamma, settings.beta, lambda_of(settings.as_dict())
        self.end = float(rollout.bootstrap)
        self._complete()

    def _complete(self) -> None:
        """KL, ratio and TD errors where the ledger has none though it has what they are made of."""
        kind = kl_name(self.rollout.settings.kl_estimator) or "k1"
        clamp = self.rollout.settings.kl_clamp
        if "kl" not in self.columns:
            self._each(
                "kl", lambda old, ref: reference.kl_penalty(old, ref, kind, clamp), "old_log_probs", "ref_log_probs"
            )
        if "ratio" not in self.columns:
            self._each("ratio", policy_ratio, "old_log_probs", "new_log_probs")

    def _each(self, name: str, make: Any, *inputs: str) -> None:
        if any(one not in self.columns for one in inputs):
            return
        rows = [[self.columns[one][t] for one in inputs] for t in range(len(self.rollout.mask))]
        self.columns[name] = [make(*row) if t in self.place and None not in row else None for t, row in enumerate(rows)]

    # ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def estimator(self) -> Estimator | None:
        return ESTIMATORS.get(self.rollout.settings.estimator or "")

    @property
    def loss(self) -> PolicyLoss | None:
        return POLICY_LOSSES.get(self.rollout.settings.policy_loss or "ppo")

    @property
    def decay(self) -> float | None:
        """γλ."""
        return None if self.gamma is None or self.lam is None else self.gamma * self.lam

    # ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def at(self, name: str, t: int | None) -> float | None:
        """The column's number at slot t; None where there is none."""
        if t is None or t not in self.place:
            return None
        recorded = self.rollout.columns.get(name) if name in MEASURES else None
        column = self.columns.get(name) if recorded is None or recorded[t] is None else recorded
        x = None if column is None else column[t]
        return None if x is None or not math.isfinite(x) else float(x)

    def following(self, t: int) -> int | None:
        """The next chosen slot; None behind the last."""
        place = self.place[t] + 1
        return self.slots[place] if place < len(self.slots) else None

    def cut_off(self, t: int) -> bool:
        """Whether what follows slot t is not here: the row is longer than what is shown."""
        return self.rollout.more_tokens and self.following(t) is None

    def next_value(self, t: int) -> float | None:
        """V(s_{t+1}): of the next chosen token, behind the last one the bootstrap."""
        if self.cut_off(t):
            return None
        following = self.following(t)
        return self.end if following is None else self.at("values", following)

    def state_after(self, t: int) -> str:
        """`s_3`, or `s_T` behind the last token."""
        following = self.following(t)
        return "s_T" if following is None else f"s_{following}"

    def column(self, name: str) -> list[float] | None:
        """The numbers of the chosen tokens; None if one is missing."""
        numbers = [self.at(name, t) for t in self.slots]
        whole = [x for x in numbers if x is not None]
        return whole if whole and len(whole) == len(numbers) else None

    def tail(self, t: int) -> list[int]:
        """The chosen slots from t on."""
        return self.slots[self.place[t] :]

    def holes(self, t: int) -> list[int]:
        """Slots from t to the last chosen one that the policy did not choose."""
        return [s for s in range(t, self.slots[-1]) if s not in self.place]

    def token(self, t: int) -> str:
        """The token's text."""
        return self.rollout.tokens[t].text.replace("\n", "↵")

    def ledger(self, name: str, t: int) -> float | None:
        """What the ledger records where the definition says otherwise."""
        if t not in self.book.disagreeing.get(name, ()):
            return None
        return float(self.rollout.columns[name][t])


@lru_cache(maxsize=16)
def sheet_of(rollout: Rollout) -> Sheet:
    """The sheet of a rollout; kept, for a question asks for many of its numbers."""
    return Sheet(rollout)


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def put(template: str, **values: Any) -> str:
    """The template with its numbers; a negative one behind an operator stands in parentheses."""
    numbers: Values = dict(values)
    return substituted(template, numbers, formula=True)


def fine(x: float) -> str:
    """Six decimals: a quotient of numbers rounded to four would not be the one that is shown."""
    return rounded(x, 6).rstrip("0").rstrip(".").replace("-", "−") if abs(x) >= 0.001 or x == 0 else shown(x)


def total_of(numbers: Sequence[float]) -> float:
    """Their sum, 0 where only rounding noise is left of it."""
    total = math.fsum(numbers)
    return total if abs(total) > 1e-13 * math.fsum(map(abs, numbers)) else 0.0


def bracketed(x: float) -> str:
    """A number as a factor or a later summand."""
    text = shown(x)
    return f"({text})" if text.startswith("−") else text


def summed(terms: Sequence[str]) -> str:
    """Terms with + between them, both ends of a long sum."""
    terms = [*terms[:HEAD], "…", *terms[-TAIL:]] if len(terms) > MOST_TERMS else terms
    return " + ".join(terms)


def added(numbers: Sequence[float]) -> str:
    """`0.1 + (−0.2) + 0.3`."""
    if len(numbers) > MOST_TERMS:
        return " + ".join([shown(numbers[0]), *map(bracketed, numbers[1:HEAD]), "…", *map(bracketed, numbers[-TAIL:])])
    return summed([shown(x) if k == 0 else bracketed(x) for k, x in enumerate(numbers)])


def ends(lines: Sequence[str]) -> tuple[str, ...]:
    """All lines of a short recursion; both ends of a long one with … between."""
    return tuple([*lines[:HEAD], "…", *lines[-TAIL:]] if len(lines) > MOST_TERMS else lines)


def power(base: str, exponent: int) -> str:
    """`γλ^2`: nothing for the power 0, no exponent for 1."""
    if exponent < 2:
        return base if exponent else ""
    return f"({base})^{exponent}" if len(base) > 1 and not base.replace(".", "").isdigit() else f"{base}^{exponent}"
