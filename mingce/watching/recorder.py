"""The queue between a host's thread and ours. The host hands over copies and goes on; it never waits for the disk.

    recorder = Recorder(directory, host, Choices(rows=64))
    if recorder.wants(step):
        recorder.offer(step, Taken(data))  # the step's tensors under the trainer's own names, as in its dumps
    recorder.hold(step, Taken(data))       # or this: it waits for what is logged, for the audit to compare with
    recorder.logged(step, metrics)         # what the trainer logs of the step
    recorder.step_ended()                  # no more numbers of the step will come
    recorder.audit_metrics()               # audit/bugs, audit/suspicious of the newest audit, for the host's logger

A full queue drops the step and counts it. Whatever fails is one warning, however often it fails; training goes on.
"""

from __future__ import annotations

import atexit
import logging
import math
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mingce.base.errors import first_line
from mingce.base.texts import sentence
from mingce.watching.host import Choices, Host, Taken
from mingce.watching.writer import Writer

LOG = logging.getLogger("mingce")
WAITING = 8
"""Batches that may wait to be written; more are dropped."""
LAST_SECONDS = 30.0
"""How long the end of the program waits for what is still to be written."""


@dataclass(frozen=True)
class Batch:
    """A step's numbers, or what makes them in our thread."""

    step: int
    taken: Taken | Callable[[], Taken]


@dataclass(frozen=True)
class Logged:
    """What the host logged."""

    step: int
    metrics: Mapping[str, float]


class StepEnded:
    """No more numbers of the step will come."""


@dataclass(frozen=True)
class Work:
    """Something else to be done in our thread."""

    do: Callable[[], object]


Item = Batch | Logged | StepEnded | Work


class Recorder:
    """One watched trainer's way to its run directory."""

    def __init__(self, directory: Path, host: Host, choices: Choices | None = None):
        self.choices = choices or Choices()
        self.dropped = 0
        self.failures = 0
        self._warned = self._closed = False
        self._held: tuple[int, Taken] | None = None
        self.at_end: Callable[[], object] | None = None
        """Done in our thread before it ends."""
        self._room = threading.Semaphore(WAITING)
        self._queue: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._writer = Writer(directory, host, self.choices)
        self._thread = threading.Thread(target=self._work, name="mingce-watch", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # ── the host's thread ────────────────────────────────────────────────────────────────────────────────────────

    def wants(self, step: int) -> bool:
        """Whether the step is to be recorded, so that nothing need be copied of the others."""
        return not self._closed and (step == 1 or step % self.choices.every == 0)

    def offer(self, step: int, taken: Taken | Callable[[], Taken]) -> None:
        """A step's batch, or what makes it in our thread, of copies that the host does not change.

        Dropped where the disk is behind.
        """
        if not self._room.acquire(blocking=False):
            self.dropped += 1
        elif not self._put(Batch(step, taken)):
            self._room.release()

    def hold(self, step: int, taken: Taken) -> None:
        """A step's batch, offered with the numbers that the host will log of it; without, if they do not come."""
        self._offer_held()
        self._held = (step, taken)

    def _offer_held(self, step: int | None = None, numbers: Mapping[str, float] | None = None) -> None:
        if self._held is not None:
            (held, taken), self._held = self._held, None
            same = numbers and held == step
            self.offer(held, replace(taken, data={**taken.data, "scalars": numbers}) if same else taken)

    def logged(self, step: int, metrics: Mapping[str, Any]) -> None:
        """The finite numbers among what the host logged of a step."""
        plain = {str(name): value.item() if isinstance(value, np.generic) else value for name, value in metrics.items()}
        numbers = {name: one for name, one in plain.items() if type(one) in (int, float) and math.isfinite(one)}
        self._offer_held(step, numbers)
        self._put(Logged(step, numbers))

    def step_ended(self) -> None:
        """What is known of the step so far is all."""
        self._put(StepEnded())

    def work(self, do: Callable[[], object]) -> None:
        """Something that takes long, in our thread and in its turn."""
        self._put(Work(do))

    def audit_metrics(self) -> dict[str, float]:
        """audit/bugs and audit/suspicious of the newest audited step; empty before the first."""
        return dict(self._writer.audit_metrics)

    def bug(self) -> str | None:
        """The sentence of the first bug, if the person asked to stop at one."""
        return self._writer.bug if self.choices.on_bug == "stop" else None

    def failed(self, error: Exception) -> None:
        """Something of ours went wrong: one warning, the rest is counted."""
        self.failures += 1
        if not self._warned:
            self._warned = True
            LOG.warning(sentence("watching.failed", error=f"{first_line(error)}"))

    def _put(self, item: Item) -> bool:
        if self._closed:
            return False
        if not self._thread.is_alive():
            self.failed(RuntimeError(sentence("watching.writer_gone")))
            return False
        self._queue.put(item)
        return True

    def close(self, seconds: float = LAST_SECONDS) -> None:
        """Write what is waiting, then end; the run's directory is left as a run that was stopped or is finished."""
        if self._closed:
            return
        self._offer_held()
        if self.at_end is not None:
            self._put(Work(self.at_end))
        self._closed = True
        atexit.unregister(self.close)
        self._queue.put(None)
        self._thread.join(seconds)
        if self.dropped:
            LOG.warning(sentence("watching.dropped", count=self.dropped))

    # ── our thread ───────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._take(item)
            except Exception as error:
                self.failed(error)
            if isinstance(item, Batch):
                self._room.release()
            del item  # a batch is large, and the next one may be long in coming
        try:
            self._writer.close()
        except Exception as error:
            self.failed(error)

    def _take(self, item: Item) -> None:
        if isinstance(item, Batch):
            taken = item.taken() if callable(item.taken) else item.taken
            self._writer.batch(item.step, self._with_more(taken))
        elif isinstance(item, Work):
            item.do()
        elif isinstance(item, Logged):
            self._writer.logged(item.step, item.metrics)
        else:
            self._writer.end_step()

    def _with_more(self, taken: Taken) -> Taken:
        """A batch with what is found elsewhere; without it, where that fails."""
        if taken.more is None:
            return taken
        try:
            return replace(taken, data=taken.more(taken.data), more=None)
        except Exception as error:
            self.failed(error)
            return taken
