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
from mingce.base.lang import display_lang, say
from mingce.columns import COLUMNS
from mingce.explain import example
from mingce.explain.account_texts import LEVELS
from mingce.explain.answer import Answer, column_tables, example_line, legible, topic_answer
from mingce.explain.changing import Impossible, changed_by
from mingce.explain.example import Rollout
from mingce.explain.request import Request, read_request
from mingce.explain.retrieval import ACCEPTED, Index
from mingce.explain.topics import TOPICS

COMMANDS = ("/help", "/topics", "/example", "/level", "/lang")
OFFERED, NEAR = 3, 0.15
STARTERS = ("five_quantities", "state_action_index", "mc_vs_gae")
"""Offered where not even a near topic is found."""
DECLINED = (
    "这个问题我答不了：我只讲 PPO 逐 token 的账。",
    "I cannot answer that: all I know is PPO's account of every token.",
)
_CHINESE = re.compile(r"[一-鿿]")
_LATIN = re.compile(r"[A-Za-z]{2}")
_LEVEL_NAMES = {"child": ("12 岁", "child"), "engineer": ("工程师", "engineer"), "proof": ("证明", "proof")}
_SHOWN = (
    "scores", "kl", "rewards", "values", "deltas", "advantages", "returns", "whitened_advantages",
    "old_log_probs", "ref_log_probs", "ratio",
)  # fmt: skip

