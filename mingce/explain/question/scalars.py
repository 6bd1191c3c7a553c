"""Single numbers in a question, such as "ratio 0.7, A = −2": what each is, by its name."""

from __future__ import annotations

import math
import re
from functools import cache

from mingce.base.lang import LANGS
from mingce.base.texts import named, texts

_NUMBER = r"([-−+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\d.]|\s*[,，]\s*[-−]?\d)"
_CHANCE = r"(?P<chance>\d*\.?\d+)\s*(?P<percent>%|percent)?(?![\d.]*\d)"
_IS = r"\s*(?:==?|＝|:|：|是|为|等于|is|was|of|at|equals?)?\s*"
_EVERYWHERE = re.compile(
    r"(?:critic|values?|价值|V)[^，。,.;?？]{0,16}?(?:全(?:部)?(?:都)?(?:是|为|输出|给)?|都(?:是|为|输出|给)|恒(?:为|等于)|处处(?:为|是)?|一律(?:是|为)?|"
    rf"outputs?|says?|returns?|predicts?|is|are|were|constant)\s*(?:constantly\s*|always\s*|all\s*)?{_NUMBER}"
    r"(\s*(?:everywhere|for every|for all|at every|always|constantly|on every))?",
    re.IGNORECASE,
)
_ALL_ZERO = re.compile(
    r"(?:critic|values?|价值|(?-i:\bV\b))[^，。,.;?？]{0,12}?(?:all zeros?|zero everywhere|always 0|全零|全 ?0|恒零)",
    re.IGNORECASE,
)
_FINAL_SCORE = re.compile(
    rf"(?:得分|分数|score|reward model|奖励模型|judged?)[^，。;?？]{{0,12}}?(?:是|为|改成|变成|给|to|is|was|of|=)?"
    rf"\s*{_NUMBER}\s*(?:分)?\s*(?:instead of|rather than|而不是|不是)\s*[\d.]+"
    rf"|(?:score|得分)\s*(?:是|为|改成|变成|改为|=|were|was|becomes|is|to)\s*{_NUMBER}",
    re.IGNORECASE,
)


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    zh, en = (named(texts("quantities", lang)["scalars"]) for lang in LANGS)
    return tuple(
        (name, re.compile(rf"(?:{zh[name]}|{en[name]}){_IS}{_NUMBER}", re.IGNORECASE | re.ASCII)) for name in en
    )


def read_scalars(text: str) -> dict[str, float]:
    """The single numbers that are given a name; lists are not read here."""
    scalars, text = _of_chances(text)
    for name, pattern in _patterns():
        if match := pattern.search(text):
            scalars[name] = _value(match[1])
            text = text[: match.start()] + " " + text[match.end() :]
    return scalars


def _of_chances(text: str) -> tuple[dict[str, float], str]:
    """The log-probs of probabilities that are given ("the reference gives it 40 %"), and the rest of the text."""
    found: dict[str, float] = {}
    zh, en = (named(texts("quantities", lang)["chances"]) for lang in LANGS)
    for name in en:
        match = re.search(rf"(?:{zh[name]}|{en[name]}){_IS}{_CHANCE}", text, re.IGNORECASE | re.ASCII)
        chance = _value(match["chance"]) / (100 if match["percent"] else 1) if match else 0.0
        if match and 0 < chance <= 1:
            found[name] = math.log(chance)
            text = text[: match.start()] + " " + text[match.end() :]
    return found, text


def read_flat_values(text: str) -> float | None:
    """The number a critic is said to give to every state."""
    if _ALL_ZERO.search(text):
        return 0.0
    match = _EVERYWHERE.search(text)
    if match is None or not (match[2] or re.search(r"全|都|恒|处处|一律|constant", match[0])):
        return None
    return _value(match[1])


def read_final_score(text: str) -> float | None:
    """The score an answer is supposed to get instead of its own."""
    match = _FINAL_SCORE.search(text)
    return None if match is None else _value(match[1] or match[2])


def _value(text: str) -> float:
    return float(text.replace("−", "-"))
