"""Judging counts: tokens listed against tokens announced, time steps against tokens, states against tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mingce.explain.claims.reading import Passage, Statement
from mingce.explain.claims.verdicts import Pair, Verdict, note

_ENGLISH = {name: n for n, name in enumerate(("two", "three", "four", "five", "six", "seven", "eight"), 2)}
_CHINESE = dict(zip("一二三四五六七八九十", range(1, 11), strict=True)) | {"两": 2}
_TOKENS = re.compile(
    rf"(\d{{1,4}}|(?<![第每])[二三四五六七八九十两]|\b(?:{'|'.join(_ENGLISH)}))\s{{0,2}}"
    r"(?:个\s{0,2}(?:response\s|有效\s{0,2})?token|(?:response\s)?tokens\b)",
    re.I,
)
_LENGTH = re.compile(r"(?:长度(?:为|是)?|\blength(?:\sof|\sis|\s?=)?|\blen\s?=)\s{0,2}(\d{1,4})(?!\d)", re.I)
_LIST = re.compile(r"[\[［]([^\[\]［］\n]{1,400})[\]］]")
_QUOTED = re.compile(r"\"[^\"\n]{0,40}\"|'[^'\n]{0,40}'|“[^”\n]{0,40}”|‘[^’\n]{0,40}’")
_NUMERIC = re.compile(r"[\s\d.,，eE+\-−–…]*")
_OTHER_TOKENS = re.compile(r"input_ids|prompt\s*token|提问|词表|vocab", re.I)
_STEPS = re.compile(r"(?:^|[^A-Za-z_])t\s{0,2}=\s{0,2}(\d{1,3}(?:\s{0,2}[,，、]\s{0,2}\d{1,3}){2,200})")
_STATE = re.compile(r"s_\{?(\d{1,3})\}?\s{0,4}=\s{0,4}\(([^()\n]{1,300})\)")
_PROMPT = re.compile(r"\s*(?:prompt|x|提示(?:词)?|问题)\s*$", re.I)


def judge_counts(passage: Passage) -> Iterator[Verdict]:
    """Every count that a passage gives wrongly, and the right ones beside a list."""
    if passage.by_user:
        return
    listed: tuple[int, int] | None = None  # (how many tokens, line)
    first_state = _first_state(passage)
    for statement in passage.statements:
        tokens = _token_list(statement)
        if tokens is not None:
            count, announced = tokens
            listed = (count, statement.line)
            if announced is not None:
                yield _announced(passage, statement, announced, count, "check_log.tokens_announced")
        for match in _LENGTH.finditer(statement.raw):
            items = [n for text in _LIST.findall(statement.raw) if (n := _items(text)) is not None]
            if len(items) == 1:
                yield _announced(passage, statement, int(match[1]), items[0], "check_log.length_announced")
        if (steps := _STEPS.search(statement.text)) and listed is not None:
            count = len(re.split(r"[,，、]", steps[1]))
            if count != listed[0]:
                why = note("check_log.steps_and_tokens", steps=count, tokens=listed[0], line=listed[1])
                yield _wrong(passage, statement, statement.raw.strip(), why)
        for match in _STATE.finditer(statement.text) if first_state is not None else ():
            first, *before = match[2].split(",")
            should = int(match[1]) - (first_state or 0)
            clear = _PROMPT.match(first) and all(token.strip() and "..." not in token for token in before)
            if clear and len(before) != should:
                why = note("check_log.tokens_of_state", n=match[1], should=should, count=len(before))
                yield _wrong(passage, statement, match[0], why)


def _token_list(statement: Statement) -> tuple[int, int | None] | None:
    """How many tokens a line lists, and how many it says they are."""
    if "token" not in statement.raw.lower() or _OTHER_TOKENS.search(statement.raw):
        return None
    counts = [_count(match[1]) for match in _TOKENS.finditer(statement.raw)]
    texts = [text for text in _LIST.findall(statement.raw) if not _NUMERIC.fullmatch(text)]
    lists = [n for text in texts if (n := _items(text)) is not None]
    return (lists[0], counts[0] if len(counts) == 1 else None) if len(lists) == 1 else None


def _count(text: str) -> int:
    return int(text) if text.isdigit() else _CHINESE.get(text) or _ENGLISH[text.lower()]


def _items(text: str) -> int | None:
    """How many items a list has; None if that cannot be told."""
    if any(mark in text for mark in ("...", "…", ":", "—")):
        return None
    if quoted := _QUOTED.findall(text):
        return None if _QUOTED.sub("", text).strip(" ,，、") else len(quoted)
    parts = text.split(",") if "," in text else re.split(r"[、，]", text)
    return len(parts) if len(parts) > 1 and all(part.strip() for part in parts) else None


def _first_state(passage: Passage) -> int | None:
    """What the text calls the first state, s_0 or s_1 = (prompt)."""
    states = (match for statement in passage.statements for match in _STATE.finditer(statement.text))
    return next((int(match[1]) for match in states if _PROMPT.match(match[2])), None)


def _announced(passage: Passage, statement: Statement, announced: int, count: int, key: str) -> Verdict:
    claim = f"{announced}: [{next(iter(_LIST.findall(statement.raw)), '')}]"
    if announced == count:
        return Verdict("right", passage.where(statement), "count", claim)
    return _wrong(passage, statement, claim, note(key, announced=announced, count=count))


def _wrong(passage: Passage, statement: Statement, claim: str, why: Pair) -> Verdict:
    return Verdict("wrong", passage.where(statement), "count", claim, notes=(why,))
