"""About the tutor itself: how a dialogue is kept, and what it cannot do."""

from __future__ import annotations

from mingce.explain.topic import Topic

_SAVE = Topic(
    "save_dialogue",
    needs=(),
    code=("mingce.explain.dialogue.render", "mingce.explain.dialogue.parse", "mingce.base.atomic.atomic_write"),
    related=("pictures",),
)

_PICTURES = Topic(
    "pictures",
    needs=(),
    related=("cpi_objective", "ppo_clip", "save_dialogue"),
)

TOPICS: tuple[Topic, ...] = (_SAVE, _PICTURES)
