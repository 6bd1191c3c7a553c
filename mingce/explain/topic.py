"""What a topic of the tutor is, and how its texts get the numbers of the example at hand.

A text is Markdown with `{name}` for a number or text of the example; formulas stand between backticks. Every number
that depends on the example is a placeholder: only indices, exponents and the limits 0, 1, 2 may stand in a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mingce.algorithms import reference
from mingce.base import texts
from mingce.base.lang import LANGS
from mingce.base.numbers import number as shown
from mingce.explain.account import substituted, token_values
from mingce.explain.account_texts import LEVELS, Pair
from mingce.record.rollout import Rollout

Values = dict[str, Any]
PARTS = ("definition", "why", "pitfall", "limits", "analogy")
"""Short texts a topic may have beside its levels: what it is in a sentence, the reason, the mistake that is often made,
what happens at the extremes, and another picture than the child's."""
POINT, ALONE = "@", "@alone/"
"""What the keys of points begin with, and of those that need nothing of their topic after them."""
VERDICTS = ("right", "wrong", "half")
_PLACEHOLDER = re.compile(r"( ?)\{([a-z_]+)\}")


@dataclass(frozen=True)
class Phrase:
    """A piece of a sentence by its name in the list `## phrases` of the topic, or of tutor.<lang>.md."""

    name: str


SILENT = Phrase("")
"""Nothing is said; the space before its placeholder goes too."""


