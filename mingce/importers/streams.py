"""prime-rl's stream of traces while it grows: which lines belong to which step, each line read once.

Of a trace only its id, its step and where its lines stand are kept, of the newest traces and steps.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mingce.base.errors import MingceError
from mingce.importers.limits import MAX_LINE
from mingce.importers.traces import Line, chunk_files, opened_chunk

MOST_TRACES = 50_000
MOST_STEPS = 1000
MOST_LINES = 1000  # about one trace
AT_ONCE = 64 << 20
"""Bytes that one look reads; the next look goes on."""


@dataclass
class _Chunk:
    """How far a file was read."""

    number: int = -1  # its inode
    at: int = 0
    sealed: bool = False


@dataclass
class _Trace:
    lines: list[Line] = field(default_factory=list)
    step: int | None = None


@dataclass
class _Step:
    traces: dict[str, None] = field(default_factory=dict)
    changed: float = 0.0
    lines: int = 0
    writers: set[str] = field(default_factory=set)


class StreamIndex:
    """The steps of a stream at `home`."""

    def __init__(self, home: Path):
        self.home = home
        self._forget()

    def _forget(self) -> None:
        self._chunks: dict[str, _Chunk] = {}
        self._traces: dict[str, _Trace] = {}
        self._steps: dict[int, _Step] = {}
        self._dropped = -1  # steps up to it have left the index

    def refresh(self) -> None:
        """Read what was appended; a file that was cut or replaced has everything read anew."""
        left = AT_ONCE
        for name, path in chunk_files(self.home):
            try:
                left -= self._read(name, path, left)
            except _Replaced:
                self._forget()
                return
            except (OSError, MingceError):  # gone, or not yet whole; the next look tries again
                continue
            if left <= 0:
                return

    def steps(self) -> dict[int, tuple[object, int, float]]:
        """Of each step something that changes with it, how many writers it has, and when it last changed."""
        return {number: (step.lines, len(step.writers), step.changed) for number, step in self._steps.items()}

    def lines(self, step: int) -> list[Line]:
        """Where the lines of a step's traces stand, and those about them."""
        known = self._steps.get(step)
        return list(dict.fromkeys(line for one in (known.traces if known else ()) for line in self._traces[one].lines))

    def _read(self, name: str, path: Path, most: int) -> int:
        """How many bytes were read of what is new in a file."""
        chunk, status = self._chunks.setdefault(name, _Chunk()), path.stat()
        if chunk.sealed:
            return 0
        packed = path.suffix == ".zst"
        if not packed:
            if status.st_size < chunk.at or chunk.number not in (-1, status.st_ino):
                raise _Replaced
            chunk.number = status.st_ino
            if status.st_size == chunk.at:
                return 0
        began = chunk.at
        with opened_chunk(path) as file:
            _skip(file, chunk.at)
            while chunk.at - began < most and (line := file.readline(MAX_LINE + 1)):
                if not line.endswith(b"\n") and len(line) <= MAX_LINE:
                    break  # it is being written
                self._take(name, chunk.at, line, status)
                chunk.at += len(line)
            else:
                chunk.sealed = packed and chunk.at - began < most
        return chunk.at - began

    def _take(self, name: str, at: int, line: bytes, status: os.stat_result) -> None:
        """Keep where a line stands; one that is no record, or far too long, is passed over."""
        try:
            record = json.loads(line) if len(line) <= MAX_LINE else None
        except (ValueError, RecursionError):
            return
        if not isinstance(record, dict):
            return
        written = name.startswith("annotations")
        for one in [record] if written else _traces_of(record):
            trace_id = one.get("trace_id" if written else "id")
            if not isinstance(trace_id, str) or len(trace_id) > 200:
                continue
            if trace_id in self._traces or not written:  # else it is about one that was forgotten
                self._keep(trace_id, (name, at, len(line)), _step_of(one), status.st_mtime)

    def _keep(self, trace_id: str, line: Line, step: int | None, changed: float) -> None:
        trace = self._traces.setdefault(trace_id, _Trace())
        if len(trace.lines) < MOST_LINES:
            trace.lines.append(line)
        if step is not None and step != trace.step:
            if trace.step in self._steps:
                del self._steps[trace.step].traces[trace_id]
            trace.step = step if step > self._dropped else None
        if trace.step is not None:
            found = self._steps.setdefault(trace.step, _Step())
            found.traces[trace_id] = None
            found.lines += 1
            found.changed = max(found.changed, changed)
            found.writers.add(line[0].rpartition("/")[0] or line[0])
        while len(self._traces) > MOST_TRACES:
            self._drop(next(iter(self._traces)))
        while len(self._steps) > MOST_STEPS:
            for one in list(self._steps[min(self._steps)].traces):
                self._drop(one)

    def _drop(self, trace_id: str) -> None:
        """Forget the oldest; a step that has none left is over."""
        trace = self._traces.pop(trace_id)
        if trace.step is not None:
            self._steps[trace.step].traces.pop(trace_id)
            if not self._steps[trace.step].traces:
                del self._steps[trace.step]
                self._dropped = max(self._dropped, trace.step)


class _Replaced(Exception):
    """A file is not the one that was read."""


def _traces_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    found = record.get("traces")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else [record]


def _step_of(record: dict[str, Any]) -> int | None:
    info = record.get("info")
    ship = info.get("ship") if isinstance(info, dict) else None
    step = ship.get("step") if isinstance(ship, dict) else None
    return step if type(step) is int and 0 <= step < 10**12 else None


def _skip(file: Any, size: int) -> None:
    """Go on where reading ended; a packed file has to be unpacked up to there."""
    if file.seekable():
        file.seek(size)
        return
    while size > 0 and (part := file.read(min(size, 1 << 20))):
        size -= len(part)
