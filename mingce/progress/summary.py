"""The last words of a run: accuracy before and after, some answers, where it lies and what to type next."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mingce.base.numbers import percent
from mingce.progress.base import Summary
from mingce.progress.text import MUTED, duration
from mingce.progress.tokens import visible

LONGEST_ANSWER = 60
"""Cells; a longer text is cut, so that a table of answers stays a table."""


def print_summary(console: Console, summary: Summary, phrases: Mapping[str, str]) -> None:
    """Prints what there is to say; a part that was not measured is left out."""
    words = {"steps": summary.steps, "time": duration(summary.seconds), "reason": summary.stopped}
    headline = phrases["stopped" if summary.stopped else "done"].format(**words)
    console.print()
    _line(console, Text(headline, style="bold yellow" if summary.stopped else "bold green"))
    for table in (_accuracy(summary, phrases), _answers(summary, phrases)):
        if table.row_count:
            console.print(Padding(table, (1, 0, 0, 2)))
    console.print()
    _line(console, Text.assemble((phrases["run"], MUTED), "  ", (summary.run, "bold")))
    if summary.commands:
        _line(console, Text(phrases["next"], style=MUTED))
        for command in summary.commands:
            typed, mark, comment = command.partition("  #")
            _line(console, Text.assemble((f"  {typed}", "cyan"), (mark + comment, MUTED)))


def _line(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=True)


def _accuracy(summary: Summary, phrases: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style=MUTED)
    table.add_column(phrases["accuracy"])
    for heading in (phrases["before"], "", phrases["after"], ""):
        table.add_column(heading, justify="right")
    for name, before, after in (
        ("sampled", summary.sampled_before, summary.sampled_after),
        ("greedy", summary.greedy_before, summary.greedy_after),
    ):
        if before is None and after is None:
            continue
        change = Text()
        if before is not None and after is not None:
            points = 100 * (after - before)
            arrow, colour = ("▲", "green") if points > 0.05 else ("▼", "red") if points < -0.05 else ("=", MUTED)
            change = Text(f"{arrow} {abs(points):.1f}", style=colour)
        shown = ["—" if share is None else percent(share) for share in (before, after)]
        table.add_row(phrases[name], shown[0], "→", Text(shown[1], style="bold"), change)
    return table


def _answers(summary: Summary, phrases: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style=MUTED)
    table.add_column("", overflow="fold")
    table.add_column(phrases["before"], overflow="fold")
    table.add_column("")
    table.add_column(phrases["after"], overflow="fold")
    for prompt, before, after, right_before, right_after in summary.answers:
        table.add_row(_short(prompt), _judged(before, right_before), "→", _judged(after, right_after))
    return table


def _judged(answer: str, right: bool) -> Text:
    return Text.assemble(("✓ ", "bold green") if right else ("✗ ", "bold red"), _short(answer))


def _short(answer: str) -> Text:
    text = Text(visible(answer.strip()))
    if cell_len(text.plain) > LONGEST_ANSWER:
        text.truncate(LONGEST_ANSWER, overflow="ellipsis")
    return text
