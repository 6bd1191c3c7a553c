"""`mingce diff`: two dumps of one batch, the first column, row and token where they part, and why."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mingce.audit.diff import Difference, Part, compare
from mingce.audit.terminal import wrapped
from mingce.audit.wording import place_numbers, printable
from mingce.base.errors import DataError
from mingce.base.lang import say
from mingce.base.terminal import write
from mingce.commands.audit import dumps_at, waiting
from mingce.record.dump import Dump
from mingce.watch.text import MUTED

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
    with waiting(say(lang, "读取", "reading")) as tell:
        one, other = (_only(place, mapping, step) for place in (a, b))
        tell(say(lang, "比较", "comparing"))
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
    parting = [part for part in difference.parts if part.sameness != "same"]
    verdict, *sentences = [printable(line) for line in difference.told(lang)]
    console.print(Text(verdict, style="bold green" if difference.same else "bold red"), soft_wrap=True)
    first = difference.first
    why = 1 if first and first.code else 0
    for sentence in sentences[: why + 1]:
        console.print(Text(wrapped(sentence, console.width)), soft_wrap=True)
    if parting:
        console.print(_table(parting, lang))
    reasons = [
        (part.column, say(lang, *part.why))
        for part in parting
        if part is not first and part.why[0] and not part.follows
    ]
    for name, reason in reasons:
        console.print(Text(wrapped(printable(f"{name}: {reason}"), console.width)), soft_wrap=True)
    for sentence in sentences[why + 1 + len(parting) :]:  # settings, and columns of one side only
        console.print(Text(wrapped(sentence, console.width), style=MUTED), soft_wrap=True)


def _table(parting: list[Part], lang: str) -> Table:
    """Columns down; where each parts first, both numbers, how widely."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(say(lang, "列", "column"), no_wrap=True)
    table.add_column(say(lang, "行", "row"), justify="right", style=MUTED)
    table.add_column("t", justify="right", style=MUTED)
    table.add_column("A", justify="right", no_wrap=True)
    table.add_column("B", justify="right", no_wrap=True)
    table.add_column(say(lang, "占比", "rows"), justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for part in parting:
        spot = part.first
        row = "" if spot is None or spot.row_a is None else str(spot.row_a)
        if spot is not None and spot.row_b != spot.row_a:
            row += f"/{spot.row_b}"
        token = "" if spot is None or spot.token is None else str(spot.token)
        numbers = ("", "") if spot is None else place_numbers(spot.a, spot.b)
        style = (
            "bold red"
            if part.sameness == "differs" and not part.follows
            else ""
            if part.sameness == "differs"
            else MUTED
        )
        cells = (part.column, row, token, *numbers, f"{100 * part.rows:.0f}%")
        table.add_row(*(Text(cell, style=style) for cell in cells), Text(_remark(part, lang), style=MUTED))
    return table


def _remark(part: Part, lang: str) -> str:
    if part.sameness == "rounding":
        return say(lang, "舍入", "rounding")
    return f"← {', '.join(part.follows)}" if part.follows else ""


def as_values(difference: Difference) -> dict[str, Any]:
    """Everything that was compared, as JSON holds it, in both languages."""
    first = difference.first
    return {
        "schema": SCHEMA,
        "a": difference.a,
        "b": difference.b,
        "same": difference.same,
        "verdict": {lang: difference.verdict(lang) for lang in ("zh", "en")},
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
    spot = part.first
    return {
        "column": part.column,
        "sameness": part.sameness,
        "rows": _number(part.rows),
        "largest": _number(part.largest),
        "mean": _number(part.mean),
        "first": None
        if spot is None
        else {
            "row_a": spot.row_a,
            "row_b": spot.row_b,
            "token": spot.token,
            "a": _number(spot.a),
            "b": _number(spot.b),
        },
        "code": part.code,
        "why": {"zh": part.why[0], "en": part.why[1]},
        "follows": list(part.follows),
    }


def _number(x: float) -> float | str:
    """As JSON can hold it."""
    return float(x) if math.isfinite(x) else str(float(x))
