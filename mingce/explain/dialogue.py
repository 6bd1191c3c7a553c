"""The dialogue log: questions and answers kept word for word in one Markdown file, `codex_dialogue/codex_….md`.

    # Chat Dialogue Log

    ## 对话时间
    2026-01-08 13:02:10

    ---

    ## 对话内容

    ### 问题 1
    用户：the question, then two spaces (a Markdown line break)
    助手：the answer

    ---

    ### 问题 2
    …

A line of a question or an answer that a reader would take for `### 问题 2`, `用户：` or `助手：` is written with a
backslash in front, and so is an empty last line, which would be lost otherwise; a line that has such backslashes
already gets one more. Every other text stands as it is; write → read → write gives the same bytes whatever the text.

Logs that other hands wrote are read too: blank lines before 助手：, no spaces at the end of a question, no newline at
the end of the file, Windows line ends, and a question that quotes this very format, as long as its quoted 用户： and
助手： come in pairs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mingce.base.atomic import atomic_write
from mingce.base.errors import DataError, RunError

TITLE = "# Chat Dialogue Log"
TIME = "## 对话时间"
CONTENT = "## 对话内容"
ASKS, ANSWERS = "用户：", "助手："
RULE = "---"
BREAK = "  "
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
_HEADING = re.compile(r"### 问题 ([1-9][0-9]{0,8})")
_MARKER = re.compile(rf"\\*(?:{ASKS}|{ANSWERS}|### 问题 [0-9]+$)")
_ESCAPED = re.compile(rf"\\+(?:{ASKS}|{ANSWERS}|### 问题 [0-9]+$)")


@dataclass(frozen=True)
class Round:
    """One question and its answer."""

    question: str
    answer: str


@dataclass(frozen=True)
class Dialogue:
    """What was said and when it began, to the second."""

    time: datetime
    rounds: tuple[Round, ...] = ()


@dataclass(frozen=True)
class Turn:
    """What one of the two said in question `number`; `line` is the file's line, from 1, on which it begins."""

    number: int
    by_user: bool
    line: int
    text: str


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def render(dialogue: Dialogue) -> str:
    """The log's text."""
    head = f"{TITLE}\n\n{TIME}\n{dialogue.time.strftime(TIME_FORMAT)}\n\n{RULE}\n\n{CONTENT}\n"
    return head + "".join(_render_round(number, one) for number, one in enumerate(dialogue.rounds, 1))


def _render_round(number: int, one: Round) -> str:
    rule = f"\n{RULE}\n" if number > 1 else ""
    return f"{rule}\n### 问题 {number}\n{ASKS}{_escape(one.question)}{BREAK}\n{ANSWERS}{_escape(one.answer)}\n"


def append(dialogue: Dialogue, path: Path, count: int) -> None:
    """Add the dialogue's rounds behind the first `count`, which the file has already; its earlier bytes stay.

    A file that is not there is written whole. What is written appears whole or not at all.
    """
    earlier = b""
    if path.exists():
        earlier = read_bytes(path)
        if earlier and not earlier.endswith(b"\n"):
            earlier += b"\n"
    text = render(dialogue)
    if earlier:
        added = list(enumerate(dialogue.rounds, 1))[count:]
        text = "".join(_render_round(number, one) for number, one in added)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, earlier + _encoded(text))


def write(dialogue: Dialogue, path: Path) -> None:
    """Write the log whole, or leave what was there before; a file that holds something else is not replaced."""
    content = _encoded(render(dialogue))
    if path.exists() and not content.startswith(read_bytes(path)):
        raise DataError(f"{path} is there already and holds something else; choose another name.")
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, content)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        place = error.object[max(0, error.start - 10) : error.start]
        raise DataError(f"the dialogue has a broken character after '{place}', which UTF-8 cannot hold.") from None


def new_path(directory: Path, time: datetime) -> Path:
    """`directory/codex_YYYYMMDD_HHMMSS.md`, with _2, _3 … before the ending if that name is taken."""
    stem = f"codex_{time.strftime('%Y%m%d_%H%M%S')}"
    path, copy = directory / f"{stem}.md", 1
    while path.exists():
        copy += 1
        path = directory / f"{stem}_{copy}.md"
    return path


def _escape(text: str) -> str:
    first, *rest = text.split("\n")
    lines = ["\\" + line if _MARKER.match(line) else line for line in rest]
    if lines and not lines[-1].strip("\\"):
        lines[-1] = "\\" + lines[-1]
    return "\n".join([first, *lines])


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: Path) -> Dialogue:
    """The dialogue in a file."""
    return parse(read_text(path), path)


def read_text(path: Path) -> str:
    """A UTF-8 file's text with its line ends as they are."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from None


def read_bytes(path: Path) -> bytes:
    """A file's bytes."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from None


