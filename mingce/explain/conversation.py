"""The dialogue's state: a question goes in, an answer comes out, the example and the subject stay. Nothing is printed.

A line may name a subject, ask for the last one again with other settings, other numbers, another token, at another
level, or be a number that opens an offered topic. Commands: /help /topics /example /level /lang.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from mingce.algorithms import reference
from mingce.base.errors import MingceError
from mingce.base.lang import display_lang
from mingce.base.texts import sentence, texts
from mingce.columns import COLUMNS
from mingce.explain import example
from mingce.explain.account_texts import LEVELS
from mingce.explain.answer import Answer, column_tables, example_line, legible, topic_answer
from mingce.explain.changes import Impossible, apply_request
from mingce.explain.request import Request, read_request
from mingce.explain.retrieval import ACCEPTED, Index
from mingce.explain.topics import TOPICS
from mingce.record.rollout import Rollout

COMMANDS = ("/help", "/topics", "/example", "/level", "/lang")
OFFERED, NEAR = 3, 0.15
STARTERS = ("five_quantities", "state_action_index", "mc_vs_gae")
"""Offered where not even a near topic is found."""
_CHINESE = re.compile(r"[一-鿿]")
_LATIN = re.compile(r"[A-Za-z]{2}")
_SHOWN = (
    "scores", "kl", "rewards", "values", "deltas", "advantages", "returns", "whitened_advantages",
    "old_log_probs", "ref_log_probs", "ratio",
)  # fmt: skip


@cache
def index() -> Index:
    """The index of all topics, made once."""
    return Index(TOPICS.values())


class Conversation:
    """What is being talked about: the example, a token of it, the last topic, how and in which language it was told."""

    def __init__(
        self,
        rollout: Rollout | None = None,
        *,
        lang: str | None = None,
        level: str = "engineer",
        token: int | None = None,
    ):
        self.rollout = example.worked() if rollout is None else rollout
        self.fixed_lang, self.lang = lang, lang or display_lang()
        self.level, self.token = level, token
        self.topic: str | None = None
        self.told = level  # the level of the last answer
        self.choices: tuple[tuple[str, str], ...] = ()

    def ask(self, question: str) -> Answer:
        """The answer to one line; a mistake in it is reported in one sentence and changes nothing."""
        self._hear_language(question)
        try:
            answer = self._answer(question.strip())
        except MingceError as error:
            answer = Answer(self.lang, str(error))
        if answer.choices:
            self.choices = answer.choices
        return answer

    def _hear_language(self, question: str) -> None:
        if self.fixed_lang is not None or question.startswith("/"):
            return
        if _CHINESE.search(question):
            self.lang = "zh"
        elif _LATIN.search(question) and not self._only_numbers(question):
            self.lang = "en"

    @staticmethod
    def _only_numbers(question: str) -> bool:
        """Numbers and settings alone have no language."""
        request = read_request(question)
        return request.changes and not _LATIN.search(request.subject)

    def _answer(self, question: str) -> Answer:
        if question.startswith("/"):
            return self._obey(*question.split(maxsplit=1))
        if question.isdecimal() and len(question) <= 2:
            return self._chosen(int(question))
        request = read_request(question)
        if request.changes:
            try:
                self.rollout = apply_request(request, self.rollout, self.lang)
            except Impossible as problem:
                return Answer(self.lang, str(problem))
            if self.token not in self._slots():
                self.token = None
        if request.vague:
            return self._follow_up(request)
        return self._subject(request)

    # ── a subject ────────────────────────────────────────────────────────────────────────────────────────────────

    def _subject(self, request: Request) -> Answer:
        found = index().search(request.subject)
        if found[0].score < ACCEPTED:
            if self.topic is not None and (
                request.changes or request.level or request.lost or request.token is not None
            ):
                return self._follow_up(request)
            near = [match.topic for match in found[:OFFERED]] if found[0].score >= NEAR else STARTERS
            return self._say("tutor.declined", near)
        if isinstance(request.token, int) and request.token in self._slots():
            self.token = request.token
        return self._tell(found[0].topic, request.level or self.level)

    def _chosen(self, number: int) -> Answer:
        if not 1 <= number <= len(self.choices):
            return self._say("tutor.no_choice", number=number)
        return self._tell(self.choices[number - 1][0], self.level)

    def _tell(self, topic_id: str, level: str) -> Answer:
        topic = TOPICS[topic_id]
        self.topic, self.told = topic_id, level
        related = [TOPICS[other] for other in topic.related]
        return topic_answer(topic, self.rollout, self.token, level, self.lang, related)

    # ── the last subject again ───────────────────────────────────────────────────────────────────────────────────

    def _follow_up(self, request: Request) -> Answer:
        if request.token is not None:
            problem = self._move(request.token)
            if problem is not None:
                return problem
        if self.topic is None:
            if request.changes or request.example or request.token is not None:
                return self.example()
            return self._say("tutor.what_to_ask")
        level = self.told
        if request.level:
            level = request.level
        elif request.lost:
            level = "child"
        elif request.deeper:
            level = LEVELS[min(LEVELS.index(self.told) + 1, len(LEVELS) - 1)]
        elif request.example and self.told == "child":
            level = "engineer"
        moves = request.changes or request.token is not None
        if not (moves or request.level or request.lost or request.deeper or request.example):
            return self._say("tutor.ask_on", TOPICS[self.topic].related, title=self._title(self.topic))
        answer = self._tell(self.topic, level)
        if request.example and not answer.tables:
            numbers = self.example()
            return Answer(**{**answer.__dict__, "tables": numbers.tables})
        return answer

    def _move(self, token: int | str) -> Answer | None:
        slots, count = self._slots(), len(self.rollout.tokens)
        where = {"first": slots[0], "last": slots[-1]}[token] if isinstance(token, str) else token
        if where >= count:
            return self._say("tutor.no_token", count=count, last=count - 1, token=where)
        if where not in slots:
            return self._say("tutor.not_chosen", token=where)
        self.token = where
        return None

    def _slots(self) -> list[int]:
        return reference.chosen(self.rollout.columns["response_mask"])

    # ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _obey(self, command: str, rest: str = "") -> Answer:
        commands: dict[str, Callable[[], Answer]] = {
            "/help": lambda: Answer(self.lang, texts("tutor", self.lang)["help"]),
            "/topics": self.topics,
            "/example": self.example,
            "/level": lambda: self._set_level(rest),
            "/lang": lambda: self._set_lang(rest),
        }
        if command not in commands:
            return self._say("tutor.no_command", command=command)
        return commands[command]()

    def _set_level(self, rest: str) -> Answer:
        if rest not in LEVELS:
            return self._say("tutor.levels", levels=("、" if self.lang == "zh" else ", ").join(LEVELS))
        self.level = self.told = rest
        return self._say("tutor.level_set", level=sentence(f"tutor.level_{rest}", self.lang))

    def _set_lang(self, rest: str) -> Answer:
        if rest not in ("zh", "en", "auto"):
            return self._say("tutor.langs")
        self.fixed_lang = None if rest == "auto" else rest
        self.lang = self.fixed_lang or self.lang
        return self._say("tutor.lang_set")

    def topics(self) -> Answer:
        """All topics, numbered."""
        return self._say("tutor.topics", tuple(TOPICS), count=len(TOPICS))

    def example(self) -> Answer:
        """The numbers of the example at hand."""
        rollout = legible(self.rollout)
        slots = self._slots()
        columns = [name for name in _SHOWN if name in rollout.columns]
        meanings = "\n".join(
            f"- `{COLUMNS[name].symbol}` {COLUMNS[name].zh if self.lang == 'zh' else COLUMNS[name].en}"
            for name in columns
        )
        tables = tuple(column_tables(rollout, columns))
        line = example_line(rollout, slots[0] if self.token is None else self.token, self.lang)
        return Answer(self.lang, meanings, title=sentence("tutor.example_title", self.lang), about=line, tables=tables)

    def _title(self, topic_id: str) -> str:
        return TOPICS[topic_id].title[0 if self.lang == "zh" else 1]

    def _say(self, key: str, offered: Sequence[str] = (), **values: object) -> Answer:
        """A sentence, with topics to open."""
        choices = tuple((topic_id, self._title(topic_id)) for topic_id in offered)
        return Answer(self.lang, sentence(key, self.lang, **values), choices=choices)
