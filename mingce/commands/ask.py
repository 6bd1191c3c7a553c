"""`mingce ask`: questions about PPO's account of every token, answered with an example's own numbers.

One question is answered and that is all; without one it is a dialogue, from the keyboard or from a pipe. With --log the
dialogue is written after every round, word for word as it was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from mingce.base.errors import MingceError, ModelError, RunError, SettingError, UnknownNameError
from mingce.base.paths import expanded
from mingce.base.terminal import make_console
from mingce.base.texts import sentence
from mingce.commands import user_input
from mingce.explain import dialogue, example
from mingce.explain.account_texts import LEVELS
from mingce.explain.answer import Answer
from mingce.explain.answer_view import markdown, rendered
from mingce.explain.conversation import Conversation
from mingce.explain.dialogue import Dialogue, Round
from mingce.progress.text import MUTED
from mingce.record.rollout import Rollout

if TYPE_CHECKING:
    from mingce.assistant.phrasing import Phrasing

DIRECTORY = Path("codex_dialogue")
PICTURES = (".png", ".svg", ".pdf")
PICTURE = "mingce_account"


def ask(
    console: Console,
    words: Sequence[str] = (),
    *,
    numbers: Mapping[str, str | None] | None = None,
    settings: Mapping[str, Any] | None = None,
    after: float | None = None,
    step: int | None = None,
    rollout: int | None = None,
    token: int | None = None,
    mapping: Path | None = None,
    level: str = "engineer",
    lang: str | None = None,
    log: bool = False,
    resume: Path | None = None,
    model: str | None = None,
    model_name: str | None = None,
    model_timeout: float | None = None,
    directory: Path = DIRECTORY,
    lines: Iterable[str] | None = None,
) -> None:
    """Answers the question among `words`, or line after line; the other word, if there is one, is a run or a dump.

    `numbers` (rewards, values …) are typed in; `settings` are gamma, lam, beta. `model` is the address of a chat model
    that puts the answers into words. `lines` stand for standard input.
    """
    if level not in LEVELS:
        raise UnknownNameError("level", level, LEVELS)
    question, place = _question_and_place(words)
    about = _example(place, numbers or {}, settings or {}, after, step, rollout, mapping)
    if token is not None and not 0 <= token < len(about.tokens):
        count = len(about.tokens)
        raise SettingError(f"--token {token} is not there: the response has {count} tokens, 0 to {count - 1}.")
    phrasing = _phrasing(model, model_name, model_timeout, place)
    conversation = Conversation(about, lang=lang, level=level, token=token, scorer=_scorer(place))
    talk = Talk(console, conversation, directory, phrasing)
    if resume is not None:
        talk.resume(resume)
    if log:
        talk.keep()
    if question is not None:
        talk.hear(question)
        return
    talk.greet()
    for line in user_input.questions(console) if lines is None else lines:
        if not talk.hear(line.rstrip("\n")):
            break
    talk.leave()


def _question_and_place(words: Sequence[str]) -> tuple[str | None, Path | None]:
    """A word that is a path on this disk is the run or dump; the other one is the question."""
    if any(len(word) > user_input.LONGEST for word in words):
        raise SettingError(f"a question may have {user_input.LONGEST:,} characters; ask about a part of it.")
    places = [word for word in words if _is_there(word)]
    questions = [word for word in words if word not in places]
    if len(places) > 1:
        raise SettingError(f"give one run or dump, not {places[0]} and {places[1]}.")
    if len(questions) > 1:
        if "/" in questions[1] and " " not in questions[1]:
            raise RunError(f"there is nothing at {questions[1]}; give a run's directory or a dump.")
        raise SettingError("put the question between quotation marks.")
    return (questions[0] if questions else None), (expanded(places[0]) if places else None)


def _is_there(word: str) -> bool:
    """Whether a word is a path on this disk; a question is no path, however long it is."""
    try:
        return bool(word.strip()) and expanded(word).exists()
    except (OSError, ValueError):  # too long for a name, or with a zero byte
        return False


def _example(
    place: Path | None,
    given: Mapping[str, str | None],
    settings: Mapping[str, Any],
    after: float | None,
    step: int | None,
    row: int | None,
    mapping: Path | None,
) -> Rollout:
    columns = {
        name: user_input.numbers(name.replace("_", "-"), text) for name, text in given.items() if text is not None
    }
    chosen = {name: value for name, value in settings.items() if value is not None}
    if place is not None:
        if columns:
            raise SettingError("numbers typed in are an example of their own; leave out the run.")
        about = example.recorded(place, step, row or 0, mapping)
        if not about.tokens or not any(about.columns["response_mask"]):
            raise RunError(f"rollout {about.row} of step {about.step} has no chosen token; choose another one.")
        return example.changed(about, **chosen) if chosen else about
    if step is not None or row is not None:
        raise SettingError("--step and --rollout choose from a run or a dump; give its path too.")
    if columns:
        return example.typed(columns, after=after or 0.0, **chosen)
    about = example.worked()
    return example.changed(about, **chosen) if chosen else about


def _scorer(place: Path | None) -> Callable[[str, str], Rollout] | None:
    """Scores a prompt and a response with a run's models; a dump has none."""
    if place is None or not (place / "config.yaml").is_file():
        return None

    def scored_pair(prompt: str, response: str) -> Rollout:
        from mingce.explain.scored import scored  # torch

        return scored(prompt, response, where=str(place))[0]

    return scored_pair


