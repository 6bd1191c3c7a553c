"""A summary: what was told in this dialogue, or a subject that is named, in a few sentences."""

from __future__ import annotations

import re
from dataclasses import replace

from mingce.base.texts import sentence
from mingce.columns import COLUMNS
from mingce.explain.answer import Answer, legible, part_text
from mingce.explain.conversation import Conversation, Turn
from mingce.explain.openings import without_verdict
from mingce.explain.steps.subject import leading
from mingce.explain.topic import POINT
from mingce.explain.topics import TOPICS

FEW, SHORT = 5, 2
"""So many things told last are summed up, each in a sentence; a subject that is named is told in so many."""
_SENTENCE = re.compile(r"(?<=[。？！])|(?<=[a-z\d)`*”\"][.?!])\s+(?=[A-Z`*“])")
_SHORTER = re.compile(r"短(?:一)?[点些]|简短|精简|\b(?:shorter|briefer|too long)\b", re.IGNORECASE)
"""Only the last thing is wanted again."""
_TOO_SHORT = 24
"""A sentence with fewer signs says nothing alone."""


def recap(talk: Conversation, turn: Turn) -> Answer | None:
    """What was told so far, a sentence each; of a question with a subject of its own that, in short."""
    if "summary" not in turn.wants:
        return None
    if not turn.request.vague:
        return _in_short(talk, turn)
    told = list(dict.fromkeys(reversed(talk.told)))[: 1 if _SHORTER.search(turn.request.text) else FEW]
    if not told:
        return None
    rollout, slot = legible(talk.rollout), talk.at()
    lines = []
    for topic, key in reversed(told):
        if not topic:
            if key in COLUMNS:
                column = COLUMNS[key]
                lines.append(f"- `{column.symbol}` {column.zh if talk.lang == 'zh' else column.en}")
            continue
        part = key if key.startswith(POINT) or "definition" not in TOPICS[topic].parts else "definition"
        text = without_verdict(part_text(TOPICS[topic], rollout, slot, part, talk.lang))
        lines.append(f"- **{talk.title(topic)}**{'：' if talk.lang == 'zh' else ': '}{first_sentences(text, 1)}")
    said = "\n".join(dict.fromkeys(lines))
    return Answer(talk.lang, f"{sentence('tutor.recap', talk.lang)}\n\n{said}", topic=talk.topic)


def _in_short(talk: Conversation, turn: Turn) -> Answer | None:
    found = leading(talk, turn)
    if not found:
        return None
    answer = talk.tell(*found[0], alone=True)
    return replace(answer, text=first_sentences(answer.text, SHORT), tables=(), lines=(), formula="")


def first_sentences(text: str, count: int) -> str:
    """So many sentences of a text's first paragraph."""
    parts = [part.strip() for part in _SENTENCE.split(text.partition("\n\n")[0]) if part.strip()]
    said = ""
    while parts and (count > 0 or len(said) < _TOO_SHORT):
        said += ("" if "。" in text or not said else " ") + parts.pop(0)
        count -= 1
    return said
