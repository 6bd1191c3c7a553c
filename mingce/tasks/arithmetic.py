"""The default task: is this sum right? Say yes or no, then say what it is.

`请问17+25=42？` → `是的，等于42！`          `Is 17+25=42?` → `Yes, it is 42!`
`请问17+25=43？` → `不对，等于42！`          `Is 17+25=43?` → `No, it is 42!`

The verdict comes before the number, so the sum must be known before the first word. Operands are 0–99; the claimed sum
is right in half of the examples, otherwise off by 1–9. A tenth of the operand pairs, each in both orders, is never
trained on, in either language.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from mingce.base.errors import UnknownNameError
from mingce.tasks.base import Example, Score

OPERANDS = range(100)
LARGEST_ERROR = 9
HELD_OUT_SHARE = 0.1
HELD_OUT_EXAMPLES = 500
SPLIT_SEED = 17 + 25


@dataclass(frozen=True)
class Wording:
    """How one language asks and answers."""

    question: str
    yes: str
    no: str
    answer: str


WORDINGS = {
    "zh": Wording(question="请问{a}+{b}={claimed}？", yes="是的", no="不对", answer="{verdict}，等于{number}！"),
    "en": Wording(question="Is {a}+{b}={claimed}?", yes="Yes", no="No", answer="{verdict}, it is {number}!"),
}


@cache
def operand_pairs() -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """The ordered pairs `(a, b)` to train on and those held out; `(b, a)` is always on the side of `(a, b)`."""
    unordered = [(a, b) for a in OPERANDS for b in OPERANDS if a <= b]
    kept_apart = set(random.Random(SPLIT_SEED).sample(unordered, round(HELD_OUT_SHARE * len(unordered))))
    train: list[tuple[int, int]] = []
    held_out: list[tuple[int, int]] = []
    for a in OPERANDS:
        for b in OPERANDS:
            (held_out if (min(a, b), max(a, b)) in kept_apart else train).append((a, b))
    return tuple(train), tuple(held_out)


def wrong_claims(total: int) -> list[int]:
    """The wrong sums a question may claim: off by at most 9 and never negative."""
    return [total + error for error in range(-LARGEST_ERROR, LARGEST_ERROR + 1) if error != 0 and total + error >= 0]


class Arithmetic:
    """Judge a claimed sum of two numbers below 100, in Chinese (`lang="zh"`) or English (`lang="en"`)."""

    name = "arithmetic"

    def __init__(self, lang: str = "zh") -> None:
        if lang not in WORDINGS:
            raise UnknownNameError("language", lang, WORDINGS)
        self.lang = lang
        self.wording = WORDINGS[lang]

    def train_examples(self) -> Sequence[Example]:
        """Every pair of the training side twice, claimed rightly and wrongly, in a fixed mixed order."""
        rng = random.Random(f"{SPLIT_SEED} train")
        questions = [
            (a, b, claimed) for a, b in operand_pairs()[0] for claimed in (a + b, rng.choice(wrong_claims(a + b)))
        ]
        rng.shuffle(questions)
        return [self.example(a, b, claimed) for a, b, claimed in questions]

    def held_out_examples(self) -> Sequence[Example]:
        """Always the same 500 different pairs of the held-out side, so that accuracies of two runs compare."""
        rng = random.Random(f"{SPLIT_SEED} held out")
        pairs = rng.sample(operand_pairs()[1], HELD_OUT_EXAMPLES)
        return [
            self.example(a, b, a + b if index % 2 == 0 else rng.choice(wrong_claims(a + b)))
            for index, (a, b) in enumerate(pairs)
        ]

    def example(self, a: int, b: int, claimed: int) -> Example:
        """The question whether `a + b` is `claimed`, with its one right answer as the ground truth."""
        verdict = self.wording.yes if claimed == a + b else self.wording.no
        return Example(
            uid=f"{self.name}-{self.lang}-{a}+{b}={claimed}",
            prompt=self.wording.question.format(a=a, b=b, claimed=claimed),
            ground_truth=self.answer(verdict, a + b),
            data_source=f"{self.name}_{self.lang}",
            extra_info={"a": a, "b": b, "claimed": claimed},
        )

    def answer(self, verdict: str, number: int) -> str:
        """An answer as the task words it, right or wrong."""
        return self.wording.answer.format(verdict=verdict, number=number)

    def score(self, example: Example, response: str) -> Score:
        """1 for exactly the right answer, else 0; the parts say which half of it was right."""
        info = example.extra_info
        total = info["a"] + info["b"]
        verdict = self.wording.yes if info["claimed"] == total else self.wording.no
        number = re.search(r"[0-9]+", response)
        parts = {
            "verdict": float(response.startswith(verdict)),
            "number": float(number is not None and number.group() == str(total)),
        }
        return Score(float(self.correct(example, response)), parts)

    def gold(self, example: Example) -> str:
        return str(example.ground_truth)

    def correct(self, example: Example, response: str) -> bool:
        return response == self.gold(example)
