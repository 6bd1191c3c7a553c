"""A report in the terminal: the verdict, each finding with its tokens, then what was recognised and what is lacking."""

from __future__ import annotations

import re

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mingce.audit.finding import Finding, Report, Severity
from mingce.audit.missing import missing, release
from mingce.audit.wording import (
    SEVERITY_WORDS,
    class_words,
    columns_words,
    counted,
    filled,
    lacking,
    pick,
    place_numbers,
    printable,
    settings_words,
    share_words,
    title,
)
from mingce.base.texts import sentence
from mingce.progress.text import MUTED

STYLES: dict[Severity, str] = {"bug": "bold red", "suspicious": "bold yellow", "convention": "cyan", "note": MUTED}
INDENT = 3
LABEL_CELLS = 9
_WIDE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
# a wide character with the brackets and stops that may not part from it; a run of narrow ones with such stops; space
_PIECES = re.compile(rf"[（“《]*[{_WIDE}][，。；：、！？）”》]*|[^\s{_WIDE}“”]+[，。；：、！？）”》]*|[“”]|\s+")


def print_verdict(console: Console, line: str, severity: Severity | None) -> None:
    """The first line, never broken: whoever reads a pipe wants it whole."""
    style = STYLES[severity] if severity else "bold green"
    console.print(Text(line, style=style), soft_wrap=True)


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most `width` cells; Chinese breaks between any two characters, as it is printed."""
    lines = [""]
    for piece in _PIECES.findall(text):
        if cell_len(lines[-1] + piece.rstrip()) > width and lines[-1].strip():
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.lstrip()
    return "\n".join(lines)


def worst(findings: list[Finding]) -> Severity | None:
    """What colours a verdict: "bug", "suspicious", or None for neither."""
    levels = {finding.level for finding in findings}
    return "bug" if "bug" in levels else "suspicious" if "suspicious" in levels else None


def show_report(console: Console, report: Report, lang: str) -> None:
    """Everything about one dump below its verdict."""
    _facts(console, report, lang)
    number = 0
    for finding in report.findings:
        if finding.level in ("bug", "suspicious"):
            number += 1
            show_finding(console, finding, report.labels, lang, number)
    _recognised(console, report.of("convention"), sentence("audit.conventions", lang), lang)
    _recognised(console, report.of("note"), sentence("audit.notes", lang), lang)
    _lacking(console, report, lang)


def _facts(console: Console, report: Report, lang: str) -> None:
    step = "" if report.step is None else sentence("audit.step", lang, step=report.step)
    counts = counted("audit.table_rows", report.rows, lang), counted("audit.tokens", report.tokens, lang)
    size = sentence("audit.size", lang, rows=counts[0], tokens=counts[1])
    checks = sentence("audit.ran", lang, checks=counted("audit.checks", len(report.ran), lang))
    lacking_a_column = sum(bool(one.missing) for one in report.skipped)
    if lacking_a_column:
        checks += sentence("audit.skipped", lang, count=lacking_a_column)
    about = (printable(report.path), report.source, step, size, checks)
    lines = [(" · ".join(part for part in about if part), MUTED)]
    settings = settings_words(report, lang)
    if settings:
        lines.append((sentence("audit.settings", lang, settings=settings), MUTED))
    lines += [(f"! {printable(pick(remark, lang))}", "yellow") for remark in report.remarks]
    for line, style in lines:
        console.print(Text(wrapped(line, console.width), style=style), soft_wrap=True)


def show_finding(
    console: Console, finding: Finding, labels: dict[tuple[int, int], str] | None, lang: str, number: int
) -> None:
    """One finding: what, which formula, at which tokens, how widely, why, and what to do.

    `labels` names tokens by (row, token); None for a finding that is not about rows of one dump.
    """
    fault, style = finding.fault, STYLES[finding.level]
    console.print()
    severity = sentence(SEVERITY_WORDS[finding.level], lang)
    head = wrapped(f"{severity}  {title(finding, lang)}", console.width - INDENT).replace("\n", "\n" + " " * INDENT)
    line = Text.assemble((f"{number}".ljust(INDENT), MUTED), (head, "bold"))
    line.stylize(style, INDENT, INDENT + len(severity))
    console.print(line, soft_wrap=True)
    hits = [finding.column] if labels is None else [finding.column, share_words(finding, lang)]
    _labelled(console, "audit.formula", fault.formula, "cyan", lang)
    _labelled(console, "audit.class", class_words(finding, lang), "", lang)
    _labelled(console, "audit.hits", " · ".join(hits), "", lang)
    if finding.places:
        console.print(Padding(_places(finding, labels or {}, lang), (0, 0, 0, INDENT + LABEL_CELLS), expand=False))
    _labelled(console, "audit.cause", filled(fault.cause, finding, lang), "", lang)
    _labelled(console, "audit.change", filled(fault.change, finding, lang), "green", lang)
    _labelled(console, "audit.see", fault.link, "underline", lang)  # no spaces: stays whole and clickable


def _labelled(console: Console, key: str, text: str, style: str, lang: str) -> None:
    """`label  text`, the text wrapped beside its label; nothing where there is no text."""
    if text:
        label = sentence(key, lang)
        _item(console, label + " " * (LABEL_CELLS - cell_len(label)), text, style, MUTED)


def _places(finding: Finding, labels: dict[tuple[int, int], str], lang: str) -> Table:
    """The first tokens where it fails, expected and found side by side."""
    named = {(p.row, p.token): labels[p.row, p.token] for p in finding.places if (p.row, p.token) in labels}  # type: ignore[index]
    rows, tokens = (any(getattr(p, name) is not None for p in finding.places) for name in ("row", "token"))
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    if rows:
        table.add_column(sentence("audit.row", lang), justify="right", style=MUTED)
    if tokens:
        table.add_column("t", justify="right", style=MUTED)
    if named:
        table.add_column("token", overflow="fold")
    table.add_column(sentence("audit.expected", lang), justify="right", style="green", no_wrap=True)
    table.add_column(sentence("audit.found", lang), justify="right", style="red", no_wrap=True)
    for place in finding.places:
        cells = ["" if place.row is None else str(place.row)] if rows else []
        cells += ["" if place.token is None else str(place.token)] if tokens else []
        cells += [printable(named.get((place.row, place.token), ""))] if named else []
        table.add_row(*(Text(cell) for cell in (*cells, *place_numbers(place.expected, place.found))))
    return table


def _recognised(console: Console, findings: list[Finding], heading: str, lang: str) -> None:
    """Conventions or notes: a line each."""
    if not findings:
        return
    console.print()
    console.print(Text(heading, style="bold"))
    names = max(cell_len(finding.column) for finding in findings) + 2
    for finding in findings:
        _item(console, finding.column.ljust(names), title(finding, lang))


def _item(console: Console, name: str, text: str, style: str = "", name_style: str = "cyan") -> None:
    """An indented line that begins with a name, its rest wrapped beside it."""
    beside = INDENT + cell_len(name)
    body = wrapped(text, max(console.width - beside, 20)).replace("\n", "\n" + " " * beside)
    console.print(Text.assemble(" " * INDENT, (name, name_style), (body, style)), soft_wrap=True)


def _lacking(console: Console, report: Report, lang: str) -> None:
    """The checks that did not run, by what would let them."""
    groups = [(columns_words(missing, lang), ", ".join(names)) for missing, names in lacking(report)]
    if not groups:
        return
    console.print()
    console.print(Text(wrapped(sentence("audit.not_run", lang), console.width), style="bold"), soft_wrap=True)
    names = min(max(cell_len(needed) for needed, _ in groups), console.width // 2) + 2
    for needed, would in groups:
        if cell_len(needed) < names:
            _item(console, needed + " " * (names - cell_len(needed)), would)
        else:  # too long to stand beside anything
            _item(console, "", needed, "cyan")
            _item(console, " " * names, would)


def show_missing(console: Console, report: Report, lang: str) -> None:
    """What to record so that the checks which could not run would, in the dump's trainer."""
    lines = missing(report, lang)
    if not lines:
        console.print(sentence("audit.missing_nothing", lang))
        return
    heading = sentence("audit.missing_title", lang, release=release(report, lang))
    console.print(Text(wrapped(heading, console.width), style="bold"), soft_wrap=True)
    names = max(cell_len(one.name) for one in lines) + 2
    for one in lines:
        _item(console, one.name.ljust(names), one.line)
        _item(console, " " * names, sentence("audit.missing_unlocks", lang, checks=", ".join(one.checks)), MUTED)
