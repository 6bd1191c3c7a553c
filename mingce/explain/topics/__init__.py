"""All topics of the tutor. A file a theme."""

from __future__ import annotations

from mingce.explain.topic import Topic
from mingce.explain.topics import baselines, bootstrap, credit, critic, policy, states

TOPICS: dict[str, Topic] = {
    topic.id: topic for theme in (critic, bootstrap, states, credit, baselines, policy) for topic in theme.TOPICS
}  # fmt: skip
