"""Answers put together from parts: which part of a topic a question asks for, and the derivations around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.columns import COLUMNS
from mingce.explain import example
from mingce.explain.account_texts import LEVELS
from mingce.explain.answer import Answer, part_text, topic_answer
from mingce.explain.derive import as_answer, derive
from mingce.explain.derive.table import quantities as quantities_of_rows
from mingce.explain.topic import ALONE, PARTS, POINT, Topic
from mingce.explain.topics import TOPICS
from mingce.record.rollout import Rollout

TOKEN_MEAN = "token-mean"
"""How losses of tokens are averaged by default."""
_PARTS_FOR = (
    ("proof", ("proof",)),
    ("analogy", ("analogy", "child")),
    ("child", ("child", "analogy")),
    ("lost", ("child", "analogy", "definition")),
    ("pitfall", ("pitfall", "limits")),
    ("limits", ("limits", "proof")),
    ("why", ("why", "proof")),
    ("summary", ("definition",)),
    ("engineer", ("engineer",)),
)
"""What each wish is answered with, the first that was not told yet."""
_DEEPER = ("why", "pitfall", "limits", "proof")
_ALL = ("engineer", "why", "pitfall", "limits", "analogy", "child", "proof", "definition")


@dataclass(frozen=True)
class Retelling:
    """How a subject is to be told: what is asked for, the last answer's key, whether the example or the token moved."""

    wants: frozenset[str]
    deeper: bool
    last: str
    moved: bool

    @property
    def asks(self) -> bool:
        """True if it asks for anything at all."""
        return bool(self.wants - {"what_if", "claim", "compare"}) or self.deeper or self.moved


def part_after(topic: Topic, wish: Retelling, was_told: Callable[[str], bool], first: str | None = None) -> str | None:
    """The key of the topic's text that answers the wish and was not told yet; None if there is none.

    `first` is told where a subject is named anew and nothing special is asked of it.
    """
    there = {*LEVELS, *topic.parts, *topic.points}
    keys: list[str] = []
    if wish.wants & {"english", "chinese"} or (wish.moved and not wish.wants & {"why", "proof", "child", "lost"}):
        keys += [wish.last, "engineer"] if wish.last.startswith(POINT) else [wish.last]
    for name, answers in _PARTS_FOR:
        if name in wish.wants:
            keys += answers
    if wish.deeper:
        keys += _DEEPER
    if "another" in wish.wants:
        keys.insert(0, "engineer")
    elif wish.wants & {"example", "how_much", "code"}:
        keys += ["engineer", wish.last]
    if first is not None:
        keys += [first, *_ALL]
    return next((key for key in keys if key in there and not was_told(key)), None)


def told(
    topic: Topic, rollout: Rollout, t: int | None, key: str, lang: str, mark: Callable[[str, str], bool]
) -> Answer:
    """The topic at a level, or one of its parts; a part that opens the subject is followed by the engineer's answer.

    `mark` notes what is told and says whether it was before.
    """
    related = [TOPICS[name] for name in topic.related]
    opens = key in PARTS or (key.startswith(POINT) and not key.startswith(ALONE))
    if not opens or mark(topic.id, "engineer"):
        return topic_answer(topic, rollout, t, key, lang, related)
    body = topic_answer(topic, rollout, t, "engineer", lang, related)
    part = topic_answer(topic, rollout, t, key, lang, related)
    return replace(body, text=f"{part.text}\n\n{body.text}", level=key)


def derived(
    rollout: Rollout, quantities: Sequence[str], t: int | None, lang: str, counted: int | None
) -> tuple[Answer | None, float | None]:
    """The derivations of one or more numbers at a token, or at every token; and the first one's result.

    Where the token was counted from 1, the index that may have been meant is told too.
    """
    derivations = [one for name in quantities if (one := derive(rollout, name, t, lang)) is not None]
    if not derivations:
        return None, None
    first = derivations[0]
    answer = joined([as_answer(one, rollout, lang) for one in derivations])
    if t is None and f"{first.quantity}/{TOKEN_MEAN}" in quantities_of_rows():
        mean = derive(rollout, f"{first.quantity}/{TOKEN_MEAN}", None, lang)
        answer = answer if mean is None else joined([answer, as_answer(mean, rollout, lang)])
    if counted is None or t is None:
        return answer, first.result
    token, at_index = rollout.tokens[t].text, None
    if counted < len(rollout.tokens) and rollout.columns["response_mask"][counted]:
        at_index = derive(rollout, first.quantity, counted, lang)
    if at_index is None or at_index.result is None:
        line = sentence("tutor.counted_plain", lang, count=counted, token=token, t=t)
    else:
        line = sentence("tutor.counted", lang, count=counted, token=token, t=t, other=shown(at_index.result))
    return replace(answer, text=f"{line}\n\n{answer.text}"), first.result


def joined(answers: Sequence[Answer], text_first: str | None = None) -> Answer:
    """Several answers as one: the first one's title, all texts and lines, and tables that are not the same.

    `text_first` is one of the texts, to stand in front.
    """
    answer = answers[0]
    for other in answers[1:]:
        lines = (*answer.lines, "", *filter(None, [other.formula]), *other.lines)
        code = tuple(dict.fromkeys((*answer.code, *other.code)))
        tables = tuple(dict.fromkeys((*answer.tables, *other.tables)))
        answer = replace(answer, text=f"{answer.text}\n\n{other.text}", lines=lines, code=code, tables=tables)
    if text_first is not None:
        answer = replace(answer, text=f"{text_first}\n\n{answer.text.replace(text_first, '').strip()}")
    return answer


def with_definition(answer: Answer, topic: str, lang: str) -> Answer:
    """The answer, and in a sentence what it is about."""
    if topic not in TOPICS or "definition" not in TOPICS[topic].parts:
        return answer
    definition = part_text(TOPICS[topic], example.worked(), 0, "definition", lang)
    title = TOPICS[topic].title[0 if lang == "zh" else 1]
    return replace(answer, text=f"{answer.text}\n\n{definition}", choices=((topic, title),))


def meaning(rollout: Rollout, names: Sequence[str], t: int, lang: str) -> Answer:
    """What columns are, by the column table, and how their numbers at token t come about."""
    columns = [COLUMNS[name] for name in names]
    said = [(one.zh, one.long_zh) if lang == "zh" else (one.en, one.long_en) for one in columns]
    text = "\n\n".join(f"`{one.symbol}` {short}\n\n{long}" for one, (short, long) in zip(columns, said, strict=True))
    answer, _ = derived(rollout, names, t, lang, None)
    if answer is None:
        return Answer(lang, text, title=", ".join(names))
    return replace(answer, text=f"{text}\n\n{answer.text}")


def account_of(rollout: Rollout, lang: str) -> Answer:
    """All that follows from the numbers at hand: the credit of every token, derived."""
    for quantity in ("advantages", "rewards", "kl", "ratio", "policy_loss"):
        derivation = derive(rollout, quantity, None, lang)
        if derivation is not None:
            return as_answer(derivation, rollout, lang)
    return Answer(lang, part_text(TOPICS["five_quantities"], rollout, 0, "definition", lang))
