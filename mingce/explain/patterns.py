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


_BECOMES = re.compile(
    r"\s*(?:改成|改为|换成|变成|变为|设成|设为|调成|调到|"
    r"\b(?:(?:is |was )?(?:changed|set) to|becomes|goes to|were)\b)\s*"
    r"(?=[\d.−-])"
)


def becoming(text: str) -> str:
    """`A 换成 −2`, "the advantage becomes −2" as `A = −2`."""
    return _BECOMES.sub(" = ", text)


LONGEST_WORD, REPEATED = 200, 40
_WORD = re.compile(rf"[^\W一-鿿]{{{LONGEST_WORD + 1},}}")
_AGAIN = re.compile(rf"([^\d\s,，.;]{{1,12}}?)\1{{{REPEATED},}}")


def within_reason(text: str) -> str:
    """The text with words and repetitions of no sensible length cut, over which patterns would take minutes.

    Rows of numbers stay whole.
    """
    return _WORD.sub(lambda word: word[0][:LONGEST_WORD], _AGAIN.sub(lambda found: found[1] * REPEATED, text))
