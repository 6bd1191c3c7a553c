"""How a step's numbers are spread: histograms, and the moments that whitening takes, gathered batch by batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mingce.view.source import Array

CUT = 400
BINS = 40
EPSILON = 1e-8  # as mingce.algorithms.masking adds to the variance
_FLOAT32_EPS = 2.0**-23


def cut(text: str) -> str:
    """A text as the table shows it."""
    return text if len(text) <= CUT else text[: CUT - 1] + "…"


def histogram(values: Array) -> dict[str, Any]:
    """Counts between edges; numbers that are not finite are counted as dropped."""
    spread = Spread()
    spread.look(values)
    spread.count(values)
    return spread.histogram()


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

    def histogram(self) -> dict[str, Any]:
        dropped = self.seen - self._finite
        if not self._finite:
            return {"edges": [], "counts": [], "dropped": dropped}
        if self._same:  # one bin of a width that can be drawn
            return {"edges": [self._low - 0.5, self._high + 0.5], "counts": [self._finite], "dropped": dropped}
        edges = np.histogram_bin_edges(np.zeros(0), bins=BINS, range=(self._low, self._high))
        return {"edges": edges.tolist(), "counts": self._counts.tolist(), "dropped": dropped}


class Moments:
    """Mean and spread of the raw advantages over the tokens in the losses, batch by batch."""

    def __init__(self) -> None:
        self.seen, self._count, self._mean, self._squares = False, 0, 0.0, 0.0

    def add(self, values: Array) -> None:
        self.seen = True
        if len(values):
            new = values.astype(np.float64)
            count, mean = len(new), float(new.mean())
            total, shift = self._count + count, mean - self._mean
            self._squares += float(((new - mean) ** 2).sum()) + shift**2 * self._count * count / total
            self._mean += shift * count / total
            self._count = total

    def found(self) -> dict[str, Any]:
        variance = self._squares / (self._count - 1) if self._count > 1 else 0.0
        variance = variance if variance > (_FLOAT32_EPS * abs(self._mean)) ** 2 else 0.0
        return {"mean": self._mean, "std": math.sqrt(variance), "variance": variance, "count": self._count}
