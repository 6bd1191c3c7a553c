"""What came of an audit, of one dump or of a run's steps, and its three shapes: terminal, JSON, Markdown.

audited = Audited([audit(dump)])
show(console, audited, "zh")                             # the first line is the verdict
audited_json(audited), audited_markdown(audited, "en")
as_json(report), as_markdown(report, "en")               # of one dump
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from mingce.audit.finding import Finding, Report
from mingce.audit.formats import SCHEMA, as_json, as_markdown, finding_json, finding_markdown
from mingce.audit.terminal import STYLES, print_verdict, show_finding, show_report, worst
from mingce.audit.wording import bug_line, clean_line, doubts, printable, verdict
from mingce.base.lang import LANGS
from mingce.base.texts import sentence
from mingce.progress.text import MUTED, padded

__all__ = ["Audited", "as_json", "as_markdown", "audited_json", "audited_markdown", "show"]

STEP_LINES = 24
"""Above this many dumps only those with something in them get a line."""


@dataclass
class Audited:
    """The reports of the dumps audited together, in order, and what only several steps beside each other show."""

    reports: list[Report]
    across: list[Finding] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 without a bug, 1 with one."""
        return 1 if self.bugs else 0

    @property
    def findings(self) -> list[Finding]:
        """Of all dumps, those across steps first."""
        return [*self.across, *(finding for report in self.reports for finding in report.findings)]

    def unjudged(self, areas: Iterable[str]) -> list[str]:
        """Those of the areas that some dump does not allow to judge."""
        return [area for area in areas if not all(area in report.judged for report in self.reports)]

    @property
    def bugs(self) -> list[Finding]:
        """Each bug once, however many steps have it."""
        found = [finding for report in self.reports for finding in report.of("bug")]
        found += [finding for finding in self.across if finding.level == "bug"]
        return list({finding.fault.code: finding for finding in reversed(found)}.values())[::-1]

    @property
    def worst(self) -> Report:
        """The report with the most bugs, then the most doubts; the earliest of them."""
        return max(self.reports, key=lambda report: (len(report.of("bug")), len(report.of("suspicious"))))

    def verdict(self, lang: str) -> str:
        """One line about all dumps."""
        if len(self.reports) == 1 and not self.across:
            return verdict(self.reports[0], lang)
        steps, hit = len(self.reports), [report for report in self.reports if report.of("bug")]
        if self.bugs:
            line = bug_line(self.bugs, lang)
            if hit:
                line += sentence("audit.bugs_in", lang, hit=len(hit), steps=steps, first=name_of(hit[0], lang))
            return line
        suspicious = sum(len(r.of("suspicious")) for r in self.reports)
        suspicious += sum(finding.level == "suspicious" for finding in self.across)
        return clean_line(self.reports, lang) + doubts(suspicious, lang)


def name_of(report: Report, lang: str) -> str:
    """`step 12`, or the file's name where the step is unknown."""
    if report.step is not None:
        return sentence("audit.step", lang, step=report.step)
    return printable(report.path.rpartition("/")[2])


def show(console: Console, audited: Audited, lang: str) -> None:
    """Prints the verdict first, a line for each of several dumps, and the whole report of the worst."""
    print_verdict(console, audited.verdict(lang), worst(audited.findings))
    if len(audited.reports) > 1:
        _show_steps(console, audited, lang)
    for number, finding in enumerate(audited.across, 1):
        show_finding(console, finding, None, lang, number)
    if len(audited.reports) > 1:
        console.print()
        heading = sentence("audit.worst", lang, name=name_of(audited.worst, lang))
        console.print(Text(heading, style="bold"))
    show_report(console, audited.worst, lang)


def _show_steps(console: Console, audited: Audited, lang: str) -> None:
    """A verdict a dump; of many, only those that are not clean."""
    reports = audited.reports
    shown = reports if len(reports) <= STEP_LINES else [report for report in reports if worst(report.findings)]
    names = max((cell_len(name_of(report, lang)) for report in shown[:STEP_LINES]), default=0)
    for report in shown[:STEP_LINES]:
        console.print(step_line(report, lang, names), overflow="ellipsis", no_wrap=True)
    left = len(reports) - len(shown[:STEP_LINES])
    if left:
        console.print(Text("  " + sentence("audit.more", lang, count=left), style=MUTED))


def step_line(report: Report, lang: str, width: int = 0) -> Text:
    """One dump in a line: a mark, its name in at least `width` cells, and its verdict."""
    level = worst(report.findings)
    mark, style = ("✓", "green") if level is None else ("✗" if level == "bug" else "?", STYLES[level])
    name = padded(name_of(report, lang), max(width, cell_len(name_of(report, lang))))
    return Text.assemble((f"{mark} ", style), (f"{name}  ", MUTED), verdict(report, lang))


def audited_json(audited: Audited) -> dict[str, Any]:
    """What `mingce audit --json` prints: the reports of all dumps and the findings across steps."""
    return {
        "schema": SCHEMA,
        "exit_code": audited.exit_code,
        "verdict": {lang: audited.verdict(lang) for lang in LANGS},
        "reports": [as_json(report) for report in audited.reports],
        "across_steps": [finding_json(finding, {}) for finding in audited.across],
    }


def audited_markdown(audited: Audited, lang: str) -> str:
    """One page: as of one dump, or a list of verdicts with the whole report of the worst."""
    if len(audited.reports) == 1 and not audited.across:
        return as_markdown(audited.reports[0], lang)
    lines = [f"# {audited.verdict(lang)}", ""]
    lines += [f"- {name_of(report, lang)}: {verdict(report, lang)}" for report in audited.reports]
    lines.append("")
    for finding in audited.across:
        lines += finding_markdown(finding, {}, lang)
    worst_report = as_markdown(audited.worst, lang).split("\n", 2)[2]  # its verdict stands in the list
    heading = sentence("audit.md_worst", lang, name=name_of(audited.worst, lang))
    return "\n".join([*lines, heading, "", worst_report])
