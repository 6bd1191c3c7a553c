"""What a task is: prompts to train on, prompts kept apart, and a score for every answer.

A task knows nothing of models or tokens. It hands out text and scores text; where a part of the score belongs to one
place in the answer, it says so by character, and the reward role finds the token that completed that character.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mingce.base.errors import DataError

Prompt = str | list[dict[str, str]]
"""Plain text, or chat messages of `{"role": ..., "content": ...}`."""


@dataclass(frozen=True)
class Example:
    """One prompt with what its scorer needs to know. `uid` is unique within the task and the same in every run."""

    uid: str
    prompt: Prompt
    ground_truth: Any
    data_source: str
    extra_info: dict[str, Any] = field(default_factory=dict)


class Response(str):
    """A response's text with the tokens it was drawn as, for functions that ask for them."""

    ids: tuple[int, ...] = ()

    @classmethod
    def drawn(cls, text: str, ids: Sequence[int]) -> Response:
        """The text of these tokens."""
        response = cls(text)
        response.ids = tuple(ids)
        return response


@dataclass(frozen=True)
class Score:
    """What one answer earned.

    `score` is paid on the last token the policy chose. Each `(offset, amount)` of `dense` is paid on the token that
    completes character `offset` of the response text. `parts` are named figures for the log; they pay nothing.
    `judged` is False where a scorer says that the answer is not for it to judge: it pays nothing and counts in no mean.

    For the answer `3、4。` to `从3数到5：` the counting task returns dense `((0, 0.25), (2, 0.25))`: the characters
    `3` and `4` were each a right next number; the full stop came too early, so `score` is 0.
    """

    score: float
    parts: Mapping[str, float] = field(default_factory=dict)
    dense: tuple[tuple[int, float], ...] = ()
    judged: bool = True

    @property
    def total(self) -> float:
        """The whole credit of the answer, wherever in it the parts are paid."""
        return self.score + sum(amount for _, amount in self.dense)


class NoAnswer(DataError):
    """No answer to an example is known to be right."""


class Task(Protocol):
    """Examples to train on, examples never trained on, and the scorer of both."""

    @property
    def name(self) -> str: ...

    def train_examples(self) -> Sequence[Example]: ...

    def held_out_examples(self) -> Sequence[Example]: ...

    def score(self, example: Example, response: str) -> Score:
        """Score the response text, which is decoded without special tokens."""
        ...

    def gold(self, example: Example) -> str:
        """An answer that must earn full marks; `mingce check` proves that it does. `NoAnswer` if none is known."""
        ...

    def correct(self, example: Example, response: str) -> bool:
        """Whether the answer counts as right in the accuracy of validation."""
        ...
