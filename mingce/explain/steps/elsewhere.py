"""After a subject: how a trainer does it, `verl 里怎么开`: of the points that speak of that trainer the nearest."""

from __future__ import annotations

import re

from mingce.explain.answer import Answer
from mingce.explain.conversation import Conversation, Turn
from mingce.explain.question.classifier import load
from mingce.explain.question.retrieval import LIGHT, WIDE, alike, subjects
from mingce.explain.topics import TOPICS

NEAR, AT_HAND, ITS_OWN, OPENS, EARLY = 0.12, 0.15, 0.15, 0.08, 40
"""How near a point's text must be to what was said last; what is added for the topic at hand, for a point that is about
this trainer, and for one that begins with it, within so many characters."""
TRAINERS = re.compile(r"(?<![A-Za-z])(?:verl|trl|open-?rlhf)(?![A-Za-z])", re.IGNORECASE)
_SETTING = re.compile(r"`[^`\n]*[a-z]_[a-z][^`\n]*`|`--[^`\n]+`|`[^`\n]+=[^`\n]+`")


def in_trainer(talk: Conversation, turn: Turn) -> Answer | None:
    """What was spoken of, in the trainer that a short question names."""
    named = TRAINERS.search(turn.request.text)
    if named is None or talk.topic is None or not turn.context or subjects(turn.request.subject) - WIDE - LIGHT:
        return None
    if turn.request.changes or turn.request.columns or turn.places:
        return None
    trainer = named[0].lower().replace("-", "")
    asked = load("points").vector(f"{talk.said_last} {turn.request.subject}")
    best: tuple[float, str, str] | None = None
    for topic in TOPICS.values():
        for key, point in topic.points.items():
            text = point.said[0 if talk.lang == "zh" else 1]
            if trainer not in text.lower() or not _SETTING.search(text) or talk.was_told(topic.id, key):
                continue
            phrases = " ".join((*point.asked[0][:3], *point.asked[1][:3]))
            near = alike(asked, load("points").vector(f"{phrases} {text}"))
            near += AT_HAND if topic.id == talk.topic else AT_HAND / 2 if topic.id in turn.at_hand else 0.0
            near += ITS_OWN if trainer in key else 0.0
            near += OPENS if trainer in text[:EARLY].lower() else 0.0
            if best is None or near > best[0]:
                best = near, topic.id, key
    if best is None or best[0] < NEAR:
        return None
    return talk.tell(best[1], best[2], alone=True)
