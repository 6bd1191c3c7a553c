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
_FIGURE = r"([-−]?(?:\d+\.?\d*|\.\d+))"
_TO = r"\s*(?:[变升涨降跌掉增减跳]?[成到为]|\bto\b)\s*"
_CHANGE = rf"[^，。,.;?？\d−-]{{0,14}}?(?:从|\bfrom)\s*{_FIGURE}{_TO}{_FIGURE}(?!\s*%)"
_CHANGES = (
    (("old_log_probs", "new_log_probs"), re.compile(rf"(?:log[ _-]?p(?:rob)?s?\b|对数概率){_CHANGE}", re.IGNORECASE)),
    (
        ("values", "next_values"),
        re.compile(rf"(?:(?-i:\bV(?:\(s\))?)(?![A-Za-z])|\bvalue\b|价值){_CHANGE}", re.IGNORECASE),
    ),
)
"""What goes from one number to another: a log-prob in an update, a value over a step."""
_PART = r"(?<![\d.])(\d{1,6}(?:\.\d{1,6})?)\s*"
_CHANCE_BY = r"概率[^，。,;?？\d]{0,6}?"
_LIKELIER = (
    (
        1,
        rf"{_PART}(?:%|percent) (?:more likely|more probable|likelier)"
        rf"|{_CHANCE_BY}(?:提高|增加|上升|升高|涨)了?\s*{_PART}%",
    ),
    (-1, rf"{_PART}(?:%|percent) less (?:likely|probable)|{_CHANCE_BY}(?:降低|减少|下降|跌|降)了?\s*{_PART}%"),
)
_TIMES = re.compile(rf"{_PART}(?:times|x) (?:as|more) likely|{_CHANCE_BY}{_PART}倍", re.IGNORECASE)
_TWICE = re.compile(r"\btwice as likely|概率[^，。,;?？]{0,4}(?:翻倍|翻了一倍)", re.IGNORECASE)
_FINAL_REWARD = re.compile(
    r"(?:\b(?:final|last|terminal)(?: token)?(?:'s)? (?:reward|score)|"
    r"最(?:后|终)(?:的|一个|一步| ?token ?){0,3}(?:奖励|得分|分数)|末尾(?:的)?(?:奖励|得分))"
    rf"\s*(?:是|为|改成|变成|改为|给|=|:|：|\b(?:is|was|were|of|becomes|to|being)\b)*\s*{_NUMBER}",
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
    changed, text = _of_changes(text)
    chances, text = _of_chances(text)
    scalars = {**chances, **changed}
    for name, pattern in _patterns():
        if match := pattern.search(text):
            scalars[name] = _value(match[1])
            text = text[: match.start()] + " " + text[match.end() :]
    if "next_values" in changed and len({"rewards", "scores"} & set(scalars)) == 0:
        scalars["rewards"] = 0.0  # a step that is said to earn nothing, or of which nothing is said
    return scalars


def _of_changes(text: str) -> tuple[dict[str, float], str]:
    """What goes from a number to another, how much likelier a token became; and the rest of the text."""
    found: dict[str, float] = {}
    for (before, after), pattern in _CHANGES:
        if match := pattern.search(text):
            found |= {before: _value(match[1]), after: _value(match[2])}
            text = text[: match.start()] + " " + text[match.end() :]
    for sign, words in _LIKELIER:
        if match := re.search(words, text, re.IGNORECASE):
            found["ratio"] = 1 + sign * _value(match[1] or match[2]) / 100
    if match := _TIMES.search(text):
        found["ratio"] = _value(match[1] or match[2])
    elif _TWICE.search(text):
        found["ratio"] = 2.0
    return found, text


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
    if match is None:
        return read_final_reward(text)
    return None if match is None else _value(match[1] or match[2])


def read_final_reward(text: str) -> float | None:
    """The only reward of an answer, said to come at its end."""
    match = _FINAL_REWARD.search(text)
    return None if match is None else _value(match[1])


def _value(text: str) -> float:
    return float(text.replace("−", "-"))
