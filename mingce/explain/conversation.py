"""The dialogue's state: a question goes in, an answer comes out, the example and the subject stay. Nothing is printed.

A question is taken apart (question/) and offered to the steps (steps/) in turn; the first that has an answer gives it.
Commands: /help /topics /example /level /lang.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mingce.algorithms import reference
from mingce.base.errors import MingceError
from mingce.base.lang import display_lang
from mingce.base.texts import sentence
from mingce.explain import example
from mingce.explain.answer import Answer, legible
from mingce.explain.compose import derived, told
from mingce.explain.menu import obey
from mingce.explain.openings import fits, without_verdict
from mingce.explain.patterns import within_reason
from mingce.explain.question.changes import Impossible, apply_request, started_from
from mingce.explain.question.classifier import OTHER, Guess
from mingce.explain.question.places import Place, read_places
from mingce.explain.question.quantities import read_quantities
from mingce.explain.question.request import Request, read_request, settings_named
from mingce.explain.question.retrieval import CLEARLY_OUTSIDE, INSIDE, OUTSIDE, foreign, guess_points
from mingce.explain.question.scalars import read_scalars
from mingce.explain.question.subject import CLEAR, NEAR, guess_topics
from mingce.explain.snippets.reading import is_program
from mingce.explain.sums import Sum, sum_of
from mingce.explain.sums.budget import kl_budget, kl_facts
from mingce.explain.topic import POINT
from mingce.explain.topics import TOPIC_OF, TOPICS
from mingce.record.rollout import Rollout

_ABOUT_SETTING = {"gamma": "gamma_lambda", "lam": "gamma_lambda", "beta": "kl_where", "clip": "ppo_clip"}
"""What a change of a setting is about."""
OFFERED, REMEMBERED, LONGEST_CONTEXT, FEW_SIGNS = 3, 8, 120, 3
STARTERS = ("five_quantities", "state_action_index", "mc_vs_gae")
"""Offered where not even a near topic is found."""
_DIGIT = re.compile(r"\d")
_CHINESE = re.compile(r"[一-鿿]")
_LATIN = re.compile(r"[A-Za-z]{2,}")
_ASKS = re.compile(r"\b(?:what|how|why|which|does|compute|explain|please)\b", re.IGNORECASE)
_CODE_LINE = re.compile(r"[A-Za-z_\]]\s*[-+*/]?=\s*\S|[\w\]]\(|^\s*(?:for|if|return|def|with|import)\b.*")
_SENTENCE = re.compile(r"(?:\b[A-Za-z]+\b[ ,]+){4}")
"""So many words in a row are a sentence, though it says "λ = 1" or begins with "if"."""


def _is_code(line: str) -> bool:
    return _CODE_LINE.search(line) is not None and _SENTENCE.search(line) is None


@dataclass
class Turn:
    """One question and what is read out of it: tokens, quantities, numbers, likely topics; and the example before."""

    request: Request
    places: list[Place]
    earlier: Rollout
    context: str = ""
    """The title of the last subject, which a short question may lean on."""
    at_hand: tuple[str, ...] = ()
    """The last topic and those related to it."""
    last: str = ""
    """The question before."""

    @cached_property
    def quantities(self) -> list[str]:
        return read_quantities(self.request.subject)

    @cached_property
    def scalars(self) -> dict[str, float]:
        return read_scalars(self.request.subject)

    @cached_property
    def guesses(self) -> list[Guess]:
        return guess_topics(self.request.subject, self.context)

    @cached_property
    def points(self) -> list[Guess]:
        return guess_points(self.request.subject, self.at_hand, f"{self.context} {self.last}".strip())

    @property
    def outside(self) -> bool:
        """Whether the question is likelier none of ours."""
        own, topic = (
            next((guess.probability for guess in guesses if guess.name == OTHER), 1.0)
            for guesses in (self.points, self.guesses)
        )
        best = self.guesses[0] if self.guesses else None
        whole = best is not None and best.name != OTHER and not TOPICS[best.name].points  # a topic without points
        if self.request.columns or (whole and best is not None and best.probability >= CLEAR):
            return False
        if not self.at_hand and foreign(self.request.subject, self.points):
            return True
        return own >= CLEARLY_OUTSIDE or (own >= OUTSIDE and topic >= INSIDE)

    @property
    def topic(self) -> str:
        """The likeliest topic, or OTHER."""
        if self.outside or not self.guesses:
            return OTHER
        return next(guess.name for guess in self.guesses if guess.name != OTHER)

    @property
    def wants(self) -> frozenset[str]:
        return self.request.wants


class Conversation:
    """What is being talked about: the example, a token of it, the last subject, how and in which language it was told.

    `scorer` gives the rollout of a prompt and a response, if there is a model to score them.
    """

    def __init__(
        self,
        rollout: Rollout | None = None,
        *,
        lang: str | None = None,
        level: str = "engineer",
        token: int | None = None,
        scorer: Callable[[str, str], Rollout] | None = None,
    ):
        self.rollout = example.worked() if rollout is None else rollout
        self.fixed_lang, self.lang = lang, lang or display_lang()
        self.level, self.token, self.scorer = level, token, scorer
        self.topic: str | None = None
        self.quantity: str | None = None  # if the last answer was a number's
        self.result: float | None = None  # that number
        self.scalars: dict[str, float] = {}  # single numbers of the last sum worked by hand
        self.last = ""  # the question before
        self.said_last = ""  # the last answer's text
        self.told: list[tuple[str, str]] = []  # topics and their parts, as they were told
        self.sum: Sum | None = None  # the last sum over typed lists
        self.setting: str | None = None  # the setting spoken of last
        self.moved: str | None = None  # the setting that the last number was changed by
        self.budget: dict[str, float] = {}  # what was told of the KL of one's own training
        self.code = ""  # the code pasted last
        self.key = level  # the level or part of the last answer
        self.said: set[tuple[object, ...]] = set()
        self.before: list[Rollout] = []  # examples talked of earlier
        self.examples = 0
        self.choices: tuple[tuple[str, str], ...] = ()

    # ── a question ───────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, question: str) -> Answer:
        """The answer to one question; a mistake in it is reported in one sentence and changes nothing."""
        question = within_reason(question)
        self._hear_language(question)
        try:
            answer = self._answer(question.strip())
        except (Impossible, MingceError) as problem:
            answer = Answer(self.lang, str(problem))
        answer = self._told_once(answer)
        if answer.choices:
            self.choices = answer.choices
        self.said_last = answer.text or self.said_last
        return answer

    def _told_once(self, answer: Answer) -> Answer:
        """The answer, in short if the very same was given before."""
        mark = ("answer", answer.lang, answer.text, answer.lines, answer.judgements, answer.tables)
        if answer.topic is None and not answer.lines:
            return answer  # a sentence
        if mark in self.said and answer.text:
            short = sentence("tutor.as_before", answer.lang, said=answer.text.partition("\n\n")[0])
            return replace(answer, text=short, lines=answer.lines[-1:], formula="", tables=(), code=())
        self.said.add(mark)
        return answer

    def _answer(self, question: str) -> Answer:
        from mingce.explain.steps import STEPS  # they speak of conversations

        if question.startswith("/"):
            return obey(self, *question.split(maxsplit=1))
        if question.isdecimal() and len(question) <= 2:
            return self._chosen(int(question))
        request = read_request(question, self.setting)
        self.setting = next(iter([*request.settings, *settings_named(request.text)]), None)
        for name, lang in (("english", "en"), ("chinese", "zh")):
            if name in request.wants:
                self.lang = lang
        if (answer := self._summed(request)) is not None:
            return answer
        earlier = self.rollout
        if request.changes:
            earlier = self._change(request)
        context = "" if self.topic is None else self.title(self.topic)
        turn = Turn(request, self.read_places(request.subject), earlier, context, self._at_hand(), self.last)
        self.last = request.subject[:LONGEST_CONTEXT]
        for step in STEPS:
            answer = step(self, turn)
            if answer is not None:
                return answer
        offered = [topic for topic, _ in self.near(turn)] or STARTERS
        return self.say("tutor.declined", offered, declined=True)

    def _at_hand(self) -> tuple[str, ...]:
        """The last topic, or that of the last number, and those related to it."""
        topic = TOPIC_OF.get(self.quantity.partition("(")[0]) if self.quantity else self.topic
        moved = ("gamma_lambda",) if self.last and self.setting in ("gamma", "lam") else ()
        if self.quantity and self.moved:
            topic = _ABOUT_SETTING[self.moved]
        return moved if topic is None else (topic, *TOPICS[topic].related, *moved)

    def _summed(self, request: Request) -> Answer | None:
        """A sum over the lists that are typed in, where they make no example of their own."""
        if is_program(request.text):
            return None
        scalars = read_scalars(request.subject)
        found = sum_of(request.text, self.lang, scalars, request.settings, self.sum, self.last)
        if found is None:
            return self._kl_cost(request)
        again = ("sum", found[0].text) in self.said
        if again and not _DIGIT.search(request.text):
            return None
        if again and (request.wants & {"why", "what_if", "lost", "claim"} or found[1].same_numbers(self.sum)):
            return None  # a sum that was told is not asked for again
        answer, self.sum = found
        self.said.add(("sum", answer.text))
        self.topic, self.quantity, self.last = self.sum.topic, None, request.subject[:LONGEST_CONTEXT]
        return replace(answer, choices=((self.sum.topic, self.title(self.sum.topic)),))

    def _kl_cost(self, request: Request) -> Answer | None:
        """What the KL of the person's own training costs, from what was told of it so far."""
        answer = kl_budget(request.text, self.budget, self.lang)
        self.budget = {**self.budget, **kl_facts(request.text)} if self.budget or "KL" in request.text else {}
        if answer is None:
            return None
        self.topic, self.quantity, self.last = "kl_where", None, request.subject[:LONGEST_CONTEXT]
        self.key = "engineer"
        return replace(answer, choices=(("kl_where", self.title("kl_where")),))

    def _hear_language(self, question: str) -> None:
        if self.fixed_lang is not None or question.startswith("/"):
            return
        lines = question.splitlines()
        prose = "\n".join(line for line in lines if _CHINESE.search(line) or not _is_code(line))
        chinese, words = len(_CHINESE.findall(prose)), len(_LATIN.findall(prose))
        asks_of_code = chinese >= FEW_SIGNS and any(_is_code(line) for line in lines)
        if asks_of_code or (chinese and 2 * chinese >= words):  # an English question may quote a Chinese token
            self.lang = "zh"
        elif (words or _ASKS.search(question)) and not self._only_numbers(question):
            self.lang = "en"

    @staticmethod
    def _only_numbers(question: str) -> bool:
        """Numbers and settings alone have no language."""
        request = read_request(question)
        return request.changes and not request.rest

    def _change(self, request: Request) -> Rollout:
        """Changes the example; gives what it is to be compared with."""
        changed = apply_request(request, self.rollout, self.lang)
        before = started_from(request, self.rollout)
        self.moved = next((name for name in request.settings if name in _ABOUT_SETTING), None)
        self.remember()
        self.rollout = changed
        if self.token not in self.slots():
            self.token = None
        return before

    def _chosen(self, number: int) -> Answer:
        if not 1 <= number <= len(self.choices):
            return self.say("tutor.no_choice", number=number)
        return self.tell(self.choices[number - 1][0], self.level)

    # ── what the steps use ───────────────────────────────────────────────────────────────────────────────────────

    def tell(self, topic_id: str, key: str, *, alone: bool = False) -> Answer:
        """A topic at a level, or one of its parts; that `alone`, or followed by the engineer's answer."""
        self.topic, self.quantity, self.key, self.moved = topic_id, None, key, None
        self.told.append((topic_id, key))
        self.mark(topic_id, key)
        mark = (lambda topic, part: True) if alone else self.mark
        answer = told(TOPICS[topic_id], legible(self.rollout), self.token, key, self.lang, mark)
        if key.startswith(POINT) and not fits(TOPICS[topic_id].points[key], self.last):
            return replace(answer, text=without_verdict(answer.text))
        return answer

    def was_told(self, topic: str, key: str) -> bool:
        """Whether this part was told of this example and token, in this language."""
        return self._as_said(topic, key) in self.said

    def mark(self, topic: str, key: str) -> bool:
        """Notes that a part is told; whether it was before."""
        known = self.was_told(topic, key)
        self.said.add(self._as_said(topic, key))
        return known

    def _as_said(self, topic: str, key: str) -> tuple[object, ...]:
        """What makes a part another: its language, and of other parts than points the example and the token."""
        return (topic, key, self.lang, *(() if key.startswith(POINT) else (id(self.rollout), self.token)))

    def derive(self, quantities: Sequence[str], place: Place | None = None) -> Answer | None:
        """The derivation of numbers at a token, or at all tokens; None if the example cannot give them."""
        t = None if place is None else place.index
        answer, result = derived(
            legible(self.rollout), quantities[:3], t, self.lang, None if place is None else place.counted
        )
        if answer is None:
            return None
        if t is not None:
            self.token = t
        self.result = result
        return self.as_number(quantities[0], answer)

    def as_number(self, quantity: str, answer: Answer) -> Answer:
        """The answer, after which the quantity is what is talked about."""
        self.quantity = quantity
        self.told.append(("", quantity.partition("(")[0]))
        return answer

    def another_example(self) -> None:
        """From now on another example, with other numbers."""
        self.remember()
        self.examples += 1
        self.rollout, self.token = example.another(self.examples), None

    def remember(self) -> None:
        """Keeps the example at hand among those talked of earlier."""
        self.before = [self.rollout, *self.before][:REMEMBERED]

    def at(self, places: Sequence[Place] = ()) -> int:
        """The slot that is spoken of."""
        if places and places[0].index in self.slots():
            return places[0].index
        return self.slots()[0] if self.token is None else self.token

    def slots(self) -> list[int]:
        return reference.chosen(self.rollout.columns["response_mask"])

    def read_places(self, text: str) -> list[Place]:
        """The tokens of the example that a text names."""
        return read_places(text, [token.text for token in self.rollout.tokens], self.slots())

    def near(self, turn: Turn) -> tuple[tuple[str, str], ...]:
        """Topics that a question may be about, to be offered."""
        names = [guess.name for guess in turn.guesses[:OFFERED] if guess.probability >= NEAR and guess.name != OTHER]
        return tuple((name, self.title(name)) for name in names)

    def title(self, topic_id: str) -> str:
        return TOPICS[topic_id].title[0 if self.lang == "zh" else 1]

    def say(self, key: str, offered: Sequence[str] = (), *, declined: bool = False, **values: object) -> Answer:
        """A sentence, with topics to open."""
        choices = tuple((topic_id, self.title(topic_id)) for topic_id in offered)
        return Answer(self.lang, sentence(key, self.lang, **values), choices=choices, declined=declined)
