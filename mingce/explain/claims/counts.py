"""Judging counts: tokens listed against tokens announced, time steps against tokens, states against tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mingce.explain.claims.context import Context
from mingce.explain.claims.facts import Where
from mingce.explain.claims.reading import Passage, Statement
from mingce.explain.claims.verdicts import Verdict

_NUMBERS = {name: n for n, name in enumerate(("two", "three", "four", "five", "six", "seven", "eight"), 2)}
_TOKENS = re.compile(
    rf"(\d{{1,4}}|(?<![第每])[二三四五六七八九十两]|\b(?:{'|'.join(_NUMBERS)}))\s{{0,2}}(?:个\s{{0,2}}(?:response\s|有效\s{{0,2}})?token|(?:response\s)?tokens\b)",
    re.I,
)
_LENGTH = re.compile(r"(?:长度(?:为|是)?|\blength(?:\sof|\sis|\s?=)?|\blen\s?=)\s{0,2}(\d{1,4})(?!\d)", re.I)
_LIST = re.compile(r"[\[［]([^\[\]［］\n]{1,400})[\]］]")
_QUOTED = re.compile(r"\"[^\"\n]{0,40}\"|'[^'\n]{0,40}'|“[^”\n]{0,40}”|‘[^’\n]{0,40}’")
_STEPS = re.compile(r"(?:^|[^A-Za-z_])t\s{0,2}=\s{0,2}(\d{1,3}(?:\s{0,2}[,，、]\s{0,2}\d{1,3}){2,200})")
_STATE = re.compile(r"s_\{?(\d{1,3})\}?\s{0,4}=\s{0,4}\(([^()\n]{1,300})\)")
_PROMPT = re.compile(r"\s*(?:prompt|x|提示(?:词)?|问题)\s*$", re.I)
_CHINESE = dict(zip("一二三四五六七八九十", range(1, 11), strict=True)) | {"两": 2}


def judge_counts(passage: Passage, context: Context) -> Iterator[Verdict]:
    """Every count that a passage gives wrongly, and the right ones beside a list."""
    if passage.by_user:
        return
    listed: tuple[int, int] | None = None  # (how many tokens, line)
    state_base = _state_base(passage)
    for statement in passage.statements:
        found = _token_list(statement)
        if found is not None:
            count, announced = found
            listed = (count, statement.line)
            if announced is not None:
                yield _verdict(passage, statement, announced, count)
        for match in _LENGTH.finditer(statement.raw):
            items = [n for text in _LIST.findall(statement.raw) if (n := _items(text)) is not None]
            if len(items) == 1:
                yield _verdict(passage, statement, int(match[1]), items[0], of_tokens=False)
        if (steps := _STEPS.search(statement.text)) and listed is not None:
            count = len(re.split(r"[,，、]", steps[1]))
            if count != listed[0]:
                yield _steps_verdict(passage, statement, count, listed)
        if state_base is not None:
            yield from _states(passage, statement, state_base)


def _token_list(statement: Statement) -> tuple[int, int | None] | None:
    """How many tokens a line lists, and how many it says they are."""
    if "token" not in statement.raw.lower() or re.search(
        r"input_ids|prompt\s*token|提问|词表|vocab", statement.raw, re.I
    ):
        return None
    counts = [_count(match[1]) for match in _TOKENS.finditer(statement.raw)]
    lists = [n for text in _LIST.findall(statement.raw) if not _numeric(text) and (n := _items(text)) is not None]
    if len(lists) != 1:
        return None
    return lists[0], counts[0] if len(counts) == 1 else None


def _count(text: str) -> int:
    return int(text) if text.isdigit() else _CHINESE.get(text) or _NUMBERS[text.lower()]


def _numeric(text: str) -> bool:
    return re.fullmatch(r"[\s\d.,，eE+\-−–…]*", text) is not None


def _items(text: str) -> int | None:
    """How many items a list has; None if that cannot be told."""
    if "..." in text or "…" in text or ":" in text:
        return None
    quoted = _QUOTED.findall(text)
    if quoted:
        rest = _QUOTED.sub("", text)
        return len(quoted) if not rest.strip(" ,，、") else None
    parts = text.split(",") if "," in text else re.split(r"[、，]", text)
    return len(parts) if len(parts) > 1 and all(part.strip() for part in parts) else None


def _state_base(passage: Passage) -> int | None:
    """What the text calls the first state, s_0 or s_1 = (prompt)."""
    for statement in passage.statements:
        for match in _STATE.finditer(statement.text):
            if _PROMPT.match(match[2]):
                return int(match[1])
    return None


def _states(passage: Passage, statement: Statement, base: int) -> Iterator[Verdict]:
    for match in _STATE.finditer(statement.text):
        first, *tokens = re.split(r",", match[2])
        if not _PROMPT.match(first) or any(not token.strip() or "..." in token for token in tokens):
            continue
        n, should = int(match[1]), int(match[1]) - base
        if len(tokens) != should:
            yield Verdict(
                "wrong",
                _where(passage, statement),
                "count",
                match[0],
                notes=(
                    (
                        f"s_{n} 应含前 {should} 个 token，这里只列出 {len(tokens)} 个"
                        if len(tokens) < should
                        else f"s_{n} 应只含前 {should} 个 token，这里列出了 {len(tokens)} 个",
                        f"s_{n} holds the {should} tokens chosen before it, but {len(tokens)} are listed",
                    ),
                ),
            )


def _verdict(passage: Passage, statement: Statement, announced: int, count: int, of_tokens: bool = True) -> Verdict:
    where = _where(passage, statement)
    claim = next(iter(_LIST.findall(statement.raw)), "")
    if announced == count:
        return Verdict("right", where, "count", f"{announced}: [{claim}]")
    zh = (
        f"说是 {announced} 个 token，列出的却是 {count} 个"
        if of_tokens
        else f"说长度是 {announced}，列出的却是 {count} 个"
    )
    en = f"{announced} tokens are announced" if of_tokens else f"the length is said to be {announced}"
    return Verdict("wrong", where, "count", f"{announced}: [{claim}]", notes=((zh, f"{en}, but {count} are listed"),))


def _steps_verdict(passage: Passage, statement: Statement, steps: int, listed: tuple[int, int]) -> Verdict:
    count, line = listed
    note = (
        f"这里有 {steps} 个时间步，而第 {line} 行只列出了 {count} 个 token",
        f"there are {steps} time steps here, but line {line} lists {count} tokens",
    )
    return Verdict("wrong", _where(passage, statement), "count", statement.raw.strip(), notes=(note,))


def _where(passage: Passage, statement: Statement) -> Where:
    raw = statement.raw.split("\n")[0].strip()
    return Where(passage.question, passage.by_user, statement.section, statement.line, raw, statement.heading)
