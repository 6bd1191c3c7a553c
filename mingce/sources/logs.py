"""The files of a run that grow by a line of JSON: each line read once, odd lines counted and passed over.

What a log may cost is bounded whatever stands in it: bytes of the file, of a line and of a name, and how many names.
"""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from mingce.base.reading import MAX_LINE, open_regular
from mingce.sources.series import Part, Series

MAX_LOG = 1 << 30  # bytes; 10⁵ steps of 60 metrics are 200 MB
MAX_STEP = 10**12
MAX_NAME = 200
MAX_NAMES = 2000  # different metrics of a run
MAX_PARTS = 500  # different sets of metrics that a line may have
MAX_NUMBERS = 40_000_000
MAX_EVENTS = 200
MAX_WHY = 2000
_CHUNK = 1 << 20
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_ODD = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Skipped:
    """How many lines of a file were left out, and the numbers of the first."""

    file: str
    count: int
    lines: list[int]

    def sentence(self) -> str:
        where = ", ".join(map(str, self.lines))
        if self.count == 1:
            return f"line {where} cannot be read and is left out"
        return f"{self.count:,} lines cannot be read and are left out (line {where}{' …' if self.count > 5 else ''})"


@dataclass(frozen=True)
class RunEvent:
    """What happened besides steps; an audit counts what it found."""

    step: int
    kind: str
    why: str = field(default="", metadata={"brief": True})
    time: float | None = field(default=None, metadata={"brief": True})
    bugs: int | None = field(default=None, metadata={"brief": True})
    suspicious: int | None = field(default=None, metadata={"brief": True})


class Log(ABC):
    """A file that grows. `refresh` reads what has been appended; a file that was replaced is read anew."""

    def __init__(self, path: Path, limit: int = MAX_LOG):
        self.path, self.lock = path, RLock()
        self.fault: str | None = None
        self._limit = limit
        self._forget()

    @abstractmethod
    def _take(self, entry: dict[str, Any]) -> None:
        """Keep one line; what is odd about it is raised."""

    @abstractmethod
    def _empty(self) -> None:
        """Begin anew."""

    @abstractmethod
    def _flush(self) -> None:
        """Called after some lines were taken."""

    def _forget(self) -> None:
        self._file, self._read_to, self._count = (-1, -1), 0, 0
        self._bad, self._first_bad = 0, list[int]()
        self._in_long_line = False
        self._empty()

    def skipped(self) -> Skipped | None:
        """What was left out so far, if anything."""
        return Skipped(self.path.name, self._bad, list(self._first_bad)) if self._bad else None

    def refresh(self) -> None:
        with self.lock:
            try:
                with open_regular(self.path, follow=False) as file:
                    self._read(file)
                full = self._read_to >= self._limit
                self.fault = f"only its first {self._limit >> 20:,} MB are read" if full else None
            except FileNotFoundError:
                self._forget()
                self.fault = None
            except OSError as error:
                self._forget()
                self.fault = error.strerror if os.path.lexists(self.path) else None

    def _read(self, file: BufferedReader) -> None:
        status = os.fstat(file.fileno())
        identity = status.st_dev, status.st_ino
        if identity != self._file or status.st_size < self._read_to:  # rewound: it is another file now
            self._forget()
            self._file = identity
        file.seek(self._read_to)
        open_line = b""
        while self._read_to < self._limit and (chunk := file.read(_CHUNK)):
            data = open_line + chunk
            end = data.rfind(b"\n") + 1
            if end:
                self._take_lines(data[:end])
            elif self._in_long_line or len(data) > MAX_LINE:
                self._in_long_line, end = True, len(data)
            self._read_to += end
            open_line = data[end:]

    def _take_lines(self, block: bytes) -> None:
        for line in block.split(b"\n")[:-1]:
            self._count += 1
            try:
                if self._in_long_line or len(line) > MAX_LINE:
                    raise ValueError("too long")
                self._take(_DECODER.decode(line.decode()))
            except _ODD:
                self._bad += 1
                if len(self._first_bad) < 5:
                    self._first_bad.append(self._count)
            self._in_long_line = False
        self._flush()


