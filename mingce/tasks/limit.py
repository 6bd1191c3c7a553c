"""One response scored from a seed of its own under a time limit, with every way to fail turned into a `Failure`."""

from __future__ import annotations

import math
import numbers
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any, Protocol, TypeVar

from mingce.base.errors import RewardError, SettingError
from mingce.base.user_files import own_line
from mingce.tasks.base import Example, Score


@dataclass(frozen=True)
class Failure:
    """Why a scorer gave no score: one line, and the traceback where there is one.

    `together` says that one call for a whole batch failed, so that nothing is known of a single answer.
    """

    reason: str
    trace: str = ""
    together: bool = False


class BatchFunction(Protocol):
    """A scorer that is given all answers of a batch at once."""

    def batch(
        self, examples: Sequence[Example], responses: Sequence[str], time_limit: float | None
    ) -> list[Score | Failure]: ...


_Result = TypeVar("_Result")


class _TimeUp(BaseException):
    """Raised by the alarm; not an `Exception`, so that a scorer's own `except Exception` does not swallow it."""


SEEDED: dict[str, Callable[[Any, int], object]] = {
    "numpy": lambda numpy, seed: numpy.random.seed(seed % 2**32),
    "torch": lambda torch, seed: torch.manual_seed(seed % 2**63),
}
"""Libraries with a global generator, and how it is seeded."""


def seed_generators(seed: int) -> None:
    """Seeds the global generators that a scorer may draw from: Python's, and those of libraries that are loaded."""
    random.seed(seed)
    for name, seeded in SEEDED.items():
        if (library := sys.modules.get(name)) is not None:
            seeded(library, seed)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Leaves the global generators of this process as they were, whatever is seeded and drawn meanwhile."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy is not None else None
    torch_state = torch.get_rng_state() if torch is not None else None
    try:
        yield
    finally:
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
        if torch is not None:
            torch.set_rng_state(torch_state)


def scored(scorer: Callable[[Example, str], Score], example: Example, response: str, seed: int) -> Score | Failure:
    """The score, made of plain finite floats, or why there is none."""
    seed_generators(seed)
    return _tried(lambda: _plain(scorer(example, response)))


def scored_together(
    scorer: BatchFunction, examples: Sequence[Example], responses: Sequence[str], seed: int, time_limit: float | None
) -> list[Score | Failure]:
    """The same of a batch that the scorer takes in one call; the time limit is for one answer."""
    seed_generators(seed)
    outcomes = _tried(lambda: scorer.batch(examples, responses, time_limit))
    if isinstance(outcomes, Failure):
        return [replace(outcomes, together=True)] * len(responses)
    return [outcome if isinstance(outcome, Failure) else _tried(partial(_plain, outcome)) for outcome in outcomes]


def _tried(call: Callable[[], _Result]) -> _Result | Failure:
    try:
        return call()
    except RewardError as error:
        return Failure(str(error).rstrip("."), traceback.format_exc())
    except (Exception, SystemExit) as error:
        return Failure(own_line(error), traceback.format_exc())


def scored_here(
    scorer: Callable[[Example, str], Score], example: Example, response: str, seed: int, time_limit: float | None
) -> Score | Failure:
    """Score in this process, interrupted by an alarm when the time is over. The caller keeps the generators."""
    if time_limit is None:
        return scored(scorer, example, response, seed)
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        raise SettingError("a reward time limit needs worker processes here; set reward workers to 1 or more.")
    rang = False

    def ring(signum: int, frame: FrameType | None) -> None:
        nonlocal rang
        rang = True
        raise _TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    try:
        outcome: Score | Failure = too_slow(time_limit)
        try:
            signal.setitimer(signal.ITIMER_REAL, time_limit)
            outcome = scored(scorer, example, response, seed)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _TimeUp:
        pass
    finally:
        signal.signal(signal.SIGALRM, before)
    return too_slow(time_limit) if rang else outcome


def too_slow(time_limit: float) -> Failure:
    return Failure(f"it took longer than the time limit of {time_limit:g} s")


def _plain(score: Any) -> Score:
    """The score with builtin floats, so that it is cheap to send and what is wrong with it is found in one place."""
    if not isinstance(score, Score):
        raise RewardError(f"the scorer returned {type(score).__name__} instead of a Score")
    return Score(
        _finite(score.score, "its score"),
        {str(name): _finite(value, f"its part '{name}'") for name, value in score.parts.items()},
        tuple((int(offset), _finite(amount, f"its dense part at {offset}")) for offset, amount in score.dense),
        bool(score.judged),
    )


def _finite(value: Any, what: str) -> float:
    if not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise RewardError(f"{what} is {value!r}, not a finite number")
    return float(value)