HELP = (
    "直接提问，中文或英文都行。接着可以说：\n\n"
    "- “λ=0.5 呢？”、“把 β 改成 0.05”：换设定，再讲一遍刚才的话题\n"
    "- “rewards=[0,0,1] values=[0.3,0.4,0.6]”：换成你的数\n"
    "- “第 3 个 token 呢”、“用12岁小孩能懂的话再讲一遍”、“证明一下”、“给个例子”\n"
    "- 一个编号：打开列出的话题\n\n"
    "命令：\n\n"
    "- `/topics` 所有话题；`/example` 当前例子的数\n"
    "- `/level child|engineer|proof` 讲法；`/lang zh|en|auto` 语言\n"
    "- `/save [路径]` 保存对话；`/plot 文件.png` 画图；`/quit` 结束",
    "Ask anything, in English or Chinese. Then you may say:\n\n"
    "- “and with λ=0.5?”, “set β to 0.05”: the same subject under other settings\n"
    "- “rewards=[0,0,1] values=[0.3,0.4,0.6]”: with your own numbers\n"
    "- “what about token 3”, “explain it to a child”, “show the proof”, “give an example”\n"
    "- a number: opens a topic that was listed\n\n"
    "Commands:\n\n"
    "- `/topics` all topics; `/example` the numbers of the example\n"
    "- `/level child|engineer|proof` how it is told; `/lang zh|en|auto` the language\n"
    "- `/save [path]` keeps the dialogue; `/plot file.png` draws; `/quit` ends",
)


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
            answer = self._sentence(str(error), str(error))
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
                self.rollout = changed_by(request, self.rollout)
            except Impossible as problem:
                return self._sentence(problem.zh, problem.en)
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
            return self._sentence(*DECLINED, near)
        if isinstance(request.token, int) and request.token in self._slots():
            self.token = request.token
        return self._tell(found[0].topic, request.level or self.level)

    def _chosen(self, number: int) -> Answer:
        if not 1 <= number <= len(self.choices):
            return self._sentence(
                f"没有编号 {number} 的话题；`/topics` 列出所有话题。",
                f"There is no topic {number}; `/topics` lists them all.",
            )
        return self._tell(self.choices[number - 1][0], self.level)

    def _tell(self, topic_id: str, level: str) -> Answer:
        topic = TOPICS[topic_id]
        self.topic, self.told = topic_id, level
        related = [TOPICS[other] for other in topic.related if other in TOPICS]
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
            return self._sentence(
                "想问什么？`/topics` 列出所有话题，`/help` 说明用法。",
                "What would you like to know? `/topics` lists the topics, `/help` says how to ask.",
            )
        level = self.told
        if request.level:
            level = request.level
        elif request.lost:
            level = "child"
        elif request.deeper:
            level = LEVELS[min(LEVELS.index(self.told) + 1, len(LEVELS) - 1)]
        elif request.example and self.told == "child":
            level = "engineer"
        asks = (
            request.changes,
            request.token is not None,
            request.level,
            request.lost,
            request.deeper,
            request.example,
        )
        if not any(asks):
            titles = tuple((other, self._title(other)) for other in TOPICS[self.topic].related if other in TOPICS)
            return Answer(
                self.lang,
                say(
                    self.lang,
                    f"刚才说的是“{self._title(self.topic)}”。可以接着问，或者打开：",
                    f"We were at “{self._title(self.topic)}”. Ask on, or open one of these:",
                ),
                choices=titles,
            )
        answer = self._tell(self.topic, level)
        if request.example and not answer.tables:
            numbers = self.example()
            return Answer(**{**answer.__dict__, "tables": numbers.tables})
        return answer

    def _move(self, token: int | str) -> Answer | None:
        slots, count = self._slots(), len(self.rollout.tokens)
        where = {"first": slots[0], "last": slots[-1]}[token] if isinstance(token, str) else token
        if where >= count:
            return self._sentence(
                f"例子只有 {count} 个 token，编号 0 到 {count - 1}，没有第 {where} 个。",
                f"The example has {count} tokens, 0 to {count - 1}; there is no token {where}.",
            )
        if where not in slots:
            return self._sentence(
                f"第 {where} 个 token 不是策略选的（掩码为 0），它没有账。",
                f"Token {where} was not chosen by the policy (mask 0); it has no account.",
            )
        self.token = where
        return None

    def _slots(self) -> list[int]:
        return reference.chosen(self.rollout.columns["response_mask"])

    # ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _obey(self, command: str, rest: str = "") -> Answer:
        commands: dict[str, Callable[[], Answer]] = {
            "/help": lambda: self._sentence(*HELP),
            "/topics": self.topics,
            "/example": self.example,
            "/level": lambda: self._set_level(rest),
            "/lang": lambda: self._set_lang(rest),
        }
        if command not in commands:
            return self._sentence(
                f"没有命令 {command}；`/help` 列出命令。", f"There is no command {command}; `/help` lists them."
            )
        return commands[command]()

    def _set_level(self, rest: str) -> Answer:
        if rest not in LEVELS:
            return self._sentence(f"讲法有 {'、'.join(LEVELS)}。", f"The levels are {', '.join(LEVELS)}.")
        self.level = self.told = rest
        zh, en = _LEVEL_NAMES[rest]
        return self._sentence(f"之后按“{zh}”的讲法。", f"From now on at the level “{en}”.")

    def _set_lang(self, rest: str) -> Answer:
        if rest not in ("zh", "en", "auto"):
            return self._sentence("语言有 zh、en；auto 跟着问题走。", "Languages: zh, en; auto follows the question.")
        self.fixed_lang = None if rest == "auto" else rest
        self.lang = self.fixed_lang or self.lang
        return self._sentence("之后用中文。", "From now on in English.")

    def topics(self) -> Answer:
        """All topics, numbered."""
        titles = tuple((topic_id, self._title(topic_id)) for topic_id in TOPICS)
        return Answer(self.lang, say(self.lang, f"共 {len(titles)} 个话题。", f"{len(titles)} topics."), choices=titles)

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
        return Answer(self.lang, meanings, title=say(self.lang, "当前的例子", "The example"), about=line, tables=tables)

    def _title(self, topic_id: str) -> str:
        return TOPICS[topic_id].title[0 if self.lang == "zh" else 1]

    def _sentence(self, zh: str, en: str, nearest: Sequence[str] = ()) -> Answer:
        return Answer(self.lang, say(self.lang, zh, en), choices=tuple((one, self._title(one)) for one in nearest))
