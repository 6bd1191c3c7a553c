"""`mingce chat RUN --tools`: a trained agent with its environment; `--play`: a person in the policy's place.

Environments are those of training (mingce.roles.worlds): the same calls are read, the same tools called, the same
limits hold. Examples are the held-out ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from rich.console import Console
from rich.text import Text

from mingce.base.errors import MingceError, SettingError
from mingce.base.terminal import print_note
from mingce.base.texts import sentence
from mingce.commands import user_input
from mingce.commands.spoken import Scale
from mingce.engine.local import task_of, worlds_of
from mingce.ledger import Ledger
from mingce.progress.tokens import visible
from mingce.record.targets import Step
from mingce.record.tokens import added_texts
from mingce.roles.actor import WORLD, row_seed, rows_of
from mingce.roles.dialogues import ledger_of
from mingce.roles.worlds import Play, Table
from mingce.tasks.base import Example
from mingce.tasks.environment import EnvironmentTask, Observation
from mingce.tasks.scoring import prompt_text
from mingce.tasks.tool_calls import ToolCall
from mingce.training.opening import Opened, open_policy
from mingce.training.trust import expect_trust

COMMANDS = ("/next", "/gold", "/temperature", "/seed", "/quit")
OWN = "chat"
"""The uid of a question that the person typed."""


def run(
    console: Console,
    where: str,
    *,
    step: Step = None,
    overrides: Sequence[str] = (),
    person_plays: bool = False,
    trust: bool = False,
    lines: Iterable[str] | None = None,
) -> None:
    """Plays conversations until /quit or the end of the input, which is standard input unless `lines` are given."""
    opened = open_policy(where, step=step, overrides=overrides, note=print_note)
    expect_trust(None if opened.run is None else opened.run.path, opened.config, overrides, trust=trust, command="chat")
    task, _ = task_of(opened.config)
    if not isinstance(task, EnvironmentTask):
        raise SettingError(f"{task.name} has no environment; leave --tools and --play out, or set agent.tools.")
    opened.actor.worlds = worlds_of(opened.config, task, opened.actor)
    assert opened.actor.worlds is not None
    session = Person(console, opened, task) if person_plays else Agent(console, opened, task)
    try:
        session.greet()
        for line in user_input.lines(console) if lines is None else lines:
            if not session.hear(line.strip()):
                break
    finally:
        opened.actor.worlds.close()


class Session:
    """What both have: the task's examples, the commands, and the end of a conversation."""

    hello = ""

    def __init__(self, console: Console, opened: Opened, task: EnvironmentTask):
        self.console, self.task, self.actor, self.critic = console, task, opened.actor, opened.critic
        assert opened.actor.worlds is not None
        self.worlds = opened.actor.worlds
        self.seed, self.number = opened.config.seed, 0
        self.weight = opened.config.reward.task_weight

    def greet(self) -> None:
        """Says what there is, and how a call is written."""
        self._print(_say(self.hello, task=self.task.name))
        if self.worlds.schemas:
            function = self.worlds.schemas[0]["function"]
            names = list(function.get("parameters", {}).get("properties", {}))
            tags = self.worlds.written.name == "tags"
            call = ToolCall(self.worlds.names[0], {"": "…"} if tags else dict.fromkeys(names, "…"))
            self._print(_say("tools", tools=", ".join(self.worlds.names), example=self.worlds.written.write(call)))

    def hear(self, line: str) -> bool:
        """Takes a turn or obeys a command; False ends it all."""
        if line == "/quit":
            return False
        try:
            if line.startswith("/"):
                self._obey(*line.split(maxsplit=1))
            elif line:
                self.turn(line)
        except MingceError as error:  # a prompt that does not fit, a temperature below 0: print it and continue
            self._print(str(error), "red")
        except KeyboardInterrupt:
            self._print(sentence("commands.chat_stopped"))
        return True

    def turn(self, line: str) -> None:
        """What a line of the person's does."""
        raise NotImplementedError

    def begin(self, example: Example) -> None:
        """A conversation about an example."""
        raise NotImplementedError

    def next(self) -> None:
        """The next held-out example."""
        examples = self.task.held_out_examples()
        example = examples[self.number % len(examples)]
        self.number += 1
        self._print(_say("example", number=self.number, uid=example.uid))
        self.begin(example)

    def _obey(self, command: str, rest: str = "") -> None:
        if command == "/help":
            self._print("\n".join(_say(f"help_{name.removeprefix('/')}") for name in COMMANDS))
        elif command == "/next":
            self.next()
        elif command == "/seed" and rest.isdecimal():
            self.seed, self.number = int(rest), 0
        elif command in COMMANDS:
            raise SettingError(_say("not_here", command=command))
        else:
            raise SettingError(sentence("commands.chat_unknown_command", command=command))

    def over(self, play: Play, reason: str) -> None:
        """What came of a conversation."""
        if reason == "length":
            self._print(_say("cut", count=self.worlds.config.max_turns), "yellow")
        if play.failure:
            self._print(_say("failed", why=play.failure), "red")
            return
        counts = {"calls": play.tool_calls, "malformed": play.malformed, "count": len(play.rewards)}
        if play.example.uid == OWN:
            self._print(_say("unscored", **counts))
            return
        turns, answer = self.weight * sum(play.rewards), self.task.score(play.example, play.answer).total
        right = self.task.correct(play.example, play.answer) if play.right is None else play.right
        said = _say("right" if right else "wrong")
        self._print(
            _say("score", score=turns + answer, turns=turns, answer=answer, right=said, **counts),
            "green" if right else "yellow",
        )

    def told(self, text: str, seconds: float) -> None:
        """Shows what the environment said, and how long it took."""
        self._print(f"  ┆ {_say('told', milliseconds=1000 * seconds)}")
        for line in text.strip("\n").split("\n"):
            self._print(f"  ┆ {visible(line)}", "cyan")

    def _print(self, text: str, style: str = "bright_black") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)


