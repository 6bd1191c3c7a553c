"""Worker processes that score one response each at a time (or a batch, where the scorer takes batches), and are
replaced when they hang or die.

A worker is a fresh interpreter, not a fork (the parent holds torch with its threads and locks) and not a `spawn` of
multiprocessing (which would run the person's script again, torch and all). It gets the scorer once, and leads its own
session, so that killing it kills what it started too, and a Ctrl-C in the terminal is left to the parent. All workers
hash texts alike (PYTHONHASHSEED), so that sets have one order everywhere. What runs in them is in worker.py.
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
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait

from mingce.base.errors import RewardError
from mingce.tasks.base import Example, Score
from mingce.tasks.limit import Failure, too_slow
from mingce.tasks.worker import READY, READY_FOR_BATCHES, Row

START_LIMIT = 120.0
"""Seconds a worker may take until it has loaded the scorer."""
LOOK = 1.0
"""Seconds between looks at whether a worker is still there, where its pipe does not tell."""


@dataclass(eq=False)
class _Worker:
    """A process with its end of the pipe, the index of the rows it works on (None when idle), and their deadline."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    alive: int
    """The end of a pipe that is open here as long as this process lives; the worker ends when it is closed."""
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
        self._what = str(getattr(scorer, "path", None) or getattr(scorer, "name", "the reward"))
        self._count = count
        self._time_limit = time_limit
        self._crew: list[_Worker] = []
        self.batched = False
        """Whether the scorer takes a whole batch in one call; known once a worker has loaded it."""

    def start(self) -> None:
        """Starts one worker, so that an error in the scorer is reported before it is needed."""
        if not self._crew:
            self._crew.append(self._start())
        try:
            while not self._crew[0].ready:
                wait([self._crew[0].pipe], LOOK)
                self._welcome(self._crew[0])
        except BaseException:
            self.close()
            raise

    def run(
        self, examples: Sequence[Example], responses: Sequence[str], seeds: Sequence[int], *, stop_on_failure: bool
    ) -> list[Score | Failure]:
        """The outcome of every response, in order; with `stop_on_failure` only up to the first failure."""
        if not examples:
            return []
        self.start()
        rows = list(zip(examples, responses, seeds, strict=True))
        pieces = [rows] if self.batched else [[row] for row in rows]
        outcomes: list[list[Score | Failure]] = [[] for _ in pieces]
        try:
            self._run(pieces, outcomes, stop_on_failure)
        except BaseException:
            self.close()  # whatever is still in the pipes belongs to this batch
            raise
        # Responses are handed out in order, so that all before the first failure have an outcome.
        return [outcome for piece in outcomes for outcome in piece]

    def _run(
        self, pieces: Sequence[Sequence[Row]], outcomes: list[list[Score | Failure]], stop_on_failure: bool
    ) -> None:
        following, last = 0, len(pieces)
        while True:
            for worker in [worker for worker in self._crew if worker.ready and worker.index is None]:
                if following < last and self._send(worker, pieces[following]):
                    worker.index, worker.deadline = following, time.monotonic() + self._seconds(pieces[following])
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
                    rows = len(pieces[worker.index])
                    came: list[Score | Failure] = (
                        outcome if isinstance(outcome, list) else [replace(outcome, together=rows > 1)] * rows
                    )
                    outcomes[worker.index], worker.index = came, None
                    if stop_on_failure and any(isinstance(one, Failure) for one in came):
                        last = following

    def _seconds(self, rows: Sequence[Row]) -> float:
        """How long they may take; a batch has a moment more, for it may hold each answer to the limit itself."""
        if self._time_limit is None:
            return math.inf
        return self._time_limit * len(rows) + (LOOK if self.batched else 0.0)

    def _send(self, worker: _Worker, rows: Sequence[Row]) -> bool:
        """Hand responses to an idle worker; False, with the worker discarded, if it died while it was idle."""
        try:
            alive = worker.process.poll() is None
            if alive:
                worker.pipe.send((list(rows), self._time_limit))
        except OSError:
            alive = False
        if not alive:
            self._discard(worker)
        return alive

    def _outcome(self, worker: _Worker) -> list[Score | Failure] | Failure | None:
        """What came of the rows the worker is on, or why nothing did; None while it is still at it."""
        try:
            if worker.pipe.poll():
                received: list[Score | Failure] = worker.pipe.recv()
                return received
            dead = worker.process.poll() is not None
        except (EOFError, OSError):
            dead = True
        if dead:
            ended = _ending(worker)
            self._discard(worker)
            return Failure(f"its worker process {ended}")
        if time.monotonic() >= worker.deadline:
            self._discard(worker)
            assert self._time_limit is not None
            return too_slow(self._time_limit)
        return None

    def _welcome(self, worker: _Worker) -> None:
        """Take note that a new worker has loaded the scorer, or stop because it could not."""
        message = ""
        try:
            if worker.pipe.poll():
                message = worker.pipe.recv()
            elif worker.process.poll() is not None:
                message = self._not_started(_ending(worker))
            elif time.monotonic() >= worker.deadline:
                message = self._not_started(f"was not ready after {START_LIMIT:g} s")
        except (EOFError, OSError):
            message = self._not_started(_ending(worker))
        if message in (READY, READY_FOR_BATCHES):
            worker.ready, worker.deadline = True, math.inf
            self.batched = message == READY_FOR_BATCHES
        elif message:
            raise RewardError(message)

    def _not_started(self, how: str) -> str:
        return f"the worker process for {self._what} {how} while it loaded the scorer; mend what it does when imported."

    def _start(self) -> _Worker:
        ours, theirs = multiprocessing.Pipe()
        watched, alive = os.pipe()
        program = "import json, sys; sys.path[:] = json.loads(sys.argv[2]); import mingce.tasks.worker as w; w.work()"
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program, str(theirs.fileno()), json.dumps(sys.path), str(watched)],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            pass_fds=[theirs.fileno(), watched],
            start_new_session=True,
        )
        theirs.close()
        os.close(watched)
        with contextlib.suppress(OSError):  # it died at once, which its welcome will find
            ours.send(self._scorer)
        return _Worker(process, ours, alive, time.monotonic() + START_LIMIT)

    def _discard(self, worker: _Worker) -> None:
        _kill(worker)
        self._crew.remove(worker)

    def close(self) -> None:
        """Kill the workers; they hold nothing that must be kept."""
        for worker in self._crew:
            _kill(worker)
        self._crew.clear()


def _ending(worker: _Worker) -> str:
    """How a worker ended; its pipe may end a moment before the process, whose exit code is wanted."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.process.wait(LOOK)
    code = worker.process.returncode
    if code is None:
        return "closed its pipe"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else ""
    why = {"": "", "SIGKILL": " (SIGKILL: the memory may have run out)"}.get(name, f" ({name})")
    return f"died with exit code {code}{why}"


def _kill(worker: _Worker) -> None:
    """End the worker and everything it started."""
    worker.pipe.close()
    os.close(worker.alive)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing of it is left
        os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
