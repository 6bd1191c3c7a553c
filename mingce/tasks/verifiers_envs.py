"""Tasksets and environments of verifiers (version 0.4) by name: `verifiers:gsm8k-v1`, any package that it can load.

A taskset's prompts are the questions, its rewards the score. Where its package has an environment of its own, that
environment's `run` is what the policy talks to: it is given a seat at which every turn is the policy's, so that games
and users that it plays run unmodified. What the library does besides (programs in containers, its own servers for
models and tools) has no place here: such tasksets are refused.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mingce.base.errors import DataError, SettingError
from mingce.base.user_files import last_line
from mingce.tasks.base import Example, Prompt
from mingce.tasks.environment import Action, Environment, Observation, PaidByTurns
from mingce.tasks.tool_calls import Message

FULL_MARKS = 1 - 1e-9


class Verifiers(PaidByTurns):
    """The tasks of one taskset: the first `held_out` are kept apart, the next `size` are trained on."""

    def __init__(
        self, name: str, *, size: int = 1000, held_out: int = 100, options: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        self.id, self.name, self.counts = name, f"verifiers:{name}", (held_out, size)
        try:
            import verifiers.v1 as library
            from verifiers.v1.utils import loaders
        except ImportError as error:
            raise DataError(f"{self.name} needs verifiers 0.4 ({error}); install it beside mingce.") from error
        self.library = library
        try:
            config = loaders.taskset_config_type(name)(id=name, **dict(options or {}))
            self.taskset = loaders.load_taskset(config)
            self.kind = loaders.environment_class(name)
            tools = [*self.taskset.toolsets(config), *type(self.taskset).task_type().toolsets(config.task)]
        except Exception as error:  # whatever the library or the package raises
            given = dict(options or {})
            raise SettingError(f"{self.name} cannot be loaded with {given} ({last_line(error)}).") from error
        if tools or type(self.taskset).task_type().NEEDS_CONTAINER:
            raise SettingError(f"{self.name} brings servers for tools or needs a container, which mingce does not run.")

    @cached_property
    def tasks(self) -> list[Any]:
        return list(itertools.islice(self.taskset, sum(self.counts)))

    def environment(self) -> Environment:
        return VerifiersTalk(self)

    def train_examples(self) -> Sequence[Example]:
        return [self._example(number) for number in range(self.counts[0], len(self.tasks))]

    def held_out_examples(self) -> Sequence[Example]:
        return [self._example(number) for number in range(min(self.counts[0], len(self.tasks)))]

    def _example(self, number: int) -> Example:
        return Example(f"{self.name}:{number}", self.prompt(number), None, self.name, {"number": number})

    def prompt(self, number: int) -> list[Message]:
        """The task's messages, with its system prompt first."""
        data = self.tasks[number].data
        said: list[Message] = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        if isinstance(data.prompt, str):
            return [*said, {"role": "user", "content": data.prompt}]
        return [*said, *(one.model_dump(exclude_none=True) for one in data.prompt or [])]

    def trace(self, task: Any) -> Any:
        """A trace of the library with the prompt in it, to be scored by the task."""
        vf = self.library
        trace: Any = vf.Trace(
            task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
        )
        trace.ok = True
        return trace


@dataclass
class Channel:
    """What an environment's `run` and the policy hand each other."""

    task: Verifiers
    number: int
    told: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    replies: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    trace: Any = None


class Exchange:
    """An interaction of the library: a message is told to the policy, its next turn is the reply."""

    def __init__(self, channel: Channel, task: Any):
        self.channel, self.trace = channel, channel.task.trace(task)
        channel.trace = self.trace
        for message in channel.task.prompt(channel.number):
            self._note({"system": "SystemMessage", "user": "UserMessage"}.get(message["role"], ""), message["content"])

    async def turn(self, message: str | None = None) -> Any:
        from verifiers.v1.agent import Segment
        from verifiers.v1.types import AssistantMessage

        if message is not None:
            self._note("UserMessage", message)
            self.channel.told.put_nowait(message)
        text = await self.channel.replies.get()
        self._note("AssistantMessage", text, sampled=True)
        return Segment(messages=[AssistantMessage(content=text)])

    def _note(self, kind: str, content: Any, *, sampled: bool = False) -> None:
        from verifiers.v1 import types

        if kind:
            before = len(self.trace.nodes) - 1 if self.trace.nodes else None
            node = self.channel.task.library.MessageNode
            self.trace.nodes.append(node(parent=before, message=getattr(types, kind)(content=content), sampled=sampled))


class Seat:
    """The agent of an environment's `run`: whoever speaks here is the policy."""

    def __init__(self, channel: Channel):
        self.channel = channel

    async def run(self, task: Any, **_: Any) -> Any:
        """One turn, which answers the task."""
        async with self.interaction(task) as exchange:
            await exchange.turn()
        return exchange.trace

    @asynccontextmanager
    async def interaction(self, task: Any, **_: Any) -> AsyncIterator[Exchange]:
        exchange = Exchange(self.channel, task)
        yield exchange
        await task.score(exchange.trace)


class _Seats:
    """The agents of an environment by whatever names it has for them: each is the policy."""

    def __init__(self, channel: Channel):
        self._channel = channel

    def __getattr__(self, name: str) -> Seat:
        return Seat(self._channel)


class VerifiersTalk:
    """One conversation: the environment's `run` waits for each turn of the policy."""

    def __init__(self, task: Verifiers):
        self.task = task
        self.running: asyncio.Task[None] | None = None

    def reset(self, example: Example, seed: int) -> Prompt:
        self.number = int(example.extra_info["number"])
        return example.prompt

    async def step(self, action: Action) -> Observation:
        if self.running is None:
            self.channel, kind = Channel(self.task, self.number), self.task.kind
            environment = kind.__new__(kind)  # without its servers and harnesses, which the seat stands in for
            self.running = asyncio.create_task(environment.run(self.task.tasks[self.number], _Seats(self.channel)))
        self.channel.replies.put_nowait(action.text)
        said = asyncio.create_task(self.channel.told.get())
        await asyncio.wait([said, self.running], return_when=asyncio.FIRST_COMPLETED)
        if said.done():
            return Observation([{"role": "user", "content": said.result()}])
        said.cancel()
        self.running.result()  # what it raised, if it did
        reward = float(self.channel.trace.reward) if self.channel.trace is not None else 0.0
        return Observation(reward=reward, done=True, right=reward >= FULL_MARKS)

    def gold(self) -> str:
        return self.task.gold(self.task.train_examples()[0])

    def __del__(self) -> None:
        """A conversation that was cut leaves its environment waiting for a turn that never comes."""
        if self.running is not None and not self.running.done():
            self.running.get_loop().call_soon_threadsafe(self.running.cancel)
