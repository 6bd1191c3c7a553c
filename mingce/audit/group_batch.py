"""The rows of a batch that have an advantage each, with what they may have been made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mingce.audit import comparisons
from mingce.audit.comparisons import Compared, Outcome
from mingce.audit.evidence import Bools, Evidence, Floats, Ints, finite
from mingce.audit.finding import Place
from mingce.record.dump import LOSS


def _outcomes(e: Evidence) -> Iterator[Outcome]:
    """What a response got, in the ways a trainer may sum it."""
    for name in ("rewards", "scores"):
        if e.has(name):
            yield Outcome(
                f"Σ m·{name}", *(np.where(e.mask, x, 0.0).sum(axis=1) for x in (finite(e[name]), e.error(name)))
            )
    if e.has("outcome"):
        plain = Outcome("outcome", *e.row_numbers("outcome"))
        less = list(_less_kl(e, plain))
        if not (less and e.dump.source == "trl_grpo"):  # whose RLOO compares nothing else
            yield plain
        yield from less
    for name in ("rewards", "scores"):
        if e.has(name):
            yield Outcome(f"Σ {name}", finite(e[name]).sum(axis=1), e.error(name).sum(axis=1))


def _less_kl(e: Evidence, outcome: Outcome) -> Iterator[Outcome]:
    """The outcome less the price of the response's KL, where the settings say that it is taken off there."""
    beta = e.settings.beta
    if e.settings.kl_in_reward and beta and e.has("old_log_probs", "ref_log_probs") and not e.has("rewards"):
        old, ref = (np.where(e.mask, finite(e[name]), 0.0) for name in ("old_log_probs", "ref_log_probs"))
        error = np.where(e.mask, e.error("old_log_probs") + e.error("ref_log_probs"), 0.0).sum(axis=1)
        less = outcome.x - beta * (old - ref).sum(axis=1)
        yield Outcome("outcome − β·Σ m·k", less, outcome.error + abs(beta) * error)


@dataclass(frozen=True)
class Batch:
    """The rows that have an advantage, their prompts, lengths and outcomes."""

    e: Evidence
    used: Ints
    everyone: Ints  # [all rows] the number of the prompt
    found: Floats
    error: Floats

    @cached_property
    def part(self) -> Ints:
        return np.unique(self.everyone[self.used], return_inverse=True)[1]

    @cached_property
    def lengths(self) -> Ints:
        lengths: Ints = self.e.mask.sum(axis=1)[self.used]
        return lengths

    @cached_property
    def outcomes(self) -> list[Outcome]:
        return [one.of(self.used) for one in _outcomes(self.e)]

    @cached_property
    def singles(self) -> Bools:
        return np.asarray(np.bincount(self.part)[self.part] == 1)

    @cached_property
    def judged(self) -> Bools:
        """Rows that have others to be compared with."""
        return np.ones_like(self.singles) if self.singles.all() else ~self.singles

    @property
    def column(self) -> str:
        return self.e.dump.name_of(LOSS)

    @cached_property
    def clean(self) -> dict[tuple[str, str], Compared]:
        """By formula and outcome, what a trainer may mean; verl counts rows without a token in their group too."""
        coarse = self.e.coarse
        ways = {
            (formula, x.name): made
            for x in self.outcomes
            for formula, made in comparisons.clean_ways(x, self.part, self.lengths, coarse)
        }
        if len(self.used) < len(self.everyone):
            lengths = self.e.mask.sum(axis=1)
            for x in _outcomes(self.e):
                for formula, made in comparisons.clean_ways(x, self.everyone, lengths, coarse):
                    ways[formula, f"{x.name}, empty rows counted"] = made.of(self.used)
        return ways

    def misses(self, way: Compared) -> Bools:
        return way.misses(self.found, self.error) & self.judged

    def places(self, expected: Floats, wrong: Bools) -> tuple[Place, ...]:
        rows = np.flatnonzero(wrong)[:5]
        return tuple(Place(int(self.used[i]), None, float(expected[i]), float(self.found[i])) for i in rows)
