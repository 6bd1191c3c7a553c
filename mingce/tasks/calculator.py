"""The embedded task with a tool: sums too hard for the head, and a calculator that does one operation at a time.

`37*48等于多少？`        → `<calc>37*48</calc>` ⟶ `<result>1776</result>` → `等于1776！`
`What is 37*48+259?`   → `<calc>37*48</calc>` ⟶ `<result>1776</result>` → `<calc>1776+259</calc>` ⟶
                         `<result>2035</result>` → `It is 2035!`

Half of the questions need one call and half need two. A tenth of the factor pairs is never trained on. With
`data.options.show=false` the calculator answers every call with `?`: what the tool says is then no help.
"""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from mingce.base.errors import SettingError, UnknownNameError
from mingce.tasks.base import Example, Prompt, Score
from mingce.tasks.environment import Environment
from mingce.tasks.tool_calls import FORMATS, ToolCall
from mingce.tasks.tools import Tool, ToolEnvironment

FACTORS = range(12, 100)
ADDENDS = range(100, 1000)
HELD_OUT_SHARE = 0.1
HELD_OUT_EXAMPLES = 500
SPLIT_SEED = 37 * 48
TOOL = "calc"
HIDDEN = "?"
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@dataclass(frozen=True)
class Wording:
    """How one language asks and answers."""

    question: str
    answer: str


WORDINGS = {
    "zh": Wording(question="{expression}等于多少？", answer="等于{number}！"),
    "en": Wording(question="What is {expression}?", answer="It is {number}!"),
}


def calc(expression: str) -> str:
    """One operation (+, - or *) on two whole numbers, such as 37*48."""
    found = re.fullmatch(r"([0-9]{1,9})([-+*])([0-9]{1,9})", expression)
    if found is None:
        raise ValueError(HIDDEN)
    return str(_OPERATIONS[found[2]](int(found[1]), int(found[3])))


@cache
def factor_pairs() -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """The ordered pairs `(a, b)` to train on and those held out; `(b, a)` is always on the side of `(a, b)`."""
    unordered = [(a, b) for a in FACTORS for b in FACTORS if a <= b]
    kept_apart = set(random.Random(SPLIT_SEED).sample(unordered, round(HELD_OUT_SHARE * len(unordered))))
    pairs = [(a, b) for a in FACTORS for b in FACTORS]
    held_out = [pair for pair in pairs if tuple(sorted(pair)) in kept_apart]
    return tuple(pair for pair in pairs if tuple(sorted(pair)) not in kept_apart), tuple(held_out)


class CalculatorEnvironment(ToolEnvironment):
    """The calculator, whose errors are as short as its results."""

    def __init__(self, task: Calculator):
        super().__init__([Tool(calc, TOOL)], task.gold)
        self.task, self.seen = task, 0

    def reset(self, example: Example, seed: int) -> Prompt:
        self.seen, self.product = 0, ""
        return super().reset(example, seed)

    def _answer(self, call: ToolCall) -> tuple[str, bool]:
        text, worked = super()._answer(call)
        if worked:
            self.seen, self.product = self.seen + 1, text
        return text if worked and self.task.show else HIDDEN, worked

    def _error(self, problem: str) -> str:
        return HIDDEN

    def gold(self) -> str:
        info = self.example.extra_info
        steps = [f"{info['a']}*{info['b']}"] + ([f"{self.product}+{info['c']}"] if info["c"] else [])
        if self.seen < len(steps):
            return FORMATS["tags"].write(ToolCall(TOOL, {"": steps[self.seen]}))
        return self.task.gold(self.example)


class Calculator:
    """Products of two numbers below 100, half of them with a third number to add, in Chinese or English."""

    name = "calculator"

    def __init__(self, lang: str = "zh", options: Mapping[str, Any] | None = None) -> None:
        if lang not in WORDINGS:
            raise UnknownNameError("language", lang, WORDINGS)
        options = dict(options or {})
        show = options.pop("show", True)
        if options or not isinstance(show, bool):
            raise SettingError(
                f"the calculator's data.options may only have show=true or false, not {options or show}."
            )
        self.lang, self.wording, self.show = lang, WORDINGS[lang], show

    def environment(self) -> Environment:
        return CalculatorEnvironment(self)

    def tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        return [Tool(calc, TOOL).schema]

    def tool_format(self) -> str | None:
        return "tags"

    def train_examples(self) -> Sequence[Example]:
        """Every pair of the training side twice, with and without a third number, in a fixed mixed order."""
        rng = random.Random(f"{SPLIT_SEED} train")
        sums = [(a, b, c) for a, b in factor_pairs()[0] for c in (0, rng.choice(ADDENDS))]
        rng.shuffle(sums)
        return [self.example(*numbers) for numbers in sums]

    def held_out_examples(self) -> Sequence[Example]:
        """Always the same 500 pairs of the held-out side, so that accuracies of two runs compare."""
        rng = random.Random(f"{SPLIT_SEED} held out")
        pairs = rng.sample(factor_pairs()[1], HELD_OUT_EXAMPLES)
        return [self.example(a, b, rng.choice(ADDENDS) if index % 2 else 0) for index, (a, b) in enumerate(pairs)]

    def example(self, a: int, b: int, c: int) -> Example:
        """The question what a·b + c is; c = 0 is not asked for."""
        expression = f"{a}*{b}" + (f"+{c}" if c else "")
        return Example(
            uid=f"{self.name}-{self.lang}-{expression}",
            prompt=self.wording.question.format(expression=expression),
            ground_truth=self.answer(a * b + c),
            data_source=f"{self.name}_{self.lang}",
            extra_info={"a": a, "b": b, "c": c},
        )

    def answer(self, number: int) -> str:
        """An answer as the task words it, right or wrong."""
        return self.wording.answer.format(number=number)

    def score(self, example: Example, response: str) -> Score:
        """1 for exactly the right answer, else 0."""
        return Score(float(self.correct(example, response)))

    def gold(self, example: Example) -> str:
        return str(example.ground_truth)

    def correct(self, example: Example, response: str) -> bool:
        return response == self.gold(example)
