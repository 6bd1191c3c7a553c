"""What the page sends: a question with those before it, or a text to check. Everything is bounded, and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mingce.base.errors import SettingError
from mingce.base.lang import LANGS
from mingce.base.texts import sentence
from mingce.explain.account_texts import LEVELS

MOST_TURNS = 20
LONGEST_QUESTION = 20_000
LONGEST_TEXT = 1_000_000
QUESTION_BYTES = 100_000
TEXT_BYTES = 8 * LONGEST_TEXT  # of a million signs, escapes included
LARGEST = 999_999_999


@dataclass(frozen=True)
class Turn:
    """A question of a dialogue, the token that was before the reader, and the topic if one was chosen by a button."""

    question: str
    token: int
    topic: str | None = None


@dataclass(frozen=True)
class Question:
    """The turns of a dialogue about one rollout; the last is to be answered."""

    run: str
    step: int
    row: int
    lang: str
    level: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Pasted:
    """A text to check."""

    text: str
    lang: str


def read_question(body: bytes) -> Question:
    """The question that a body holds."""
    values = _object(body)
    lang = _one_of(values, "lang", LANGS)
    turns = values.get("turns")
    if not isinstance(turns, list) or not turns:
        raise SettingError("turns must be a list of questions.")
    if len(turns) > MOST_TURNS:
        raise SettingError(sentence("page.long_dialogue", lang, most=MOST_TURNS))
    return Question(
        _text(values, "run", 500, lang),
        _whole(values, "step"),
        _whole(values, "row"),
        lang,
        _one_of(values, "level", LEVELS),
        tuple(_turn(one, lang) for one in turns),
    )


def _turn(value: Any, lang: str) -> Turn:
    if not isinstance(value, dict):
        raise SettingError("a turn must be an object.")
    topic = value.get("topic")
    return Turn(
        _text(value, "question", LONGEST_QUESTION, lang),
        _whole(value, "token"),
        topic if isinstance(topic, str) else None,
    )


def read_pasted(body: bytes) -> Pasted:
    """The text that a body holds."""
    values = _object(body)
    lang = _one_of(values, "lang", LANGS)
    return Pasted(_text(values, "text", LONGEST_TEXT, lang), lang)


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise SettingError("the body must be a JSON object.")
    return values


def _text(values: Mapping[str, Any], name: str, most: int, lang: str) -> str:
    text = values.get(name)
    if not isinstance(text, str) or not text.strip():
        raise SettingError(f"{name} must be a text.")
    if len(text) > most:
        raise SettingError(sentence("page.long_text", lang, count=f"{len(text):,}", most=f"{most:,}"))
    return text


def _whole(values: Mapping[str, Any], name: str) -> int:
    number = values.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= LARGEST:
        raise SettingError(f"{name} must be a whole number.")
    return number


def _one_of(values: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> str:
    choice = values.get(name)
    if choice not in choices:
        raise SettingError(f"{name} must be one of {', '.join(choices)}.")
    return str(choice)