class Agent(Session):
    """The policy answers, with its tools."""

    hello = "hello"

    def __init__(self, console: Console, opened: Opened, task: EnvironmentTask):
        super().__init__(console, opened, task)
        self.sampling, self.asked, self.scale = opened.actor.sampling, 0, Scale(0.0, 1.0)

    def turn(self, line: str) -> None:
        """A question of the person's own."""
        chat = self.actor.tokenizer.chat_template is not None
        prompt = [{"role": "user", "content": line}] if chat else line
        self.begin(Example(OWN, prompt, "", self.task.name))

    def begin(self, example: Example) -> None:
        if example.uid != OWN:
            self._print(visible(prompt_text(example)), "bold")
        seeds = [row_seed(self.seed, 0, self.asked)], [row_seed(self.seed, 0, WORLD - self.asked)]
        self.asked += 1
        with self.console.status("…"):
            (play,) = self.actor.play([example], self.sampling, *seeds)
            ledger = ledger_of([play], self.actor, rows_of(self.actor, [example], 0, 1))
            shown = self._shown(ledger)
        for row in range(len(ledger)):
            self._show(ledger, row, shown[row].tolist(), play)
        self.over(play, play.finish_reason)

    def _shown(self, ledger: Ledger) -> torch.Tensor:
        """V(s_t), or without a critic π(a_t)."""
        if self.critic is not None:
            return self.critic.values(ledger)["values"]
        return self.actor.log_probs(ledger)["old_log_probs"].exp()

    def _show(self, ledger: Ledger, row: int, numbers: list[float], play: Play) -> None:
        """A row's turns, each token on its colour, with what was told in between."""
        count = int(ledger.lengths[row])
        texts = added_texts(self.actor.tokenizer.decode, ledger["token_ids"][row, :count].tolist())
        chosen, turns = ledger.mask[row, :count].tolist(), ledger["turn"][row, :count].tolist()
        self.scale = self.scale.reaching([x for x, mine in zip(numbers, chosen, strict=False) if mine] or [0.0])
        line, told = Text("  "), ""
        for t in range(count):
            if chosen[t]:
                line.append(visible(texts[t]), style=self.scale.style(numbers[t]))
            else:
                told += texts[t]
            if t + 1 == count or chosen[t + 1] != chosen[t]:
                if told:
                    begin, end = play.stepped[turns[t]]
                    self.told(told, end - begin)
                else:
                    self.console.print(line, soft_wrap=True)
                line, told = Text("  "), ""

    def _obey(self, command: str, rest: str = "") -> None:
        if command == "/temperature":
            try:
                self.sampling = replace(self.sampling, temperature=float(rest))
            except ValueError:
                wrong = sentence("commands.chat_not_a_number", command=command, example="0.7")
                raise SettingError(wrong) from None
        else:
            super()._obey(command, rest)


class Person(Session):
    """A person answers."""

    hello = "play"
    table: Table | None = None

    def greet(self) -> None:
        super().greet()
        self.next()

    def begin(self, example: Example) -> None:
        self.table = self.worlds.open([example], [row_seed(self.seed, 0, WORLD - self.number)])
        (play,) = self.table.plays
        messages = play.dialogue.messages or [{"content": play.dialogue.text}]
        for message in messages:
            self._print(visible(str(message["content"])), "bold")
        if play.failure:
            self._over("error")

    def turn(self, line: str) -> None:
        """The policy's turn, typed."""
        if self.table is None:
            self.next()
            return
        (play,) = self.table.plays
        play.answer = line
        self.table.act(0, line)
        observation = self.table.observed(0)
        if observation is None or observation.done:
            self._over("stop")
            return
        begin, end = play.stepped[-1]
        self.told(_text(self.table, observation), end - begin)
        if len(play.rewards) >= self.worlds.config.max_turns:
            self._over("length")

    def _over(self, reason: str) -> None:
        assert self.table is not None
        self.over(self.table.plays[0], reason)
        self.table = None

    def _obey(self, command: str, rest: str = "") -> None:
        if command == "/gold" and self.table is not None:
            try:
                self._print(visible(self.table.plays[0].environment.gold()), "green")
            except Exception:  # an environment of the person's own may have none
                self._print(_say("no_gold"))
        else:
            super()._obey(command, rest)


def _text(table: Table, observation: Observation) -> str:
    """An observation as the policy gets to read it."""
    told = table.told(observation)
    return told if isinstance(told, str) else "\n".join(str(message.get("content", "")) for message in told)


def _say(name: str, **values: object) -> str:
    return sentence(f"commands.agent_{name}", **values)
