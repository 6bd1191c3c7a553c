"""What runs in a worker process: one scorer, one response at a time, with the process tidied between two of them.

The scorer is a person's own code, which may fork, print, change the directory, set alarms or end the process. Whatever
it does, the next response finds the process as the first one did, and the trainer hears of it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import select
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from multiprocessing.connection import Connection
from types import ModuleType

from mingce.base.errors import RewardError
from mingce.base.machine import is_running
from mingce.base.user_files import last_line, own_line
from mingce.tasks.base import Example, Score
from mingce.tasks.limit import SEEDED, Failure, scored, scored_together, seed_generators

READY, READY_FOR_BATCHES = "ready", "ready for batches"
Row = tuple[Example, str, int]
"""An example, the response to it, and the seed that it is scored from."""
LOOK_MS = 1000


def work() -> None:
    """The life of a worker: load the scorer, say so, and score until the pipe is closed."""
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    os.dup2(2, 1)  # what a scorer prints is no part of the command's output
    pipe = Connection(descriptor)
    _end_with_the_trainer(int(sys.argv[3]), descriptor)
    _die_first_when_memory_is_short()
    late = _SeedWhenImported()
    sys.meta_path.insert(0, late)
    me, directory = os.getpid(), os.getcwd()
    scorer = _loaded(pipe, pipe.recv())
    while scorer is not None:
        _tidy(directory)
        try:
            rows, time_limit = pipe.recv()
        except EOFError:
            return
        late.seed = rows[0][2]
        outcomes = _outcomes(scorer, rows, time_limit)
        if os.getpid() != me:  # a child that the scorer forked came back here too
            os._exit(0)
        pipe.send(outcomes)


def _loaded(pipe: Connection, pickled: bytes) -> Callable[[Example, str], Score] | None:
    """The scorer, and `READY` to the trainer; or None, and why to the trainer."""
    seed_generators(0)  # for what the file draws as it is loaded
    try:
        scorer: Callable[[Example, str], Score] = pickle.loads(pickled)
        batched = getattr(scorer, "batched", False)
    except RewardError as error:
        pipe.send(str(error))
    except BaseException as error:
        pipe.send(f"a reward worker could not start ({last_line(error)}); mend that.")
    else:
        pipe.send(READY_FOR_BATCHES if batched else READY)
        return scorer
    return None


def _outcomes(
    scorer: Callable[[Example, str], Score], rows: Sequence[Row], time_limit: float | None
) -> list[Score | Failure]:
    """What came of each row: one row, or a batch for a scorer that takes batches."""
    examples, responses, seeds = zip(*rows, strict=True)
    try:
        if getattr(scorer, "batched", False):
            return scored_together(scorer, examples, responses, seeds[0], time_limit)  # type: ignore[arg-type]
        return [scored(scorer, *row) for row in rows]
    except BaseException as error:  # KeyboardInterrupt and its like: here they can only be the scorer's own
        return [Failure(own_line(error), traceback.format_exc(), together=len(rows) > 1)] * len(rows)


def _tidy(directory: str) -> None:
    """As it was at the start: the directory, and no alarm that would ring in the next call."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    with contextlib.suppress(OSError):  # the directory is gone, for everybody
        os.chdir(directory)


class _SeedWhenImported(MetaPathFinder):
    """Seeds a library's generator when a scorer imports the library in the midst of a call, as if it had been there."""

    seed = 0
    _looking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in SEEDED or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def then_seed(module: ModuleType) -> None:
                execute(module)
                SEEDED[name](module, self.seed)

            spec.loader.exec_module = then_seed  # type: ignore[method-assign]
        return spec


def _end_with_the_trainer(watched: int, pipe: int) -> None:
    """A process beside this one ends both, and what they started, when the trainer is gone.

    A thread could not: a scorer that is stuck in one long C call, a regular expression say, lets no other thread run.
    """
    trainer, worker = os.getppid(), os.getpid()
    if os.fork():
        os.close(watched)
        return
    os.close(pipe)  # else the trainer would not notice that the worker is gone
    poll = select.poll()
    poll.register(watched, 0)  # only that the other end is closed
    while not poll.poll(LOOK_MS) and os.getppid() == worker and is_running(trainer):
        pass
    os.killpg(worker, signal.SIGKILL)


def _die_first_when_memory_is_short() -> None:
    """Where memory runs out, the kernel is to end the worker that took it, not the trainer."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
