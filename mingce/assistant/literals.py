"""Numbers as a text writes them: digits with signs, powers and percents; characters such as ½; and numbers in words."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

NOISE = 1e-9
_SUPER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_EXPONENT = re.compile(r"[-+]?\d+(?=[\s}]*$)")
_NUMBER = re.compile(
    r"""(?P<sign>(?<![\w)\]}%.])[-−–+]
            |(?:(?<=\bis\ )|(?<=\bof\ )|(?<=\bas\ )|(?<=[=≈:]\ )|(?<=[=≈:]))(?:minus|negative)\ |负的?\ ?)?
        (?P<digits>\d+(?:\.\d+)?|(?<!\w)\.\d+)
        (?P<power>[eE][-−+]?\d{1,3}(?!\w)
            |\s?(?:[×x*·⋅]|\\times|\\cdot)\s?10\s?(?:\^\s?\{?\s?[-−+]?\d{1,3}\s?\}?|\*\*\s?[-−]?\d{1,3}|[⁻⁺]?[⁰¹²³⁴-⁹]{1,3}))?
        (?P<percent>\s?(?:\\?%|percent\b|per\ cent\b|个百分点))?""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Literal:
    """A number at text[start:end]; `decimals` digits are shown after the point, `unit` is one of the last digit."""

    start: int
    end: int
    value: float
    decimals: int = 0
    unit: float = 0.0
    percent: bool = False
    plain: bool = True
    """Written in digits, so that indices and list markers may look like it."""

    @property
    def tolerance(self) -> float:
        """How far the number it stands for may be away: half a unit; whole numbers are exact."""
        half = self.unit / 2 if self.decimals or self.percent or self.unit > 1 else 0.0
        return half + NOISE * max(1.0, abs(self.value))


def literals(text: str) -> list[Literal]:
    """Every number in digits, and every other character that stands for a number."""
    found = [_literal(match) for match in _NUMBER.finditer(text)]
    taken = {at for one in found for at in range(one.start, one.end)}
    for at, letter in enumerate(text):
        if at not in taken and unicodedata.category(letter) in ("No", "Nl") and not _is_exponent(text, at):
            found.append(Literal(at, at + 1, unicodedata.numeric(letter, math.nan), plain=False))
    return sorted(found, key=lambda one: one.start)


def _literal(match: re.Match[str]) -> Literal:
    digits, power = match["digits"], match["power"]
    decimals = len(digits.partition(".")[2])
    exponent = 0
    if power is not None:
        exponent = int(_EXPONENT.search(power.translate(_SUPER).replace("−", "-"))[0])  # type: ignore[index]
    scale = 10.0**exponent
    value = float(digits) * scale * (-1 if (match["sign"] or "+") != "+" else 1)
    shown = decimals or (1 if power else 0)
    goes_on = match.end() < len(match.string) and unicodedata.category(match.string[match.end()]) in ("Mn", "Me")
    value = math.nan if goes_on else value  # a period marked by a bar, digits struck out
    return Literal(match.start(), match.end(), value, shown, 10.0**-decimals * scale, match["percent"] is not None)


def _is_exponent(text: str, at: int) -> bool:
    """σ², (γλ)²: the number of a formula, not of an example."""
    before = text[at - 1] if at else " "
    if unicodedata.category(before) in ("No", "Nl", "Sk") or before == "⁻":
        return at > 1 and _is_exponent(text, at - 1)
    return "SUPERSCRIPT" in unicodedata.name(text[at], "") and (before.isalpha() or before in ")]}")


# ── in words ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
         "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ALIASES = {"nought": "zero", "naught": "zero", "oh": "zero", "nil": "zero"}
