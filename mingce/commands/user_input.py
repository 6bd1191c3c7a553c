"""What a person types: the lines of a dialogue, the numbers of an option."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import select
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from mingce.base.errors import SettingError

LONGEST = 100_000
"""Characters of one question; a paste may be long."""
PASTE_PAUSE = 0.03
"""Seconds: lines that follow each other faster than this were pasted, not typed."""
_CONTINUED = re.compile(r"[:：,，、({\[\\]\s*$|^\s*$|^```|^(?: {2,}|\t)\S|^\s*[-*•] ", re.MULTILINE)


def numbers(option: str, text: str) -> list[float]:
    """`0, 0.5 −1`: finite numbers separated by commas or spaces, one per token."""
    try:
        values = [float(part.replace("−", "-")) for part in text.replace(",", " ").replace("，", " ").split()]
    except ValueError as error:
        raise SettingError(f"--{option} must be numbers separated by commas or spaces: {error}.") from None
    if not values:
        raise SettingError(f"--{option} has no numbers; give one per token.")
    for t, number in enumerate(values):
        if not math.isfinite(number):
            raise SettingError(f"--{option} has {number} for token {t}; give finite numbers.")
    return values


def lines(console: Console) -> Iterator[str]:
    """Lines from the keyboard, with editing and history; or from a pipe, shown as if they had been typed."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="strict")  # no half characters for a tokenizer or a log
    try:
        yield from _from_keyboard(console) if sys.stdin.isatty() else _from_pipe(console)
    except UnicodeDecodeError:
        raise SettingError("the input is not text in UTF-8; convert it first.") from None


def questions(console: Console) -> Iterator[str]:
    """The same, but what was pasted or piped in one go is one question, however many lines it has."""
    if sys.stdin.isatty():
        yield from map(_bounded, lines(console))
        return
    with contextlib.suppress(KeyboardInterrupt):
        for text in _bursts(sys.stdin.fileno()):
            for question in split_questions(text):
                first, *rest = question.splitlines()
                console.print(Text(f"> {first}{' …' if rest else ''}"), soft_wrap=True)
                yield _bounded(question)


def _bursts(descriptor: int) -> Iterator[str]:
    """What a pipe has at once, in whole lines; a writer that pauses gets its answers meanwhile."""
    waiting = b""
    while True:
        chunk = os.read(descriptor, 1 << 16)
        waiting += chunk
        if chunk and len(waiting) <= 4 * LONGEST and select.select([descriptor], [], [], PASTE_PAUSE)[0]:
            continue
        whole, line_end, rest = waiting.rpartition(b"\n") if chunk else (waiting, b"", b"")
        try:
            text = (whole + line_end).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise SettingError("the input is not text in UTF-8; convert it first.") from None
        waiting = rest
        if text.strip():
            yield text
        if not chunk:
            return
        _bounded(waiting.decode("utf-8", "replace"))


def split_questions(text: str) -> list[str]:
    """A piped text: a question per line, or one question if its lines belong together.

    They do where one is empty, indented, a list's entry or code, or ends in a colon or a comma.
    """
    text = text.strip()
    if _CONTINUED.search(text) and not re.search(r"^/", text, re.MULTILINE):
        return [text]
    return [line for line in text.splitlines() if line.strip()]


def _bounded(question: str) -> str:
    if len(question) > LONGEST:
        raise SettingError(
            f"a question may have {LONGEST:,} characters, not {len(question):,}; ask about a part of it."
        )
    return question


def _from_keyboard(console: Console) -> Iterator[str]:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401
    while True:
        try:
            line = input("> ")
            while len(line) <= LONGEST and select.select([sys.stdin], [], [], PASTE_PAUSE)[0]:
                line += "\n" + input()
            yield line
        except (EOFError, KeyboardInterrupt):
            console.print()
            return


def _from_pipe(console: Console) -> Iterator[str]:
    with contextlib.suppress(KeyboardInterrupt):
        for line in sys.stdin:
            console.print(Text(f"> {line.rstrip()}"), soft_wrap=True)
            yield line
