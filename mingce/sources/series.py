"""Numbers over steps as columns, and a long curve in few points that keeps every spike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mingce.sources.source import Array


class Part(NamedTuple):
    """The rows that have the same names: `values[i, k]` is the number of `names[k]` in row `rows[i]`."""

    names: tuple[str, ...]
    rows: Array
    values: Array


class Series:
    """One row a step, in order; a number that a step has not is NaN."""

    def __init__(self, steps: Array, parts: Sequence[Part]):
        self.steps, self.parts = steps, parts
        self.names = list(dict.fromkeys(name for part in parts for name in part.names))

    @classmethod
    def of(cls, lines: Sequence[Mapping[str, float]]) -> Series:
        """The same from a mapping a step, each with its step."""
        parts = [
            Part(tuple(line), np.array([row]), np.array([[line[name] for name in line]], dtype=np.float64))
            for row, line in enumerate(lines)
        ]
        kept = [Part(names[1:], rows, values[:, 1:]) for names, rows, values in parts]
        return cls(np.array([int(line["step"]) for line in lines], dtype=np.int64), kept)

    def __len__(self) -> int:
        return len(self.steps)

    def last_step(self) -> int | None:
        """The newest step."""
        return int(self.steps[-1]) if len(self.steps) else None

    def column(self, name: str) -> Array:
        """[N] one metric."""
        found = np.full(len(self.steps), np.nan)
        for part in self.parts:
            if name in part.names:
                found[part.rows] = part.values[:, part.names.index(name)]
        return found

    def where(self, name: str) -> Array:
        """[N] whether the step has measured it."""
        found = np.zeros(len(self.steps), dtype=bool)
        for part in self.parts:
            if name in part.names:
                found[part.rows] = True
        return found

    def at(self, step: int, name: str) -> float | None:
        """One number, if it is there and finite."""
        row = int(np.searchsorted(self.steps, step))
        if row == len(self.steps) or self.steps[row] != step:
            return None
        value = float(self.column(name)[row])
        return value if np.isfinite(value) else None

    def joined(self, other: Series) -> Series:
        """With the numbers of another log, where it has the same steps."""
        parts = list(self.parts)
        for part in other.parts:
            steps = other.steps[part.rows]
            rows = np.searchsorted(self.steps, steps)
            there = rows < len(self.steps)
            there[there] = self.steps[rows[there]] == steps[there]
            parts.append(Part(part.names, rows[there], part.values[there]))
        return Series(self.steps, parts)

    def curves(self, points: int, first: int | None = None, last: int | None = None) -> dict[str, Any]:
        """`steps`, `every` and a list a metric as long as steps, of the rows from step `first` to `last`.

        More rows than `points` are taken `every` so many together: two points each, the least and the greatest in the
        order in which they came, so that a spike of a single step is seen. The newest row always stands for itself.
        """
        low = 0 if first is None else int(np.searchsorted(self.steps, first))
        high = len(self.steps) if last is None else int(np.searchsorted(self.steps, last, side="right"))
        count = max(high - low, 0)
        steps = self.steps[low:high]
        if count <= points:
            lists = {name: _plain(self.column(name)[low:high]) for name in self.names}
            return {"steps": steps.tolist(), "every": 1, "series": lists}
        every = -(-2 * count // points)
        starts = np.arange(0, count, every)
        axis = np.stack([steps[starts], steps[np.minimum(starts + every // 2, count - 1)]], axis=1).reshape(-1)
        lists = {name: _extremes(self.column(name)[low:high], every) for name in self.names}
        return {"steps": [*axis[:-1].tolist(), int(steps[-1])], "every": every, "series": lists}


def _extremes(values: Array, every: int) -> list[float | None]:
    """The least and the greatest of every so many numbers; the last two are the last group's and the last number."""
    groups = -(-len(values) // every)
    padded = np.full(groups * every, np.nan)
    padded[: len(values)] = np.where(np.isfinite(values), values, np.nan)
    table = padded.reshape(groups, every)
    low = np.where(np.isnan(table), np.inf, table).argmin(axis=1)
    high = np.where(np.isnan(table), -np.inf, table).argmax(axis=1)
    rows = np.arange(groups)
    pairs = np.stack([table[rows, np.minimum(low, high)], table[rows, np.maximum(low, high)]], axis=1)
    pairs[low == high, 1] = np.nan
    pairs[-1, 1] = padded[len(values) - 1]
    return _plain(pairs.reshape(-1))


def _plain(values: Array) -> list[float | None]:
    """As JSON holds them; whole numbers stay short."""
    found: list[float | None] = values.tolist()
    finite = np.isfinite(values)
    if finite.all():
        return found
    return [value if ok else None for value, ok in zip(found, finite.tolist(), strict=True)]
