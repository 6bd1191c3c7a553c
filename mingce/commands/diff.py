"""`mingce diff`: two dumps of one batch, the first column, row and token where they part, and why."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mingce.audit.diff import Difference, Part, compare
from mingce.audit.formats import plain
from mingce.audit.terminal import wrapped
from mingce.audit.wording import place_numbers, printable
from mingce.base.errors import DataError
from mingce.base.lang import LANGS
from mingce.base.terminal import write
from mingce.base.texts import sentence
from mingce.commands.audit import dumps_at, waiting
from mingce.progress.text import MUTED
from mingce.record.dump import Dump

SCHEMA = 1


def run(
    console: Console,
    a: Path,
    b: Path,
    *,
    mapping: Path | None = None,
    step: int | None = None,
    as_json: bool = False,
    lang: str = "zh",
) -> int:
    """Compares two dumps and prints what differs; returns the exit code: 0 the same up to rounding, 1 they part."""
    with waiting(sentence("audit.reading", lang)) as tell:
        one, other = (_only(place, mapping, step) for place in (a, b))
        tell(sentence("audit.comparing", lang))
        difference = compare(one, other)
    if not difference.rows:
        raise DataError(f"{a} and {b} have no row in common, so they are not of one batch; give two dumps of the same.")
    if as_json:
        text = json.dumps(as_values(difference), ensure_ascii=False, indent=2, allow_nan=False)
        write(text + "\n")
    else:
        show(console, difference, lang)
    return 0 if difference.same else 1


def _only(place: Path, mapping: Path | None, step: int | None) -> Dump:
    """The one dump that is meant."""
    found = list(dumps_at([place], mapping, {}, [step] if step is not None and place.is_dir() else []))
    if len(found) > 1:
        steps = ", ".join(str(dump.step) for dump in found if dump.step is not None)
        raise DataError(f"{place} holds {len(found)} dumps{f' (steps {steps})' if steps else ''}; choose with --step.")
    return found[0]


def show(console: Console, difference: Difference, lang: str) -> None:
    """The verdict first, then why, how rows were matched, and a line for each column that parts."""
    parting, first = [part for part in difference.parts if part.sameness != "same"], difference.first

    def show_line(text: str, style: str = "") -> None:
        console.print(Text(wrapped(printable(text), console.width), style=style), soft_wrap=True)

    style = "bold green" if difference.same else "bold red"
    console.print(Text(printable(difference.verdict(lang)), style=style), soft_wrap=True)
    for text in difference.about(lang):
        show_line(text)
    if parting:
        console.print(_table(parting, lang))
    for part in parting:
        if part is not first and part.why[0] and not part.follows:
            show_line(f"{part.column}: {part.why[LANGS.index(lang)]}")
    for text in difference.others(lang):
        show_line(text, MUTED)


def _table(parting: list[Part], lang: str) -> Table:
    """Columns down; where each parts first, both numbers, how widely."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(sentence("audit.column", lang), no_wrap=True)
    table.add_column(sentence("audit.row", lang), justify="right", style=MUTED)
    table.add_column("t", justify="right", style=MUTED)
    table.add_column("A", justify="right", no_wrap=True)
    table.add_column("B", justify="right", no_wrap=True)
    table.add_column(sentence("audit.rows", lang), justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for part in parting:
        spot, rounding = part.first, part.sameness == "rounding"
        row = "" if spot is None or spot.row_a is None else str(spot.row_a)
        if spot is not None and spot.row_b != spot.row_a:
            row += f"/{spot.row_b}"
        token = "" if spot is None or spot.token is None else str(spot.token)
        numbers = ("", "") if spot is None else place_numbers(spot.a, spot.b)
        style = MUTED if rounding else "" if part.follows else "bold red"
        cells = (part.column, row, token, *numbers, f"{100 * part.rows:.3g}%")
        remark = (
            sentence("audit.rounding", lang) if rounding else f"← {', '.join(part.follows)}" if part.follows else ""
        )
        table.add_row(*(Text(cell, style=style) for cell in cells), Text(remark, style=MUTED))
    return table


def as_values(difference: Difference) -> dict[str, Any]:
    """Everything that was compared, as JSON holds it, in both languages."""
    first = difference.first
    return {
        "schema": SCHEMA,
        "a": difference.a,
        "b": difference.b,
        "same": difference.same,
        "verdict": {lang: difference.verdict(lang) for lang in LANGS},
        "first": None if first is None else first.column,
        "aligned": difference.aligned,
        "reordered": difference.reordered,
        "rows": difference.rows,
        "only_a": difference.only_a,
        "only_b": difference.only_b,
        "columns": [_part(part) for part in difference.parts],
        "columns_a": difference.columns_a,
        "columns_b": difference.columns_b,
        "settings": {name: [str(a), str(b)] for name, (a, b) in difference.settings.items()},
    }


def _part(part: Part) -> dict[str, Any]:
    about: dict[str, Any] = plain(asdict(part))
    return about | {"why": dict(zip(LANGS, part.why, strict=True))}
