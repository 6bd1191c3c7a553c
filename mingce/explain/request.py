"""What a line of the dialogue asks for besides its subject: other settings, numbers, a token, a level, an example."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mingce.columns import ALIASES
from mingce.explain.patterns import alternatives

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


_ASKS = ("first", "last", "child", "proof", "engineer", "lost", "example")


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
    asks = {key: _asks(key).search(rest) is not None for key in _ASKS}
    token: int | str | None = next((key for key in ("first", "last") if asks[key]), None)
    if number := _TOKEN.search(rest):
        token = int(number[1] or number[2])
    level = next((key for key in ("child", "proof", "engineer") if asks[key]), None)
    for pattern in (_TOKEN, *map(_asks, _ASKS)):
        rest = pattern.sub(" ", rest)
    deeper = re.fullmatch(rf"(?:{_asks('deeper').pattern})[呢吗啊?？。!！\s]*", text.strip(), re.IGNORECASE) is not None
    rest = "" if deeper else _asks("fillers").sub(" ", rest)
    return Request(
        text, settings, columns, re.split(_GAP, tokens[1].strip()) if tokens else None,
        (pair["prompt"].strip(), pair["response"].strip()) if pair else None,
        token, level, asks["lost"], asks["example"], deeper, subject, " ".join(rest.split()),
    )  # fmt: skip


def _asks(key: str) -> re.Pattern[str]:
    return alternatives("requests", key)


def numbers(text: str) -> list[float]:
    """`0, 0.5 −1` as numbers."""
    return [float(part.replace("−", "-")) for part in re.findall(_NUMBER, text)]
