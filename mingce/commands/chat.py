"""`mingce chat`: talk to a checkpoint or a model, every token on the colour of its value, or of its probability.

Lines come from the keyboard or from a pipe. The colour of token t is V(s_t), what the critic expected before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from rich.console import Console
from rich.text import Text

from mingce.base.errors import MingceError, SettingError
from mingce.base.lang import display_lang
from mingce.base.terminal import print_note
from mingce.base.texts import sentence
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
    opened = open_policy(where, step=step, overrides=[*longer, *overrides], note=print_note)
    chat = Chat(console, opened)
    chat.greet()
    for line in user_input.lines(console) if lines is None else lines:
        if not chat.hear(line.strip()):
            break


class Chat:
    """One conversation: what was said, how answers are drawn, and the last answer's account."""

    def __init__(self, console: Console, opened: Opened):
        self.console, self.opened, self.actor, self.critic = console, opened, opened.actor, opened.critic
        self.sampling = opened.actor.sampling
        self.seed, self.turn = opened.config.seed, 0
        self.keeps_conversation = self.actor.tokenizer.chat_template is not None
        self.messages: list[dict[str, str]] = []
        self.last: Spoken | None = None
        self.scale: Scale | None = Scale(0.0, 1.0) if opened.critic is None else None

    def greet(self) -> None:
        """Says whom one talks to, what the colours mean and, for an embedded task, what to ask."""
        config, step = self.opened.config, self.opened.step
        where = self.opened.where if step is None else sentence("commands.at_step", where=self.opened.where, step=step)
        self._print(_say("hello", where=where))
        self._print(_say("probabilities" if self.critic is None else "values"))
        made_for_task = self.opened.run is not None or self.opened.where == "tiny"
        if made_for_task and config.task in ("arithmetic", "counting") and not config.data.train:
            spoken = display_lang() if self.opened.run is None else config.data.lang
            example = load_task(config.task, lang=spoken).held_out_examples()[1]
            self._print(_say("try", prompt=example.prompt))

    def hear(self, line: str) -> bool:
        """Answers a line or obeys a command; False ends the conversation."""
        if line == "/quit":
            return False
        try:
            if line.startswith("/"):
                self._obey(*line.split(maxsplit=1))
            elif line:
                self._answer(line)
        except MingceError as error:  # a prompt that does not fit, a temperature below 0: print it and continue
            self._print(str(error), "red")
        except KeyboardInterrupt:
            self._print(_say("stopped"))
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
            response=drawn.texts(actor.tokenizer)[0],
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
        data = self.opened.config.data
        system = [] if data.system is None else [{"role": "system", "content": data.system}]
        prompt = render_prompt(
            self.actor.tokenizer, [*system, *said] if self.keeps_conversation else line, data.chat_template_kwargs
        )
        if unknown := self._unknown_in(line):
            self._print(_say("unknown", characters=" ".join(unknown)), "yellow")
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
        footer.append(_say("tokens", count=len(spoken.names)))
        if spoken.was_cut:
            footer.append("   " + _say("cut", count=len(spoken.names)), style="yellow")
        return footer

    def _obey(self, command: str, rest: str = "") -> None:
        if command not in COMMANDS:
            raise SettingError(_say("unknown_command", command=command))
        if command == "/help":
            self._print("\n".join(_say(f"help_{name.removeprefix('/')}") for name in COMMANDS if name != "/help"))
        elif command == "/values":
            self._show_account()
        elif command == "/new":
            self.messages = []
            self._print(_say("forgotten"))
        else:
            self._set(command, rest)
            self._print(_say("set", temperature=self.sampling.temperature, seed=self.seed))

    def _show_account(self) -> None:
        if self.last is None or self.scale is None:
            self._print(_say("nothing"))
            return
        title = _say("title", temperature=self.last.temperature)
        headings = [_say(name) for name in ("log_prob", "probability", "entropy", "value")]
        self.console.print(account(self.last, self.scale, title, headings))

    def _set(self, command: str, rest: str) -> None:
        try:
            if command == "/seed":
                self.seed, self.turn = int(rest), 0
            else:
                self.sampling = replace(self.sampling, temperature=float(rest))
        except ValueError:
            example = "7" if command == "/seed" else "0.7"
            raise SettingError(_say("not_a_number", command=command, example=example)) from None

    def _print(self, text: str, style: str = "bright_black") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)


def _say(name: str, **values: object) -> str:
    return sentence(f"commands.chat_{name}", **values)
