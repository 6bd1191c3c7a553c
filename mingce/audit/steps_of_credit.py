"""One step of the recursion of credit as the checks read it: its columns, its slots, and what rounding may do to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mingce.audit.evidence import Bools, Floats
from mingce.audit.recursion import Columns, Discount, fit_discount

SURE = 1.5  # times what rounding may do: trainers that compute in 16 bits round more than once


@dataclass(frozen=True)
class Step:
    """What one step of the recursion reads, the slots it runs over, and how far rounding may have moved it."""

    columns: Columns
    mask: Bools
    pairs: Bools  # slots whose next one is chosen too
    room: Floats

    def fit(self, fixed: tuple[float | None, float | None] = (None, None), unseen: float = 1.0) -> Discount:
        """The γ and γλ that the neighbouring tokens show."""
        return fit_discount(self.columns, self.pairs, self.room, fixed, unseen)

    def off(self, expected: Floats) -> Bools:
        """Where the stored advantages are farther from these than rounding explains."""
        return np.asarray(np.abs(expected - self.columns.advantages) > SURE * self.room)

    def like(self, pairs: Bools | None = None, **columns: Floats) -> Step:
        """The same with other columns, or asked of fewer tokens."""
        return replace(
            self, columns=replace(self.columns, **columns), pairs=self.pairs if pairs is None else self.pairs & pairs
        )
