"""What prose says in numbers: "λ 取 0.95", "every KL is 0.1", "token 3: +0.33 (90% of the last reward)"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mingce.explain.claims.chains import Chain, chains
from mingce.explain.claims.expressions import Call, Listing, Number, symbols
from mingce.explain.claims.names import label_kind
from mingce.explain.claims.quantities import Equation, Fact, Row, Scalar, Setting, Settings, Share, Where
from mingce.explain.claims.reading import Statement

_NUM = r"(\d+(?:\.\d+)?|\.\d+)"
_GAMMA = r"(?:γ|gamma|discount(?: factor)?|折扣(?:因子|率)?)"
_LAM = r"(?:λ|lambda|lam|gae_lambda)"
_BETA = r"(?:β|beta|kl_coef)"
_IS = r"\s{0,3}(?:取值?|设为|设成|为|是|等于|of|is|at|to|=)?\s{0,3}(?:=\s{0,2})?"
_AND = r"\s{0,2}(?:and|和|与|、|,|，|/)\s{0,2}"
_STATED = tuple(
    (name, re.compile(rf"(?<![A-Za-z_]){word}{_IS}{_NUM}(?![0-9]*[A-Za-z_])", re.I))
    for name, word in (("gamma", _GAMMA), ("lam", _LAM), ("beta", _BETA))
)
_BOTH = re.compile(
    rf"\(?{_GAMMA}{_AND}{_LAM}\)?\s{{0,2}}(?:are|were|=|:|为|是|取|分别为|分别是|分别取)\s{{0,2}}\(?{_NUM}{_AND}{_NUM}",
    re.I,
)
_SETTING_WORD = re.compile(r"[γλβ折]|gamma|lam|beta|discount|kl_coef", re.I)
_EVERY_KL = re.compile(
    r"(?:每|各|均|every|each|all|per)[^\n\[\]]{0,24}KL[^\n\[\]0-9=]{0,16}(?:约为|为|是|≈|=|is|of)"
    rf"\s{{0,2}}(?:about\s|约\s{{0,2}})?{_NUM}",
    re.I,
)
_AFTER = re.compile(
    r"(?:value (?:after|behind|beyond|past) the (?:last|final) (?:token|state|step)"
    r"|bootstrap(?:ped|_value)?(?: value)?(?: with)?|自举(?:的)?(?:值|价值)"
    r"|(?:最后一个 ?token|末尾|结尾|末端)\s?(?:之后|以后)?(?:的)?(?:价值|估值))"
    rf"(?: is| of|为|是|取|:| =)?\s{{0,2}}(-?{_NUM[1:-1]})(?![0-9]*[A-Za-z_])",
    re.I,
)
_BASE = re.compile(
    r"(?:下标|编号|索引|计数|位置)[^，。\n]{0,6}从\s?([01])(?![.\d])|从\s?([01])\s?(?:数起|计数|编号)"
    r"|(?<![.\d])([01])[- ](?:based|indexed)"
    r"|(?:count(?:ing|ed|s)?|index(?:ed|ing|es)?|indices|number(?:ed|ing))\s"
    r"(?:starts?\s|starting\s)?(?:from|at)\s([01])(?![.\d])",
    re.I,
)
_ENDED = re.compile(r"\bzero\b|当作?终止|不自举|without (?:the )?bootstrap|as if it had ended", re.I)
_ORDINALS = {
    **{word: n for n, word in enumerate(("first", "second", "third", "fourth", "fifth", "sixth"))},
    **dict.fromkeys(("last", "final", "最后一个"), -1), "首个": 0, "第一个": 0,
}  # fmt: skip
_OF_TOKEN = re.compile(
    r"(?P<en>advantage|return|TD error|delta|value|reward)s? (?:of|for|at) (?:the )?"
    r"(?:(?P<nth>first|second|third|fourth|fifth|sixth|last|final) (?:token|step|action|position)"
    r"|(?:token|step) (?P<n>\d{1,3}))"
    rf" (?:is|=|≈|equals|comes (?:out )?(?:to|as|at)|was)(?: about| roughly| only| just)? (?P<x>-?(?:{_NUM[1:-1]}))"
    r"|(?:第\s?(?P<zh_n>\d{1,3})\s?个\s?|(?P<zh_nth>最后一个|首个|第一个)\s?)(?:token|词)\s?的\s?"
    rf"(?P<zh>优势|回报|TD ?误差|价值|奖励)\s?(?:大?约?[为是]|等于|=|≈)\s?(?P<y>-?(?:{_NUM[1:-1]}))",
    re.I,
)
_SENTENCE = re.compile(r"[^。；;!！？]+")
_ONE_SLOT = re.compile(
    r"(?<![A-Za-z_])t\s{0,2}=\s{0,2}(?P<t>\d{1,3})(?![\d.])|第\s{0,2}(?P<zh>\d{1,3})\s{0,2}步"
    r"|(?<![A-Za-z])(?:token|position)\s#?(?P<n>\d{1,3})(?![\d.%])"
    r"|(?P<nth>最后一个|首个|第一个|first|second|third|fourth|fifth|sixth|last|final)\s?(?:token|step|词)(?![A-Za-z])",
    re.I,
)
_SAID_THERE = re.compile(
    r"(?P<kind>TD ?误差|优势|回报|价值|\b(?:TD error|delta|advantage|return|value)\b)\s?(?:值|目标)?(?:[^\W\d]{0,2}"
    rf"(?:大?约?[为是]|等于)|\s?(?:is|was|equals|of|=|≈|:)(?: about| roughly)?)\s?(?P<x>-?(?:{_NUM[1:-1]}))"
    r"(?!\s?[-+*/×·=≈%^]|\.?\d|[,，、]\s?-?\d)",
    re.I,
)
_OTHER_CASE = re.compile(
    r"λ|γ|lam|gamma|TD\(|蒙特卡洛|monte|MC\b|白化|whiten|normali|如果|假如|若|\bif\b|之和|总和|平均|均值|\bsums?\b"
    r"|\bmeans?\b|average|变化|(?<!误)差|上一|下一|前一|(?<!最)后一|next|previous|earlier|训练|之后|以后|另一|其他|真实|实际|"
    r"\b(?:training|epochs?|after|another|other|actual(?:ly)?|observed)\b|[A-Za-z]_\{?\d|\[",
    re.I,
)
_SLOT = re.compile(
    r"^\W{0,6}(?:(?:在|at|for|step|第)\s{0,2})?"
    r"(?:t\s{0,2}=\s{0,2}(\d{1,4})|第\s{0,2}(\d{1,4})\s{0,2}(?:步|个)|step\s(\d{1,4})|token\s(\d{1,4}))",
    re.I,
)
_ALLOTTED = re.compile(
    r"(?:第\s{0,2}(\d{1,4})\s{0,2}个\s{0,2}(?:token|词)|token\s{0,2}(\d{1,4}))"
    r"[^0-9+\-=\n:]{0,24}[:=为是]\s{0,3}([+-]?\d{0,3}\.\d+)",
    re.I,
)
_CREDIT = re.compile(r"信用|优势|advantage|credit|GAE", re.I)
_OTHER_SHARING = re.compile(r"其他|另一|平均|只给|注意力|均分|uniform|other|even|last few|attention", re.I)
_SHARE = re.compile(
    r"(\d{1,3}(?:\.\d+)?)\s?%\s{0,2}(?:的|of)\s{0,2}(?:the\s)?(?:最后|最终|末尾|last|final)(?:的)?\s{0,2}(?:奖励|reward)"
    r"|(?:最后|最终|末尾)(?:的)?奖励的?\s{0,2}(\d{1,3}(?:\.\d+)?)\s?%"
)
_STATISTIC = re.compile(
    r"(均值|平均值|mean|标准差|std|standard deviation)\s{0,2}(?:=|≈|:|为|约为|约|is|of|about)"
    rf"\s{{0,2}}(-?{_NUM[1:-1]})",
    re.I,
)


def stated_settings(text: str, where: Where) -> Iterator[Setting]:
    """γ, λ, β and a KL of every token, as words state them."""
    if _SETTING_WORD.search(text):
        for match in _BOTH.finditer(text):
            yield from (Setting("gamma", float(match[1]), where), Setting("lam", float(match[2]), where))
        for name, pattern in _STATED:
            yield from (Setting(name, float(match[1]), where) for match in pattern.finditer(text))
    if base := _BASE.search(text):
        yield Setting("base", float(next(group for group in base.groups() if group)), where)
    if after := _AFTER.search(text):
        yield Setting("after", float(after[1]), where)
    if every := _EVERY_KL.search(text):
        yield Setting("kl", float(every[1]), where)


def label_settings(text: str) -> Settings:
    """γ and λ in the label of a list."""
    stated = tuple((name, float(match[1])) for name, pattern in _STATED[:2] if (match := pattern.search(text)))
    return (*stated, ("after", 0.0)) if _ENDED.search(text[-24:]) else stated


def slot_of(text: str) -> int | None:
    """The token that a line is about, as in `t = 2: …`."""
    match = _SLOT.match(text)
    return int(next(group for group in match.groups() if group)) if match else None


def prose_facts(statement: Statement, where: Where, listed: Sequence[tuple[int, Row]]) -> Iterator[Fact]:
    """Credit allotted to a token, shares of the last reward, a mean or deviation said of the list before it.

    `listed` are the lists of the statement, each with its end.
    """
    text = statement.text
    slot = slot_of(text)
    for match in _ALLOTTED.finditer(text):
        slot = int(match[1] or match[2])
        near = f"{text} {statement.heading}"
        if _CREDIT.search(near) and not _OTHER_SHARING.search(near):
            yield Scalar("advantages", slot, _number(match[3]), where)
    for match in _OF_TOKEN.finditer(text):
        nth, plain_index = match["nth"] or match["zh_nth"], match["n"] or match["zh_n"]
        index = _ORDINALS[nth.lower()] if nth else int(plain_index)
        kind = label_kind(match["en"] or match["zh"]) or ""
        yield Scalar(kind, index, _number(match["x"] or match["y"]), where, from_zero=nth is not None)
    yield from _said_of_slots(text, where)
    for chain in chains(text) if "%" in text else ():
        slot = next((symbol.index for symbol in symbols(chain.sides[0]) if symbol.index is not None), slot)
    if slot is not None and (share := _SHARE.search(text)):
        percent = _number(share[1] or share[2])
        yield Share(slot, Number(percent.value / 100, percent.decimals + 2), where)
    for match in _STATISTIC.finditer(text) if listed else ():
        last_list = next((row for end, row in reversed(listed) if end <= match.start()), listed[-1][1])
        name = "mean" if match[1].lower() in ("均值", "平均值", "mean") else "std"
        listing = Listing(tuple(number for number in last_list if number is not None))
        sides = (Call(name, (listing,)), _number(match[2]))
        yield Equation(Chain(sides, (0, 0), "", 0, "≈" in match[0]), where, name)


def _said_of_slots(text: str, where: Where) -> Iterator[Scalar]:
    """`t=3 处的 TD 误差为 0.1，优势为 0.3`: what a sentence says of the one token that it names."""
    for sentence in _SENTENCE.finditer(text):
        slots = list(_ONE_SLOT.finditer(sentence[0]))
        numbers = list(_SAID_THERE.finditer(sentence[0]))
        if len(slots) != 1 or not numbers or numbers[0].start() < slots[0].start() or _OTHER_CASE.search(sentence[0]):
            continue
        one = slots[0]
        index = _ORDINALS[one["nth"].lower()] if one["nth"] else int(one["t"] or one["n"] or one["zh"])
        for match in numbers:
            kind = label_kind(match["kind"]) or ""
            yield Scalar(kind, index, _number(match["x"]), where, from_zero=one["nth"] is not None)


def _number(text: str) -> Number:
    return Number(float(text), len(text.partition(".")[2]))
