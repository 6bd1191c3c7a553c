"""The second task: count from one number to another. Answers are of every length, and are paid as they go.

`从3数到7：` → `3、4、5、6、7。`          `Count from 3 to 7:` → `3, 4, 5, 6, 7.`

An answer of n numbers is worth 1: each right next number pays 1/(n+1) at its last digit, and stopping right, with
nothing missing and nothing more, pays the rest at the end. From the first wrong character on nothing is paid.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from mingce.base.errors import UnknownNameError
from mingce.tasks.base import Example, Score

NUMBERS = range(100)
MOST_NUMBERS = 12
HELD_OUT_SHARE = 0.1
SPLIT_SEED = 3 + 7


@dataclass(frozen=True)
class Wording:
    """How one language asks, what it puts between two numbers, and how it stops."""

    question: str
    separator: str
    stop: str


WORDINGS = {
    "zh": Wording(question="从{first}数到{last}：", separator="、", stop="。"),
    "en": Wording(question="Count from {first} to {last}:", separator=", ", stop="."),
}


@cache
def spans() -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """The spans `(first, last)` to train on and those held out, each in a fixed mixed order."""
    every = [(first, last) for first in NUMBERS for last in NUMBERS if 0 <= last - first < MOST_NUMBERS]
    random.Random(SPLIT_SEED).shuffle(every)
    held_out = round(HELD_OUT_SHARE * len(every))
    return tuple(every[held_out:]), tuple(every[:held_out])


class Counting:
    """Count upwards between two numbers below 100, in Chinese (`lang="zh"`) or English (`lang="en"`)."""

    name = "counting"

    def __init__(self, lang: str = "zh") -> None:
        if lang not in WORDINGS:
            raise UnknownNameError("language", lang, WORDINGS)
        self.lang = lang
        self.wording = WORDINGS[lang]

    def train_examples(self) -> Sequence[Example]:
        return [self.example(first, last) for first, last in spans()[0]]

    def held_out_examples(self) -> Sequence[Example]:
        return [self.example(first, last) for first, last in spans()[1]]

    def example(self, first: int, last: int) -> Example:
        """The request to count from `first` to `last`, with its one right answer as the ground truth."""
        return Example(
            uid=f"{self.name}-{self.lang}-{first}-{last}",
            prompt=self.wording.question.format(first=first, last=last),
            ground_truth=self.answer(range(first, last + 1)),
            data_source=f"{self.name}_{self.lang}",
            extra_info={"first": first, "last": last},
        )

    def answer(self, numbers: Sequence[int]) -> str:
        """An answer as the task words it, right or wrong."""
        return self.wording.separator.join(map(str, numbers)) + self.wording.stop

    def score(self, example: Example, response: str) -> Score:
        """A share for every right next number, paid at its last digit, and a share for stopping right."""
        gold = self.gold(example)
        numbers = range(example.extra_info["first"], example.extra_info["last"] + 1)
        share = 1 / (len(numbers) + 1)
        dense = []
        end = 0
        for number in numbers:
            end += len(str(number))
            if response[:end] != gold[:end]:
                break
            dense.append((end - 1, share))
            end += len(self.wording.separator)
        stopped = response == gold
        parts = {"numbers": len(dense) / len(numbers), "stopped": float(stopped)}
        return Score(share if stopped else 0.0, parts, tuple(dense))

    def gold(self, example: Example) -> str:
        return str(example.ground_truth)

    def correct(self, example: Example, response: str) -> bool:
        return response == self.gold(example)