@dataclass(frozen=True)
class Grid:
    """A small table, cells being numbers or texts; a heading with words is named in the topic's list `## grid`."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Point:
    """A narrow question that a topic answers: how it is asked, in Chinese and in English, and what is said first.

    `claims` are those of the phrasings that state something it decides, each with its verdict.
    """

    asked: tuple[tuple[str, ...], tuple[str, ...]]
    said: Pair
    claims: tuple[tuple[str, str], ...] = ()


def point_of(zh: str, en: str) -> Point:
    """Out of its two texts: a list of how it is asked or stated (`wrong: …`), a blank line, the answer."""
    (zh_asked, _, zh_said), (en_asked, _, en_said) = (text.lstrip("\n").partition("\n\n") for text in (zh, en))
    lists = [[_stated(line) for line in texts.listed(asked)] for asked in (zh_asked, en_asked)]
    zh_lines, en_lines = (tuple(text for _, text in lines) for lines in lists)
    claims = tuple((verdict, text) for lines in lists for verdict, text in lines if verdict)
    return Point((zh_lines, en_lines), (zh_said, en_said), claims)


def _stated(line: str) -> tuple[str, str]:
    """The verdict that stands before a statement, if one does, and the phrasing."""
    verdict, colon, text = line.partition(": ")
    return (verdict, text) if colon and verdict in VERDICTS else ("", line)


def nothing(rollout: Rollout, t: int) -> Values:
    """A topic that needs no numbers of its own."""
    return {}


@dataclass
class Topic:
    """One thing people ask about: its texts and what it shows are in mingce/texts/topics/<id>.<lang>.md.

    `numbers` computes the topic's own placeholders, `grid` one more table. The list `## shows` of its file names
    `formula`; `each`, a formula written out for every chosen token, the last one first; `table`, columns shown under
    the tokens; `code`, functions by dotted name; `related` topics; and `needs`, columns without which the worked
    example is taken instead of the one at hand (rewards and values if it names none).
    """

    id: str
    numbers: Callable[[Rollout, int], Values] = nothing
    grid: Callable[[Rollout, int], Grid] | None = None

    def with_grid(self, function: Callable[[Rollout, int], Grid]) -> Callable[[Rollout, int], Grid]:
        """Decorates the function that makes the topic's own table."""
        self.grid = function
        return function

    @cached_property
    def _shows(self) -> dict[str, str]:
        return texts.named(self._text("shows", LANGS[0]))

    def _names(self, key: str, default: str = "") -> tuple[str, ...]:
        names = self._shows.get(key, default)
        return tuple(names.split(", ")) if names and names != "none" else ()

    @property
    def formula(self) -> str:
        return self._shows.get("formula", "")

    @property
    def each(self) -> str:
        return self._shows.get("each", "")

    @property
    def needs(self) -> tuple[str, ...]:
        return self._names("needs", "rewards, values")

    @property
    def table(self) -> tuple[str, ...]:
        return self._names("table")

    @property
    def code(self) -> tuple[str, ...]:
        return self._names("code")

    @property
    def related(self) -> tuple[str, ...]:
        return self._names("related")

    @property
    def title(self) -> Pair:
        """The file's title."""
        zh, en = (self._text("", lang).removeprefix("# ") for lang in LANGS)
        return zh, en

    @property
    def asked(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """How people ask it, in Chinese and in English; the index is made of these, the titles and the texts."""
        zh, en = (texts.listed(self._text("asked", lang)) for lang in LANGS)
        return zh, en

    @property
    def words(self) -> tuple[Pair, ...]:
        """The answer at each of LEVELS."""
        return tuple(map(self.said, LEVELS))

    @property
    def parts(self) -> tuple[str, ...]:
        """Which of PARTS it has."""
        return tuple(part for part in PARTS if self._text(part, LANGS[0]))

    @cached_property
    def points(self) -> dict[str, Point]:
        """Short answers to narrower questions, by key; they stand in mingce/texts/points."""
        if not texts.exists(f"points/{self.id}"):
            return {}
        zh, en = (texts.texts(f"points/{self.id}", lang) for lang in LANGS)
        return {f"{POINT}{name}": point_of(zh[name], en[name]) for name in zh if name}

    def said(self, key: str) -> Pair:
        """The text of one of LEVELS or PARTS, or of a point."""
        return self.points[key].said if key.startswith(POINT) else texts.pair(f"topics/{self.id}", key)

    def phrases(self, lang: str) -> dict[str, str]:
        """Pieces of sentences by name: those that topics share, and its own."""
        return texts.named(texts.texts("tutor", lang)["phrases"]) | texts.named(self._text("phrases", lang))

    def headings(self, lang: str) -> dict[str, str]:
        """The headings of its grid that have words, by name."""
        return texts.named(self._text("grid", lang))

    def _text(self, key: str, lang: str) -> str:
        return texts.texts(f"topics/{self.id}", lang).get(key, "")


TOPICS: dict[str, Topic] = {}
"""All topics by id; filled when mingce.explain.topics is imported."""


def register(topic_id: str, numbers: Callable[[Rollout, int], Values] = nothing) -> Topic:
    """Adds a topic that has its texts, and a function if it needs numbers of its own."""
    TOPICS[topic_id] = Topic(topic_id, numbers)
    return TOPICS[topic_id]


def topic(numbers: Callable[[Rollout, int], Values]) -> Topic:
    """Decorates the function that computes a topic's numbers; its name is the topic's."""
    return register(numbers.__name__, numbers)


def values_of(topic: Topic, rollout: Rollout, t: int) -> Values:
    """Everything a text of the topic may name: settings, columns as lists, token t's account, the topic's own."""
    account, _ = token_values(rollout, t)
    columns = {name: listed(column) for name, column in rollout.columns.items()}
    chosen = reference.chosen(rollout.columns["response_mask"])
    texts = [token.text for token in rollout.tokens]
    common = {
        "prompt": rollout.prompt,
        "response": rollout.response,
        "tokens": " · ".join(texts[s] for s in chosen),
        "count_chosen": len(chosen),
        "last_token": texts[chosen[-1]],
        "last": chosen[-1],
    }
    return columns | account | common | topic.numbers(rollout, t)


def text_of(topic: Topic, rollout: Rollout, t: int, key: str, lang: str) -> str:
    """The topic's words at a level, or one of its parts, with the example's numbers."""
    words = topic.said(key)[0 if lang == "zh" else 1]
    values = values_of(topic, rollout, t)
    plain = key in ("child", "analogy")
    return substituted(_with_phrases(words, values, topic.phrases(lang)), values, plain=plain)


def _with_phrases(words: str, values: Values, phrases: dict[str, str]) -> str:
    def put(found: re.Match[str]) -> str:
        value = values.get(found[2])
        if not isinstance(value, Phrase):
            return found[0]
        return "" if value == SILENT else found[1] + phrases[value.name]

    return _PLACEHOLDER.sub(put, words)


def listed(column: Sequence[float | None]) -> str:
    """`[0.1, −0.2]`: a column as people write it; long ones keep both ends."""
    if len(column) <= 16:
        return f"[{', '.join(map(shown, column))}]"
    return f"[{', '.join([*map(shown, column[:8]), '…', *map(shown, column[-4:])])}]"
