"""A rollout's account as a terminal table: one line a token, one column a column, coloured where a sign matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from mingce.base.numbers import number
from mingce.columns import column

SIGNED = ("kl", "rewards", "scores", "deltas", "advantages", "whitened_advantages")


def account_table(tokens: Sequence[str], columns: Mapping[str, Sequence[float]], title: str | None = None) -> Table:
    """Tokens down, columns across, headed by name and symbol; positive green, negative red where a sign matters."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("t", justify="right", style="dim")
    table.add_column("token")
    for name in columns:
        table.add_column(f"{name.replace('_', ' ')}\n{column(name).symbol}", justify="right", overflow="fold")
    for t, token in enumerate(tokens):
        cells = [cell(values[t], coloured=name in SIGNED) for name, values in columns.items()]
        table.add_row(str(t), token, *cells)
    return table


def cell(x: float, coloured: bool = False) -> Text:
    """A number of the table; what is almost 0 reads 0."""
    colour = ("green" if x > 0 else "red" if x < 0 else "") if coloured else ""
    return Text(number(x, powers=False), style=colour)
