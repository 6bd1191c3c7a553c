"""Work beside decoding, in threads that may be slow or hang: one that takes too long is left behind and replaced."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

_LOOK = 0.05
"""Seconds between looks at whether a job that waits for a thread was begun."""


class Late(Exception):
    """A job took longer than it may."""


class Job:
    """One call, and what came of it."""

    def __init__(self, call: Callable[[], Any]):
        self.call, self.begun, self.ended = call, 0.0, 0.0
        self.over = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Makes the call, in whatever thread."""
        self.begun = time.monotonic()
        try:
            self.value = self.call()
        except BaseException as error:  # reported to whoever asks for the result
            self.error = error
        self.ended = time.monotonic()
        self.over.set()

    @property
    def seconds(self) -> float:
        """How long it took, or has taken."""
        return (self.ended or time.monotonic()) - self.begun if self.begun else 0.0


class Threads:
    """So many daemon threads; none: jobs are done at once by whoever hands them in, and no limit holds them."""

    def __init__(self, count: int):
        self.count, self.jobs = count, queue.SimpleQueue[Job | None]()
        self.started = 0

    def submit(self, call: Callable[[], Any]) -> Job:
        """Hands in a job."""
        job = Job(call)
        if not self.count:
            job.run()
            return job
        if self.started < self.count:
            self._start()
        self.jobs.put(job)
        return job

    def result(self, job: Job, limit: float) -> Any:
        """What the job returned, or raised; `Late` if it is at it for longer than `limit` seconds."""
        while not job.over.wait(_LOOK if not job.begun else max(0.0, limit - job.seconds)):
            if job.begun and job.seconds >= limit:
                self._start()  # its thread may never come back
                raise Late(f"no answer within {limit:g} s")
        if job.error is not None:
            raise job.error
        return job.value

    def _start(self) -> None:
        self.started += 1
        threading.Thread(target=self._work, name=f"mingce-environment-{self.started}", daemon=True).start()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            job.run()

    def close(self) -> None:
        """Ends the threads that are idle; those that hang end with the process."""
        for _ in range(self.started):
            self.jobs.put(None)
        self.started = 0
