"""Worker processes that score one response each at a time, and are replaced when they hang or die.

A worker is a fresh interpreter, not a fork (the parent holds torch with its threads and locks) and not a `spawn` of
multiprocessing (which would run the person's script again, torch and all). It gets the scorer once, and leads its own
session, so that killing it kills what it started too, and a Ctrl-C in the terminal is left to the parent.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from mingce.errors import RewardError
from mingce.tasks.base import Example, Score
from mingce.tasks.limit import Failure, last_line, scored, too_slow

READY = "ready"
START_LIMIT = 120.0
"""Seconds a worker may take until it has loaded the scorer."""
LOOK = 1.0
"""Seconds between looks at whether a worker, or its parent, is still there, where its pipe does not tell."""


@dataclass(eq=False)
class _Worker:
    """A process with its end of the pipe, the index it works on (None when idle), and when that must be done."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    deadline: float
    ready: bool = False
    index: int | None = None


class Workers:
    """A fixed number of worker processes around one scorer, started when first needed."""

    def __init__(self, scorer: Callable[[Example, str], Score], count: int, time_limit: float | None) -> None:
        try:
            self._scorer = pickle.dumps(scorer)
        except Exception as error:  # whatever an object's own pickling may raise
            raise RewardError(
                f"the scorer cannot be sent to worker processes ({error}); define it in a file, or set workers to 0."
            ) from error
        self._count = count
        self._time_limit = math.inf if time_limit is None else time_limit
        self._crew: list[_Worker] = []

    def run(
        self, examples: Sequence[Example], responses: Sequence[str], *, stop_on_failure: bool
    ) -> list[Score | Failure]:
        """The outcome of every response, in order; with `stop_on_failure` only up to the first failure."""
        outcomes: list[Score | Failure | None] = [None] * len(examples)
        try:
            self._run(examples, responses, outcomes, stop_on_failure)
        except BaseException:
            self.close()  # whatever is still in the pipes belongs to this batch
            raise
        # Responses are handed out in order, so that all before the first failure have an outcome.
        return [outcome for outcome in outcomes if outcome is not None]

    def _run(
        self,
        examples: Sequence[Example],
        responses: Sequence[str],
        outcomes: list[Score | Failure | None],
        stop_on_failure: bool,
    ) -> None:
        following, last = 0, len(examples)
        while True:
            for worker in [worker for worker in self._crew if worker.ready and worker.index is None]:
                if following < last and self._send(worker, (examples[following], responses[following])):
                    worker.index, worker.deadline = following, time.monotonic() + self._time_limit
                    following += 1
            unfinished = last - following + sum(worker.index is not None for worker in self._crew)
            if unfinished == 0:
                return
            while len(self._crew) < min(self._count, unfinished):
                self._crew.append(self._start())
            busy = [worker for worker in self._crew if worker.index is not None or not worker.ready]
            soonest = min(worker.deadline for worker in busy) - time.monotonic()
            wait([worker.pipe for worker in busy], min(LOOK, max(0.0, soonest)))
            for worker in busy:
                if not worker.ready:
                    self._welcome(worker)
                elif (outcome := self._outcome(worker)) is not None:
                    assert worker.index is not None
                    outcomes[worker.index], worker.index = outcome, None
                    if isinstance(outcome, Failure) and stop_on_failure:
                        last = following

    def _send(self, worker: _Worker, work: tuple[Example, str]) -> bool:
        """Hand a response to an idle worker; False, with the worker discarded, if it died while it was idle."""
        try:
            alive = worker.process.poll() is None
            if alive:
                worker.pipe.send(work)
        except OSError:
            alive = False
        if not alive:
            self._discard(worker)
        return alive

    def _outcome(self, worker: _Worker) -> Score | Failure | None:
        """What came of the response the worker is on; None while it is still at it."""
        try:
            if worker.pipe.poll():
                received: Score | Failure = worker.pipe.recv()
                return received
            dead = worker.process.poll() is not None
        except (EOFError, OSError):
            dead = True
        if dead:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(LOOK)  # the pipe may end a moment before the process, whose exit code is wanted
            self._discard(worker)
            return Failure(f"its worker process died with exit code {worker.process.returncode}")
        if time.monotonic() >= worker.deadline:
            self._discard(worker)
            return too_slow(self._time_limit)
        return None

    def _welcome(self, worker: _Worker) -> None:
        """Take note that a new worker has loaded the scorer, or stop because it could not."""
        said = ""
        try:
            if worker.pipe.poll():
                said = worker.pipe.recv()
            elif worker.process.poll() is not None:
                said = f"it died with exit code {worker.process.returncode}"
            elif time.monotonic() >= worker.deadline:
                said = f"it was not ready after {START_LIMIT:g} s"
        except (EOFError, OSError):
            said = "it died; see its message above"
        if said == READY:
            worker.ready, worker.deadline = True, math.inf
        elif said:
            raise RewardError(f"a reward worker could not start ({said}); mend that, or set reward workers to 0.")

    def _start(self) -> _Worker:
        ours, theirs = multiprocessing.Pipe()
        program = "import json, sys; sys.path[:] = json.loads(sys.argv[2]); import mingce.tasks.workers as w; w.work()"
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(theirs.fileno()), json.dumps(sys.path)],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        with contextlib.suppress(OSError):  # it died at once, which its welcome will find
            ours.send((os.getpid(), self._scorer))
        return _Worker(process, ours, time.monotonic() + START_LIMIT)

    def _discard(self, worker: _Worker) -> None:
        _kill(worker)
        self._crew.remove(worker)

    def close(self) -> None:
        """Kill the workers; they hold nothing that must be kept."""
        for worker in self._crew:
            _kill(worker)
        self._crew.clear()


def _kill(worker: _Worker) -> None:
    """End the worker and everything it started."""
    worker.pipe.close()
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing of it is left
        os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()


def work() -> None:
    """The life of a worker: load the scorer, say so, and score until the pipe is closed."""
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    pipe = Connection(descriptor)
    parent, pickled = pipe.recv()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        scorer = pickle.loads(pickled)
    except Exception as error:
        pipe.send(last_line(error))
        return
    pipe.send(READY)
    while True:
        try:
            example, response = pipe.recv()
        except EOFError:
            return
        pipe.send(scored(scorer, example, response))


def _end_with(parent: int) -> None:
    """End this process and what it started when the parent is gone, even if the scorer never returns."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os.killpg(os.getpid(), signal.SIGKILL)
