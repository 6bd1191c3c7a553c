"""What a line of the dialogue asks for besides its subject: other settings, numbers, a token, a level, an example."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mingce.columns import ALIASES

INPUTS = (
    "scores", "kl", "rewards", "values", "old_log_probs", "ref_log_probs", "new_log_probs", "new_values", "advantages",
)  # fmt: skip
"""Columns that can be typed in."""

_NUMBER = r"[-−+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_GAP = r"[\s,，、;；]+"
_BECOMES = r"(?:设置?为|改成|改为|换成|变成|调到|调成|等于|取|为|是|set\s+to|becomes|were|is|to|of|at|=|＝|:|：)"
_SETTINGS = {
    "gamma": r"γ|\\?gamma|折扣(?:率|因子)?",
    "lam": r"λ|\\?lambda|lam",
    "beta": r"β|\\?beta|kl[_ ]coef",
    "clip": r"ε|\\?epsilon|clip(?:range)?",
    "after": r"bootstrap(?:[_ ]value)?|V\(s_T\)|V_T|after",
}
_SETTING = {
    name: re.compile(rf"(?<![A-Za-z_\\])(?:{words})\s*{_BECOMES}\s*({_NUMBER})(?![\d\]])", re.IGNORECASE)
    for name, words in _SETTINGS.items()
}
_BARE_SETTING = {
    name: re.compile(rf"(?<![A-Za-z_\\])(?:{words})\s*({_NUMBER})(?![\d\]])", re.IGNORECASE)
    for name, words in _SETTINGS.items()
    if name != "after"
}
_CHINESE_NAMES = {
    "奖励": "rewards",
    "价值": "values",
    "得分": "scores",
    "优势": "advantages",
    "旧对数概率": "old_log_probs",
}
_NAMES = {name: name for name in INPUTS} | {a: c for a, c in ALIASES.items() if c in INPUTS} | _CHINESE_NAMES
_BRACKETS = rf"[\[［]{{1,2}}\s*({_NUMBER}(?:{_GAP}{_NUMBER})*)\s*[\]］]{{1,2}}"
_PLAIN = rf"({_NUMBER}(?:{_GAP}{_NUMBER})+)"
_ROW = re.compile(
    rf"(?:[A-Za-z]+\s*的\s*)?(?<![A-Za-z_])({'|'.join(sorted(map(re.escape, _NAMES), key=len, reverse=True))})"
    rf"\s*(?:=|＝|:|：|是|为)?\s*(?:{_BRACKETS}|{_PLAIN})"
)
_TOKENS = re.compile(r"(?<![A-Za-z_])tokens\s*(?:=|＝|:|：)\s*[\[［]([^\]］]*)[\]］]")
_PAIR = re.compile(
    r"(?:输入|提问|prompt)\s*[:：]\s*(?P<prompt>.+?)\s*(?:输出|回答|response)\s*[:：]\s*(?P<response>[^\n]+)", re.S
)
_TOKEN = re.compile(r"第\s*(\d+)\s*个(?:\s*(?:token|词|字))?|(?<![A-Za-z])token\s*#?\s*(\d+)", re.IGNORECASE)
_FIRST = re.compile(
    r"第一个(?:\s*(?:token|词|字))?|首个\s*token|\b(?:the\s+)?first\s+(?:token|word|one)\b", re.IGNORECASE
)
_LAST = re.compile(r"最后一?个(?:\s*(?:token|词|字))?|\b(?:the\s+)?last\s+(?:token|word|one)\b", re.IGNORECASE)
_CHILD = re.compile(
    r"(?:1?[02-9]|十[一二三]?|八|九|五)\s*岁|小孩子?|小朋友|孩子|小学生|初中生|大白话|白话|通俗|外行"
    r"|\beli5\b|\bchild(?:ren)?\b|\bkids?\b|\btwelve\b|\b\d+[- ]year|like i'?m \d+|layman"
    r"|plain (?:words|english)|simple (?:words|terms)",
    re.IGNORECASE,
)
_LOST = re.compile(
    r"没(?:有)?(?:听|看|弄|搞)?(?:懂|明白)|不(?:太)?(?:懂|明白)|(?:听|看)不懂|太难|太抽象|简单(?:一)?点|再简单"
    r"|don'?t (?:get|understand|follow)|do not (?:get|understand)|too hard|too abstract|simpler|confus|lost me|no idea",
    re.IGNORECASE,
)
_PROOF = re.compile(r"证明|推导|\bproof\b|\bprove\b|\bderiv(?:e|ation)\b", re.IGNORECASE)
_ENGINEER = re.compile(r"工程师|engineer", re.IGNORECASE)
_EXAMPLE = re.compile(
    r"示例|例子|举例|举个|数值|数字|演示|\bexamples?\b|\bnumbers?\b|\bnumerical(?:ly)?\b|\bdemonstrate\b", re.IGNORECASE
)
_DEEPER = re.compile(
    r"^(?:为什么|为啥|why|how so|继续|接着(?:讲|说)|详细(?:一)?点|展开|再深入|深入"
    r"|go on|continue|more|more details?|tell me more|deeper)"
    r"[呢吗啊?？。!！\s]*$",
    re.IGNORECASE,
)
_FILLERS = re.compile(
    r"[\s\W_]+|好的|好|嗯|哦|行|谢谢|那么|那|如果|假如|要是|的时候|时候|时|情况|下|会|怎么样|怎样|如何|怎么|呢|吗|吧|啊|么|呀|的话|的|了|把|将|请|再|又|也|还是|还|重新"
    r"|讲一遍|说一遍|讲讲|讲|说|算一遍|算|一遍|一次|一下|一点|点|遍|解释|给我|给出|给|我|你|它|能不能|能|可以|可|改|换|变|设|用|来|个|看看|看|试试|试|进行|当做|当作|当成|当|是|话|也|懂|具体|例"
    r"|\b(?:and|with|what|about|how|if|then|now|so|ok|okay|please|thanks?|again|once|the|a|an|in|for|to|of|it|that|this|me|us|you|i|im|were|was|be|is|are|can|could"
    r"|would|show|give|say|tell|explain|try|use|same|set|let|make|using|on|at|as|still|just|but|one|words?|some|concrete|understands?|do|does|did|well|yes|sure|m)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Request:
    """One line, taken apart. `rest` is what is left of it when all of that is taken away and nothing is filler."""

    text: str
    settings: dict[str, float] = field(default_factory=dict)
    columns: dict[str, list[float]] = field(default_factory=dict)
    tokens: list[str] | None = None
    pair: tuple[str, str] | None = None
    token: int | str | None = None
    level: str | None = None
    lost: bool = False
    example: bool = False
    deeper: bool = False
    subject: str = ""
    rest: str = ""

    @property
    def vague(self) -> bool:
        """True if it names no subject of its own."""
        return not self.rest

    @property
    def changes(self) -> bool:
        """True if it asks for the example to be changed."""
        return bool(self.settings or self.columns or self.tokens or self.pair)


def read_request(text: str) -> Request:
    """Takes a line apart."""
    rest = text
    pair = _PAIR.search(rest)
    columns: dict[str, list[float]] = {}
    for found in _ROW.finditer(rest):
        columns[_NAMES[found[1]]] = numbers(found[2] or found[3])
    rest = _ROW.sub(" ", rest)
    tokens = _TOKENS.search(rest)
    rest = _TOKENS.sub(" ", rest)
    rest = _PAIR.sub(" ", rest)
    settings: dict[str, float] = {}
    for patterns in (_SETTING, _BARE_SETTING):
        for name, pattern in patterns.items():
            found_setting = pattern.search(rest)
            if found_setting:
                settings[name] = numbers(found_setting[1])[0]
                rest = pattern.sub(" ", rest)
    subject = rest.strip()
    token: int | str | None = None
    if found_token := _TOKEN.search(rest):
        token = int(found_token[1] or found_token[2])
    elif _FIRST.search(rest) or _LAST.search(rest):
        token = "first" if _FIRST.search(rest) else "last"
    child, proof, engineer = _CHILD.search(rest), _PROOF.search(rest), _ENGINEER.search(rest)
    level = "child" if child else "proof" if proof else "engineer" if engineer else None
    lost, example = _LOST.search(rest) is not None, _EXAMPLE.search(rest) is not None
    for pattern in (_TOKEN, _FIRST, _LAST, _CHILD, _PROOF, _ENGINEER, _LOST, _EXAMPLE):
        rest = pattern.sub(" ", rest)
    deeper = _DEEPER.match(text.strip()) is not None
    rest = "" if deeper else _FILLERS.sub(" ", rest).strip()
    return Request(
        text, settings, columns, re.split(_GAP, tokens[1].strip()) if tokens else None,
        (pair["prompt"].strip(), pair["response"].strip()) if pair else None,
        token, level, lost, example, deeper, subject, " ".join(rest.split()),
    )  # fmt: skip


def numbers(text: str) -> list[float]:
    """`0, 0.5 −1` as numbers."""
    return [float(part.replace("−", "-")) for part in re.findall(_NUMBER, text)]
