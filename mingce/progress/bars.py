"""Bars of one line: how far a run is, and where a step's time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from mingce.progress.text import MUTED

TRACK = "#5c6370"
STAGE_COLOURS = {
    "generate": "#4ea8de",
    "score": "#ffd166",
    "log_probs": "#9d79d6",
    "inputs": "#7aa2c4",
    "values": "#64c7a8",
    "credit": "#f4a261",
    "update_critic": "#2a9d8f",
    "update_actor": "#e76f8a",
    "audit": "#b5838d",
    "validate": "#a3b18a",
    "ledger": "#c9ada7",
    "save": "#8d99ae",
    "other": "#5c6370",
}


def progress_bar(share: float, width: int, colour: str) -> Text:
    """A line of `width` cells, `share` of it in colour, drawn to half a cell."""
    halves = round(max(0.0, min(1.0, share)) * width * 2)
    full, half = divmod(halves, 2)
    bar = Text("━" * full + "╸" * half, style=colour)
    return bar.append("─" * (width - full - half), style=TRACK)


def split_bar(shares: Mapping[str, float], width: int) -> Text:
    """Segments that fill `width` cells in proportion to the shares, which sum to 1."""
    bar = Text()
    covered, edge = 0.0, 0
    for name, share in shares.items():
        covered += share
        following = round(covered * width)
        bar.append("█" * (following - edge), style=STAGE_COLOURS[name])
        edge = following
    return bar


def split_legend(shares: Mapping[str, float], phrases: Mapping[str, str], current: str | None, width: int) -> Text:
    """`■ generate 13%  ■ …` in the order of the bar, the current one bold; without the smallest if all do not fit."""
    entries = {
        name: f"{phrases.get(f'short_{name}', phrases[name])} {100 * share:.0f}%" for name, share in shares.items()
    }
    largest = sorted(entries, key=lambda name: -shares[name])
    while largest and sum(cell_len(entries[name]) + 4 for name in largest) - 2 > width:
        largest.pop()
    legend = Text()
    for name in (name for name in entries if name in largest):
        if legend:
            legend.append("  ")
        legend.append("■ ", style=STAGE_COLOURS[name])
        legend.append(entries[name], style="bold" if name == current else MUTED)
    return legend


def stage_shares(seconds: Sequence[Mapping[str, float]], stages: Sequence[str]) -> dict[str, float]:
    """What share of the given steps' `timing_s/…` each stage took; `other` is what no stage accounts for.

    Stages below half a percent are left to `other`, which is itself left out when it is as small.
    """
    spent = {stage: sum(step.get(f"timing_s/{stage}", 0.0) for step in seconds) for stage in stages}
    whole = max(sum(step.get("timing_s/step", 0.0) for step in seconds), sum(spent.values()))
    if whole <= 0:
        return {}
    shares = {stage: time / whole for stage, time in spent.items() if time / whole >= 0.005}
    other = 1 - sum(shares.values())
    if other >= 0.005:
        shares["other"] = other
    return shares