_VALUES = {word: k for k, word in enumerate(_ONES)} | {word: 10 * k for k, word in enumerate(_TENS, 2)}
_VALUES |= {word: _VALUES[same] for word, same in _ALIASES.items()}
_WORD = "|".join(sorted(_VALUES, key=len, reverse=True))
_CARDINAL = rf"(?:{_WORD}|hundred|thousand|million)(?:[ -](?:and\ )?(?:{_WORD}|hundred|thousand|million)){{0,12}}"
_DIGIT = "|".join((*_ONES[:10], *_ALIASES))
_ENGLISH = re.compile(
    rf"""(?P<sign>\b(?:minus|negative)\ )?\b(?:
        (?P<decimal>(?:(?:{_CARDINAL})\ )?point(?:[ -](?:{_DIGIT}))+)
        |(?P<share>(?:(?:{_DIGIT}|an?)[ -])(?:thirds?|quarters?|fourths?|fifths?|sixths?|sevenths?|eighths?|ninths?
            |tenths?|hundredths?|thousandths?)|(?:(?:one|a)[ -])?half|twice|thrice|(?:{_CARDINAL})\ times
            |(?:two|three|four|five|six|ten|hundred)-?fold|doubled|tripled|quadrupled|halved)
        |(?P<cardinal>{_CARDINAL})(?P<percent>\ per\ ?cent)?)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_CHINESE_DIGITS = "零〇一二两三四五六七八九"
_FORMAL = str.maketrans("壹贰貳叁參肆伍陆陸柒捌玖拾佰仟兩點負", "一二二三三四五六六七八九十百千两点负")
_CHINESE = re.compile(
    rf"""(?P<sign>负的?)?(?:
        (?P<decimal>[{_CHINESE_DIGITS}十百千]{{1,20}}[点.·][{_CHINESE_DIGITS}]{{1,20}})
        |(?P<share>百分之[{_CHINESE_DIGITS}十百点]{{1,20}}|[{_CHINESE_DIGITS}十百千]{{1,20}}分之[{_CHINESE_DIGITS}十百千]{{1,20}}|一半|[{_CHINESE_DIGITS}]成[{_CHINESE_DIGITS}半]?
            |[{_CHINESE_DIGITS}十百]{{1,20}}倍)
        |(?P<cardinal>[一二两三四五六七八九][十百千][{_CHINESE_DIGITS}十百千万]{{0,20}}|十[一二三四五六七八九]|[{_CHINESE_DIGITS}十]))""",
    re.VERBOSE,
)
_IS = re.compile(
    r"(?:[=＝≈:：]|\b(?:is|are|was|be|equals?|equal to|exactly|about)|等于|约为|就是|为|是|得)\s*$", re.IGNORECASE
)
_CLAUSE_ENDS = re.compile(r"\s*(?:$|[\n,.;:!?)，。；：！？）、*`|])")


def spelled(text: str) -> Iterator[Literal]:
    """Numbers in words. One to ten count as such where something is said to be them: `the reward is five.`"""
    text = text.translate(_FORMAL)
    for pattern, read in ((_ENGLISH, _english), (_CHINESE, _chinese)):
        for match in pattern.finditer(text):
            small = (
                match["cardinal"] is not None and not match.groupdict().get("percent") and _is_small(match["cardinal"])
            )
            if small and not (
                _IS.search(text, max(0, match.start() - 12), match.start()) and _CLAUSE_ENDS.match(text, match.end())
            ):
                continue
            value, decimals = read(match)
            yield Literal(match.start(), match.end(), value, decimals, 10.0**-decimals, _percent(match), plain=False)


def _is_small(words: str) -> bool:
    return words.lower() in _ONES[:11] or len(words) == 1


def _percent(match: re.Match[str]) -> bool:
    return bool(match.groupdict().get("percent")) or (match["share"] or "").startswith("百分之")


def _english(match: re.Match[str]) -> tuple[float, int]:
    sign = -1 if match["sign"] else 1
    if match["decimal"]:
        whole, _, rest = match["decimal"].lower().partition("point")
        digits = "".join(str(_VALUES[word]) for word in re.split(r"[ -]", rest.strip(" -")))
        return sign * float(f"{_cardinal(whole.strip()):.0f}.{digits}"), len(digits)
    if match["cardinal"]:
        return sign * _cardinal(match["cardinal"].lower()), 0
    return math.nan, 0  # shares and multiples: of what, only the reader knows


def _cardinal(words: str) -> float:
    total, current = 0.0, 0.0
    for word in re.split(r"[ -]", words):
        if word in _VALUES:
            current += _VALUES[word]
        elif word == "hundred":
            current = (current or 1) * 100
        elif word in ("thousand", "million"):
            total, current = total + (current or 1) * (1000 if word == "thousand" else 1_000_000), 0.0
    return total + current


def _chinese(match: re.Match[str]) -> tuple[float, int]:
    sign = -1 if match["sign"] else 1
    words = match["decimal"] or match["cardinal"] or ""
    share = match["share"] or ""
    if share.startswith("百分之"):
        words = share.removeprefix("百分之")
    if not words:
        return math.nan, 0
    whole, _, rest = re.sub(r"[.·]", "点", words).partition("点")
    digits = "".join(str(_chinese_digit(one)) for one in rest if one in _CHINESE_DIGITS)
    return sign * float(f"{_chinese_whole(whole)}.{digits or '0'}"), len(digits)


def _chinese_digit(letter: str) -> int:
    return 2 if letter == "两" else max(0, "零一二三四五六七八九".find(letter))


def _chinese_whole(words: str) -> int:
    total, digit = 0, 0
    for letter in words:
        if letter in "十百千":
            total, digit = total + (digit or 1) * {"十": 10, "百": 100, "千": 1000}[letter], 0
        elif letter == "万":
            total, digit = (total + digit) * 10_000, 0
        else:
            digit = _chinese_digit(letter)
    return total + digit
