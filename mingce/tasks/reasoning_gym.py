r"""Tasks of reasoning-gym by name: `reasoning_gym:chain_sum`.

The answer of a response is what follows its last `Answer:`, else what stands in its last `\boxed{}`, else what follows
its last `####`, else its last line (as many lines as the right answer has). Only that is scored, by the task's own
scorer. Some of those pay a share to any text that contains the right answer; here such a text earns nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from mingce.base.errors import DataError, SettingError, UnknownNameError
from mingce.tasks.answers import after_last, last_boxed
from mingce.tasks.base import Example, NoAnswer, Prompt, Score

INSTRUCTION = 'Give the final answer after "Answer:".'
GOLD_IN_METADATA = ("possible_answer", "example_correct_answer", "example_answer")
NEARLY_ONE = 1 - 1e-9


class GymScorer:
    """The scorer of one task. It pickles as the task's name and options, since some of the data sets do not."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name, self.options = name, dict(options)
        self.dataset = create(name, seed=0, size=1, options=options)

    def __reduce__(self) -> tuple[type[GymScorer], tuple[str, dict[str, Any]]]:
        return GymScorer, (self.name, self.options)

    def __call__(self, example: Example, response: str) -> Score:
        truth = example.ground_truth
        answer = answer_text(response, 1 if truth is None else len(str(truth).strip().split("\n")))
        entry = {"question": question_of(example), "answer": truth, "metadata": example.extra_info}
        score = max(
            float(self.dataset.score_answer(text, entry)) for text in (answer, answer.strip("*`$ ").rstrip(".。"))
        )
        if score < NEARLY_ONE and isinstance(truth, str) and truth in answer:
            score = 0.0
        return Score(score, {"correct": float(score >= NEARLY_ONE)})


class ReasoningGym:
    """Generated problems of one kind: `size` to train on and `held_out` others, every question once.

    Both are made by seeds drawn from `seed`, far apart, since the library numbers its problems on from the seed.
    `options` are those of the task's own configuration, such as `max_terms`.
    """

    def __init__(
        self,
        name: str,
        *,
        size: int = 1000,
        held_out: int = 100,
        seed: int = 0,
        chat: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = f"reasoning_gym:{name}"
        self.kind, self.size, self.held_out, self.chat = name, size, held_out, chat
        self.options = dict(options or {})
        rng = random.Random(f"{name} {seed}")
        self.seeds = {"held-out": rng.randrange(2**30), "train": 2**30 + rng.randrange(2**30)}
        self.scorer = GymScorer(name, self.options)

    @cached_property
    def _held_out(self) -> list[Example]:
        return list(self._unseen("held-out", self.held_out, set()))

    @cached_property
    def _train(self) -> list[Example]:
        return list(self._unseen("train", self.size, {question_of(example) for example in self._held_out}))

    def train_examples(self) -> Sequence[Example]:
        if not self._train:
            raise DataError(f"{self.name} made no question that is not held out; ask for fewer held-out ones.")
        return self._train

    def held_out_examples(self) -> Sequence[Example]:
        return self._held_out

    def _unseen(self, split: str, size: int, seen: set[str]) -> Iterator[Example]:
        """The examples of one seed whose question has not been seen before."""
        dataset = create(self.kind, seed=self.seeds[split], size=size, options=self.options)
        for index in range(size):
            entry = dataset[index]
            question = str(entry["question"]).strip()
            if question in seen:
                continue
            seen.add(question)
            text = f"{question}\n{INSTRUCTION}"
            prompt: Prompt = [{"role": "user", "content": text}] if self.chat else f"{text}\n"
            yield Example(f"{self.name}:{split}:{index}", prompt, entry["answer"], self.name, dict(entry["metadata"]))

    def score(self, example: Example, response: str) -> Score:
        return self.scorer(example, response)

    def correct(self, example: Example, response: str) -> bool:
        return self.score(example, response).score >= NEARLY_ONE

    def gold(self, example: Example) -> str:
        truth = example.ground_truth
        for key in GOLD_IN_METADATA:
            truth = example.extra_info.get(key) if truth is None else truth
        if truth is None:
            raise NoAnswer(f"{self.name} knows no right answer to its own questions, so it cannot be checked.")
        return f"Answer: {truth if isinstance(truth, str) else json.dumps(truth)}"


def answer_text(response: str, lines: int) -> str:
    """The answer of the response, of at most so many lines."""
    for marked in (after_last(response, "Answer:"), last_boxed(response), after_last(response, "####")):
        if marked is not None:
            return "\n".join(marked.split("\n")[:lines])
    return "\n".join(response.strip().split("\n")[-lines:])


def question_of(example: Example) -> str:
    """The question of an example without the instruction."""
    text = example.prompt if isinstance(example.prompt, str) else example.prompt[-1]["content"]
    return text.strip().removesuffix(INSTRUCTION).strip()


def create(name: str, *, seed: int, size: int, options: Mapping[str, Any]) -> Any:
    """The data set of that name from the library."""
    try:
        from reasoning_gym.factory import DATASETS, create_dataset
    except ImportError as error:
        raise DataError(
            f"reasoning_gym:{name} needs reasoning-gym; install it with pip install 'mingce[reasoning-gym]'."
        ) from error
    if name not in DATASETS:
        raise UnknownNameError("reasoning-gym task", name, DATASETS)
    try:
        return create_dataset(name, seed=seed, size=size, **options)
    except (TypeError, ValueError, AssertionError) as error:
        raise SettingError(
            f"reasoning_gym:{name} cannot be made with {dict(options)} ({error}); change them."
        ) from error
