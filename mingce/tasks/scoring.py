"""Scoring a batch: in this process, or in worker processes that may be slow, hang or die without hurting the run.

A scorer that raises, runs over its time, returns what is no finite number, or takes its worker down with it has failed
on that example. A failure stops the run with the example shown, or counts as the score that was configured and is
marked in the parts; it is never silent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from mingce.base.errors import RewardError, SettingError
from mingce.tasks.base import Example, Score, Task
from mingce.tasks.limit import Failure, generators_kept, scored_here
from mingce.tasks.workers import Workers

Scorer = Callable[[Example, str], Score]
OnError = Literal["stop"] | float

FAILED = "reward_error"
"""The part that counts failures: 1 where the scorer failed, 0 where it did not, when `on_error` is a number."""


class Scoring:
    """Scores batches with one task or function, keeping its worker processes from batch to batch.

    Every response is scored from a seed of its own, so that a function which draws random numbers scores the same
    whatever the number of workers and whoever comes first.
    `workers=0` scores in this process. `time_limit` (seconds for one response; None for no limit) then needs the main
    thread, and cannot stop code that is stuck inside a C call or sets alarms itself; worker processes are killed.
    """

    def __init__(
        self,
        scorer: Task | Scorer,
        *,
        name: str | None = None,
        workers: int = 0,
        time_limit: float | None = None,
        on_error: OnError = "stop",
    ) -> None:
        if workers < 0:
            raise SettingError(f"reward workers are {workers}; 0 scores in this process, 1 or more in processes.")
        if time_limit is not None and not time_limit > 0:
            raise SettingError(f"the reward's time limit is {time_limit} s; give a positive number, or none.")
        if on_error != "stop" and not (isinstance(on_error, int | float) and math.isfinite(on_error)):
            raise SettingError(f"on_error is {on_error!r}; give 'stop', or the finite score a failure counts as.")
        self.name = name or str(getattr(scorer, "name", None) or getattr(scorer, "__name__", "reward"))
        self._scorer = scorer_of(scorer)
        self._time_limit = time_limit
        self._on_error = on_error
        self._workers = Workers(self._scorer, workers, time_limit) if workers else None

    def start(self) -> None:
        """Starts a worker process, if workers are used, so that an error in the scorer is reported now."""
        if self._workers is not None:
            self._workers.start()

    def score(
        self, examples: Sequence[Example], responses: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[Score]:
        """One score a response, in order. With `on_error="stop"` the first failure of the batch is raised.

        `seeds` are what the global generators are seeded with for each; the rows' numbers if left out.
        """
        stop = self._on_error == "stop"
        outcomes = self.outcomes(examples, responses, range(len(examples)) if seeds is None else seeds, stop=stop)
        return settled(examples, responses, outcomes, self._on_error)

    def outcomes(
        self, examples: Sequence[Example], responses: Sequence[str], seeds: Sequence[int], *, stop: bool = False
    ) -> list[Score | Failure]:
        """What came of every response, in order; with `stop` only up to the first failure."""
        counts = len(examples), len(responses), len(seeds)
        assert len(set(counts)) == 1, f"{counts} examples, responses and seeds"
        if self._workers is None:
            return self._here(examples, responses, seeds, stop)
        outcomes = self._workers.run(examples, responses, seeds, stop_on_failure=stop)
        if len(examples) > 1 and any(isinstance(one, Failure) and one.together for one in outcomes):
            return self._one_by_one(examples, responses, seeds, stop) or outcomes
        return outcomes

    def _one_by_one(
        self, examples: Sequence[Example], responses: Sequence[str], seeds: Sequence[int], stop: bool
    ) -> list[Score | Failure]:
        """Which answers it is on which a call for the whole batch fails; empty if each alone is fine."""
        assert self._workers is not None
        outcomes: list[Score | Failure] = []
        for example, response, seed in zip(examples, responses, seeds, strict=True):
            outcomes += self._workers.run([example], [response], [seed], stop_on_failure=stop)
            if stop and isinstance(outcomes[-1], Failure):
                break
        return outcomes if any(isinstance(one, Failure) for one in outcomes) else []

    def _here(
        self, examples: Sequence[Example], responses: Sequence[str], seeds: Sequence[int], stop: bool
    ) -> list[Score | Failure]:
        outcomes: list[Score | Failure] = []
        with generators_kept():
            for example, response, seed in zip(examples, responses, seeds, strict=True):
                outcomes.append(scored_here(self._scorer, example, response, seed, self._time_limit))
                if stop and isinstance(outcomes[-1], Failure):
                    break
        return outcomes

    def close(self) -> None:
        """End the worker processes."""
        if self._workers is not None:
            self._workers.close()

    def __enter__(self) -> Scoring:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def settled(
    examples: Sequence[Example], responses: Sequence[str], outcomes: Sequence[Score | Failure], on_error: OnError
) -> list[Score]:
    """The scores, a failure being the score that `on_error` says; where that is "stop", the first one is raised."""
    scores = []
    for example, response, outcome in zip(examples, responses, outcomes, strict=False):
        if not isinstance(outcome, Failure):
            stops = isinstance(on_error, str)
            scores.append(outcome if stops else replace(outcome, parts={**outcome.parts, FAILED: 0.0}))
        elif isinstance(on_error, str):
            raise failed(example, response, outcome)
        else:
            scores.append(Score(float(on_error), {FAILED: 1.0}))
    return scores


def scorer_of(scorer: Task | Scorer) -> Scorer:
    """The function that scores one response: a task's own scorer, without its data where it has one apart."""
    for attribute in ("scorer", "score"):
        if hasattr(scorer, attribute):
            return getattr(scorer, attribute)  # type: ignore[no-any-return]
    assert callable(scorer)
    return scorer


def failed(example: Example, response: str, failure: Failure) -> RewardError:
    """The error that shows the example on which a scorer failed."""
    error = RewardError(
        f"the reward of {example.uid} failed ({failure.reason}) on prompt {shortened(prompt_text(example), end=True)}, "
        f"response {shortened(response)}, ground truth {shortened(str(example.ground_truth))}; "
        "mend what scores, or set reward.on_error to the score that a failure shall count as."
    )
    if failure.trace:
        error.add_note(failure.trace)
    return error


def prompt_text(example: Example) -> str:
    """The prompt as one text, a chat as `role: content` lines."""
    if isinstance(example.prompt, str):
        return example.prompt
    return "\n".join(f"{message['role']}: {message['content']}" for message in example.prompt)


def shortened(text: str, most: int = 120, *, end: bool = False) -> str:
    """The text quoted on one line, its beginning (or `end`) only where it is long."""
    if len(text) > most:
        text = "…" + text[1 - most :] if end else text[: most - 1] + "…"
    return repr(text)