class NumberLog(Log):
    """Steps that ascend, and numbers by name."""

    def _empty(self) -> None:
        self._steps: list[int] = []
        self._parts: dict[tuple[str, ...], _Rows] = {}
        self._names: set[str] = set()
        self._numbers = 0
        self._series: Series | None = None

    def series(self) -> Series:
        """Everything so far; the same object as long as nothing has come."""
        with self.lock:
            self.refresh()
            if self._series is None:
                parts = [Part(names[1:], *rows.whole()) for names, rows in self._parts.items()]
                self._series = Series(np.array(self._steps, dtype=np.int64), parts)
            return self._series

    def _take(self, entry: dict[str, Any]) -> None:
        step = entry.pop("step")
        if not _is_step(step) or (self._steps and step <= self._steps[-1]):
            raise ValueError("no step that follows the one before")
        names, values = ("step", *entry), _numbers(list(entry.values()))
        rows = self._parts.get(names)
        if rows is None:
            rows = self._part(names)
        if self._numbers + len(values) > MAX_NUMBERS:
            raise ValueError("too many numbers")
        self._numbers += len(values)
        rows.add(len(self._steps), values)
        self._steps.append(step)

    def _part(self, names: tuple[str, ...]) -> _Rows:
        new = self._names | set(names)
        if len(new) > MAX_NAMES or len(self._parts) >= MAX_PARTS or any(len(name) > MAX_NAME for name in names):
            raise ValueError("too many names")
        self._names = new
        rows = self._parts[names] = _Rows(len(names) - 1)
        return rows

    def _flush(self) -> None:
        self._series = None
        for rows in self._parts.values():
            rows.flush()


class _Rows:
    """Rows of equally many numbers, kept as arrays."""

    def __init__(self, width: int):
        self._width = width
        self._rows: list[Any] = []
        self._values: list[Any] = []
        self._new_rows: list[int] = []
        self._new_values: list[list[float]] = []

    def add(self, row: int, values: list[float]) -> None:
        self._new_rows.append(row)
        self._new_values.append(values)

    def flush(self) -> None:
        if self._new_rows:
            self._rows.append(np.array(self._new_rows, dtype=np.int64))
            self._values.append(np.array(self._new_values, dtype=np.float64).reshape(len(self._new_rows), self._width))
            self._new_rows, self._new_values = [], []

    def whole(self) -> tuple[Any, Any]:
        if len(self._rows) > 1:
            self._rows, self._values = [np.concatenate(self._rows)], [np.concatenate(self._values)]
        return self._rows[0], self._values[0]


class EventLog(Log):
    """What happened: the newest few, as texts."""

    def _empty(self) -> None:
        self._newest: deque[RunEvent] = deque(maxlen=MAX_EVENTS)

    def _flush(self) -> None:
        pass

    def newest(self) -> list[RunEvent]:
        with self.lock:
            self.refresh()
            return list(self._newest)

    def _take(self, entry: dict[str, Any]) -> None:
        step, kind, why, time = (entry.get(name) for name in ("step", "kind", "why", "time"))
        if step is None or not _is_step(step) or not isinstance(kind, str) or not isinstance(why, str | None):
            raise ValueError("no event")
        if time is not None:
            (time,) = _numbers([time])
        self._newest.append(RunEvent(int(step), kind[:MAX_NAME], (why or "")[:MAX_WHY], time))


class AuditLog(EventLog):
    """How many bugs and suspicions the audit of each step found."""

    def _take(self, entry: dict[str, Any]) -> None:
        step, findings = entry["step"], entry.get("findings", [])
        if not _is_step(step) or not isinstance(findings, list):
            raise ValueError("no audit")
        levels = [one.get("severity") for one in findings]
        bugs, suspicious = levels.count("bug"), levels.count("suspicious")
        self._newest.append(RunEvent(step, "audit", bugs=bugs, suspicious=suspicious))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _is_step(step: Any) -> bool:
    return isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= MAX_STEP


def _numbers(values: list[Any]) -> list[float]:
    """All of them numbers; one that is not finite stands there as a word, for JSON has no digits for it."""
    try:
        if math.isfinite(sum(values)):
            return values
    except (TypeError, OverflowError):
        pass
    return [_WORDS[value] if isinstance(value, str) else _finite(value) for value in values]


def _finite(value: Any) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("no number")
    return float(value)
