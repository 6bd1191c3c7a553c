"""Tables as docs/en/performance.md and on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from tables import Check, Table, number

PREFACE = """\
<!-- written by `make bench` (python -m bench --write docs/en/performance.md) from bench/figures.json; do not edit -->
# Performance

How fast mingce is beside others doing the same work, and beside what the machine can do at most. All times are CPU
seconds on the same pinned cores, in float32. The sides take turns, round by round, so that both meet the same machine;
a ratio is the median of the rounds' ratios, with the lowest and highest in brackets. Above 1 mingce is faster.
`make bench` measures everything anew; bench/figures.json has every round.
"""


def page(tables: list[Table], machine: dict[str, Any]) -> str:
    """The whole page: what matters first, then where it falls short, then table by table."""
    parts = [PREFACE, _summary(tables), _machine(machine), _shortfalls(tables), *(_section(table) for table in tables)]
    return "\n".join(parts)


def group_checks(tables: list[Table]) -> dict[tuple[str, str], list[Check]]:
    """The checks by the summary's line they belong to: its name, and whom it is a ratio to."""
    groups: dict[tuple[str, str], list[Check]] = {}
    for table in tables:
        for check in table.checks:
            groups.setdefault((check.group or f"{table.title}: {check.what}", check.peer), []).append(check)
    return groups


def measured(checks: list[Check]) -> str:
    """The range of their figures."""
    low, high = min(check.found for check in checks), max(check.found for check in checks)
    same = number(low) == number(high)
    return checks[0].figure if same else f"{number(low)}–{number(high)}{checks[0].unit}"


def _summary(tables: list[Table]) -> str:
    """A line for each group of checks, ratios to peers first."""
    groups = group_checks(tables)
    ordered = sorted(groups.items(), key=lambda item: not item[0][1])  # a stable sort
    rows = [[name, peer, measured(checks), _target(checks), _verdict(checks)] for (name, peer), checks in ordered]
    asked = [check for checks in groups.values() for check in checks if check.wanted is not None]
    held = sum(check.holds for check in asked)
    heading = ["## In short", "", f"{held} of {len(asked)} targets hold.", ""]
    return "\n".join([*heading, *_grid(["what", "against", "measured", "target", ""], rows), ""])


def _target(checks: list[Check]) -> str:
    """The target; where the cases have different ones, that of the case with the least to spare."""
    asked = [check for check in checks if check.wanted is not None]
    if not asked:
        return ""
    tightest = min(asked, key=lambda check: check.margin)
    same = len({check.target for check in asked}) == 1
    return tightest.target if same else f"{tightest.target} at {tightest.what}"


def _verdict(checks: list[Check]) -> str:
    asked = [check for check in checks if check.wanted is not None]
    missed = sum(not check.holds for check in asked)
    if not asked:
        return "behind" if any(check.behind for check in checks) else ""
    if not missed:
        return "holds"
    return "**missed**" if len(asked) == 1 else f"**missed** in {missed} of {len(asked)}"


def _machine(machine: dict[str, Any]) -> str:
    rows = [[name, str(value)] for name, value in machine.items()]
    return "\n".join(["## The machine", "", *_grid(["", ""], rows), ""])


def _shortfalls(tables: list[Table]) -> str:
    lines = ["## Where a peer is faster, a target is missed or nothing was measured", ""]
    for table in tables:
        for check in table.checks:
            if check.holds and not check.behind:
                continue
            against = f" against {check.peer}" if check.peer else ""
            wanted = f", wanted {check.target}" if check.wanted is not None else ""
            lines.append(f"- {table.title}: {check.what}: {check.figure}{against}{wanted}. {check.why}".rstrip())
        lines += [f"- {table.title}: not measured: {failure}" for failure in table.failures]
    return "\n".join([*(lines if len(lines) > 2 else [*lines, "Nowhere."]), ""])


def _section(table: Table) -> str:
    lines = [f"## {table.title}", ""]
    if table.rows:
        lines += [*_grid(table.columns, table.rows), ""]
    asked = [check for check in table.checks if check.wanted is not None]
    if asked:
        rows = [[check.what, check.target, check.figure, "holds" if check.holds else "**missed**"] for check in asked]
        lines += [*_grid(["asked", "wanted", "found", ""], rows), ""]
    failures = (f"Not measured: {failure}" for failure in table.failures)
    for note in filter(None, (*table.notes, table.circumstances, *failures)):
        lines += [note, ""]
    return "\n".join(lines)


def _grid(headings: list[str], rows: list[list[str]]) -> list[str]:
    """A table of Markdown; columns of numbers stand to the right."""
    ends = ["---:" if _numeric(row[place] for row in rows) else "---" for place in range(len(headings))]
    return [_line(headings), _line(ends), *(_line(row) for row in rows)]


def _numeric(cells: Iterable[str]) -> bool:
    return all(cell[0].isdigit() or cell[0] in "≥≤" for cell in cells if cell)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def show(console: Console, table: Table) -> None:
    """On the terminal."""
    grid = Grid(title=table.title, title_justify="left")
    for place, heading in enumerate(table.columns):
        grid.add_column(heading, justify="right" if place else "left")
    for row in table.rows:
        grid.add_row(*row)
    console.print(grid)
    for check in table.checks:
        if check.wanted is not None:
            colour, word = ("green", "holds") if check.holds else ("red", "MISSED")
            console.print(f"[{colour}]{word}[/] {check.what}: {check.figure}, wanted {check.target}", highlight=False)
    for failure in table.failures:
        console.print(f"[red]not measured[/] {failure}", highlight=False)
