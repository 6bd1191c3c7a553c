"""The environments of a batch of conversations: the partner of `mingce.models.conversations.converse`.

Environments step in threads while other conversations are decoded; texts are read and encoded here, in the thread that
decodes. An environment that raises, hangs or pays what is no number costs its own conversation (`agent.on_error`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerBase

from mingce.base.errors import EnvironmentFault, MingceError, ModelError, SettingError
from mingce.base.user_files import last_line
from mingce.config import AgentConfig
from mingce.models.conversations import Reply, Transcript
from mingce.models.drawing import Sampling
from mingce.models.prompts import NOTHING
from mingce.models.turns import Dialogue, TurnEnds
from mingce.record.clocks import Clocks
from mingce.roles.threads import Job, Threads
from mingce.roles.tool_formats import format_for
from mingce.tasks.base import Example, Prompt
from mingce.tasks.environment import Action, Environment, EnvironmentTask, Observation, checked, checked_prompt
from mingce.tasks.limit import generators_kept, seed_generators
from mingce.tasks.tool_calls import Message, Reading
from mingce.tasks.tools import CALLS
from mingce.tasks.waiting import awaited


@dataclass(kw_only=True)
class Play:
    """A conversation with an environment: what was said, and what it paid. Plain values, which other processes send."""

    example: Example
    seed: int
    transcript: Transcript | None = None
    text: str = ""
    """All that was said after the prompt, by the policy and to it."""
    drift: int = -1
    """Of the last segment, see `Dialogue.drift`."""
    rewards: list[float] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)
    answer: str = ""
    """The text of the last turn."""
    right: bool | None = None
    failure: str = ""
    malformed: int = 0
    stepped: list[tuple[float, float]] = field(default_factory=list)
    """When the environment's step after each turn began and ended, in seconds since the batch began."""

    @property
    def finish_reason(self) -> str:
        """`error` where the environment failed, else the transcript's."""
        assert self.transcript is not None
        return "error" if self.failure else self.transcript.finish_reason

    @property
    def seconds(self) -> float:
        """How long its environment took."""
        return sum(end - begin for begin, end in self.stepped)

    @property
    def tokens(self) -> int:
        """Tokens that the policy chose."""
        return 0 if self.transcript is None else sum(len(turn) for turn in self.transcript.turns)

    @property
    def tool_calls(self) -> int:
        """Calls that were made."""
        return int(self.parts.get(CALLS, 0))


@dataclass(kw_only=True)
class Playing(Play):
    """One that is under way, with its environment."""

    environment: Environment
    dialogue: Dialogue
    job: Job | None = None
    heard: int = 0
    """Turns that `hear` was told of."""

    def hear(self, ids: Sequence[int], stop_ids: Sequence[int]) -> str:
        """Takes note of a turn; its text without the end token."""
        self.heard += 1
        self.answer = _without_special(self.dialogue.tokenizer, ids)
        return self.dialogue.hear(ids, stop_ids)

    def ended(self, transcript: Transcript, began: float, stop_ids: Sequence[int]) -> Play:
        """What came of it, with times that count from when the batch began."""
        for cut in transcript.turns[self.heard :]:  # by a limit, so that nobody was to answer it
            self.hear(cut, stop_ids)
        play = Play(**{one.name: getattr(self, one.name) for one in fields(Play)})
        play.transcript, play.text = transcript, self.dialogue.told
        with suppress(ModelError):  # what the chat template does not take cannot be compared
            play.drift = self.dialogue.drift(transcript.segments[-1].ids)
        transcript.decoded = [(begin - began, end - began) for begin, end in transcript.decoded]
        play.stepped = [(begin - began, end - began) for begin, end in self.stepped]
        return play


