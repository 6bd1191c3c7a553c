"""Finding the answer inside a response: where a marker says it is, and numbers in it as exact fractions."""

from __future__ import annotations

import re
from fractions import Fraction

NUMBER = re.compile(
    r"""(?P<sign>(?<![\w)\]}]) [-+]\s* )?  \$?\s*                 # a minus after a digit or bracket is a subtraction
        (?P<after_dollar> (?<=\$)- )?
        (?P<whole> \d{1,3}(?:,\d{3})+(?![\d]) | \d+ )? (?P<decimals> (?<=\d)\.\d+ | (?<![\d.])\.\d+ )?
        (?:\s*/\s* (?P<below> \d+(?![\d.]) ))?""",
    re.VERBOSE | re.ASCII,
)
ASCII = {0xFF01 + at: 0x21 + at for at in range(94)} | {0x2212: "-", 0x2013: "-", 0x2044: "/"}
LONGEST = 100
"""Digits of a number that are read; what is longer is no answer, and reading it could take for ever."""

BRACES = re.compile(r"\\boxed\s*\{|[{}]")


def plain(text: str) -> str:
    """The text with full-width characters and typographic minus and fraction signs as ASCII has them."""
    return text.translate(ASCII)


def numbers(text: str) -> list[Fraction]:
    """Every number of the text in order, `$1,234.50` as 2469/2, `3/4` as one number, units and percent signs apart."""
    values = []
    for match in NUMBER.finditer(plain(text)):
        whole, decimals, below = match["whole"], match["decimals"], match["below"]
        if whole is None and decimals is None:
            continue
        value = Fraction((whole or "0").replace(",", "")[:LONGEST] + (decimals or "")[:LONGEST])
        if below is not None and int(below[:LONGEST]) != 0:
            value /= int(below[:LONGEST])
        negative = "-" in (match["sign"] or "") or match["after_dollar"] is not None
        values.append(-value if negative else value)
    return values


def after_last(text: str, marker: str) -> str | None:
    """What follows the last occurrence of the marker, in whatever case it is written; None if it does not occur."""
    at = text.lower().rfind(marker.lower())
    return None if at < 0 else text[at + len(marker) :].strip()


def last_boxed(text: str) -> str | None:
    r"""What stands in the braces of the last closed `\boxed{...}`; None if there is none."""
    opened: list[int | None] = []  # where the content of an open box begins; None for other braces
    last: tuple[int, int] | None = None
    for brace in BRACES.finditer(text):
        if brace.group() != "}":
            opened.append(brace.end() if len(brace.group()) > 1 else None)
        elif opened and (start := opened.pop()) is not None:
            last = max(last or (start, brace.start()), (start, brace.start()))
    return None if last is None else text[last[0] : last[1]].strip()
