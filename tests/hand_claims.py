"""Texts about PPO written by hand, as blogs, language models and colleagues write them (hand_claims.md).

A text is headed `%%%% name`; ⟦wrong|right⟧ marks a place. `right_texts` fill in what is right everywhere, `wrong_texts`
one slip each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_TEXTS = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
_MARK = re.compile("⟦([^⟦⟧]*)\\|([^⟦⟧|]*)⟧")


def _texts() -> Iterator[tuple[str, str]]:
    for block in _TEXTS.split("%%%% ")[1:]:
        name, _, text = block.partition("\n")
        yield name.strip(), text.strip() + "\n"


def right_texts() -> dict[str, str]:
    """Every text with nothing wrong in it, by name."""
    return {name: _MARK.sub(r"\2", text) for name, text in _texts()}


def wrong_texts() -> dict[str, tuple[str, int]]:
    """Texts with one slip, and the line it is in; a text with two marks gives two."""
    found = {}
    for name, text in _texts():
        for n, mark in enumerate(_MARK.finditer(text)):
            before, after = _MARK.sub(r"\2", text[: mark.start()]), _MARK.sub(r"\2", text[mark.end() :])
            found[f"{name}.{n}"] = (before + mark[1] + after, before.count("\n") + 1)
    return found