class Worlds:
    """Makes and steps the environments of a task."""

    def __init__(
        self,
        task: EnvironmentTask,
        config: AgentConfig,
        tokenizer: PreTrainedTokenizerBase,
        sampling: Sampling,
        template: Mapping[str, Any] = NOTHING,
    ):
        """`sampling` says what ends a response, and so a turn; `template` are arguments of the chat template."""
        self.task, self.config, self.tokenizer, self.stop_ids = task, config, tokenizer, sampling.stop_ids
        self.template = template
        self.schemas = list(task.tool_schemas())
        self.names = [str(schema["function"]["name"]) for schema in self.schemas]
        chosen = config.tool_format if config.tool_format != "auto" else task.tool_format()
        self.written = format_for(tokenizer, chosen, self.schemas)
        stops = self.written.stops(self.names) if self.schemas else ()
        self.ends = TurnEnds(tokenizer, (*stops, *sampling.stop_texts))
        self.failed_score = _failed_score(config.on_error)
        self.threads = Threads(config.workers)
        self.measured: dict[str, float] = {}
        """Of the last rollouts: the seconds that environments took, and the proof that ids are those drawn."""
        self.clocks: Clocks = []
        """Of the last rollouts, for each row: when its turns were decoded and its environment stepped."""

    def open(self, examples: Sequence[Example], seeds: Sequence[int]) -> Table:
        """A new environment for every example, reset by its seed."""
        environments = [self.task.environment() for _ in examples]
        resets = [
            self.threads.submit(partial(self.run, seed, one.reset, example, seed))
            for one, example, seed in zip(environments, examples, seeds, strict=True)
        ]
        plays = []
        for example, environment, seed, reset in zip(examples, environments, seeds, resets, strict=True):
            failure = ""
            try:
                dialogue = self._dialogue(checked_prompt(self.threads.result(reset, self.config.time_limit)))
            except (Exception, SystemExit) as error:  # whatever a person's environment raises
                failure = self.failed(example, "reset", error)
                dialogue = self._dialogue(example.prompt)
            plays.append(
                Playing(example=example, seed=seed, environment=environment, dialogue=dialogue, failure=failure)
            )
        return Table(self, plays)

    def _dialogue(self, prompt: Prompt) -> Dialogue:
        return Dialogue(self.tokenizer, prompt, self.schemas if not isinstance(prompt, str) else (), self.template)

    def run(self, seed: int, call: Callable[..., Any], *arguments: Any) -> Any:
        """Makes a call of an environment; without threads, with the global generators seeded for it."""
        if self.threads.count:
            return awaited(call(*arguments))
        with generators_kept():
            seed_generators(seed)
            return awaited(call(*arguments))

    def failed(self, example: Example, what: str, error: BaseException) -> str:
        """Why the environment failed, as one line; an error of its own if failures stop the run."""
        reason = f"{what}: {error if isinstance(error, MingceError) else last_line(error)}"
        if self.failed_score is None:
            raise EnvironmentFault(
                f"the environment of {example.uid} failed ({reason}); mend it, or set agent.on_error to the score that "
                "such a conversation shall have."
            ) from error
        return reason

    def close(self) -> None:
        """Ends the threads, and what the task has started."""
        self.threads.close()
        if callable(close := getattr(self.task, "close", None)):
            close()


class Table:
    """The conversations of one batch."""

    def __init__(self, worlds: Worlds, plays: list[Playing]):
        self.worlds, self.plays = worlds, plays

    @property
    def prompts(self) -> list[list[int]]:
        """The ids that conversations begin with."""
        return [play.dialogue.prompt_ids for play in self.plays]

    def listen(self, row: int, ids: list[int], *, last: bool) -> None:
        """Reads the turn and has its environment step."""
        play, worlds = self.plays[row], self.worlds
        text = play.hear(ids, worlds.stop_ids)
        if not play.failure:
            self.act(row, text)

    def act(self, row: int, text: str) -> None:
        """Reads the calls in a turn's text and has the environment step; `Play.answer` is what it gets to read."""
        play, worlds = self.plays[row], self.worlds
        reading = worlds.written.read(text, worlds.names) if worlds.names else Reading()
        play.malformed += bool(reading.problem)
        play.dialogue.called = [{"name": one.name, "arguments": dict(one.arguments)} for one in reading.calls]
        action = Action(play.answer, reading.calls, reading.problem)
        seed = play.seed * 1_000_003 + len(play.rewards)
        play.job = worlds.threads.submit(partial(worlds.run, seed, play.environment.step, action))

    def reply(self, row: int) -> Reply:
        """What the environment answers."""
        observation = self.observed(row)
        if observation is None or observation.done:
            return Reply(done=True)
        play = self.plays[row]
        try:
            return play.dialogue.answer(self.told(observation), self.worlds.config.observation_tokens)
        except ModelError as error:  # roles in an order that the chat template does not take
            play.failure = self.worlds.failed(play.example, f"turn {len(play.rewards) - 1}", error)
            return Reply(done=True)

    def told(self, observation: Observation) -> str | Sequence[Message]:
        """What an observation says, as the policy gets to read it."""
        content = observation.content
        return content if isinstance(content, str) else self.worlds.written.told([dict(one) for one in content])

    def observed(self, row: int) -> Observation | None:
        """What came of the turn, with its reward noted; None where the environment has failed."""
        play = self.plays[row]
        if play.failure or play.job is None:
            return None
        try:
            observation = self._observation(play)
        except (Exception, SystemExit) as error:  # whatever a person's environment raises
            play.failure = self.worlds.failed(play.example, f"turn {len(play.rewards)}", error)
            return None
        play.rewards.append(observation.reward or 0.0)
        for name, value in observation.parts.items():
            play.parts[name] = play.parts.get(name, 0.0) + value
        play.right = observation.right
        return observation

    def _observation(self, play: Playing) -> Observation:
        assert play.job is not None
        try:
            return checked(self.worlds.threads.result(play.job, self.worlds.config.time_limit))
        finally:
            begun = play.job.begun or time.monotonic()
            play.stepped.append((begun, begun + play.job.seconds))


def _without_special(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=True))


def _failed_score(setting: str) -> float | None:
    """The score of a conversation whose environment failed; None where that stops the run."""
    if setting == "stop":
        return None
    try:
        score = float(setting)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise SettingError(f"agent.on_error must be stop or a number, but is '{setting}'.")
    return score
