"""`mingce audit --follow`: the steps of a trainer that is running, a line each as they arrive, summed up at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from mingce.audit.finding import Finding, Report
from mingce.audit.report import Audited, step_line
from mingce.audit.steps import Step, judge_steps
from mingce.audit.terminal import show_finding
from mingce.audit.wording import printable
from mingce.base.errors import DataError, MingceError
from mingce.base.texts import sentence
from mingce.commands.audit import judged
from mingce.importers.following import PATIENCE, Arrival, Follower
from mingce.progress.text import MUTED
from mingce.record.dump import Dump

POLL = 0.5
MOST_REPORTS = 500
MOST_STEPS = 200
"""Steps that are held beside each other."""


class Following:
    """What has arrived so far: reports, and what steps say together, both within bounds."""

    def __init__(self, console: Console, lang: str):
        self._console, self._lang = console, lang
        self._reports: dict[tuple[Any, ...], Report] = {}
        self._steps: dict[int, Step] = {}
        self._across: dict[str, Finding] = {}
        self._told: set[str] = set()
        self.dropped = 0

    def audited(self) -> Audited:
        """All of it together."""
        return Audited(list(self._reports.values()), list(self._across.values()))

    def take(self, place: int, arrival: Arrival) -> None:
        """Audit what has arrived, and say what came of it."""
        if arrival.problem is not None:
            self._print(Text(f"! {printable(arrival.problem)}", style="yellow"))
        for number, dump in enumerate(arrival.dumps):
            try:
                report = judged(dump, self._lang)
            except MingceError as error:
                self._print(Text(f"! {printable(str(error))}", style="yellow"))
                continue
            self._keep((place, arrival.key, number), report)
            line = step_line(report, self._lang)
            if arrival.again:
                line.append("  " + sentence("audit.follow_again", self._lang), style=MUTED)
            self._print(line)
            self._tell(report.findings, report)
            self._beside(dump)
        arrival.dumps.clear()

    def _beside(self, dump: Dump) -> None:
        """What the step says beside those before it."""
        if dump.step is None:
            return
        self._steps[dump.step] = Step.of(dump.step, dump)
        while len(self._steps) > MOST_STEPS:
            del self._steps[min(self._steps)]
        if len(self._steps) > 1:
            found = judge_steps(self._steps)
            self._across |= {finding.fault.code: finding for finding in found}
            self._tell(found, None)

    def _tell(self, findings: Sequence[Finding], report: Report | None) -> None:
        """Bugs and what is suspicious in full, each once."""
        for finding in findings:
            if finding.level in ("bug", "suspicious") and finding.fault.code not in self._told:
                self._told.add(finding.fault.code)
                labels = None if report is None else report.labels
                show_finding(self._console, finding, labels, self._lang, len(self._told))
                self._console.print()

    def _keep(self, key: tuple[Any, ...], report: Report) -> None:
        """The newest, and those with a bug before those without one."""
        self._reports.pop(key, None)
        self._reports[key] = report
        if len(self._reports) > MOST_REPORTS:
            keys = list(self._reports)
            clean = (one for one in keys if not self._reports[one].of("bug"))
            del self._reports[next(clean, keys[1])]
            self.dropped += 1

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


def follow(
    console: Console,
    places: Sequence[Path],
    *,
    mapping: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    steps: Sequence[int] = (),
    idle: float | None = None,
    lang: str = "zh",
    sleep: Callable[[float], None] = time.sleep,
) -> Audited:
    """Audits what arrives until Ctrl-C, or until nothing has for `idle` seconds."""
    followers = [Follower(place, mapping, settings, steps) for place in places]
    following = Following(console, lang)
    named = ", ".join(printable(str(place)) for place in places)
    console.print(Text(sentence("audit.following", lang, places=named), style=MUTED), soft_wrap=True)
    last = time.monotonic()
    try:
        while True:
            for number, follower in enumerate(followers):
                for arrival in follower.poll():
                    following.take(number, arrival)
                    last = time.monotonic()
            silent = time.monotonic() - last
            waiting = any(follower.waiting() for follower in followers) and silent < PATIENCE + (idle or 0)
            if idle is not None and silent >= idle and not waiting:
                break
            sleep(POLL)
    except KeyboardInterrupt:
        pass
    audited = following.audited()
    if not audited.reports:
        raise DataError(sentence("audit.follow_nothing", lang, places=named))
    console.print()
    if following.dropped:
        left = sentence("audit.follow_left", lang, count=following.dropped)
        console.print(Text(left, style=MUTED), soft_wrap=True)
    return audited
