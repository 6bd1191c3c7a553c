"""What a question asks for besides its subject: other settings, numbers, tokens, a level, a part of the answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mingce.columns import ALIASES
from mingce.explain.patterns import alternatives
from mingce.explain.question.facts import methods
from mingce.explain.question.frames import read_frame
from mingce.explain.question.mood import asserts
from mingce.explain.question.places import without_places
from mingce.explain.question.quantities import read_quantities
from mingce.explain.question.scalars import read_final_reward, read_flat_values, read_scalars
from mingce.explain.question.suppositions import Supposition, read_suppositions
from mingce.explain.sums.lists import NUMBER as _NUMBER
from mingce.explain.sums.lists import number_after, read_lists

INPUTS = (
    "scores", "kl", "rewards", "values", "old_log_probs", "ref_log_probs", "new_log_probs", "new_values", "advantages",
    "response_mask",
)  # fmt: skip
"""Columns that can be typed in."""

_GAP = r"[\s,，、;；]+"
MOST_TOLD, LONGEST_SUPPOSED = 64, 160
"""So many tokens may be told by their number alone; so many characters has a question that supposes something."""
_BECOMES = (
    r"(?:现在(?:是|为)?|目前(?:是|为)?|设置?为|设成|改成|改为|换成|变成|调到|调成|调大到|调小到|等于|还是|仍[是为]|保持|取|为|是|"
    r"换|改|变|调|用|从\s*[\d.]+\s*(?:改|调|变|换)?(?:成|到|为)|"
    r"set\s+to|changed?\s+to|starts?\s+at|stays?(?:\s+at)?|kept\s+at|still(?:\s+at)?|becomes|were|(?:is\s+)?now|is|to|of|at|==?|＝|:|：)"
)
_SETTINGS = {
    "gamma": r"γ|\\?gamma|折扣(?:率|因子|系数)?|discount(?:ing|ed)?(?:[ _](?:factor|rate|with|by))?",
    "lam": r"λ|\\?lambda|lam",
    "beta": r"β|\\?beta|kl[_ ](?:coef(?:ficient)?|penalty coefficient|系数)",
    "clip": r"ε|\\?epsilon|\beps\b|clip(?:range|_ratio)?",
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
_ANY_SETTING = rf"(?<![A-Za-z_\\])(?:{'|'.join(_SETTINGS.values())})(?![A-Za-z_])"
_SAME = re.compile(
    rf"((?:{_ANY_SETTING}\s*[=＝]{{1,2}}\s*)+{_ANY_SETTING})\s*[=＝]{{1,2}}\s*({_NUMBER})(?![\d\]])", re.IGNORECASE
)
_AND = r"\s*(?:[,，、/&]|和|与|跟|\band\b)\s*"
_TOGETHER = re.compile(
    rf"((?:{_ANY_SETTING}{_AND})+{_ANY_SETTING})\s*(?:{_BECOMES}|(?:都|均|全|\bboth\b|\ball\b)\s*{_BECOMES}?)\s*"
    rf"({_NUMBER}(?:{_AND}{_NUMBER})*)(?![\d\]])",
    re.IGNORECASE,
)
_SPOKEN_NAMES = {
    "奖励": "rewards", "价值": "values", "得分": "scores", "优势": "advantages", "旧对数概率": "old_log_probs",
    "r": "rewards", "R": "rewards", "V": "values", "v": "values", "reward": "rewards", "value": "values",
    "score": "scores", "advantage": "advantages", "A": "advantages", "mask": "response_mask", "掩码": "response_mask",
}  # fmt: skip
_NAMES = {name: name for name in INPUTS} | {a: c for a, c in ALIASES.items() if c in INPUTS} | _SPOKEN_NAMES
_BRACKETS = rf"[\[［]{{1,2}}\s*({_NUMBER}(?:{_GAP}{_NUMBER})*)\s*[\]］]{{1,2}}"
_PLAIN = rf"({_NUMBER}(?:{_GAP}{_NUMBER})+)"
_ROW = re.compile(
    rf"(?:[A-Za-z]+\s*的\s*)?(?<![A-Za-z_])({'|'.join(sorted(map(re.escape, _NAMES), key=len, reverse=True))})"
    rf"(?![A-Za-z_])(?!\[[-−]?\d{{1,5}}\])\s*(?:=|＝|:|：|是|为|are|is)?\s*(?:{_BRACKETS}|[(（]?{_PLAIN}[)）]?)"
)
_TOKENS = re.compile(r"(?<![A-Za-z_])tokens\s*(?:=|＝|:|：)\s*[\[［]([^\]］]*)[\]］]")
_PAIR = re.compile(
    r"(?:输入|提问|问|prompt|question)\s*[:：]\s*(?P<prompt>.{1,2000}?)\s*(?:输出|回答|答|response|answer)\s*[:：]\s*"
    r"(?P<response>[^\n]{1,2000}?)\s*(?=\n|$|(?:请|求|给出|帮|算|怎|what|how|give|show|compute|please))",
    re.S | re.I,
)
_SAYS = re.compile(r"就是|等于|等同|退化|\b(?:is|are|equals?|means|reduces?|becomes?|has|have)\b", re.IGNORECASE)
_SET_IT = re.compile(rf"(?:set|change|put|make|turn) (?:it|that) (?:down |up )?to ({_NUMBER})(?![\d.])", re.IGNORECASE)
_BARE = re.compile(
    rf"^\W*(?:(?:那|再?试试?|and|or|what about|how about|with|try)\s*)*({_NUMBER})\s*(?:呢|的话|then|instead)?\W*$",
    re.IGNORECASE,
)
_DECIMAL = re.compile(r"(?<![\d.\w])[-−]?\d+\.\d{2,}(?![\d.])%?")
_WANTS = (
    "child", "lost", "proof", "engineer", "analogy", "draw", "english", "chinese", "why", "how_much", "compare", "code",
    "pitfall", "limits", "example", "another", "claim", "what_if", "save", "summary",
)  # fmt: skip
_TAKEN_OUT = (
    "child", "lost", "proof", "engineer", "analogy", "draw", "english", "chinese", "another", "example", "code",
    "pitfall", "limits", "summary",
)  # fmt: skip
"""What is no part of the subject when it is asked for."""


@dataclass(frozen=True)
class Request:
    """One question, taken apart.

    `subject` is the question without typed rows and the pair; `rest` what is left of it when all that is asked
    for is taken away and nothing is filler. `decimals` are the numbers it names; `supposed` is what
    the example's numbers are supposed to be.
    """

    text: str
    settings: dict[str, float] = field(default_factory=dict)
    columns: dict[str, list[float]] = field(default_factory=dict)
    tokens: list[str] | None = None
    pair: tuple[str, str] | None = None
    wants: frozenset[str] = frozenset()
    deeper: bool = False
    decimals: tuple[str, ...] = ()
    supposed: tuple[Supposition, ...] = ()
    subject: str = ""
    rest: str = ""

    @property
    def vague(self) -> bool:
        """True if it names no subject of its own."""
        return not self.rest

    @property
    def level(self) -> str | None:
        return next((key for key in ("child", "proof", "engineer") if key in self.wants), None)

    @property
    def supposes(self) -> bool:
        """True if its settings are to be tried: not those of a claim, nor of "why not simply λ = 1"."""
        if not self.settings or _asks("no_change").search(self.text) or self._states:
            return False
        return bool(self.columns) or "claim" not in self.wants or "what_if" in self.wants

    @property
    def _states(self) -> bool:
        """True if it says what a quantity is under its settings: "with λ = 0 the advantage is the whole reward"."""
        text = each_set(self.subject)
        for pattern in _SETTING.values():
            text = pattern.sub(" ", text)
        said = bool(_SAYS.search(text)) and not self.columns and asserts(self.text)
        return said and bool(read_quantities(self.rest))

    @property
    def changes(self) -> bool:
        """True if it asks for the example to be changed."""
        return bool(self.supposes or self.columns or self.tokens or self.supposed)


def settings_named(text: str) -> list[str]:
    """Settings that a text speaks of, with or without a number."""
    return [name for name, words in _SETTINGS.items() if re.search(rf"(?<![A-Za-z_\\])(?:{words})(?![A-Za-z])", text)]


def each_set(text: str) -> str:
    """The text with settings that share a number, `λ=γ=1` or `γ, λ = 0.9, 0.8`, each given its own."""
    text = _SAME.sub(lambda match: _one_each(match[0], match[1], [match[2]]), text)
    return _TOGETHER.sub(lambda match: _one_each(match[0], match[1], re.findall(_NUMBER, match[2])), text)


def _one_each(written: str, names: str, given: list[str]) -> str:
    found = re.findall(_ANY_SETTING, names, re.IGNORECASE)
    given = given * len(found) if len(given) == 1 else given
    if len(given) != len(found):
        return written
    return ", ".join(f"{name} = {x}" for name, x in zip(found, given, strict=True))


def read_request(text: str, last_setting: str | None = None) -> Request:
    """Takes a question apart; `last_setting` is what "set it to 0.9" or 那 0.9 呢 means."""
    columns = {_NAMES[match[1]]: numbers(match[2] or match[3]) for match in _ROW.finditer(text)}
    columns |= _spoken_rows(text, columns)
    rest = _ROW.sub(" ", text)
    tokens = _TOKENS.search(rest)
    rest = _TOKENS.sub(" ", rest)
    pair = _PAIR.search(rest)
    rest = _PAIR.sub(" ", rest)
    decimals, subject = tuple(_DECIMAL.findall(rest)), rest.strip()
    settings: dict[str, float] = {}
    rest = each_set(rest)
    for patterns in (_SETTING, _BARE_SETTING):
        for name, pattern in patterns.items():
            if match := pattern.search(rest):
                if len({numbers(one)[0] for one in pattern.findall(rest)}) == 1:  # "λ = 0 and λ = 1" sets neither
                    settings.setdefault(name, numbers(match[1])[0])
                rest = pattern.sub(" ", rest)
    for pattern in (_SET_IT, _BARE):
        if not settings and not columns and last_setting is not None and (match := pattern.search(rest)):
            settings[last_setting] = numbers(match[1])[0]
            rest, decimals = pattern.sub(" ", rest), ()
    without = " ".join(_asks("lost").sub(" ", subject).split())
    subject = without if re.search(r"\w{2}", without) else subject
    wants = frozenset(key for key in _WANTS if _asks(key).search(text if key in ("claim", "what_if") else rest))
    rest = without_places(rest)
    for key in _TAKEN_OUT:
        rest = _asks(key).sub(" ", rest)
    deeper = re.fullmatch(
        rf"(?:那|and|but|so|ok)?\s*(?:{_asks('deeper').pattern})[呢吗啊?？。!！.\s]*", text.strip(), re.I
    )
    rest = "" if deeper else _asks("fillers").sub(" ", rest)
    return Request(
        text, settings, columns, re.split(_GAP, tokens[1].strip()) if tokens else None,
        (pair["prompt"].strip(), pair["response"].strip()) if pair else None,
        wants, deeper is not None, decimals, _supposed(text) if not columns and "claim" not in wants else (), subject,
        " ".join(rest.split()),
    )  # fmt: skip


def _spoken_rows(text: str, columns: dict[str, list[float]]) -> dict[str, list[float]]:
    """Rewards and values that are told in words, "the critic said 0.5, 0.3": both, or the one that is missing."""
    rows = {
        name: row for name, row in read_lists(text).items() if name in ("rewards", "values") and name not in columns
    }
    values = columns.get("values", rows.get("values"))
    last, everywhere = read_final_reward(text), read_flat_values(text)
    tokens = number_after(text, "counts").get("steps", 0.0)
    if not {*columns, *rows} and last is not None and everywhere is not None and 2 <= tokens <= MOST_TOLD:
        values = rows["values"] = [everywhere] * int(tokens)
    if values and last is not None and "rewards" not in {*columns, *rows} and len(columns) <= 1:
        return {**rows, "rewards": [0.0] * (len(values) - 1) + [last]}
    known = {*columns, *rows}
    lengths = {len(row) for row in (*columns.values(), *rows.values())}
    return rows if {"rewards", "values"} <= known <= set(INPUTS) and len(lengths) == 1 else {}


def _supposed(text: str) -> tuple[Supposition, ...]:
    """What is supposed of the example besides its settings; single numbers that make a sum of their own are not."""
    if not _asks("what_if").search(text) or len(text) > LONGEST_SUPPOSED or read_frame(text).things() & methods():
        return ()  # a story, or a method that the example's account is not of
    alone = len(read_scalars(text)) <= 1
    return tuple(one for one in read_suppositions(text) if alone or one.how != "is")


def _asks(key: str) -> re.Pattern[str]:
    return alternatives("requests", key)


def numbers(text: str) -> list[float]:
    """`0, 0.5 −1` as numbers."""
    return [float(part.replace("−", "-")) for part in re.findall(_NUMBER, text)]
