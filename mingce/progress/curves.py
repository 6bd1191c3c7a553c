"""A metric's course in one line of block characters, whatever the number of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

BLOCKS = "▁▂▃▄▅▆▇█"
CAPACITY = 512


@dataclass
class _Bucket:
    """The sum of the finite values among `added` neighbours."""

    total: float = 0.0
    finite: int = 0
    added: int = 0

    def take(self, total: float, finite: int, added: int) -> None:
        self.total, self.finite, self.added = self.total + total, self.finite + finite, self.added + added

    @property
    def mean(self) -> float:
        return self.total / self.finite if self.finite else math.nan


@dataclass
class Curve:
    """A series of any length in bounded memory: beyond CAPACITY points, neighbours are averaged in pairs.

    A step without a value is added as None, so that the curves of a run share their time axis.
    """

    last: float = math.nan
    _buckets: list[_Bucket] = field(default_factory=list)
    _stride: int = 1

    def add(self, value: float | None) -> None:
        """The next step's value."""
        if value is not None:
            self.last = value
        if not self._buckets or self._buckets[-1].added == self._stride:
            if len(self._buckets) == CAPACITY:
                self._buckets, self._stride = _merged(self._buckets, CAPACITY // 2), 2 * self._stride
            self._buckets.append(_Bucket())
        known = value is not None and math.isfinite(value)
        self._buckets[-1].take(value if value is not None and known else 0.0, int(known), 1)

    def columns(self, width: int) -> list[float]:
        """The whole course in `width` values, oldest first: means of neighbours, or each value several times."""
        count = len(self._buckets)
        if width > count:
            return [self._buckets[i * count // width].mean for i in range(width)] if count else []
        return [bucket.mean for bucket in _merged(self._buckets, width)]


def _merged(buckets: Sequence[_Bucket], count: int) -> list[_Bucket]:
    """`count` buckets that hold what `buckets` hold."""
    merged = []
    for i in range(count):
        bucket = _Bucket()
        for part in buckets[i * len(buckets) // count : (i + 1) * len(buckets) // count]:
            bucket.take(part.total, part.finite, part.added)
        merged.append(bucket)
    return merged


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """One block per value between `low` and `high`, a space where there is none; a flat line lies in the middle."""
    if high <= low:
        low, high = low - 1, low + 1
    heights = (math.nan if math.isnan(v) else (min(max(v, low), high) - low) / (high - low) for v in values)
    return "".join(" " if math.isnan(h) else BLOCKS[min(int(h * len(BLOCKS)), len(BLOCKS) - 1)] for h in heights)
