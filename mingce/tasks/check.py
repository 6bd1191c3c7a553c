"""Proof, without a model, that a task's scorer accepts its own right answers and not wrong ones."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mingce.tasks.base import Example, Score, Task
from mingce.tasks.function import FunctionScorer
from mingce.tasks.limit import Failure
from mingce.tasks.scoring import Scoring, prompt_text, scorer_of, shortened

Judge = Callable[[Example, str, Score], bool]
"""Whether an answer that scored so counts as right."""


@dataclass(frozen=True)
class CheckedExample:
    """An example, its right answer, what that scored, and what is wrong with the scorer, if anything is."""

    example: Example
    gold: str
    score: Score | None
    problem: str | None


@dataclass(frozen=True)
class CheckReport:
    """What a check of a task found."""

    task: str
    train: int
    held_out: int
    examples: Sequence[CheckedExample]
    wrong_answers: int

    @property
    def failures(self) -> list[CheckedExample]:
        return [checked for checked in self.examples if checked.problem is not None]

    @property
    def sentence(self) -> str:
        """The finding in one sentence, naming the first example that failed."""
        if self.failures:
            first = self.failures[0]
            return f"{len(self.failures)} of {len(self.examples)} examples fail; {first.example.uid}: {first.problem}."
        return (
            f"the scorer of {self.task} gives full marks to all {len(self.examples)} right answers "
            f"and to none of {self.wrong_answers} wrong ones."
        )


def check_task(
    task: Task,
    other: tuple[FunctionScorer, float] | None = None,
    *,
    examples: int = 20,
    seed: int = 0,
    time_limit: float | None = None,
) -> CheckReport:
    """Score the right answer and some wrong ones of examples drawn from both sides of the task.

    `other` is a person's own function that scores instead, and the score from which an answer is right. `time_limit` is
    for one response, in seconds; see `scoring.Scoring`.
    """
    scorer, full_marks = other or (scorer_of(task), getattr(task, "full_marks", None))

    def is_right(example: Example, response: str, score: Score) -> bool:
        """As the task judges; one that judges by the score alone is not asked to score again."""
        return task.correct(example, response) if full_marks is None else score.total >= full_marks

    train, held_out = task.train_examples(), task.held_out_examples()
    drawn = [*_drawn(train, (examples + 1) // 2, seed), *_drawn(held_out, examples // 2, seed)]
    golds = [task.gold(example) for example in drawn]
    checked, wrong_answers = [], 0
    with Scoring(scorer, workers=int(isinstance(scorer, FunctionScorer)), time_limit=time_limit) as scoring:
        for example, gold in zip(drawn, golds, strict=True):
            outcome = _outcome(scoring, example, gold)
            problem = _problem_with_gold(is_right, example, gold, outcome)
            for wrong in wrong_answers_to(example, gold, golds):
                wrong_answers += 1
                problem = problem or _problem_with_wrong(
                    is_right, example, wrong, outcome, _outcome(scoring, example, wrong)
                )
            checked.append(CheckedExample(example, gold, None if isinstance(outcome, Failure) else outcome, problem))
    return CheckReport(task.name, len(train), len(held_out), checked, wrong_answers)


def wrong_answers_to(example: Example, gold: str, golds: Sequence[str]) -> Iterator[str]:
    """Answers that must not get full marks: none at all, and another number or the answer to another question."""
    yield ""
    if example.ground_truth is None:  # several answers may be right
        return
    if digits := list(re.finditer(r"[0-9]+(?:[.,][0-9]+)*", gold)):
        at = digits[-1].start()  # the first digit of the last number, since some scorers allow a small difference
        yield gold[:at] + str((int(gold[at]) + 1) % 10) + gold[at + 1 :]
    else:
        yield from [other for other in dict.fromkeys(golds) if other != gold][:1]


def render(report: CheckReport, *, samples: int = 5) -> Group:
    """The report for the terminal: some samples, every failure, and the finding."""
    shown = [*report.failures, *(checked for checked in report.examples if checked.problem is None)]
    table = Table(title=f"{report.task}: {report.train:,} examples to train on, {report.held_out:,} held out")
    for heading in ("example", "prompt", "right answer", "score", "parts"):
        table.add_column(heading, overflow="fold")
    for checked in shown[: max(samples, len(report.failures))]:
        score = checked.score
        table.add_row(
            Text(checked.example.uid),
            Text(shortened(prompt_text(checked.example), 200)[1:-1]),
            Text(shortened(checked.gold, 120)[1:-1]),
            Text("–" if score is None else f"{score.total:g}", style="red" if checked.problem else "green"),
            Text("" if score is None else ", ".join(f"{name} {value:g}" for name, value in score.parts.items())),
        )
    lines = [Text(f"{checked.example.uid}: {checked.problem}", style="red") for checked in report.failures]
    return Group(table, *lines, Text(report.sentence, style="red" if report.failures else "green"))


def _drawn(examples: Sequence[Example], count: int, seed: int) -> list[Example]:
    chosen = random.Random(seed).sample(range(len(examples)), min(count, len(examples)))
    return [examples[index] for index in sorted(chosen)]


def _outcome(scoring: Scoring, example: Example, response: str) -> Score | Failure:
    return scoring.outcomes([example], [response], [0])[0]


def _problem_with_gold(is_right: Judge, example: Example, gold: str, outcome: Score | Failure) -> str | None:
    if isinstance(outcome, Failure):
        return f"its right answer {shortened(gold)} cannot be scored ({outcome.reason})"
    if not is_right(example, gold, outcome):
        return f"its right answer {shortened(gold)} scores {outcome.total:g}, which is not full marks"
    return None


def _problem_with_wrong(
    is_right: Judge, example: Example, wrong: str, full: Score | Failure, outcome: Score | Failure
) -> str | None:
    if isinstance(outcome, Failure):
        return f"the answer {shortened(wrong)} cannot be scored ({outcome.reason})"
    assert isinstance(full, Score)
    if is_right(example, wrong, outcome) or outcome.total >= full.total:
        return f"the wrong answer {shortened(wrong)} scores {outcome.total:g}, as much as the right one"
    return None
