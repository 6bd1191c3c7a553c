"""Regular expressions that stand in texts, those of both languages together."""

from __future__ import annotations

import re
from functools import cache

from mingce.base.lang import LANGS
from mingce.base.texts import listed, named, texts


@cache
def patterns(file: str, key: str) -> tuple[re.Pattern[str], ...]:
    """The patterns under a heading, one per line; `<term>` stands for a pattern of the file's list `terms`."""
    compiled = []
    for lang in LANGS:
        terms = named(texts(file, lang).get("terms", ""))
        for line in listed(texts(file, lang).get(key, "")):
            for name in [*terms, *terms]:  # a term may hold another
                line = line.replace(f"<{name}>", f"(?:{terms[name]})")
            compiled.append(re.compile(line, re.IGNORECASE))
    return tuple(compiled)


@cache
def alternatives(file: str, key: str) -> re.Pattern[str]:
    """All patterns under a heading as one."""
    return re.compile("|".join(pattern.pattern for pattern in patterns(file, key)), re.IGNORECASE)
