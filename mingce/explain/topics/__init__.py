"""All topics of the tutor, a file per theme. A new topic is a Markdown file per language and one function here."""

from __future__ import annotations

from mingce.explain.topic import TOPICS

from mingce.explain.topics import critic, bootstrap, states, credit, baselines  # isort: skip
from mingce.explain.topics import overview, surrogate, kl, averages, tutor  # isort: skip
from mingce.explain.topics import practice, updates, decisions, methods, bounds, payment  # isort: skip

__all__ = ["TOPICS", "averages", "baselines", "bootstrap", "bounds", "credit", "critic", "decisions", "kl", "methods",
           "overview", "payment", "practice", "states", "surrogate", "tutor", "updates"]  # fmt: skip
