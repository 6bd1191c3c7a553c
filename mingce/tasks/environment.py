"""What an environment is: it opens a conversation, answers each turn of the policy, and says when it is over.

    prompt = environment.reset(example, seed)
    observation = environment.step(action)      # as often as the policy has turns, until observation.done

A task with environments is a `Task` that also makes them (`EnvironmentTask`). Like a task, an environment knows nothing
of models or tokens. It is made anew for every conversation, runs beside others in threads or as coroutines, and draws
random numbers from its seed alone, so that a step repeated is the same step.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from mingce.tasks.base import Example, NoAnswer, Prompt, Score, Task
from mingce.tasks.tool_calls import Message, ToolCall


@dataclass(frozen=True)
class Action:
    """One turn of the policy: what it wrote, and the tool calls in it.

    `problem` says why a call in the text cannot be read; there are no `calls` then.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Observation:
    """What the policy gets to read after a turn, and what the turn earned.

    `content` is text, which goes on where the policy stopped, or chat messages, which go through the chat template.
    `reward` is paid on the turn's last token. When `done`, nothing more is read and `right` may say whether the
    conversation counts as right; where it is None, the task judges the policy's last message. `parts` are named
    figures for the log; those of a conversation's turns are summed up.
    """

    content: str | Sequence[Message] = ""
    reward: float | None = None
    done: bool = False
    right: bool | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


LONGEST_TEXT = 1_000_000
"""Characters of one observation or prompt: more than any context holds."""


def checked(said: Any) -> Observation:
    """What an environment answered, made of plain values; a TypeError or ValueError says what it may not be."""
    if not isinstance(said, Observation):
        raise TypeError(f"step returned {type(said).__name__}, not an Observation")
    reward = None if said.reward is None else _finite(said.reward, "the reward")
    parts = {str(name): _finite(value, f"the part {name}") for name, value in dict(said.parts or {}).items()}
    right = None if said.right is None else bool(said.right)
    return Observation(checked_prompt(said.content), reward, bool(said.done), right, parts)


def checked_prompt(content: Any) -> Prompt:
    """A text, or messages with role and content, in characters that can be encoded."""
    if isinstance(content, str):
        return _encodable(content)
    if not isinstance(content, Iterable) or isinstance(content, bytes):
        raise TypeError(f"{type(content).__name__} is neither text nor a list of messages")
    return [_message(one) for one in content]


def _message(one: Any) -> Message:
    if not isinstance(one, Mapping) or not isinstance(one.get("role"), str) or "content" not in one:
        raise TypeError(f"a message needs role and content, which {str(one)[:80]!r} has not")
    content = one["content"]
    return {**one, "content": _encodable(content) if isinstance(content, str) else content or ""}


def _encodable(text: str) -> str:
    """The text with half characters (lone surrogates, as JSON may hold) replaced."""
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"a text of {len(text):,} characters is longer than {LONGEST_TEXT:,}")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _finite(value: Any, what: str) -> float:
    if not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise ValueError(f"{what} is {value!r}, not a finite number")
    return float(value)


class Environment(Protocol):
    """One conversation's other side."""

    def reset(self, example: Example, seed: int) -> Prompt:
        """The prompt that the conversation begins with; all samples of a prompt are given the same seed."""
        ...

    def step(self, action: Action) -> Observation | Awaitable[Observation]:
        """What comes of a turn; a coroutine is awaited."""
        ...

    def gold(self) -> str:
        """What a perfect policy would write now; `mingce check` proves that it earns full marks."""
        ...


@runtime_checkable
class EnvironmentTask(Task, Protocol):
    """A task whose examples are conversations.

    What `score` gives to the policy's last message is added to the rewards of the turns; an environment that pays by
    its turns alone has a task that scores 0.
    """

    def environment(self) -> Environment:
        """A new one, for one conversation."""
        ...

    def tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        """The tools to tell the policy of, by the chat template, as JSON schemas."""
        ...

    def tool_format(self) -> str | None:
        """How the policy writes calls, where the task fixes it; None: as its chat template does."""
        ...


class PaidByTurns:
    """What a task has in common with others whose environments judge and pay, and which have no tools."""

    name: str

    def tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        return []

    def tool_format(self) -> str | None:
        return None

    def score(self, example: Example, response: str) -> Score:
        """Nothing: turns are paid."""
        return Score(0.0)

    def gold(self, example: Example) -> str:
        raise NoAnswer(f"{self.name} does not say what a perfect policy would write, so it cannot be checked.")

    def correct(self, example: Example, response: str) -> bool:
        """A conversation that was cut is not right; one that ended was judged by its environment."""
        return False