def parse(text: str, path: Path | None = None) -> Dialogue:
    """The dialogue in a log's text; `path` is only named in errors."""
    time, turns = parse_turns(text, path)
    return Dialogue(time, tuple(Round(q.text, a.text) for q, a in zip(turns[::2], turns[1::2], strict=True)))


def is_dialogue(text: str) -> bool:
    """True if the text begins as a log does."""
    return text.lstrip("\ufeff \t\r\n").startswith(TITLE)


def parse_turns(text: str, path: Path | None = None) -> tuple[datetime, list[Turn]]:
    """When a dialogue began, and question, answer, question, answer … with the lines on which they stand."""
    text = text.removeprefix("\ufeff")
    if text.partition("\n")[0].endswith("\r"):
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    at = _expect(lines, 0, TITLE, path)
    at = _expect(lines, at + 1, TIME, path)
    at = _next_line(lines, at + 1)
    shown = lines[at].strip() if at < len(lines) else ""
    try:
        time = datetime.strptime(shown, TIME_FORMAT)
    except ValueError:
        raise _broken(
            path, at, f"a time as 2026-01-08 13:02:10 must follow {TIME}, but here is '{shown[:40]}'"
        ) from None
    at = _next_line(lines, at + 1)
    if at < len(lines) and lines[at].strip() == RULE:
        at += 1
    start = _expect(lines, at, CONTENT, path) + 1
    headings = _headings(lines, start, path)
    turns: list[Turn] = []
    for number, heading in enumerate(headings, 1):
        end = headings[number] if number < len(headings) else len(lines)
        turns += _round(lines, number, heading, end, number == len(headings), path)
    return time, turns


def _headings(lines: Sequence[str], start: int, path: Path | None) -> list[int]:
    """Where the rounds begin: `### 问题 N` in order, each with 用户： in the next line; others are part of a text."""
    found: list[int] = []
    first = _next_line(lines, start)
    if first < len(lines) and not (
        _HEADING.fullmatch(lines[first]) and first + 1 < len(lines) and lines[first + 1].startswith(ASKS)
    ):
        raise _broken(path, first, f"'### 问题 1' and then a line with {ASKS} must follow {CONTENT}")
    for at in range(start, len(lines) - 1):
        match = _HEADING.fullmatch(lines[at])
        if not match or not lines[at + 1].startswith(ASKS):
            continue
        number, expected = int(match[1]), len(found) + 1
        if number == expected:
            found.append(at)
        elif number > expected:
            raise _broken(path, at, f"question {number} stands where question {expected} should")
    return found


def _round(lines: Sequence[str], number: int, heading: int, end: int, last: bool, path: Path | None) -> list[Turn]:
    """The two turns of a round whose heading is `lines[heading]` and which ends before `lines[end]`."""
    asked, answered = heading + 1, _answer_line(lines, heading + 1, end)
    if answered is None:
        raise _broken(path, heading, f"question {number} has no line that begins with {ANSWERS}")
    question = _trimmed(lines[asked:answered])
    question[-1] = question[-1].removesuffix(BREAK)
    answer = _trimmed(lines[answered:end])
    if not last and len(answer) > 1 and answer[-1] == RULE:
        answer = _trimmed(answer[:-1])
    return [
        Turn(number, True, asked + 1, _unescape(question, ASKS)),
        Turn(number, False, answered + 1, _unescape(answer, ANSWERS)),
    ]


def _answer_line(lines: Sequence[str], asked: int, end: int) -> int | None:
    """The 助手： that answers the 用户： of line `asked`: pairs quoted inside the question are stepped over."""
    first, depth = None, 0
    for at in range(asked, end):
        if lines[at].startswith(ASKS):
            depth += 1
        elif lines[at].startswith(ANSWERS):
            first = at if first is None else first
            depth -= 1
            if depth == 0:
                return at
    return first


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Without the empty lines at the end; the first line stays."""
    end = len(lines)
    while end > 1 and not lines[end - 1]:
        end -= 1
    return list(lines[:end])


def _unescape(lines: list[str], marker: str) -> str:
    first, *rest = lines
    if rest and rest[-1] and not rest[-1].strip("\\"):
        rest[-1] = rest[-1][1:]
    return "\n".join([first.removeprefix(marker), *(line[1:] if _ESCAPED.match(line) else line for line in rest)])


def _next_line(lines: Sequence[str], at: int) -> int:
    while at < len(lines) and not lines[at].strip():
        at += 1
    return at


def _expect(lines: Sequence[str], at: int, marker: str, path: Path | None) -> int:
    at = _next_line(lines, at)
    if at == len(lines) or lines[at].rstrip() != marker:
        raise _broken(path, min(at, len(lines) - 1), f"'{marker}' is missing")
    return at


def _broken(path: Path | None, at: int, what: str) -> DataError:
    return DataError(f"{path or 'the text'} is not a whole dialogue log: line {at + 1}: {what}.")
