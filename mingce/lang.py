"""Two languages, equally good: a sentence is written in both where it is said."""

from __future__ import annotations


def say(lang: str, zh: str, en: str) -> str:
    """The sentence in the person's language."""
    return zh if lang == "zh" else en
