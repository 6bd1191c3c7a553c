"""A task whose examples come from files and whose scorer is a rule or a function."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mingce.base.errors import DataError
from mingce.tasks.base import Example, NoAnswer, Score
from mingce.tasks.data import Examples, Selected

Scorer = Callable[[Example, str], Score]
"""Scores one response; picklable without the data, so that worker processes get it and nothing else."""

HELD_OUT_SHARE = 0.1
MOST_HELD_OUT = 500


@dataclass(frozen=True)
class FileTask:
    """Examples of files with a scorer of their own.

    Without files of their own the held-out examples are a random tenth of the training files, 500 at most, drawn by
    `seed` and never trained on. An answer counts as right from `full_marks` on.
    """

    name: str
    train: Examples
    held_out: Examples | None
    scorer: Scorer
    full_marks: float = 1.0
    seed: int = 0

    def train_examples(self) -> Sequence[Example]:
        return self.train if self.held_out is not None else Selected(self.train, self._split()[0])

    def held_out_examples(self) -> Sequence[Example]:
        return self.held_out if self.held_out is not None else Selected(self.train, self._split()[1])

    def score(self, example: Example, response: str) -> Score:
        return self.scorer(example, response)

    def gold(self, example: Example) -> str:
        """The solution that `extra_info.answer` holds, as verl's own files do, else the ground truth itself."""
        answer = example.extra_info.get("answer")
        if isinstance(answer, str) and answer:
            return answer
        truth = example.ground_truth
        if isinstance(truth, list) and truth:
            truth = truth[0]
        if truth is None:
            raise NoAnswer(
                f"{example.uid} has no ground truth, so no answer to it is known to be right; "
                "name its column with data.answer_key."
            )
        if isinstance(truth, dict | list):
            raise NoAnswer(
                f"the ground truth of {example.uid} is no answer but what answers are judged by, so none is known to "
                "be right; put one into extra_info.answer."
            )
        return str(truth)

    def correct(self, example: Example, response: str) -> bool:
        return self.score(example, response).total >= self.full_marks

    def _split(self) -> tuple[list[int], list[int]]:
        """The indices to train on, in the files' order, and those held out."""
        count = len(self.train)
        if count < 2:
            raise DataError("one example cannot be both trained on and held out; give a file of held-out examples.")
        apart = set(
            random.Random(self.seed).sample(range(count), max(1, min(MOST_HELD_OUT, round(HELD_OUT_SHARE * count))))
        )
        return [index for index in range(count) if index not in apart], sorted(apart)
