"""What a person types: the lines of a dialogue, the numbers of an option."""

from __future__ import annotations

import contextlib
import io
import math
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from mingce.base.errors import SettingError


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


def _from_keyboard(console: Console) -> Iterator[str]:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401
    while True:
        try:
            yield input("> ")
        except (EOFError, KeyboardInterrupt):
            console.print()
            return


def _from_pipe(console: Console) -> Iterator[str]:
    with contextlib.suppress(KeyboardInterrupt):
        for line in sys.stdin:
            console.print(Text(f"> {line.rstrip()}"), soft_wrap=True)
            yield line
