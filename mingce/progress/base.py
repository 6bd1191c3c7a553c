"""What the trainer reports while it runs, to any kind of display."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console

from mingce.base.texts import sentences

if TYPE_CHECKING:
    from mingce.ledger import Ledger

Clock = Callable[[], float]
PACE_STEPS = 20
"""How many steps the moving mean of a step's seconds looks back."""
LEAST_SPENT = 1.0
"""Seconds of a stage from which on the rest of it is guessed."""


@dataclass(frozen=True)
class Summary:
    """What a run came to. Accuracies are shares of held-out prompts, None where they were not measured.

    `answers` are (prompt, answer before, answer after, right before, right after); `stopped` says what ended the run
    early; `commands` are what a person may want to type next.
    """

    run: str
    seconds: float
    steps: int
    greedy_before: float | None = None
    greedy_after: float | None = None
    sampled_before: float | None = None
    sampled_after: float | None = None
    answers: Sequence[tuple[str, str, str, bool, bool]] = ()
    stopped: str | None = None
    commands: Sequence[str] = ()


class Pace:
    """Seconds a step and seconds left, from a moving mean over the last steps, validation and saving included."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._ends: deque[float] = deque(maxlen=PACE_STEPS + 1)

    def start(self) -> None:
        """The first step begins; later calls change nothing."""
        if not self._ends:
            self._ends.append(self._clock())

    def step_ended(self) -> None:
        self._ends.append(self._clock())

    @property
    def seconds(self) -> float | None:
        """Mean seconds of the last steps; None before the first one has ended."""
        steps = len(self._ends) - 1
        return (self._ends[-1] - self._ends[0]) / steps if steps > 0 else None

    def left(self, steps: int) -> float | None:
        """Seconds until `steps` more steps have ended, the one under way being the first of them."""
        if self.seconds is None:
            return None
        under_way = min(self._clock() - self._ends[-1], self.seconds)
        return max(0.0, steps * self.seconds - under_way)


class Progress(ABC):
    """The trainer's calls, in the order in which they come. Steps are numbered from 1; `steps` is the last one."""

    def __init__(self, console: Console, lang: str, clock: Clock = time.monotonic):
        self.console, self.lang, self.text = console, lang, sentences("terminal", lang)
        self.clock = clock
        self.pace = Pace(clock)
        self.began = clock()
        self.last_step, self.steps = 0, 0
        self._stage_began, self._stage_share = self.began, None  # type: float, float | None

    def begin(self, title: str, facts: list[tuple[str, str]], first_step: int, steps: int) -> None:
        """Training starts, or resumes, at `first_step`; `facts` are (label, value) lines about it."""
        self.began = self.clock()
        self.last_step, self.steps = max(0, first_step - 1), steps

    @abstractmethod
    def note(self, sentence: str, warning: bool = False) -> None:
        """One line worth knowing, at any time."""

    def stage(self, name: str, step: int) -> None:
        """A stage of a step begins."""
        self._stage_began, self._stage_share = self.clock(), None
        if name != "validate":  # the validation before the first step is no part of a step's time
            self.pace.start()

    def progress(self, done: int, total: int, share: float | None = None) -> None:
        """How far the current stage is, in rows or micro-batches; `share` of its work, where that is known better."""
        self._stage_share = share

    def step(
        self, step: int, metrics: dict[str, float], ledger: Ledger | None, tokens: Callable[[int], list[str]] | None
    ) -> None:
        """A step has ended with these metrics; `tokens(row)` are the strings of that row's tokens."""
        self.pace.step_ended()
        self.last_step = step

    @abstractmethod
    def validated(self, step: int, metrics: dict[str, float]) -> None:
        """Accuracy on held-out prompts after `step` steps."""

    @abstractmethod
    def end(self, summary: Summary) -> None:
        """Training is over, or stopped in good order."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the terminal as it was; called in any case, after an error too."""

    def time_left(self) -> float | None:
        """Seconds until the last step has ended; None while nothing is known."""
        return self.pace.left(self.steps - self.last_step)

    def stage_left(self) -> float | None:
        """Seconds until the current stage has ended, by the share of its work that is done; None while unknown."""
        spent = self.clock() - self._stage_began
        if not self._stage_share or spent < LEAST_SPENT:
            return None
        return spent * (1 / self._stage_share - 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
