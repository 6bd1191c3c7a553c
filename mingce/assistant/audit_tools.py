"""The tool that audits: a trainer's dump or a run's step, recomputed by code that shares nothing with the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mingce.assistant.run_tools import ledger_step
from mingce.assistant.subject import SETTINGS, Desk, Index, Lang, Settings, Where, link, open_source, run_page
from mingce.base.errors import DataError
from mingce.base.places import step_name
from mingce.base.texts import sentence

MOST_DUMPS, MOST_PLACES = 16, 8


@dataclass(frozen=True, kw_only=True)
class AuditInput(Settings):
    dump: Where
    step: Index | None = None
    mapping: Where | None = None
    lang: Lang | None = None


@dataclass(frozen=True)
class FindingLine:
    """What is wrong, why, what to change, and some of the places where it shows."""

    step: int | None
    code: str
    severity: str
    column: str
    title: str
    cause: str
    change: str
    formula: str
    link: str
    places: list[Mapping[str, Any]]
    page: str


@dataclass(frozen=True)
class AuditAnswer:
    """The verdict on a dump or a run's step, by code that shares nothing with the trainer."""

    verdict: str
    bugs: int
    findings: list[FindingLine]
    steps: list[int | None]
    rows: int
    tokens: int
    checks: list[str]
    skipped: list[str]
    settings: Mapping[str, Any]
    page: str
    url: str | None


def audit_dump(asked: AuditInput, desk: Desk) -> AuditAnswer:
    """Recomputes a dump, or the newest step of a run, and names what is wrong."""
    from mingce.audit.audit import audit
    from mingce.audit.report import Audited, audited_json
    from mingce.audit.steps import audit_steps

    path = desk.places.inside(asked.dump)
    source = open_source(path)
    dumps = _dumps(asked, desk, source)
    reports = [audit(dump) for dump in dumps]
    if not any(report.ran for report in reports):
        raise DataError(sentence("assistant.no_checks", path=desk.places.name(path)))
    stepped = [dump for dump in dumps if dump.step is not None]
    across = list(audit_steps(iter(stepped))) if len({dump.step for dump in stepped}) > 1 else []
    audited, lang = Audited(reports, across), desk.language(asked.lang)
    told = audited_json(audited)
    page = f"{run_page(source.id)}/audit"
    findings = [(report["step"], one) for report in told["reports"] for one in report["findings"]]
    findings += [(None, one) for one in told["across_steps"]]
    return AuditAnswer(
        verdict=audited.verdict(lang),
        bugs=len(audited.bugs),
        findings=[_finding(step, one, lang, page) for step, one in findings],
        steps=[report.step for report in reports],
        rows=sum(report.rows for report in reports),
        tokens=sum(report.tokens for report in reports),
        checks=sorted({check.name for report in reports for check in report.ran}),
        skipped=sorted({one.check.name for report in reports for one in report.skipped}),
        settings=audited.worst.settings.known(),
        page=page,
        url=link(desk, page),
    )


def _dumps(asked: AuditInput, desk: Desk, source: Any) -> list[Any]:
    """A run's one step, or what a file or directory of another trainer holds."""
    from mingce.importers.opening import open_dump

    settings = {name: getattr(asked, name) for name in SETTINGS}
    known = {name: value for name, value in settings.items() if value is not None}
    if source.kind == "run":
        step = ledger_step(source, asked.step)
        return open_dump(source.path / "ledger" / f"{step_name(step)}.parquet", None, known)
    mapping = None if asked.mapping is None else desk.places.inside(asked.mapping)
    dumps = open_dump(source.path, mapping, known, None if asked.step is None else [asked.step])
    dumps = [dump for dump in dumps if asked.step is None or dump.step == asked.step]
    if not dumps:
        raise DataError(sentence("assistant.no_step", step=asked.step))
    if len(dumps) > MOST_DUMPS:
        raise DataError(sentence("assistant.many_dumps", count=len(dumps), most=MOST_DUMPS))
    return dumps


def _finding(step: int | None, told: Mapping[str, Any], lang: str, page: str) -> FindingLine:
    return FindingLine(
        step,
        told["code"],
        told["severity"],
        told["column"],
        told["title"][lang],
        told["cause"][lang],
        told["change"][lang],
        told["formula"],
        told["link"],
        told["places"][:MOST_PLACES],
        page if step is None else f"{page}?step={step}",
    )
