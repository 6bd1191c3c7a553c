"""Audits every dump of one or more indices in one process and counts what went wrong.

    python bench/audit_sets.py SETS/clean/index.jsonl --details
    python bench/audit_sets.py SETS/faulty/index.jsonl --by lot --json out.json

A line of an index: {"path", "lot", "settings", "dtype", "expect"}; the path is that of a file or a directory, from the
index's folder on. expect "clean": dumps with a false bug and with a false suspicion are counted, with the codes. expect
"bug": noticed means a finding of severity bug or suspicious; named that one of the worst findings says a class out of
"classes", with at most three alternatives, or has a code out of "codes". Either list may be missing. "parts" holds such
lists for each of several bugs; "settings_file" is the mapping file that a person would give.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from mingce.audit.finding import SEVERITIES, Finding
from mingce.base.errors import MingceError
from mingce.commands.audit import audit_all, dumps_at

console = Console(width=200)
ALARMS = ("bug", "suspicious")
MOST_ALTERNATIVES = 3


@dataclass
class Judged:
    """One line of an index and what the audit said of it, worst first."""

    line: dict[str, Any]
    findings: list[Finding]
    error: str = ""

    @property
    def clean(self) -> bool:
        return str(self.line["expect"]) == "clean"

    def codes(self, level: str) -> list[str]:
        return sorted({finding.fault.code for finding in self.findings if finding.level == level})

    @property
    def noticed(self) -> bool:
        return any(self.codes(level) for level in ALARMS)

    @property
    def named(self) -> bool:
        """Whether one of the worst findings says what it is; of several bugs, whether any findings say each."""
        alarms = [finding for finding in self.findings if finding.level in ALARMS]
        if "parts" in self.line:
            return all(any(says(finding, part) for finding in alarms) for part in self.line["parts"])
        return any(says(finding, self.line) for finding in alarms if finding.level == alarms[0].level)

    @property
    def wrong(self) -> bool:
        return bool(self.error) or (self.noticed if self.clean else not self.named)


def says(finding: Finding, bug: dict[str, Any]) -> bool:
    """Whether a finding names a bug, beside few alternatives."""
    classes, codes = set(bug.get("classes") or ()), set(bug.get("codes") or ())
    few = len(finding.named) <= MOST_ALTERNATIVES
    return finding.fault.code in codes or (few and bool(classes & set(finding.named)))


def lines_of(index: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in index.read_text().splitlines() if line.strip()]
    return [line | {"path": str(index.parent / line["path"])} for line in lines]


def judge(line: dict[str, Any]) -> Judged:
    beside = line.get("settings_file")
    try:
        audited = audit_all(dumps_at([Path(line["path"])], Path(beside) if beside else None, {}), "en")
    except MingceError as error:
        return Judged(line, [], str(error))
    findings = [*audited.across, *(finding for report in audited.reports for finding in report.findings)]
    return Judged(line, sorted(findings, key=lambda finding: SEVERITIES.index(finding.level)))


@dataclass
class Lot:
    """The counts of one row of the table."""

    n: int = 0
    errors: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)

    def add(self, one: Judged) -> None:
        self.n += 1
        self.errors += bool(one.error)
        if one.clean:
            for level in ALARMS:
                self.counts[f"false {level}"] += bool(one.codes(level))
                self.codes.update(f"{code}{'' if level == 'bug' else '?'}" for code in one.codes(level))
        else:
            self.counts["faulty"] += 1
            self.counts["noticed"] += one.noticed
            self.counts["named"] += one.named

    def cells(self) -> list[str]:
        faulty = self.counts["faulty"]
        shares = [f"{self.counts[name] / faulty:.1%}" if faulty else "" for name in ("noticed", "named")]
        alarms = [str(self.counts[f"false {level}"]) if faulty < self.n else "" for level in ALARMS]
        codes = ", ".join(f"{code} {count}" for code, count in self.codes.most_common())
        return [str(self.n), *alarms, *shares, str(self.errors or ""), codes]


HEADINGS = ("lot", "n", "false BUG", "false suspicious", "noticed", "named", "not read", "codes (? is suspicious)")


def counted(judged: Iterable[Judged], by: str) -> dict[str, Lot]:
    lots: dict[str, Lot] = {}
    for one in judged:
        lots.setdefault(str(one.line.get(by)), Lot()).add(one)
    return lots


def show(judged: list[Judged], by: str) -> None:
    table = Table(title=f"by {by}", title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading)
    for name, lot in sorted(counted(judged, by).items()):
        table.add_row(name, *lot.cells())
    whole = Lot()
    for one in judged:
        whole.add(one)
    table.add_row("all", *whole.cells(), style="bold")
    console.print(table)


def tell(one: Judged) -> None:
    """A dump that went wrong and why."""
    console.print(f"{one.line['path']}  {one.line['lot']}", style="bold", highlight=False, markup=False, soft_wrap=True)
    if one.error:
        console.print(f"    {one.error}", markup=False, soft_wrap=True)
    for finding in one.findings:
        if finding.level in ALARMS:
            title = finding.fault.title[1].format(**finding.values)
            told = f"    {finding.level:10} {finding.fault.code} {list(finding.named)} {finding.column}: {title}"
            console.print(told, highlight=False, markup=False, soft_wrap=True)


def written(one: Judged) -> dict[str, Any]:
    found = {level: one.codes(level) for level in SEVERITIES}
    return one.line | {"found": found, "noticed": one.noticed, "named": one.named, "error": one.error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path, nargs="+")
    parser.add_argument("--by", nargs="*", default=["lot", "dtype", "settings"], help="fields to count by")
    parser.add_argument("--only", default="", help="lots with this text")
    parser.add_argument("--details", action="store_true", help="the alarms of every dump that went wrong")
    parser.add_argument("--json", type=Path, help="a line for each dump")
    asked = parser.parse_args()
    lines = [line for index in asked.index for line in lines_of(index) if asked.only in line["lot"]]
    judged = [judge(line) for line in track(lines, "audited", console=Console(stderr=True), transient=True)]
    if asked.details:
        for one in judged:
            if one.wrong:
                tell(one)
    for by in asked.by:
        show(judged, by)
    if asked.json:
        asked.json.write_text("".join(json.dumps(written(one), ensure_ascii=False) + "\n" for one in judged))
    raise SystemExit(any(one.wrong for one in judged))


if __name__ == "__main__":
    main()
