"""The bug bench of the audit: does it see every planted bug, does it call it by its name, is it silent on clean dumps?

    python bench/audit_bugs.py clean --maker own --batches 200      false alarms on clean dumps: own, verl, trl or steps
    python bench/audit_bugs.py bugs --seeds 20                      every class × fp32/bf16 × with/without tool output
    python bench/audit_bugs.py bugs --only 15 16 --details          the findings of each case that went wrong
    python bench/audit_bugs.py bugs --maker verl --json out.json --markdown out.md

TRL's dumps are written first, in an environment that has trl (see audit_trl.py): --dumps FOLDER.

detected    a finding of severity bug or suspicious (any severity where the class is a choice)
named       the class is among those that the worst findings name
uniquely    … and is the only one that a worst finding names
extra       findings of severity bug that name something else, a case
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import torch
from audit_case import Case
from audit_clean import clean
from audit_plants import PARTLY, YES, Plant, batch_with, dumps_of, load
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mingce.audit.audit import audit
from mingce.audit.finding import SEVERITIES, Finding
from mingce.audit.steps import audit_steps
from mingce.record.dump import Dump

console = Console()


def findings_of(dumps: list[Dump]) -> list[Finding]:
    """What the audit says of a dump, or of several steps of a run; worst first."""
    found = [finding for dump in dumps for finding in audit(dump).findings]
    if len(dumps) > 1:
        found += audit_steps(dumps)
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.level))


def text_of(finding: Finding) -> str:
    title = finding.fault.title[1]
    try:
        title = title.format(**finding.values)
    except (KeyError, IndexError, ValueError) as error:
        title = f"{title} [cannot be filled in: {error!r}]"
    return f"{finding.level:10} {finding.fault.code} {list(finding.named)} {finding.column}: {title}"


def tell(findings: Iterable[Finding]) -> None:
    """The findings in words; conventions and notes by their names only."""
    found = list(findings)
    for finding in found:
        if finding.level in ("bug", "suspicious"):
            console.print("    " + text_of(finding), highlight=False, markup=False, soft_wrap=True)
    rest = [
        f"{finding.fault.code} {list(finding.named)}" for finding in found if finding.level in ("convention", "note")
    ]
    console.print("    " + ", ".join(rest), style="dim", highlight=False, markup=False, soft_wrap=True)


# ── planted ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Verdict:
    """What the audit made of one planted case."""

    detected: bool
    named: bool
    uniquely: bool
    extra: int
    findings: tuple[Finding, ...]


def judge(plant: Plant, dumps: list[Dump]) -> Verdict:
    found = findings_of(dumps)
    true = {plant.number, *plant.also}
    if plant.choice:
        worst = [finding for finding in found if true & set(finding.named)]
        detected = bool(worst)
    else:
        detected = bool(found) and found[0].level in ("bug", "suspicious")
        worst = [finding for finding in found if detected and finding.level == found[0].level]
    return Verdict(
        detected,
        any(true & set(finding.named) for finding in worst),
        any(finding.named == (plant.number,) for finding in worst),
        sum(finding.level == "bug" and not true & set(finding.named) for finding in found),
        tuple(found),
    )


@dataclass
class Row:
    """A plant's counts, for 32 and for 16 bits."""

    plant: Plant
    cases: Counter[str] = field(default_factory=Counter)
    detected: Counter[str] = field(default_factory=Counter)
    named: Counter[str] = field(default_factory=Counter)
    uniquely: Counter[str] = field(default_factory=Counter)
    extra: Counter[str] = field(default_factory=Counter)

    def share(self, what: str, bits: str) -> str:
        n = self.cases[bits]
        if not n:
            return ""
        value = getattr(self, what)[bits] / n
        return f"{value:.2f}" if what == "extra" else f"{value:.0%}"


def run_bugs(
    maker: str, seeds: int, only: set[int], details: bool, flavour: str = "", bits: tuple[str, ...] = ("fp32", "bf16")
) -> list[Row]:
    rows = [Row(p) for p in load() if (not only or p.number in only) and flavour in p.flavour]
    tasks = list(product(rows, (True, False), range(seeds)))
    for row, holes, seed in track(tasks, f"bugs in {maker}", console=console, transient=True):
        cases = batch_with(row.plant, seed, maker, holes)
        for precision in bits:
            dumps = dumps_of(row.plant, cases, precision == "bf16")
            if not dumps:
                continue
            verdict = judge(row.plant, dumps)
            row.cases[precision] += 1
            for name in ("detected", "named", "uniquely", "extra"):
                getattr(row, name)[precision] += int(getattr(verdict, name))
            if details and not (verdict.detected and verdict.named and not verdict.extra):
                about = f"{precision} {'holes' if holes else 'no holes'} seed {seed} {dumps[-1].shape}"
                console.print(f"[bold]{row.plant.name}[/] {about}", highlight=False)
                tell(verdict.findings)
    return [row for row in rows if row.cases]


HEADINGS = (
    "class", "flavour", "cases", "detected fp32", "bf16", "named fp32", "bf16", "uniquely fp32", "bf16",
    "extra fp32", "bf16",
)  # fmt: skip


def cells(row: Row) -> list[str]:
    shares = [row.share(what, bits) for what in ("detected", "named", "uniquely", "extra") for bits in ("fp32", "bf16")]
    return [str(row.plant.number), row.plant.flavour, str(row.cases.total()), *shares]


