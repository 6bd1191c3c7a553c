"""A report as JSON and as Markdown."""

from __future__ import annotations

from typing import Any

import numpy as np

from mingce.audit.finding import AREAS, SEVERITIES, Finding, Report
from mingce.audit.missing import missing
from mingce.audit.wording import (
    COLON,
    SEVERITY_WORDS,
    class_words,
    columns_words,
    filled,
    lacking,
    pick,
    place_numbers,
    printable,
    settings_words,
    share_words,
    title,
    verdict,
)
from mingce.base.lang import LANGS
from mingce.base.texts import sentence
from mingce.record.logs import plain_number

SCHEMA = 1
"""Raised when a key of the JSON changes its meaning or goes away; new keys do not raise it."""


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_json(report: Report) -> dict[str, Any]:
    """Everything a report says, in both languages, as values that JSON holds; keys are stable within SCHEMA."""
    return {
        "schema": SCHEMA,
        "path": report.path,
        "source": report.source,
        "step": report.step,
        "rows": report.rows,
        "tokens": report.tokens,
        "exit_code": report.exit_code,
        "verdict": {lang: verdict(report, lang) for lang in LANGS},
        "counts": {severity: len(report.of(severity)) for severity in SEVERITIES},
        "findings": [finding_json(finding, report.labels) for finding in report.findings],
        "settings": {
            name: {"value": plain(value), "inferred": name in report.inferred}
            for name, value in report.settings.known().items()
        },
        "checks": [{"name": check.name, "title": _languages(check.title)} for check in report.ran],
        "skipped": [
            {"name": one.check.name, "title": _languages(one.check.title), "missing": list(one.missing)}
            for one in report.skipped
        ],
        "judged": [area for area in AREAS if area in report.judged],
        "unjudged": [area for area in AREAS if area not in report.judged],
        "to_record": [
            {"name": zh.name, "line": _languages((zh.line, en.line)), "checks": list(zh.checks)}
            for zh, en in zip(missing(report, "zh"), missing(report, "en"), strict=True)
        ],
        "remarks": [_languages(remark) for remark in report.remarks],
    }


def finding_json(finding: Finding, labels: dict[tuple[int, int], str]) -> dict[str, Any]:
    """One finding; `labels` are the ids or texts of tokens by (row, token)."""
    fault = finding.fault
    texts = {"title": fault.title, "cause": fault.cause, "change": fault.change}
    return {
        "code": fault.code,
        "severity": finding.level,
        "classes": list(finding.named),
        "column": finding.column,
        **{name: {lang: filled(pair, finding, lang) for lang in LANGS} for name, pair in texts.items()},
        "formula": fault.formula,
        "link": fault.link,
        "share": plain(finding.share),
        "values": {name: plain(value) for name, value in finding.values.items()},
        "places": [plain(vars(place)) | {"label": _label(place.row, place.token, labels)} for place in finding.places],
    }


def _languages(pair: tuple[str, str]) -> dict[str, str]:
    return dict(zip(LANGS, pair, strict=True))


def _label(row: int | None, token: int | None, labels: dict[tuple[int, int], str]) -> str | None:
    return None if row is None or token is None else labels.get((row, token))


def plain(value: Any) -> Any:
    """As JSON can hold it; NaN and infinities as words that float() reads back."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return plain_number(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


# ── Markdown ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_markdown(report: Report, lang: str) -> str:
    """The whole report; its heading is the verdict."""
    lines = [f"# {_escaped(verdict(report, lang))}", "", *facts(report, lang), ""]
    for finding in report.findings:
        if finding.level in ("bug", "suspicious"):
            lines += finding_markdown(finding, report.labels, lang)
    recognised = [finding for finding in report.findings if finding.level in ("convention", "note")]
    if recognised:
        lines += [sentence("audit.md_conventions", lang), "", *_table("audit.md_convention_heads", "|||", lang)]
        for finding in recognised:
            formula = f"`{_cell(finding.fault.formula)}`" if finding.fault.formula else ""
            lines.append(_cells(_code(finding.column), _cell(_escaped(title(finding, lang))), formula))
        lines.append("")
    if lacking(report):
        lines += [sentence("audit.md_skipped", lang), "", *_table("audit.md_skipped_heads", "||", lang)]
        lines += [_cells(columns_words(missing, lang), ", ".join(names)) for missing, names in lacking(report)]
        lines.append("")
    return "\n".join(lines)


def facts(report: Report, lang: str) -> list[str]:
    """Where the numbers come from, as Markdown paragraphs."""
    step = "" if report.step is None else sentence("audit.md_step", lang, step=report.step)
    size = {"rows": report.rows, "tokens": report.tokens, "checks": len(report.ran)}
    about = sentence("audit.md_facts", lang, source=report.source, step=step, **size)
    lines = [f"{_code(printable(report.path))} · {about}" if report.path else about]
    settings = settings_words(report, lang)
    if settings:
        lines += ["", sentence("audit.md_settings", lang, settings=settings)]
    for remark in report.remarks:
        lines += ["", f"> {_escaped(printable(pick(remark, lang)))}"]
    return lines


def finding_markdown(finding: Finding, labels: dict[tuple[int, int], str], lang: str) -> list[str]:
    """A section about one finding."""
    fault, colon = finding.fault, COLON[lang]
    severity = sentence(SEVERITY_WORDS[finding.level], lang)
    lines = [f"## {severity}{colon}{_escaped(title(finding, lang))}", ""]
    about = [
        ("audit.column", _code(finding.column)),
        ("audit.formula", _code(fault.formula)),
        ("audit.class", class_words(finding, lang)),
        ("audit.hits", share_words(finding, lang)),
        ("audit.cause", _escaped(filled(fault.cause, finding, lang))),
        ("audit.change", _escaped(filled(fault.change, finding, lang))),
        ("audit.see", f"<{fault.link}>" if fault.link else ""),
    ]
    lines += [f"- {sentence(key, lang)}{colon}{text}" for key, text in about if text]
    if finding.places:
        lines += ["", *_table("audit.md_place_heads", ":|:||:|:", lang)]
        for place in finding.places:
            label = _label(place.row, place.token, labels)
            at = ("" if index is None else str(index) for index in (place.row, place.token))
            named = _code(printable(label)) if label else ""
            lines.append(_cells(*at, named, *place_numbers(place.expected, place.found)))
    return [*lines, ""]


def _table(key: str, align: str, lang: str) -> list[str]:
    """The two lines that a table begins with; `:` aligns a column to the right."""
    return [sentence(key, lang), "|" + "|".join(f"---{one}" for one in align.split("|")) + "|"]


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    if not text:
        return ""
    fence = "``" if "`" in text else "`"
    return f"{fence}{_cell(text)}{fence}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _escaped(text: str) -> str:
    """Neither links nor tags from a stranger's names."""
    return text.replace("<", "&lt;").replace("[", "\\[")
