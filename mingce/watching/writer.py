"""What our thread does with a watched step: its batch read as a dump, the ledger's file, the audit, the logs' lines."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mingce.base.atomic import atomic_write
from mingce.base.lang import display_lang
from mingce.base.texts import sentence
from mingce.importers.memory import dump_in_memory
from mingce.record.run import Run
from mingce.watching.host import Choices, Host, Taken

if TYPE_CHECKING:
    from mingce.audit.finding import Report
    from mingce.record.dump import Dump

LOG = logging.getLogger("mingce")
SHARE = 0.02
"""Of the process's CPU time, which audits may take where the person has not said how often."""


class Writer:
    """The run directory of a watched trainer. Made in the host's thread, everything else is called in ours."""

    def __init__(self, directory: Path, host: Host, choices: Choices):
        self.audit_metrics: dict[str, float] = {}
        self.bug: str | None = None
        self._host, self._choices = host, choices
        self._settings = {name: value for name, value in host.settings.items() if value is not None}
        self._run = _opened(directory, host, choices, self._settings)
        self._rewind = choices.resume
        self._line: tuple[int, dict[str, float]] | None = None
        self._newest, self._last, self._offset = -1, -1, 0
        self._audits, self._spent, self._began = 0, 0.0, time.process_time()
        self._told: set[str] = set()

    def batch(self, step: int, taken: Taken) -> None:
        """Write and audit a step; the one is done where the other fails."""
        step = self._numbered(step)
        dump = dump_in_memory({**taken.data, "settings": self._settings}, where=f"step {step}")
        dump.rows |= {name: list(entries) for name, entries in taken.rows.items() if len(entries) == dump.shape[0]}
        dump.step, dump.rows_of = step, taken.rows_of
        errors: list[Exception] = []
        for work in (self._write, self._audit):
            try:
                work(step, dump)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        """The host's own numbers of a step."""
        step = self._numbered(step)
        self._open_line(step)
        if self._line is not None:
            self._line[1].update(metrics)
            self._line[1].update(self.audit_metrics)

    def end_step(self) -> None:
        """The step's line of numbers is whole."""
        if self._line is not None:
            (step, line), self._line = self._line, None
            self._last = step
            self._run.log(step, {name: value for name, value in line.items() if name != "step"})

    def close(self) -> None:
        """Write the last line and give the directory back."""
        try:
            self.end_step()
        finally:
            self._run.close()

    def _numbered(self, step: int) -> int:
        """The step's number in the run; a host that counts from the beginning again is numbered on."""
        if step < self._newest:
            self.end_step()
            self._offset = self._last
        self._newest = step
        return step + max(self._offset, 0)

    def _open_line(self, step: int) -> None:
        """The line of another step ends where this one begins; one that is written already is not written again."""
        if self._line is not None and self._line[0] != step:
            self.end_step()
        if self._line is None and step > self._last:
            self._line = (step, {})

    def _write(self, step: int, dump: Dump) -> None:
        from mingce.record.foreign import foreign_table
        from mingce.sources.dumps import line_of

        if self._rewind:
            self._run.rewind(step - 1)
            self._rewind = False
        self._open_line(step)
        if self._line is not None:
            self._line[1].update({name: value for name, value in line_of(dump).items() if math.isfinite(value)})
        self._run.ledger.write_table(step, *foreign_table(step, dump, kept_rows(dump, self._choices.rows)))

    # ── the audit ────────────────────────────────────────────────────────────────────────────────────────────────

    def _due(self, step: int) -> bool:
        every = self._choices.audit_every
        if every is None:
            return self._audits == 0 or self._spent <= SHARE * (time.process_time() - self._began)
        return every > 0 and (self._audits == 0 or step % every == 0)

    def _audit(self, step: int, dump: Dump) -> None:
        from mingce.audit.audit import audit
        from mingce.audit.formats import finding_json

        if not self._due(step):
            return
        began = time.thread_time()
        report = audit(dump)
        self._audits += 1
        self.audit_metrics = {"audit/bugs": len(report.of("bug")), "audit/suspicious": len(report.of("suspicious"))}
        self._tell(step, report)
        self._spent += time.thread_time() - began
        if self._line is not None:
            self._line[1].update(self.audit_metrics)
        findings = [finding_json(finding, report.labels) for finding in report.findings]
        self._run.log_audit(step, {"checks": len(report.ran), "findings": findings})

    def _tell(self, step: int, report: Report) -> None:
        """To the host's log, each thing once."""
        from mingce.audit.wording import title

        for finding in (*report.of("bug"), *report.of("suspicious")):
            said = title(finding, display_lang())
            if finding.fault.code not in self._told:
                self._told.add(finding.fault.code)
                LOG.warning(sentence(f"watching.{finding.level}", step=step, finding=said, path=self._run.path))
            if finding.level == "bug" and self.bug is None:
                self.bug = said


def kept_rows(dump: Dump, most: int) -> list[int] | None:
    """Which rows are written: all (None), or the first prompts with all of their samples, `most` rows or one prompt."""
    count = dump.shape[0]
    if count <= most:
        return None
    groups = dump.rows.get("group")
    if groups is None:
        return list(range(most))
    members: dict[Any, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(row if group is None else f"group {group}", []).append(row)
    kept: list[int] = []
    for rows in members.values():
        if kept and len(kept) + len(rows) > most:
            break
        kept += rows
    return sorted(kept)


def _opened(directory: Path, host: Host, choices: Choices, settings: dict[str, Any]) -> Run:
    """The run's directory, new or gone on with."""
    if choices.resume and (directory / "config.yaml").is_file():
        return Run.open(directory)
    config = {
        "source": host.source,
        "trainer": host.name,
        "steps": host.steps,
        "settings": settings,
        "watch": {"rows": choices.rows, "every": choices.every},
        "config": dict(host.config),
    }
    run = Run.create(directory.parent, directory.name, config)
    if host.tokenizer is not None:
        atomic_write(run.path / "tokenizer.json", host.tokenizer.encode(), durable=False)
    return run
