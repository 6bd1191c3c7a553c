"""About the tutor itself: how a dialogue is kept, and what it cannot do."""

from __future__ import annotations

from mingce.explain.topic import register

register("save_dialogue")
register("pictures")
