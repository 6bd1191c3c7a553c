"""Single numbers in a question, such as "ratio 0.7, A = −2": what each is, by its name."""

from __future__ import annotations

import math
import re
from functools import cache

from mingce.base.lang import LANGS
from mingce.base.texts import named, texts
from mingce.explain.patterns import becoming

_NUMBER = r"([-−+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?!\d|\.\d|\s*[,，]\s*[-−]?\d)"
_CHANCE = r"(?P<chance>\d*\.?\d+)\s*(?P<percent>%|percent)?(?![\d.]*\d)"
_IS = (
    r"\s*(?:==?|＝|:|：|要是|如果是|换成|改成|变成|是|为|等于|取|涨到了?|升到了?|降到了?|到了|"
    r"\b(?:is|was|of|at|equals?|now|(?:went|goes|is|gone) (?:up |down )?to|"
    r"(?:rose|fell|dropped|grew|has grown|jumped) to)\b)?\s*"
)
_EVERYWHERE = re.compile(
    r"(?:critic|values?|价值|V)[^，。,.;?？]{0,16}?(?:全(?:部)?(?:都)?(?:是|为|输出|给)?|都(?:是|为|值|输出|给)|恒(?:为|等于)|处处(?:为|是)?|一律(?:是|为)?|"
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
_RANGE = re.compile(
    r"(?:clip\w*|裁剪?|截断)[^，。,.;?？\d−-]{0,16}?[\[(（]?\s*(0?\.\d+)\s*(?:,|，|、|到|至|~|～|-|–|\bto\b|\band\b)\s*(1\.\d+)",
    re.IGNORECASE,
)
_DUAL = re.compile(r"dual[- _]?clip|双(?:重|侧)?\s*(?:裁剪|clip)", re.IGNORECASE)
DUAL_CLIP = 3.0
"""The usual c of the dual clip (the default of verl's `clip_ratio_c`), where it is named without a number."""
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
_CHANCE_CHANGE = re.compile(
    r"(?:\bprob(?:ability|s)?\b|(?<!对数)概率|\bp\b)[^，。,.;?？\d−-]{0,20}?(?:从|由|原来(?:是)?|采样时(?:是)?|\bfrom|\bwas|本来(?:是)?)\s*"
    r"(?P<before>\d*\.?\d+)\s*%?(?:\s*(?:[变升涨降跌掉增减跳提]?[成到为至高]+|\bto\b)\s*|"
    r"[^\d;；?？]{0,28}?(?:现在(?:是)?|如今|更新后(?:是)?|\bnow\b)[^\d;；?？]{0,8}?)(?P<after>\d*\.?\d+)\s*(?P<percent>%)?",
    re.IGNORECASE,
)
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
_LAST_TOKEN = (
    r"(?:at the (?:very )?end|for the whole \w+|"
    r"(?:on|at|for|of) the (?:very )?(?:last|final)(?: token| step| position)?)"
)
_JUDGE = r"(?:reward[ _-]?model|verifier|judge|grader|scorer|reward function|(?-i:\bRM\b))"
_FINAL_REWARDS = tuple(
    re.compile(one.replace("<n>", rf"(?<!第)(?<!第 )(?<![\d.A-Za-z_]){_NUMBER}"), re.IGNORECASE)
    for one in (
        r"(?:\b(?:final|last|terminal|only|single)(?: token)?(?:'s)? (?:reward|score)|"
        r"最(?:后|终)(?:的|一个|一步| ?token ?){0,3}(?:奖励|得分|分数)|末尾(?:的)?(?:奖励|得分))"
        r"\s*(?:是|为|改成|变成|改为|给|=|:|：|\b(?:is|was|were|of|becomes|to|being|a)\b)*\s*<n>",
        rf"\b{_JUDGE}\b[^\d.;?，。]{{0,12}}?\b(?:says?|said|gives?|gave|scores?|scored|returns?|returned|outputs?|assigns?|"
        r"assigned|puts?|awards?|awarded)\b[^\d.;?，。−-]{0,24}?<n>",
        r"(?:奖励模型|打分模型|判分器|打分器|裁判|\b(?:RM|reward model|verifier)\b)[^\d。；;?？，−-]{0,10}?"
        r"(?:给|打|判|评|输出|说|得分|分数)[^\d。；;?？，−-]{0,8}?<n>",
        rf"\b(?:reward|score)[^\d.;?]{{0,16}}?\b{_LAST_TOKEN}[^\d.;?−-]{{0,16}}?<n>",
        rf"\b(?:reward|score|pays?|paid)\b[^\d.;?,，−-]{{0,16}}?<n>\s*{_LAST_TOKEN}",
        r"\bonly the (?:last|final)(?: token| step)?[^\d.;?−-]{0,30}?\b(?:reward|score)[^\d.;?−-]{0,20}?<n>",
        r"(?:只有|仅)?(?:在)?(?:最后|末尾|最终|结尾|句末)(?:的|一个|一步|那个|处|位置|那?个?\s?token\s?){0,3}(?:才|上)?"
        r"(?:有|给|得|拿|打|获得|收到)了?(?:到|一个)?\s*(?:奖励|得分|分数)?\s*(?:是|为|=|:|：)?\s*<n>",
        r"(?:整条|整个|全句|整句)(?:回答|答案|回复)?[^\d。；;?？，−-]{0,6}?(?:得分?|打分?|给|拿|评)了?\s*(?:是|为|到)?\s*<n>",
        r"(?:奖励|得分|分数)[^\d。；;?？−-]{0,6}(?:只有|仅)?(?:在)?最后(?:的|一个|一步|那个|\s?token\s?){1,3}(?:上)?\s*(?:是|为|=|:|：)\s*<n>"
        r"(?=[^。；;]{0,8}(?:其余|其他|其它|别的|前面|都是|均为|全))",
        rf"\b(?:reward|score)s?\b[^\d.;?,，−-]{{0,16}}?<n>\s*(?:only )?{_LAST_TOKEN}",
        r"\bexcept (?:for |at |on )?(?:the )?(?:very )?(?:last|final)(?: one| token| step)?[^\d.;?−-]{0,24}?<n>",
        r"除了?(?:最后|末尾)(?:一个|一步)?\s*(?:token)?\s*(?:的?奖励)?(?:是|为|有|得|给)\s*<n>",
        r"\b(?:answer|response|completion|whole answer|it) (?:as a whole )?(?:is |was |got |gets )?(?:scored?|scores|"
        r"a (?:reward|score) of)\s*<n>",
    )
)
"""The one score of an answer, in the ways it is said."""


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    zh, en = (named(texts("quantities", lang)["scalars"]) for lang in LANGS)
    return tuple(
        (name, re.compile(rf"(?:{zh[name]}|{en[name]}){_IS}{_NUMBER}", re.IGNORECASE | re.ASCII)) for name in en
    )


def read_scalars(text: str) -> dict[str, float]:
    """The single numbers that are given a name; lists are not read here."""
    whole = text
    changed, text = _of_changes(text)
    text = becoming(text)
    bounds, text = _of_bounds(text)
    chances, text = _of_chances(text)
    scalars = {**chances, **changed, **bounds}
    for name, pattern in _patterns():
        if match := pattern.search(text):
            scalars[name] = _value(match[1])
            text = text[: match.start()] + " " + text[match.end() :]
    if not {"scores", "rewards"} & set(scalars) and {"kl", "ref_log_probs"} & set(scalars):
        score = read_final_reward(whole)
        scalars |= {} if score is None else {"scores": score}
    if "dual_clip" not in scalars and {"ratio", "advantages"} <= set(scalars) and _DUAL.search(text):
        scalars["dual_clip"] = DUAL_CLIP
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
    if match := _CHANCE_CHANGE.search(text):
        old, new = (_value(match[k]) / (100 if match["percent"] else 1) for k in ("before", "after"))
        if 0 < old <= 1 and 0 < new <= 1:
            found |= {"old_log_probs": math.log(old), "new_log_probs": math.log(new)}
            text = text[: match.start()] + " " + text[match.end() :]
    for sign, words in _LIKELIER:
        if match := re.search(words, text, re.IGNORECASE):
            found["ratio"] = 1 + sign * _value(match[1] or match[2]) / 100
    if match := _TIMES.search(text):
        found["ratio"] = _value(match[1] or match[2])
    elif _TWICE.search(text):
        found["ratio"] = 2.0
    return found, text


def _of_bounds(text: str) -> tuple[dict[str, float], str]:
    """How far below and above 1 a ratio is clipped, where the range itself is given; and the rest of the text."""
    match = _RANGE.search(text)
    low, high = (_value(match[1]), _value(match[2])) if match else (1.0, 1.0)
    if match is None or not 0 <= low < 1 < high:
        return {}, text
    found = {"clip_low": round(1 - low, 12), "clip_high": round(high - 1, 12)}
    return found, text[: match.start()] + " " + text[match.end() :]


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
    said = {match[1] for pattern in _FINAL_REWARDS for match in pattern.finditer(text)}
    return _value(said.pop()) if len(said) == 1 else None


def _value(text: str) -> float:
    return float(text.replace("−", "-"))