def summary(rows: list[Row]) -> list[list[str]]:
    """Detected and named over the classes that are decidable, over those that need more columns, and verl 0.1's."""
    parts: list[tuple[str, Callable[[Plant], bool]]] = [
        ("decidable from a dump", lambda p: p.number in YES and not p.seed),
        ("with the extra columns", lambda p: p.number in PARTLY and not p.seed),
        ("verl 0.1's own defects", lambda p: p.seed),
    ]
    lines = []
    for title, belongs in parts:
        chosen = [row for row in rows if belongs(row.plant)]
        if not chosen:
            continue
        line = [title, f"{len({row.plant.number for row in chosen})} classes"]
        line.append(str(sum(row.cases.total() for row in chosen)))
        for what in ("detected", "named", "uniquely", "extra"):
            for bits in ("fp32", "bf16"):
                n = sum(row.cases[bits] for row in chosen)
                value = sum(getattr(row, what)[bits] for row in chosen) / max(n, 1)
                line.append("" if not n else f"{value:.2f}" if what == "extra" else f"{value:.1%}")
        lines.append(line)
    return lines


# ── clean ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def clean_run(seed: int, maker: str, coarse: bool) -> list[Dump]:
    """Four steps of a run in which the policy moves a little each time."""
    steps = [Case(seed, maker, seed % 2 == 0, rows=32, spread=False)]
    for number in range(3):
        steps.append(Case(seed * 1000 + number, maker, seed % 2 == 0, rows=32, spread=False, like=steps[-1]))
    return [case.dump(coarse) for case in steps]


def clean_dumps(maker: str, batches: int, folder: Path) -> Iterable[tuple[str, list[Dump]]]:
    """(name, dump) of each clean batch, each in 32 and in 16 bits."""
    if maker == "trl":
        from audit_peers import from_trl

        files = sorted(folder.glob("*.npz"))[-batches:]  # the trainer's own are the last
        if not files:
            raise SystemExit(f"no dump of TRL in {folder}; write them first: TRL_PYTHON bench/audit_trl.py {folder}")
        for path in files:
            for coarse in (False, True):
                yield f"{path.stem} {'bf16' if coarse else 'fp32'}", [from_trl(path, coarse)]
        return
    for seed in range(batches):
        for coarse in (False, True):
            name = f"{maker} seed {seed} {'bf16' if coarse else 'fp32'}"
            if maker == "steps":
                yield name, clean_run(seed, "own", coarse)
            else:
                yield name, [clean(seed, maker, seed % 2 == 0, coarse)]


def run_clean(maker: str, batches: int, folder: Path, details: bool) -> tuple[int, Counter[tuple[str, str]]]:
    """How many dumps, and in how many of them each fault was found, by severity."""
    count, seen = 0, Counter[tuple[str, str]]()
    dumps = clean_dumps(maker, batches, folder)
    for name, dump in track(dumps, f"clean {maker}", total=2 * batches, console=console, transient=True):
        count += 1
        found = findings_of(dump)
        seen.update({(finding.level, finding.fault.code) for finding in found})
        if details and found and found[0].level in ("bug", "suspicious"):
            about = dump[-1].settings.estimator, dump[-1].shape, dump[-1].source
            console.print(f"[bold]{name}[/] {about}", highlight=False)
            tell(found)
    return count, seen


# ── the command line ───────────────────────────────────────────────────────────────────────────────────────────────


def show(title: str, headings: Iterable[str], lines: list[list[str]]) -> None:
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading)
    for line in lines:
        table.add_row(*line)
    console.print(table)


def write(asked: argparse.Namespace, headings: Iterable[str], lines: list[list[str]], whole: list[list[str]]) -> None:
    names = list(headings)
    if asked.json:
        asked.json.write_text(
            json.dumps({"columns": names, "rows": lines, "summary": whole}, ensure_ascii=False, indent=1)
        )
    if asked.markdown:
        rows = [names, ["---"] * len(names), *lines, *whole]
        asked.markdown.write_text("".join("| " + " | ".join(row) + " |\n" for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("clean", "bugs"))
    parser.add_argument("--maker", default="own", choices=("own", "verl", "trl", "steps"))
    parser.add_argument("--batches", type=int, default=200, help="clean batches")
    parser.add_argument("--seeds", type=int, default=20, help="batches of each bug, precision and kind")
    parser.add_argument("--only", type=int, nargs="*", default=[], help="these classes")
    parser.add_argument("--flavour", default="", help="flavours with this text")
    parser.add_argument("--bits", nargs="*", default=["fp32", "bf16"])
    parser.add_argument("--details", action="store_true", help="the findings of what went wrong")
    parser.add_argument("--dumps", type=Path, default=Path(tempfile.gettempdir()) / "trl_dumps", help="of audit_trl.py")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    asked: Any = parser.parse_args()
    torch.set_num_threads(1)
    if asked.what == "clean":
        count, seen = run_clean(asked.maker, asked.batches, asked.dumps, asked.details)
        order = sorted(seen, key=lambda key: (SEVERITIES.index(key[0]), key[1]))
        lines = [[level, code, str(seen[level, code]), f"{seen[level, code] / count:.1%}"] for level, code in order]
        bugs = sum(n for (level, _), n in seen.items() if level == "bug")
        show(f"{count} clean dumps of {asked.maker}", ("severity", "fault", "dumps", "share"), lines)
        console.print(f"false alarms of severity bug: [{'red' if bugs else 'green'}]{bugs}[/]")
        write(asked, ("severity", "fault", "dumps", "share"), lines, [])
        raise SystemExit(1 if bugs else 0)
    rows = run_bugs(asked.maker, asked.seeds, set(asked.only), asked.details, asked.flavour, tuple(asked.bits))
    lines, whole = [cells(row) for row in rows], summary(rows)
    show(f"planted bugs, {asked.maker}, {asked.seeds} seeds", HEADINGS, lines)
    show("together", HEADINGS, whole)
    write(asked, HEADINGS, lines, whole)


if __name__ == "__main__":
    main()