def _free_name() -> Path:
    """A picture's name that is not taken."""
    for number in range(1, 10_000):
        path = Path(f"{PICTURE}{f'_{number}' if number > 1 else ''}.png")
        if not path.exists():
            return path
    raise SettingError(f"there are too many pictures {PICTURE}_*.png here; remove some.")


def _phrasing(url: str | None, name: str | None, timeout: float | None, place: Path | None) -> Phrasing | None:
    """The model that words the answers; its tools may read the run or dump that was named, and nothing else."""
    if url is None:
        if name is not None or timeout is not None:
            raise SettingError(sentence("assistant.model_option"))
        return None
    from mingce.assistant.phrasing import Phrasing
    from mingce.assistant.places import Places
    from mingce.assistant.subject import Desk
    from mingce.base.endpoint import TIMEOUT, Endpoint

    return Phrasing(Endpoint(url, name, timeout or TIMEOUT), Desk(Places([] if place is None else [place])))


class Talk:
    """One dialogue on a console: what was said, and the file it is kept in, if it is."""

    def __init__(self, console: Console, conversation: Conversation, directory: Path, phrasing: Phrasing | None = None):
        self.console, self.conversation, self.directory = console, conversation, directory
        self.phrasing = phrasing
        self.dialogue = Dialogue(datetime.now().replace(microsecond=0))
        self.file: Path | None = None
        self.resumed: Path | None = None
        self.saved = 0  # rounds that the file has

    @property
    def lang(self) -> str:
        return self.conversation.lang

    def resume(self, path: Path) -> None:
        """Reads a saved dialogue and asks its questions again without printing; with a log it goes on in that file."""
        self.dialogue, self.resumed = dialogue.read(path), path
        self.saved = len(self.dialogue.rounds)
        for round_ in self.dialogue.rounds:
            self.conversation.ask(round_.question)
        self._say("tutor.resumed", path=path, count=len(self.dialogue.rounds))

    def keep(self) -> None:
        """From now on the dialogue is written after every round, behind what a resumed log has already."""
        if self.file is None:
            self.file = self.resumed or dialogue.new_path(self.directory, self.dialogue.time)

    def _write(self) -> None:
        if self.file is not None:
            dialogue.append(self.dialogue, self.file, self.saved)
            self.saved = len(self.dialogue.rounds)

    def greet(self) -> None:
        self._say("tutor.greeting")

    def hear(self, line: str) -> bool:
        """Answers a line or obeys a command; False ends the dialogue."""
        line = line.strip()
        if line == "/quit":
            return False
        try:
            if line.split(maxsplit=1)[:1] == ["/save"]:
                self._save(line[len("/save") :].strip())
            elif line.split(maxsplit=1)[:1] == ["/plot"]:
                self._plot(line[len("/plot") :].strip())
            elif line:
                self._answer(line)
        except MingceError as error:
            self.console.print(Text(str(error), style="red"), soft_wrap=True)
        return True

    def leave(self) -> None:
        if self.file is not None and self.saved:
            self._say("tutor.kept_in", path=self.file)

    def _answer(self, line: str) -> None:
        answer = self.conversation.ask(line)
        said = None if answer.action or line.startswith("/") else self._phrased(line, answer)
        if said is None:
            self._show(answer)
            said = markdown(answer)
        if answer.action == "save":
            self.keep()
        self.dialogue = Dialogue(self.dialogue.time, (*self.dialogue.rounds, Round(line, said)))
        self._write()
        if answer.action == "save":
            self._say("tutor.written", path=self.file)
        if answer.action == "draw":
            self._plot(str(_free_name()))

    def _phrased(self, line: str, answer: Answer) -> str | None:
        """The answer in the model's words, shown, with the record for the log; None if there is no such answer."""
        if self.phrasing is None:
            return None
        try:
            reply = self.phrasing.phrase(line, answer, self.conversation)
        except ModelError as error:
            self._say("assistant.own_answer", why=error)
            return None
        self.console.print(Text(reply.text), soft_wrap=not self.console.is_terminal)
        return f"{reply.text}\n\n{reply.record()}"

    def _show(self, answer: Answer) -> None:
        if not self.console.is_terminal:
            self.console.print(Text(markdown(answer)), soft_wrap=True)
            return
        for part in rendered(answer, self.console.width):
            self.console.print(part, soft_wrap=isinstance(part, Text), highlight=False)

    def _save(self, place: str) -> None:
        if place:
            dialogue.write(self.dialogue, expanded(place))
        else:
            self.keep()
            self._write()
        self._say("tutor.written", path=expanded(place) if place else self.file)

    def _plot(self, place: str) -> None:
        if not place:
            raise SettingError(sentence("tutor.plot_needs_file", self.lang))
        path = expanded(place)
        if path.suffix.lower() not in PICTURES:
            raise SettingError(f"/plot {place} must end in {', '.join(PICTURES)}.")
        from mingce.explain.lambda_picture import draw_lambda
        from mingce.explain.pictures import draw_account

        draw = draw_lambda if self.conversation.topic == "gae_variance" else draw_account
        for remark in draw(self.conversation.rollout, path, self.lang):
            self._note(remark)
        self._say("tutor.written", path=path)

    def _say(self, key: str, **values: object) -> None:
        self._note(sentence(key, self.lang, **values))

    def _note(self, text: str) -> None:
        """Beside the dialogue, on stderr when the answers are piped on."""
        console = self.console if self.console.is_terminal else make_console(stderr=True)
        console.print(Text(text, style=MUTED), soft_wrap=True)
