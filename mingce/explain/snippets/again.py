"""A line of code that was pasted before, asked about again: by a word of it, by its number, or as the other mistake."""

from __future__ import annotations

import re

from mingce.base.texts import named, sentence, texts
from mingce.explain.answer import Answer
from mingce.explain.snippets.answering import phrase, read
from mingce.explain.snippets.matching import Match, Reading
from mingce.explain.sums.lists import count
from mingce.record.rollout import Rollout

_WORDS = re.compile(r"\.?[A-Za-z_]\w*(?:\(\))?|\[::-1\]")
_LINE = re.compile(r"第\s*([一二三四五六七八九\d]+)\s*行|\bline\s+(\d+)", re.IGNORECASE)
_OTHER = re.compile(
    r"(?:另|第二|别的|其他|还有).{0,6}(?:错|bug|问题)|\b(?:second|other|another|more|else)\b.{0,12}\b(?:bugs?|mistakes?|wrong|errors?|"
    r"problems?)|\b(?:bugs?|mistakes?|wrong|problems?)\b.{0,8}\belse\b|anything else wrong",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"[?？呢吗]|为什么|为啥|讲|解释|意思|怎么改|\b(?:why|what|how|explain|thing|fix|line|part)\b", re.IGNORECASE
)


def line_again(code: str, question: str, rollout: Rollout, lang: str) -> Answer | None:
    """What is to say of the lines that a short question points at; None if it points at none."""
    _, reading = read(code)
    if reading is None or not _ASKS.search(question):
        return None
    pointed = _numbered(reading, question) or _other_bugs(reading, question) or _worded(reading, question)
    if not pointed:
        return None
    return Answer(lang, "\n\n".join(_of_line(match, lang) for match in pointed), title=phrase("title", lang))


def _numbered(reading: Reading, question: str) -> list[Match]:
    found = _LINE.search(question)
    if found is None:
        return []
    place = int(count(found[1] or found[2]))
    return [one for one in reading.matches[max(place - 1, 0) : place] if one.kind]


def _other_bugs(reading: Reading, question: str) -> list[Match]:
    return [match for match in reading.matches if match.bug][1:] if _OTHER.search(question) else []


def _worded(reading: Reading, question: str) -> list[Match]:
    """The lines with a word that is plainly of code: `.mean()`, `nextvalues`, `old_log_prob`."""
    words = {one for one in _WORDS.findall(question) if re.search(r"^\.|\(\)|_|\[", one)}
    words = {word.strip(".()") if "[" not in word else word for word in words}
    found = [one for one in reading.matches if one.kind and any(_has(one.line.text, word) for word in words)]
    wrong = [match for match in found if match.bug]
    return wrong[:1] or found[:1]


def _has(line: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", line) is not None


def _of_line(match: Match, lang: str) -> str:
    words = texts("snippets", lang)
    line = match.line.text.replace("`", "'")
    if match.bug is not None:
        said = phrase("bug", lang, line=line, text=named(words["line_bugs"])[match.bug])
        more = sentence("tutor.padding_share", lang) if match.bug == "mean_over_padding" else ""
        return f"{said}\n\n{more}".rstrip()
    what = phrase("item", lang, line=line, shape="", what=named(words["line_what"])[match.kind or ""])
    return f"{what}\n\n{named(words['line_why'])[match.kind or '']}"
