"""Dumps that a trainer is writing, as a source: each step is there once it is whole, without a reload.

A thread looks at the place. Of each step a line of numbers is kept, of the newest looked at a few whole dumps; the
others are read again from their files when somebody asks.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mingce.base.errors import MingceError, RunError, first_line
from mingce.importers.following import Arrival, Follower, Found, Key
from mingce.sources.dumps import DumpSource, line_of
from mingce.sources.series import Series
from mingce.sources.source import Status

if TYPE_CHECKING:
    from mingce.record.dump import Dump

POLL = 0.5
KEPT = 4  # dumps in memory
MOST_STEPS = 100_000


class FollowedSource(DumpSource):
    """A directory or a file that grows. It counts as training as long as it is followed."""

    def __init__(
        self, path: Path, mapping: Path | None = None, tokenizer: Path | None = None, follower: Follower | None = None
    ):
        super().__init__(path, mapping, tokenizer)
        self._follower = follower or Follower(path, mapping, newest_first=True)
        self._steps: dict[int, tuple[Key, Found, int]] = {}
        self._lines: dict[int, dict[str, float]] = {}
        self._kept: dict[int, Dump] = {}
        self._about: dict[str, Any] = {}
        self._changes, self._newest = 0, 0.0
        self._guard, self._reading = threading.Lock(), threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="mingce-follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                with self._reading:
                    self._look()
            except MingceError as error:
                self._message = str(error)
            except Exception as error:  # whatever lies there, the next look may do better
                self._message = f"{self.path.name} cannot be read ({first_line(error)})"
            self._ended.wait(POLL)

    def _look(self) -> None:
        for arrival in self._follower.poll():
            self._take(arrival)
            if self._ended.is_set():
                return
        there = self._follower.keys()
        with self._guard:
            for step in [step for step, (key, _, _) in self._steps.items() if key not in there]:
                self._forget(step)
        if not self._steps and not there:
            self._message = None

    def _take(self, arrival: Arrival) -> None:
        number, name = arrival.key
        with self._guard:
            what = name or arrival.found.files[0] if arrival.found.files else f"step {number}"
            self._damage.pop(what, None)
            if arrival.problem is not None:
                self._damage[what] = arrival.problem
            earlier = [step for step, (key, _, _) in self._steps.items() if key == arrival.key]
            lines = {step: self._lines[step] for step in earlier}
            for step in earlier:
                self._forget(step)
            for place, dump in enumerate(arrival.dumps):
                step = self._numbered(dump.step if dump.step is not None else number, list(lines))
                self._steps[step] = arrival.key, arrival.found, place
                self._lines[step] = line_of(dump)
                self._keep(step, dump)
                self._about = {"source": dump.source} | dump.settings.known()
            while len(self._steps) > MOST_STEPS:
                self._forget(min(self._steps))
            self._changes += 1
            self._newest = max(self._newest, arrival.found.changed)

    def _numbered(self, step: int, before: list[int]) -> int:
        """Its own number, or that which it had, or the next free one."""
        if step >= 0 and step not in self._steps:
            return step
        free = (one for one in before if one not in self._steps)
        return next(free, max(self._steps, default=-1) + 1)

    def _forget(self, step: int) -> None:
        for known in (self._steps, self._lines, self._kept, self._settings):
            known.pop(step, None)

    def _keep(self, step: int, dump: Dump) -> None:
        self._kept.pop(step, None)
        self._kept[step] = dump
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]

    # ── what is asked ────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self, step: int) -> Dump:
        with self._guard:
            known, kept = self._steps.get(step), self._kept.get(step)
        if known is None:
            self.expect(step)
            raise RunError(f"{self.name} has no step {step} any more")
        if kept is None:
            with self._reading:
                dumps = self._follower.open(known[1])
            if known[2] >= len(dumps):
                raise RunError(f"step {step} of {self.name} is being written again; look again in a moment")
            kept = dumps[known[2]]
        with self._guard:
            if self._steps.get(step) == known:
                self._keep(step, kept)
        return kept

    def exists(self) -> bool:
        """It may be still to come."""
        return True

    def status(self) -> Status:
        return "training"

    def message(self) -> str | None:
        return None if self._steps else self._message

    def config(self) -> dict[str, Any]:
        return dict(self._about)

    def total_steps(self) -> int | None:
        return None

    def series(self) -> Series:
        with self._guard:
            lines = [{"step": step} | self._lines[step] for step in sorted(self._lines)]
        return Series.of(lines)

    def last_step(self) -> int | None:
        with self._guard:
            return max(self._steps, default=None)

    def updated(self) -> float:
        return self._newest

    def changes(self) -> int:
        return self._changes

    def ledger_steps(self) -> list[int]:
        with self._guard:
            return sorted(self._steps)

    def stamp(self, step: int) -> object:
        with self._guard:
            known = self._steps.get(step)
        return None if known is None else (known[1].stamp, known[2])
