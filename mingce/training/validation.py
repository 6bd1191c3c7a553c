"""Held-out prompts, answered greedily and by sampling, the same prompts and seeds each time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from mingce.config import Config
from mingce.engine.local import Roles
from mingce.metrics import by_source
from mingce.roles.answers import Drawn
from mingce.tasks.base import Example
from mingce.tasks.scoring import prompt_text
from mingce.training.evaluation import Answer as Evaluated
from mingce.training.evaluation import Evaluation, evaluate

SHOWN = 5
PROMPTS = "val/prompts"
FIRST, GROWTH = 8, 4
"""How many prompts a validation with a budget begins with, and how many times those asked are asked next at most."""
OnProgress = Callable[[int, int, float], None]
"""Called with the rows done, all rows, and the share of the work that is done."""


@dataclass(frozen=True)
class Answer:
    """One sampled answer to a held-out prompt."""

    prompt: str
    response: str
    right: bool


@dataclass(frozen=True)
class Validation:
    """val/* metrics, and a few of the sampled answers."""

    metrics: dict[str, float]
    answers: list[Answer]
    evaluation: Evaluation | None = None
    """All answers; a checkpoint does not keep them."""

    def state(self) -> dict[str, Any]:
        """As a checkpoint keeps it."""
        return {"metrics": self.metrics, "answers": [asdict(answer) for answer in self.answers]}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Validation:
        return cls(dict(state["metrics"]), [Answer(**answer) for answer in state["answers"]])


def validate(
    roles: Roles,
    config: Config,
    before: Validation | None = None,
    on_progress: OnProgress = lambda *_: None,
    clock: Callable[[], float] = time.monotonic,
) -> Validation:
    """Accuracy on held-out prompts, greedy and sampled, and the mean score of the sampled answers.

    As many prompts are asked as in the validation `before`. The first one keeps to its budget: it begins with a few,
    and asks more as long as there is time for them.
    """
    wanted = min(config.validation.examples, len(roles.held_out))
    known = None if before is None else int(before.metrics.get(PROMPTS, wanted))
    examples = [roles.held_out[i] for i in range(wanted if known is None else min(known, wanted))]
    if not examples:
        return Validation({}, [])
    rationed = known is None and config.validation.budget > 0
    budget = config.validation.budget if rationed else math.inf
    evaluation = _within(budget, roles, examples, on_progress, clock)
    metrics = _figures(evaluation)
    if len(evaluation.greedy) < wanted:
        metrics[PROMPTS] = len(evaluation.greedy)
    sampled = [row[0] for row in evaluation.sampled[:SHOWN]]
    shown = [Answer(prompt_text(one.example), one.response, one.right) for one in sampled]
    return Validation(metrics, shown, evaluation)


def _within(
    budget: float, roles: Roles, examples: Sequence[Example], on_progress: OnProgress, clock: Callable[[], float]
) -> Evaluation:
    """The answers to the examples, or to as many of the first ones as there is time for, `FIRST` at least."""
    begun = clock()
    greedy: list[Evaluated] = []
    sampled: list[list[Evaluated]] = []
    drawn: list[Drawn] = []
    asks = len(examples) if budget == math.inf else min(FIRST, len(examples))
    while asks:
        done = len(greedy)
        part = evaluate(
            roles.actor,
            roles.reward.scorer,
            roles.judge,
            examples[done : done + asks],
            1,
            partial(_reported, on_progress, done, asks, len(examples)),
            score_greedy=False,
            first=done,
        )
        greedy, sampled, drawn = greedy + part.greedy, sampled + part.sampled, [*drawn, *part.drawn]
        # more rows at a time take less time each, so that this many do fit
        spent = clock() - begun
        fit = int((budget - spent) / max(spent / len(greedy), 1e-9)) if budget < math.inf else 0
        asks = min(len(examples) - len(greedy), fit, GROWTH * len(greedy)) if fit > 0 else 0
    return Evaluation(greedy, sampled, drawn)


def _reported(
    on_progress: OnProgress, before: int, asks: int, examples: int, rows: int, total: int, share: float
) -> None:
    """Rows done of all, where `before` examples were asked earlier; two rows each."""
    on_progress(2 * before + rows, 2 * examples, (before + asks * share) / examples)


def _figures(evaluation: Evaluation) -> dict[str, float]:
    sampled = [row[0] for row in evaluation.sampled]
    metrics = {
        f"val/accuracy_{kind}": sum(answer.right for answer in answers) / len(answers)
        for kind, answers in (("greedy", evaluation.greedy), ("sampled", sampled))
    }
    metrics["val/score_mean"] = sum(answer.score.total for answer in sampled) / len(sampled)
    return metrics | _by_source(evaluation.greedy, sampled)


def _by_source(greedy: Sequence[Evaluated], sampled: Sequence[Evaluated]) -> dict[str, float]:
    """The same by data source, where there are several."""
    sources = [answer.example.data_source for answer in sampled]
    if len(set(sources)) < 2:
        return {}
    return {
        **by_source("val/accuracy_greedy", sources, [answer.right for answer in greedy]),
        **by_source("val/accuracy_sampled", sources, [answer.right for answer in sampled]),
        **by_source("val/score_mean", sources, [answer.score.total for answer in sampled]),
    }
