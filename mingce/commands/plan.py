"""`mingce plan`: memory, traffic and time of a recipe on a cluster, before anything runs."""

from __future__ import annotations

import json

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from mingce.base.lang import LANGS
from mingce.plan.notes import Note, notes, sentences, verdict
from mingce.plan.plan import Plan, Request, make_plan
from mingce.plan.tables import (
    Table,
    activations_table,
    assumptions_table,
    growth_tables,
    heading,
    memory_tables,
    page,
    time_table,
)
from mingce.plan.values import plan_values
from mingce.progress.bars import STAGE_COLOURS, progress_bar
from mingce.progress.text import MUTED

_FINE, _CLOSE, _FULL = "#64c7a8", "#ffd166", "#e76f8a"
_COLOURS = STAGE_COLOURS | {"ref_log_probs": "#9d79d6", "refresh": "#8d99ae", "fits": "#4ea8de", "full": MUTED}
_BAR, _NARROW = 20, 110
"""Cells of a bar, and of the screen below which there is none."""


def run(
    console: Console, request: Request, *, lang: str = "zh", as_json: bool = False, as_markdown: bool = False
) -> bool:
    """Prints the plan; whether the job fits."""
    plan = make_plan(request)
    if as_json:
        values = plan_values(plan) | {"notes": {each: sentences(plan, each) for each in LANGS}}
        console.print(json.dumps(values, ensure_ascii=False, indent=2), highlight=False, markup=False, soft_wrap=True)
    elif as_markdown:
        console.print(page(plan, lang), highlight=False, markup=False, soft_wrap=True)
    else:
        show(console, plan, lang)
    return plan.fit.step and plan.fit.start


def show(console: Console, plan: Plan, lang: str) -> None:
    """The plan in colours."""
    console.print(Text(heading(plan, lang), style="bold"))
    _print_note(console, verdict(plan, lang), first=True)
    for note in notes(plan, lang):
        _print_note(console, note)
    for table in memory_tables(plan, lang):
        _draw(console, table, filling=True)
    _draw(console, activations_table(plan, lang), filling=True)
    _draw(console, time_table(plan, lang))
    for table in growth_tables(plan, lang):
        _draw(console, table)
    _draw(console, assumptions_table(plan, lang), numbers=False)


def _print_note(console: Console, note: Note, first: bool = False) -> None:
    style = "bold red" if note.grave else "bold green" if first else MUTED
    console.print(Text(("" if first else "· ") + note.text, style=style))


def _draw(console: Console, table: Table, *, filling: bool = False, numbers: bool = True) -> None:
    """With bars where there is room; `filling` ones turn red as memory gets full."""
    drawn = Drawn(title=table.title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(table.columns):
        drawn.add_column(column, justify="right" if place and numbers else "left")
    bars = bool(table.shares) and console.width >= _NARROW
    if bars:
        drawn.add_column("")
    for number, row in enumerate(table.rows):
        cells: list[Text | str] = [Text(cell) for cell in row]
        if bars:
            share = table.shares[number]
            colour = _fullness(share) if filling else _COLOURS.get(table.names[number], _FINE)
            cells.append(progress_bar(share, _BAR, colour))
        drawn.add_row(*cells)
    console.print(drawn)


def _fullness(share: float) -> str:
    return _FULL if share > 1 else _CLOSE if share > 0.9 else _FINE
