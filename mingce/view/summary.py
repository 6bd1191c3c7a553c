"""How a step's numbers are spread: histograms, gathered batch by batch."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mingce.sources.source import Array
from mingce.view.answers import Histogram

CUT = 400
BINS = 40


def cut(text: str) -> str:
    """A text as the table shows it."""
    return text if len(text) <= CUT else text[: CUT - 1] + "…"


def histogram(values: Array) -> Histogram:
    """Of one number a rollout."""
    spread = Spread()
    spread.look(values)
    spread.count(values)
    return replace(spread.histogram(), of="rollout")


class Spread:
    """A histogram in two passes: `look` at all numbers, then `count` them between the edges that fit."""

    def __init__(self) -> None:
        self.seen, self._finite = 0, 0
        self._low, self._high = math.inf, -math.inf
        self._counts: Array = np.zeros(BINS, dtype=np.int64)

    def look(self, values: Array) -> None:
        finite = values[np.isfinite(values)]
        self.seen += len(values)
        self._finite += len(finite)
        if len(finite):
            self._low, self._high = min(self._low, float(finite.min())), max(self._high, float(finite.max()))

    def count(self, values: Array) -> None:
        if not self._same and self._finite:
            finite = values[np.isfinite(values)].astype(np.float64)
            self._counts += np.histogram(finite, bins=BINS, range=(self._low, self._high))[0]

    @property
    def _same(self) -> bool:
        return self._high - self._low <= 1e-12 * max(abs(self._low), abs(self._high), 1.0)

    def histogram(self) -> Histogram:
        dropped = self.seen - self._finite
        if not self._finite:
            return Histogram([], [], dropped)
        if self._same:  # one bin of a width that can be drawn
            return Histogram([self._low - 0.5, self._high + 0.5], [self._finite], dropped)
        edges = np.histogram_bin_edges(np.zeros(0), bins=BINS, range=(self._low, self._high))
        return Histogram(edges.tolist(), self._counts.tolist(), dropped)
