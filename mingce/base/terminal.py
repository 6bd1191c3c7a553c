"""Where text meets a terminal: whatever a file's name, a prompt or an error says, it cannot command the terminal.

Consoles made here show control characters and marks that turn the direction of writing as escapes, and so does
`shown` for what is written without one. Streams take any character: what an encoding lacks is written as an escape.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def shown(text: str) -> str:
    r"""The text with what a terminal would obey written as `\x1b` or `\u202e`; JSON stays the same JSON."""
    return _CONTROL.sub(lambda match: _escape(ord(match[0])), text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"


def make_console(stderr: bool = False) -> Console:
    """A console on standard output, or on standard error; `:x:` in a name stays what it is."""
    return _Console(stderr=stderr, emoji=False)


def print_note(text: str) -> None:
    """A remark on standard error, so that it does not mix with what a command prints."""
    make_console(stderr=True).print(Text(text, style="yellow"), soft_wrap=True)


def write(text: str) -> None:
    """Puts the text on standard output as it is, but for what a terminal would obey."""
    try:
        sys.stdout.write(shown(text))
        sys.stdout.flush()
    except BrokenPipeError:
        _write_nowhere()


def take_any_character() -> None:
    """What the encoding of a stream lacks is written as an escape instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(ValueError, OSError):  # closed
                stream.reconfigure(errors="backslashreplace")


def _write_nowhere() -> None:
    """Whoever read our output has had enough (`| head -1`): the rest goes nowhere, and the exit code stays ours."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


class _Console(Console):
    """Text keeps no control characters, wherever it stands; rich's own codes for colours and the cursor stay."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        _write_nowhere()

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or not _CONTROL.search(segment.text):
                yield segment
            else:
                yield Segment(shown(segment.text), segment.style)
