"""A row's numbers as bars in a terminal: one line per token, negative bars to the left of the axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.cells import cell_len

from mingce.base.numbers import number as shown
from mingce.columns import COLUMNS
from mingce.record.rollout import Rollout

WIDTH, MOST, WIDEST, CELL = 24, 24, 12, 6
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


def credit_map(rollout: Rollout) -> list[str]:
    """Who is paid by whose surprise: (γλ)^l·δ_(t+l) by the token paid (a line) and the token that surprised (a column).

    Each line adds up to the token's advantage.
    """
    columns, settings = rollout.columns, rollout.settings
    slots = [t for t, chosen in enumerate(columns["response_mask"]) if chosen]
    if "deltas" not in columns or settings.lam is None or len(slots) > WIDEST:
        return []
    decay = (1.0 if settings.gamma is None else settings.gamma) * settings.lam
    texts = [rollout.tokens[t].text for t in slots]
    room = max(cell_len(text) for text in texts)
    cells = [[decay ** (b - a) * (columns["deltas"][slots[b]] or 0.0) if b >= a else None for b in range(len(slots))]
             for a in range(len(slots))]  # fmt: skip
    top = max((abs(x) for row in cells for x in row if x is not None), default=0.0) or 1.0
    head = " ".join(f"{text}{' ' * (CELL - cell_len(text))}" for text in (_cut(text) for text in texts))
    lines = [f"{' ' * (room + 5)}{head}  A_t"]
    for t, text, row in zip(slots, texts, cells, strict=True):
        shades = " ".join(_shade(x, top) for x in row)
        total = math.fsum(x for x in row if x is not None)
        lines.append(f"{t:>3} {text}{' ' * (room - cell_len(text))} {shades}  {shown(total)}")
    return lines


def clip_curve(eps_low: float, eps_high: float) -> list[str]:
    """PPO's objective over the ratio, for A = 1 and for A = −1: flat where it is clipped."""
    lines = []
    for sign in (1.0, -1.0):
        lines.append(f"A = {shown(sign)}")
        for k in range(5, 16):
            ratio = k / 10
            held = min(max(ratio, 1 - eps_low), 1 + eps_high)
            value = min(ratio * sign, held * sign)
            flat = " ─" if held * sign < ratio * sign else ""
            lines.append(f"  ρ = {ratio:.1f} {_bar(value, 1.6 / WIDTH, 0 if sign > 0 else WIDTH)} {shown(value)}{flat}")
        lines.append("")
    return lines[:-1]


def _shade(value: float | None, top: float) -> str:
    """A cell: its number with a block as dark as it is large."""
    if value is None:
        return " " * CELL
    block = " ░▒▓█"[min(4, round(4 * abs(value) / top))]
    return f"{block}{f'{value:.2f}'.replace('-', '−'):>{CELL - 1}}"


def _cut(text: str) -> str:
    while cell_len(text) > CELL:
        text = text[:-1]
    return text


def _bar(value: float, unit: float, before: int) -> str:
    """`     │████▌`; the axis stands behind the room for negative bars."""
    length = abs(value) / unit
    if value < 0:
        full = min(round(length), before)
        return " " * (before - full) + "░" * full + "│"
    full, part = int(length), int(length % 1 * 8)
    return " " * before + "│" + "█" * full + _EIGHTHS[part].strip()
