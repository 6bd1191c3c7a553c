"""Which token a question names: by its index, by counting, or by its text.

`t = 3`, `A_3`, `token 3` and 第 3 步 are indices, which begin at 0; 第 3 个 and "the third token" count from 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_DIGITS = {"一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10}
_ENGLISH = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_OTHER_THING = (
    r"(?!\s*(?:mini|micro|batch|epoch|updat|更新|批|回答|样本|prompt|题|问题|方法|公式|轮|阶段|版本|模型|参数|步|问))"
)
_UNIT = r"(?:\s*(?:token|词|字|位置|位|动作|action|step))"
_COUNT = r"(\d{1,5}|[一二两三四五六七八九十])"
_THING = r"\s+(?:response\s+)?(?:token|word|position|one|step|action|slot)\b"

_FROM_END = re.compile(
    rf"倒数第\s*{_COUNT}\s*个?{_UNIT}?|\b(second|third|fourth)[- ](?:to[- ])?last{_THING}|\bpenultimate{_THING}", re.I
)
_NUMBER_NAME = r"\s+(?:delta|td[- ]error|advantage|value|return|reward|surprise)\b"
_LAST = re.compile(
    rf"最后一?个{_OTHER_THING}{_UNIT}?|(?:最末|末尾的?){_UNIT}|\b(?:the\s+)?(?:last|final)(?:{_THING}|{_NUMBER_NAME})",
    re.I,
)
_FIRST = re.compile(rf"(?:首个|开头的?|最前面的?){_UNIT}|\b(?:the\s+)?first{_NUMBER_NAME}", re.I)
_ORDINAL = re.compile(
    rf"第\s*{_COUNT}\s*(?:个{_OTHER_THING}{_UNIT}?|{_UNIT})"
    rf"|\b(\d{{1,5}})(?:st|nd|rd|th){_THING}|\b(?:the\s+)?({'|'.join(_ENGLISH)}){_THING}",
    re.I,
)
_INDEX = re.compile(
    r"(?<![A-Za-z_])t\s*=\s*(\d{1,5})(?![\d.])|第\s*(\d{1,5})\s*步|(?<![A-Za-z])(?:token|index|position|slot)\s*#?\s*(\d{1,5})(?![\d.%]|\s*%)"
    r"|(?:下标|位置|索引)\s*(?:为|是|=)?\s*(\d{1,5})"
    r"|(?<![A-Za-z])(?:V|A|R|r|δ|\\?delta|ratio|advantages?|values?|returns?|rewards?|deltas?|y|Â|ρ)"
    r"(?:_\{?(\d{1,5})\}?|\[(?:\s*:\s*,)?\s*(\d{1,5})\s*\]|\((\d{1,5})\))",
    re.I,
)  # fmt: skip
_EXCEPT = re.compile(
    r"除了?(?:掉|去)?[^，,。？?！!]{1,12}|\b(?:except(?: for)?|other than|besides|apart from)\b[^,.?!]{1,24}",
    re.IGNORECASE,
)
_SIGNS = {"逗号": "，", "comma": ",", "感叹号": "！", "exclamation mark": "!", "句号": "。", "full stop": "."}
"""Punctuation by its name."""
_WIDE = {"，": ",", "！": "!", "。": "."}
_QUOTED = re.compile(r"[“\"'‘「『`]([^”\"'’」』`]{1,24})[”\"'’」』`]")


@dataclass(frozen=True)
class Place:
    """One token: its index among the response's tokens, and how it was counted if it was."""

    index: int
    counted: int | None = None
    """The n of 第 n 个: the person may have meant the index."""


def read_places(text: str, tokens: Sequence[str], slots: Sequence[int]) -> list[Place]:
    """The tokens a text names, in its order; indices may lie outside the response."""
    text = _EXCEPT.sub(lambda match: " " * len(match[0]), text)
    places: list[tuple[int, Place]] = []
    taken: list[tuple[int, int]] = []

    def note(match: re.Match[str], place: Place | None) -> None:
        if place is not None and not any(a < match.end() and match.start() < b for a, b in taken):
            taken.append(match.span())
            places.append((match.start(), place))

    for match in _FROM_END.finditer(text):
        back = _number(match[1]) if match[1] else _ENGLISH.index(match[2].lower()) + 1 if match[2] else 2
        note(match, Place(slots[-back]) if 0 < back <= len(slots) else None)
    for match in _LAST.finditer(text):
        note(match, Place(slots[-1]))
    for match in _FIRST.finditer(text):
        note(match, Place(slots[0]))
    for match in _ORDINAL.finditer(text):
        count = _number(match[1] or match[2]) if match[1] or match[2] else _ENGLISH.index(match[3].lower()) + 1
        in_words = bool(match[3]) or not (match[1] or match[2]).isdecimal()
        note(match, Place(max(count - 1, 0), None if in_words else count))
    for match in _INDEX.finditer(text):
        note(match, Place(int(next(filter(None, match.groups())))))
    for match in _QUOTED.finditer(text):
        if list(tokens).count(match[1]) == 1:
            note(match, Place(list(tokens).index(match[1])))
    for name, sign in _SIGNS.items():
        for match in re.finditer(name, text, re.IGNORECASE):
            where = [
                t for t, token in enumerate(tokens) if _WIDE.get(token.strip(), token.strip()) == _WIDE.get(sign, sign)
            ]
            note(match, Place(where[0]) if len(where) == 1 else None)
    unique = dict.fromkeys(place for _, place in sorted(places, key=lambda pair: pair[0]))
    return list(unique)


def without_places(text: str) -> str:
    """The text with what names a token taken out; symbols such as A_3 keep their letter."""
    for pattern in (_FROM_END, _LAST, _FIRST, _ORDINAL):
        text = pattern.sub(" ", text)
    return _INDEX.sub(lambda match: re.split(r"[_\[(]", match[0])[0] if re.search(r"[_\[(]", match[0]) else " ", text)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else _DIGITS[text]
