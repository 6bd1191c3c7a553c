"""`mingce chat`: talk to a checkpoint or a model, every token on the colour of its value, or of its probability.

Lines come from the keyboard or from a pipe. The colour of token t is V(s_t), what the critic expected before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from rich.console import Console
from rich.text import Text

from mingce.base.errors import MingceError, SettingError
from mingce.base.lang import display_lang
from mingce.base.terminal import make_console
from mingce.commands import user_input
from mingce.commands.spoken import Scale, Spoken, account, coloured, token_strings
from mingce.models.log_probs import response_log_probs
from mingce.models.prompts import render_prompt
from mingce.record.targets import Step, is_run
from mingce.roles.actor import row_seed
from mingce.tasks.registry import load_task
from mingce.training.opening import Opened, open_policy

LONGEST_ANSWER = 256
"""Tokens of an answer when a plain model is opened; a run has its own setting."""
COMMANDS = ("/values", "/temperature", "/seed", "/new", "/help", "/quit")

TEXT: dict[str, dict[str, Any]] = {
    "zh": {
        "hello": "对话：{where}{step}；/help 列出命令，/quit 或 Ctrl-D 结束",
        "step": "（第 {step} 步）",
        "values": "token 的颜色是 V(s_t)，critic 在它之前的估计：蓝低绿高",
        "probabilities": "没有训练过的 critic，token 的颜色是它的概率：蓝低绿高",
        "try": "试试：{prompt}",
        "help": (
            "/values           上一条回答的账：每个 token 的对数概率、概率、熵、价值\n"
            "/temperature T    采样温度；0 为贪心\n"
            "/seed N           从种子 N 重新开始：同样的话得到同样的回答\n"
            "/new              忘记之前的对话\n"
            "/quit             结束"
        ),
        "tokens": "{count} 个 token",
        "cut": "到 {count} 个 token 被截断；sampling.max_new_tokens=N 可以更长",
        "unknown": "分词器不认识：{characters}",
        "unknown_command": "没有命令 {command}；/help 列出所有命令",
        "not_a_number": "{command} 后面要一个数，例如 {command} {example}",
        "nothing": "还没有回答",
        "forgotten": "已忘记之前的对话",
        "set": "温度 {temperature:g}，种子 {seed}",
        "stopped": "已停止",
        "title": "温度 {temperature:g} 下的分布",
        "headings": ("对数概率", "概率", "熵", "价值"),
    },
    "en": {
        "hello": "talking to {where}{step}; /help lists the commands, /quit or Ctrl-D ends",
        "step": " (step {step})",
        "values": "a token's colour is V(s_t), the critic's estimate before it: blue low, green high",
        "probabilities": "there is no trained critic; a token's colour is its probability: blue low, green high",
        "try": "try: {prompt}",
        "help": (
            "/values           the account of the last answer: log-prob, probability, entropy, value of each token\n"
            "/temperature T    sampling temperature; 0 is greedy\n"
            "/seed N           start again from seed N: the same words get the same answers\n"
            "/new              forget the conversation so far\n"
            "/quit             end"
        ),
        "tokens": "{count} tokens",
        "cut": "cut at {count} tokens; sampling.max_new_tokens=N allows more",
        "unknown": "unknown to the tokenizer: {characters}",
        "unknown_command": "there is no command {command}; /help lists them",
        "not_a_number": "{command} needs a number, as in {command} {example}",
        "nothing": "there is no answer yet",
        "forgotten": "the conversation is forgotten",
        "set": "temperature {temperature:g}, seed {seed}",
        "stopped": "stopped",
        "title": "the distribution at temperature {temperature:g}",
        "headings": ("log-prob", "probability", "entropy", "value"),
    },
}


def run(
    console: Console,
    where: str,
    *,
    step: Step = None,
    overrides: Sequence[str] = (),
    lines: Iterable[str] | None = None,
) -> None:
    """Answers line after line until /quit or the end of the input, which is standard input unless `lines` are given."""
    longer = [] if is_run(where) else [f"sampling.max_new_tokens={LONGEST_ANSWER}"]
    notes = make_console(stderr=True)
    opened = open_policy(
        where, step=step, overrides=[*longer, *overrides], note=lambda s: notes.print(Text(s, style="yellow"))
    )
    chat = Chat(console, opened)
    chat.greet()
    for line in user_input.lines(console) if lines is None else lines:
        if not chat.hear(line.strip()):
            break


class Chat:
    """One conversation: what was said, how answers are drawn, and the last answer's account."""

    def __init__(self, console: Console, opened: Opened):
        self.console, self.opened, self.actor, self.critic = console, opened, opened.actor, opened.critic
        self.text = TEXT[display_lang()]
        self.sampling = opened.actor.sampling
        self.seed, self.turn = opened.config.seed, 0
        self.keeps_conversation = self.actor.tokenizer.chat_template is not None
        self.messages: list[dict[str, str]] = []
        self.last: Spoken | None = None
        self.scale: Scale | None = Scale(0.0, 1.0) if opened.critic is None else None

    def greet(self) -> None:
        """Says whom one talks to, what the colours mean and, for an embedded task, what to ask."""
        config, step = self.opened.config, self.opened.step
        at = "" if step is None else self.text["step"].format(step=step)
        self._say(self.text["hello"].format(where=self.opened.where, step=at))
        self._say(self.text["probabilities" if self.critic is None else "values"])
        made_for_task = self.opened.run is not None or self.opened.where == "tiny"
        if made_for_task and config.task in ("arithmetic", "counting") and not config.data.train:
            spoken = display_lang() if self.opened.run is None else config.data.lang
            example = load_task(config.task, lang=spoken).held_out_examples()[1]
            self._say(self.text["try"].format(prompt=example.prompt))

    def hear(self, line: str) -> bool:
        """Answers a line or obeys a command; False ends the conversation."""
        if line == "/quit":
            return False
        try:
            if line.startswith("/"):
                self._obey(*line.split(maxsplit=1))
            elif line:
                self._answer(line)
        except MingceError as error:  # a prompt that does not fit, a temperature below 0: say it and go on
            self._say(str(error), "red")
        except KeyboardInterrupt:
            self._say(self.text["stopped"])
        return True

    def speak(self, prompt: Sequence[int], seed: int) -> Spoken:
        """Draws an answer to the prompt's ids and takes its account."""
        actor, tokenizer = self.actor, self.actor.tokenizer
        with self.console.status("…") as status:
            drawn = actor.draw(
                [prompt], self.sampling, [seed], on_progress=lambda _, tokens: status.update(f"… {tokens}")
            )
        rows = [prompt], drawn.token_ids, drawn.attention_mask
        temperature = self.sampling.temperature or 1.0  # a greedy choice is judged by the distribution it came from
        with torch.no_grad():
            log_probs, entropy = response_log_probs(actor.model, *rows, pad_id=actor.pad_id, temperature=temperature)
            values = None if self.critic is None else self.critic.model.values(*rows, actor.pad_id)[0][0].tolist()
        ids = drawn.token_ids[0].tolist()
        return Spoken(
            response=actor.texts(drawn)[0],
            strings=token_strings(tokenizer, ids),
            names=[str(tokenizer.decode([token])) for token in ids],
            log_probs=log_probs[0].tolist(),
            entropy=entropy[0].tolist(),
            values=values,
            temperature=temperature,
            was_cut=drawn.finish_reasons[0] == "length",
        )

    def _answer(self, line: str) -> None:
        said = [*self.messages, {"role": "user", "content": line}]
        prompt = render_prompt(self.actor.tokenizer, said if self.keeps_conversation else line)
        if unknown := self._unknown_in(line):
            self._say(self.text["unknown"].format(characters=" ".join(unknown)), "yellow")
        spoken = self.speak(prompt, row_seed(self.seed, 0, self.turn))
        self.turn += 1
        self.last = spoken
        self.scale = self.scale.reaching(spoken.shown) if self.scale else Scale.around(spoken.shown)
        if self.keeps_conversation:
            self.messages = [*said, {"role": "assistant", "content": spoken.response}]
        self.console.print(coloured(spoken, self.scale), soft_wrap=True)
        self.console.print(self._footer(spoken, self.scale), soft_wrap=True)

    def _unknown_in(self, line: str) -> list[str]:
        """The characters for which the tokenizer has no token."""
        tokenizer = self.actor.tokenizer
        unknown = tokenizer.unk_token_id
        if unknown is None or unknown not in tokenizer.encode(line, add_special_tokens=False):
            return []
        return [c for c in dict.fromkeys(line) if unknown in tokenizer.encode(c, add_special_tokens=False)]

    def _footer(self, spoken: Spoken, scale: Scale) -> Text:
        """The colours with their numbers, from where to where the answer went, its length, and whether it was cut."""
        footer = Text("π(a_t) " if spoken.values is None else "V(s_t) ", style="bright_black")
        if self.console.is_terminal:
            footer.append_text(scale.legend()).append("   ")
        footer.append(f"{spoken.shown[0]:.2f} → {spoken.shown[-1]:.2f}   ")
        footer.append(self.text["tokens"].format(count=len(spoken.names)))
        if spoken.was_cut:
            footer.append("   " + self.text["cut"].format(count=len(spoken.names)), style="yellow")
        return footer

    def _obey(self, command: str, rest: str = "") -> None:
        if command not in COMMANDS:
            raise SettingError(self.text["unknown_command"].format(command=command))
        if command == "/help":
            self._say(self.text["help"])
        elif command == "/values":
            self._show_account()
        elif command == "/new":
            self.messages = []
            self._say(self.text["forgotten"])
        else:
            self._set(command, rest)
            self._say(self.text["set"].format(temperature=self.sampling.temperature, seed=self.seed))

    def _show_account(self) -> None:
        if self.last is None or self.scale is None:
            self._say(self.text["nothing"])
            return
        title = self.text["title"].format(temperature=self.last.temperature)
        self.console.print(account(self.last, self.scale, title, self.text["headings"]))

    def _set(self, command: str, rest: str) -> None:
        try:
            if command == "/seed":
                self.seed, self.turn = int(rest), 0
            else:
                self.sampling = replace(self.sampling, temperature=float(rest))
        except ValueError:
            example = "7" if command == "/seed" else "0.7"
            raise SettingError(self.text["not_a_number"].format(command=command, example=example)) from None

    def _say(self, sentence: str, style: str = "bright_black") -> None:
        self.console.print(Text(sentence, style=style), soft_wrap=True)
