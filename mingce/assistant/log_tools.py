"""The one tool that writes: a dialogue appended to a log in the format of the seeds, inside an allowed directory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from mingce.assistant.account_tools import LONGEST_TEXT
from mingce.assistant.subject import Desk, Where
from mingce.base.errors import DataError, SettingError
from mingce.base.reading import read_regular
from mingce.base.schema import Limit
from mingce.base.texts import sentence
from mingce.explain import dialogue

DIRECTORY = "codex_dialogue"
MOST_ROUNDS = 200
LARGEST_LOG = 16_000_000
Said = Annotated[str, Limit(most=LONGEST_TEXT)]


@dataclass(frozen=True)
class Round:
    """A question and its answer, word for word."""

    question: Said
    answer: Said


@dataclass(frozen=True, kw_only=True)
class SaveInput:
    rounds: Annotated[list[Round], Limit(most=MOST_ROUNDS)]
    directory: Where = DIRECTORY
    file: Where | None = None


@dataclass(frozen=True)
class Saved:
    """Where the log is, and how many rounds it has now."""

    file: str
    rounds: int


def save_dialogue(asked: SaveInput, desk: Desk) -> Saved:
    """Writes a new log, or appends to one that is there; nothing but a dialogue log is ever written over."""
    if not asked.rounds:
        raise SettingError(sentence("assistant.no_rounds"))
    rounds = tuple(dialogue.Round(one.question, one.answer) for one in asked.rounds)
    if asked.file is not None:
        path = desk.places.inside(asked.file)
        try:
            text = read_regular(path, LARGEST_LOG).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            raise DataError(sentence("assistant.no_log", path=asked.file[:200])) from None
        kept = dialogue.parse(text, path)
        whole = dialogue.Dialogue(kept.time, (*kept.rounds, *rounds))
    else:
        whole = dialogue.Dialogue(datetime.now().replace(microsecond=0), rounds)
        path = dialogue.new_path(desk.places.new_directory(asked.directory), whole.time)
    if len(dialogue.render(whole).encode()) > LARGEST_LOG:
        raise DataError(sentence("assistant.large_log", most=LARGEST_LOG // 1_000_000))
    dialogue.write(whole, path)
    return Saved(desk.places.name(path), len(whole.rounds))
