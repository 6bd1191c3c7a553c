"""The commands of a dialogue, and the numbers of its example: /help /topics /example /level /lang."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mingce.base.texts import sentence, texts
from mingce.columns import COLUMNS
from mingce.explain.account_texts import LEVELS
from mingce.explain.answer import Answer, column_tables, example_line, legible
from mingce.explain.topics import TOPICS

if TYPE_CHECKING:
    from mingce.explain.conversation import Conversation

_SHOWN = (
    "scores", "kl", "rewards", "values", "deltas", "advantages", "returns", "whitened_advantages",
    "old_log_probs", "ref_log_probs", "ratio",
)  # fmt: skip


def obey(talk: Conversation, command: str, rest: str = "") -> Answer:
    """What a command does to the dialogue, or shows."""
    commands: dict[str, Callable[[], Answer]] = {
        "/help": lambda: Answer(talk.lang, texts("tutor", talk.lang)["help"]),
        "/topics": lambda: talk.say("tutor.topics", tuple(TOPICS), count=len(TOPICS)),
        "/example": lambda: example_answer(talk),
        "/level": lambda: _set_level(talk, rest),
        "/lang": lambda: _set_lang(talk, rest),
    }
    if command not in commands:
        return talk.say("tutor.no_command", command=command)
    return commands[command]()


def _set_level(talk: Conversation, rest: str) -> Answer:
    if rest not in LEVELS:
        return talk.say("tutor.levels", levels=("、" if talk.lang == "zh" else ", ").join(LEVELS))
    talk.level = talk.key = rest
    return talk.say("tutor.level_set", level=sentence(f"tutor.level_{rest}", talk.lang))


def _set_lang(talk: Conversation, rest: str) -> Answer:
    if rest not in ("zh", "en", "auto"):
        return talk.say("tutor.langs")
    talk.fixed_lang = None if rest == "auto" else rest
    talk.lang = talk.fixed_lang or talk.lang
    return talk.say("tutor.lang_set")


def example_answer(talk: Conversation) -> Answer:
    """The numbers of the example at hand."""
    rollout = legible(talk.rollout)
    columns = [name for name in _SHOWN if name in rollout.columns]
    meanings = "\n".join(
        f"- `{COLUMNS[name].symbol}` {COLUMNS[name].zh if talk.lang == 'zh' else COLUMNS[name].en}" for name in columns
    )
    line = example_line(rollout, talk.at(), talk.lang)
    title = sentence("tutor.example_title", talk.lang)
    return Answer(talk.lang, meanings, title=title, about=line, tables=tuple(column_tables(rollout, columns)))
