"""A row's numbers as bars in a terminal: one line per token, negative bars to the left of the axis."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from mingce.base.numbers import number as shown
from mingce.columns import COLUMNS
from mingce.record.rollout import Rollout

WIDTH, MOST = 24, 24
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bars(rollout: Rollout, names: Sequence[str]) -> list[str]:
    """The columns one under the other, each on its own scale."""
    lines: list[str] = []
    slots = [t for t, chosen in enumerate(rollout.columns["response_mask"]) if chosen][:MOST]
    texts = [rollout.tokens[t].text for t in slots]
    room = max((cell_len(text) for text in texts), default=0)
    for name in names:
        column = rollout.columns.get(name)
        if column is None or not slots:
            continue
        values = [column[t] or 0.0 for t in slots]
        top, low = max(0.0, *values), min(0.0, *values)
        unit = (top - low) / WIDTH or 1.0
        before = round(-low / unit)
        lines.append(f"{COLUMNS[name].symbol}  {name}")
        for t, text, value in zip(slots, texts, values, strict=True):
            label = f"{t:>3} {text}{' ' * (room - cell_len(text))} "
            lines.append(f"{label} {_bar(value, unit, before)} {shown(value)}")
        lines.append("")
    return lines[:-1]


def _bar(value: float, unit: float, before: int) -> str:
    """`     │████▌`; the axis stands behind the room for negative bars."""
    length = abs(value) / unit
    if value < 0:
        full = min(round(length), before)
        return " " * (before - full) + "░" * full + "│"
    full, part = int(length), int(length % 1 * 8)
    return " " * before + "│" + "█" * full + _EIGHTHS[part].strip()
