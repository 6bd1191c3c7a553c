"""Proof, without a model, that a task's scorer accepts its own right answers and not wrong ones."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mingce.tasks.base import Example, NoAnswer, Score, Task
from mingce.tasks.check_environment import play_out, problem_with, problem_with_silence
from mingce.tasks.environment import EnvironmentTask
from mingce.tasks.function import FunctionScorer
from mingce.tasks.limit import Failure
from mingce.tasks.scoring import Scoring, prompt_text, scorer_of, shortened
from mingce.tasks.tools import WithTools

Judge = Callable[[Example, str, Score], bool]
"""Whether an answer that scored so counts as right."""


FORMS = ("{}", "<answer>{}</answer>", "\\boxed{{{}}}", "#### {}", "Answer: {}")
"""How a scorer may want the ground truth to be given."""


@dataclass(frozen=True)
class CheckedExample:
    """An example, its right answer (None: unknown), what it scored, and what is wrong with the scorer, if anything."""

    example: Example
    gold: str | None
    score: Score | None
    problem: str | None
    refused: bool = False
    """Whether the ground truth got no more than an empty answer, in whatever form."""


@dataclass(frozen=True)
class CheckReport:
    """What a check of a task found; `unknown` says why no right answers are known, where none are."""

    task: str
    train: int
    held_out: int
    examples: Sequence[CheckedExample]
    wrong_answers: int
    unknown: str | None = None

    @property
    def failures(self) -> list[CheckedExample]:
        return [checked for checked in self.examples if checked.problem is not None]

    @property
    def refused(self) -> bool:
        """Whether no ground truth at all is accepted: then they may be no answers, but what answers are judged by."""
        return len(self.examples) > 1 and all(checked.refused for checked in self.examples)

    @property
    def sentence(self) -> str:
        """The finding in one sentence, naming the first example that failed."""
        count = len(self.examples)
        if self.refused:
            forms = ", ".join(form.format("…") for form in FORMS[1:])
            return (
                f"none of the {count} ground truths gets full marks, plain or as {forms}: either they are no answers, "
                "but what answers are judged by, or the scorer is wrong; put a right answer into extra_info.answer."
            )
        if self.failures:
            first = self.failures[0]
            return f"{len(self.failures)} of {count} examples fail; {first.example.uid}: {first.problem}."
        if self.unknown is not None:
            return (
                f"the scorer of {self.task} gives full marks to none of {self.wrong_answers} wrong answers; "
                f"right ones could not be tried: {self.unknown}"
            )
        return (
            f"the scorer of {self.task} gives full marks to all {count} right answers "
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
    if isinstance(task, EnvironmentTask) and not isinstance(task, WithTools):
        return _check_environments(task, examples, seed)
    scorer, full_marks = other or (scorer_of(task), getattr(task, "full_marks", None))

    def is_right(example: Example, response: str, score: Score) -> bool:
        """As the task judges; one that judges by the score alone is not asked to score again."""
        return task.correct(example, response) if full_marks is None else score.total >= full_marks

    train, held_out = task.train_examples(), task.held_out_examples()
    drawn = [*_drawn(train, (examples + 1) // 2, seed), *_drawn(held_out, examples // 2, seed)]
    golds, unknown = _golds(task, drawn)
    with Scoring(scorer, workers=int(isinstance(scorer, FunctionScorer)), time_limit=time_limit) as scoring:
        check = _Check(scoring, is_right, [gold for gold in golds if gold is not None])
        checked = [check.example(example, gold) for example, gold in zip(drawn, golds, strict=True)]
    return CheckReport(task.name, len(train), len(held_out), checked, check.wrong_answers, unknown)


def _check_environments(task: EnvironmentTask, examples: int, seed: int) -> CheckReport:
    """Conversations of a perfect policy, and of one that says nothing, with environments of both sides of the task."""
    train, held_out = task.train_examples(), task.held_out_examples()
    drawn = [*_drawn(train, (examples + 1) // 2, seed), *_drawn(held_out, examples // 2, seed)]
    checked, unknown = [], None
    for example in drawn:
        try:
            perfect = play_out(task, example, perfect=True)
        except NoAnswer as error:
            unknown = str(error)
            checked.append(CheckedExample(example, None, None, problem_with_silence(task, example)))
            continue
        text, score = ("", None) if isinstance(perfect, str) else (perfect.text, perfect.score)
        checked.append(CheckedExample(example, text, score, problem_with(task, example, perfect)))
    return CheckReport(task.name, len(train), len(held_out), checked, len(drawn), unknown)


def _golds(task: Task, examples: Sequence[Example]) -> tuple[list[str | None], str | None]:
    """The right answer to each, None where none is known, and why, if none is known to any."""
    golds: list[str | None] = []
    unknown = None
    for example in examples:
        try:
            golds.append(task.gold(example))
        except NoAnswer as error:
            golds.append(None)
            unknown = unknown or str(error)
    return golds, unknown if all(gold is None for gold in golds) else None


class _Check:
    """The answers to examples, scored one by one."""

    def __init__(self, scoring: Scoring, is_right: Judge, golds: Sequence[str]) -> None:
        self.scoring, self.is_right, self.golds = scoring, is_right, golds
        self.wrong_answers = 0

    def example(self, example: Example, gold: str | None) -> CheckedExample:
        """What is wrong with the scorer on this example, if anything."""
        outcome: Score | Failure | None = None
        problem, refused = None, False
        if gold is not None:
            gold, outcome, refused = self._right(example, gold)
            problem = _problem_with_gold(self.is_right, example, gold, outcome)
        for wrong in wrong_answers_to(example, gold, self.golds):
            self.wrong_answers += 1
            scored = _outcome(self.scoring, example, wrong)
            problem = problem or _problem_with_wrong(self.is_right, example, wrong, outcome, scored)
        return CheckedExample(example, gold, outcome if isinstance(outcome, Score) else None, problem, refused)

    def _right(self, example: Example, gold: str) -> tuple[str, Score | Failure, bool]:
        """The right answer in the form that the scorer takes, what it scored, and whether none is worth anything."""
        forms = [form.format(gold) for form in FORMS] if gold == str(example.ground_truth) else [gold]
        tried = []
        for form in forms:
            outcome = _outcome(self.scoring, example, form)
            if isinstance(outcome, Failure) or self.is_right(example, form, outcome):
                return form, outcome, False
            tried.append((form, outcome))
        nothing = _outcome(self.scoring, example, "")
        worth = nothing.total if isinstance(nothing, Score) else 0.0
        return *tried[0], len(forms) > 1 and all(scored.total <= worth for _, scored in tried)


def wrong_answers_to(example: Example, gold: str | None, golds: Sequence[str]) -> Iterator[str]:
    """Answers that must not get full marks: none at all, and another number or the answer to another question."""
    yield ""
    if example.ground_truth is None or gold is None:  # several answers may be right
        return
    if digits := list(re.finditer(r"[0-9]+(?:[.,][0-9]+)*", gold)):
        at = digits[-1].start()  # the first digit of the last number, since some scorers allow a small difference
        yield gold[:at] + str((int(gold[at]) + 1) % 10) + gold[at + 1 :]
    else:
        yield from [other for other in dict.fromkeys(golds) if other != gold][:1]


def render(report: CheckReport, *, samples: int = 5) -> Group:
    """The report for the terminal: some samples, every failure, and the finding."""
    failures = [] if report.refused else report.failures  # all for one reason, which the sentence says
    shown = [*failures, *(checked for checked in report.examples if checked not in failures)]
    table = Table(title=f"{report.task}: {report.train:,} examples to train on, {report.held_out:,} held out")
    for heading in ("example", "prompt", "right answer", "score", "parts"):
        table.add_column(heading, overflow="fold")
    for checked in shown[: max(samples, len(failures))]:
        score = checked.score
        table.add_row(
            Text(checked.example.uid),
            Text(shortened(prompt_text(checked.example), 200)[1:-1]),
            Text("–" if checked.gold is None else shortened(checked.gold, 120)[1:-1]),
            Text("–" if score is None else f"{score.total:g}", style="red" if checked.problem else "green"),
            Text("" if score is None else ", ".join(f"{name} {value:g}" for name, value in score.parts.items())),
        )
    lines = [Text(f"{checked.example.uid}: {checked.problem}", style="red") for checked in failures]
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
    is_right: Judge, example: Example, wrong: str, full: Score | Failure | None, outcome: Score | Failure
) -> str | None:
    if isinstance(outcome, Failure):
        return f"the answer {shortened(wrong)} cannot be scored ({outcome.reason})"
    if full is None and is_right(example, wrong, outcome):
        return f"the wrong answer {shortened(wrong)} scores {outcome.total:g}, which is full marks"
    if isinstance(full, Score) and (is_right(example, wrong, outcome) or outcome.total >= full.total):
        return f"the wrong answer {shortened(wrong)} scores {outcome.total:g}, as much as the right one"
    return None
