"""A directory into which a trainer is writing: its steps, each read once it is whole, and again where it changes.

    follower = Follower(path)
    for arrival in follower.poll():   # what has become whole since; call it again and again
        arrival.dumps, arrival.problem

Files of one step (shards, the two sides of slime) are opened together; those of evaluations are left out. What
changes is waited for; what cannot be read is waited for longer, for it may be half written, and then told once. Kept
are a few numbers a file, however long the directory lives.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mingce.base.errors import ColumnError, DataError, first_line
from mingce.importers import ledger, traces
from mingce.importers.files import files_below
from mingce.importers.opening import open_dump
from mingce.importers.shards import place
from mingce.importers.streams import StreamIndex
from mingce.record.dump import Dump

SETTLED = 1.0
"""Seconds without a change after which files are taken to be whole."""
PATIENCE = 10.0
"""The same where something is missing: files that cannot be read, or fewer than other steps have."""
MOST_FILES = 100_000
_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".incomplete", ".lock", ".swp", "~")
_EVALUATION = re.compile(r"(eval|val)(uation|idation)?[-_.]", re.IGNORECASE)
_NUMBER = re.compile(r"(\d{1,9})$")

Key = tuple[int, str]
"""A step's number, -1 if the names tell none, and a name where there is more than one of that number."""


@dataclass(frozen=True)
class Found:
    """What lies there of one step."""

    stamp: object
    """Equal as long as nothing has changed."""
    parts: int
    """Files, or for a stream of traces those who wrote about them."""
    changed: float
    """When it last changed, in seconds since 1970, as far as the files tell."""
    files: tuple[str, ...] = ()
    streamed: int | None = None
    """Its number in a stream of traces."""


@dataclass(frozen=True)
class Arrival:
    """A step that is whole, or that has changed and is whole again; or why it cannot be read."""

    key: Key
    found: Found
    dumps: list[Dump] = field(default_factory=list)
    problem: str | None = None
    again: bool = False


@dataclass
class _Seen:
    found: Found
    since: float
    """When it was first seen so; the time of its files where it lay there before us."""
    read: object = None  # the stamp that was read, or given up on
    failed: object = None  # the stamp that could not be read the first time


class Follower:
    """Reads a place that grows. `clock` and `wall` are for tests."""

    def __init__(
        self,
        path: Path,
        mapping: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        steps: Collection[int] = (),
        *,
        settled: float = SETTLED,
        patience: float = PATIENCE,
        newest_first: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ):
        self.path = path
        self._mapping, self._settings, self._steps = mapping, dict(settings or {}), tuple(steps)
        self._settled, self._patience, self._newest_first = settled, patience, newest_first
        self._clock, self._wall = clock, wall
        self._seen: dict[Key, _Seen] = {}
        self._first, self._most_parts = True, 0
        self._stream: StreamIndex | None = None

    def poll(self) -> Iterator[Arrival]:
        """What is new and whole, one step after another; each dump may be let go of before the next is read."""
        now, first, found = self._clock(), self._first, self._look()
        self._first = False
        for key in self._seen.keys() - found.keys():
            del self._seen[key]
        for key, one in found.items():
            seen = self._seen.get(key)
            if seen is None:
                age = self._wall() - one.changed if first else 0.0
                self._seen[key] = _Seen(one, now - max(age, 0.0))
            elif seen.found.stamp != one.stamp:
                seen.found, seen.since = one, now
        for key in sorted(found, reverse=self._newest_first):
            if self._is_whole(self._seen[key], now) and (arrival := self._read(key, self._seen[key])) is not None:
                yield arrival

    def keys(self) -> set[Key]:
        """What was there at the last poll."""
        return set(self._seen)

    def waiting(self) -> bool:
        """Whether something that was found is not read yet."""
        return any(seen.read != seen.found.stamp for seen in self._seen.values())

    def open(self, found: Found) -> list[Dump]:
        """The dumps of what was found, read again."""
        if found.streamed is not None:
            assert self._stream is not None
            step, lines = found.streamed, self._stream.lines(found.streamed)
            return open_dump(self._stream.home, self._mapping, self._settings, [step], lines=lines)
        if self.path.is_dir():
            steps = self._steps or None
            return open_dump(self.path, self._mapping, self._settings, steps, files=found.files)
        return open_dump(self.path, self._mapping, self._settings)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> dict[Key, Found]:
        if self._stream is None and (home := traces.home(self.path)) is not None:
            self._stream = StreamIndex(home)
        if self._stream is not None:
            self._stream.refresh()
            steps = self._stream.steps()
            wanted = [step for step in steps if not self._steps or step in self._steps]
            return {(step, ""): Found(*steps[step], streamed=step) for step in wanted}
        if self.path.is_dir():
            return _groups(self.path)
        status = _status(self.path)
        return {} if status is None else {(-1, self.path.name): _found([(self.path.name, status)])}

    def _is_whole(self, seen: _Seen, now: float) -> bool:
        found = seen.found
        if seen.read == found.stamp:
            return False
        lacking = seen.failed == found.stamp or found.parts < self._most_parts
        return now - seen.since >= (self._patience if lacking else self._settled)

    def _read(self, key: Key, seen: _Seen) -> Arrival | None:
        """What it holds; None where that is no dump, or where it is waited for a while longer."""
        found, again = seen.found, seen.read is not None
        try:
            dumps = self.open(found)
        except (DataError, ColumnError, OSError) as error:
            if seen.failed != found.stamp and self._patience > self._settled:
                seen.failed, seen.since = found.stamp, self._clock()
                return None
            seen.read = found.stamp
            return Arrival(key, found, problem=first_line(error, 300), again=again)
        seen.read = found.stamp
        if not dumps:
            return None
        self._most_parts = max(self._most_parts, found.parts)
        return Arrival(key, found, dumps, again=again)


def _groups(directory: Path) -> dict[Key, Found]:
    """The files below a directory by the step that their names tell; ranks without a step belong together."""
    run = ledger.run_of(directory)
    members: dict[Key, list[tuple[str, os.stat_result]]] = {}
    for path in files_below(run or directory, MOST_FILES):
        status = _status(path)
        left_out = path.name.endswith(_UNFINISHED) or _EVALUATION.match(path.name)
        if status is None or left_out or (run and not path.match("step-*.parquet")):
            continue
        inside = path.relative_to(directory)
        members.setdefault(_key(inside), []).append((str(inside), status))
    return {key: _found(files) for key, files in members.items()}


def _key(path: Path) -> Key:
    step, rank, _ = place(path)
    if step is not None:
        return step, ""
    if rank is not None:
        return -1, str(path.parent)
    number = _NUMBER.search(path.name.split(".")[0])
    return (int(number[1]), "") if number else (-1, str(path))


def _found(files: list[tuple[str, os.stat_result]]) -> Found:
    files = sorted(files, key=lambda one: one[0])
    stamp = tuple((name, status.st_size, status.st_mtime_ns, status.st_ino) for name, status in files)
    return Found(stamp, len(files), max(status.st_mtime for _, status in files), tuple(name for name, _ in files))


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:  # it has just gone
        return None
