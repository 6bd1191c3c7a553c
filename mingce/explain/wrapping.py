"""Lines of mixed Chinese and Latin text for a terminal: Chinese may break anywhere, a Latin word only at its end, and
no line begins with a closing mark or ends with an opening one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len

_PIECE = re.compile(r"[^\s⺀-鿿＀-￯　-〿]+|\s+|.", re.DOTALL)
_NEVER_LAST = "（《「『“‘([{"
_NEVER_FIRST = "，。；：！？、）》」』”’…,.;:!?)]}%"


def wrapped(text: str, width: int) -> list[str]:
    """The text's lines, each at most `width` cells wide; its own line breaks stay."""
    return [line for paragraph in text.split("\n") for line in _lines(paragraph, max(width, 8))]


def _lines(text: str, width: int) -> Iterator[str]:
    line: list[str] = []
    for piece in _pieces(text.rstrip(), width):
        if cell_len("".join(line)) + cell_len(piece) <= width:
            line.append(piece)
            continue
        if piece.isspace():  # the break stands for it, also where the next word would still fit
            yield "".join(line).rstrip()
            line = []
            continue
        carried = []
        if len(line) > 1 and (piece[0] in _NEVER_FIRST or line[-1][-1] in _NEVER_LAST):
            carried.append(line.pop())
        yield "".join(line).rstrip()
        line = [*carried, piece]
    yield "".join(line).rstrip()


def _pieces(text: str, width: int) -> Iterator[str]:
    """What must not be broken; a word wider than a line is cut."""
    for found in _PIECE.finditer(text):
        piece = found[0]
        while cell_len(piece) > width:
            yield piece[:width]
            piece = piece[width:]
        yield piece


def padded(text: str, width: int, right: bool = True) -> str:
    """The text with spaces up to `width` cells, on its left or on its right."""
    gap = " " * max(0, width - cell_len(text))
    return gap + text if right else text + gap
