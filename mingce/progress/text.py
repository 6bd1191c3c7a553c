"""How the display writes times and columns, and the stages of a step. Its words are in texts/sentences/terminal."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

MUTED = "#8b93a1"
"""A grey that can be read on black and on white, for what matters less."""

STAGES = (
    "generate", "score", "log_probs", "inputs", "values", "credit", "update_critic", "update_actor", "audit",
    "validate", "ledger", "save",
)  # fmt: skip


def duration(seconds: float) -> str:
    """`0:34`, `12:05` or `3:02:05`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def padded(text: str, width: int, right: bool = False) -> str:
    """`text` in exactly `width` cells, where a Chinese character takes two; cut if it is too long."""
    if right and cell_len(text) < width:
        return " " * (width - cell_len(text)) + text
    return set_cell_size(text, width)
