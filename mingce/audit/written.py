"""A report as JSON and as Markdown."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mingce.audit.finding import SEVERITIES, Finding, Report
from mingce.audit.wording import (
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
from mingce.base.lang import say

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
        "verdict": {lang: verdict(report, lang) for lang in ("zh", "en")},
        "counts": {severity: len(report.of(severity)) for severity in SEVERITIES},
        "findings": [finding_json(finding, report.labels) for finding in report.findings],
        "settings": {
            name: {"value": _plain(value), "inferred": name in report.inferred}
            for name, value in report.settings.known().items()
        },
        "checks": [{"name": check.name, "title": _both(check.title)} for check in report.ran],
        "skipped": [
            {"name": one.check.name, "title": _both(one.check.title), "missing": list(one.missing)}
            for one in report.skipped
        ],
        "remarks": [_both(remark) for remark in report.remarks],
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
        **{name: {lang: filled(pair, finding, lang) for lang in ("zh", "en")} for name, pair in texts.items()},
        "formula": fault.formula,
        "link": fault.link,
        "share": _plain(finding.share),
        "values": {name: _plain(value) for name, value in finding.values.items()},
        "places": [
            {
                "row": place.row,
                "token": place.token,
                "label": _label(place.row, place.token, labels),
                "expected": _plain(place.expected),
                "found": _plain(place.found),
            }
            for place in finding.places
        ],
    }


def _both(pair: tuple[str, str]) -> dict[str, str]:
    return {"zh": pair[0], "en": pair[1]}


def _label(row: int | None, token: int | None, labels: dict[tuple[int, int], str]) -> str | None:
    return None if row is None or token is None else labels.get((row, token))


def _plain(value: Any) -> Any:
    """As JSON can hold it; NaN and infinities as words that float() reads back."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
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
        lines += [say(lang, "## 约定与备注", "## Conventions and notes"), ""]
        lines += [say(lang, "| 列 | 内容 | 公式 |", "| column | what | formula |"), "|---|---|---|"]
        for finding in recognised:
            formula = f"`{_cell(finding.fault.formula)}`" if finding.fault.formula else ""
            lines.append(f"| {_code(finding.column)} | {_cell(_escaped(title(finding, lang)))} | {formula} |")
        lines.append("")
    if report.skipped:
        lines += [say(lang, "## 没能做的检查", "## Checks not run"), ""]
        heads = say(lang, "| 补上 | 就能做 |", "| add to the dump | and these would run |")
        lines += [heads, "|---|---|"]
        lines += [f"| {columns_words(missing, lang)} | {', '.join(names)} |" for missing, names in lacking(report)]
        lines.append("")
    return "\n".join(lines)


def facts(report: Report, lang: str) -> list[str]:
    """Where the numbers come from, as Markdown paragraphs."""
    step = "" if report.step is None else say(lang, f"，第 {report.step} 步", f", step {report.step}")
    zh = f"{report.source}{step}，{report.rows:,} 行，{report.tokens:,} 个 token，做了 {len(report.ran)} 项检查"
    en = f"{report.source}{step}, {report.rows:,} rows, {report.tokens:,} tokens, {len(report.ran)} checks"
    lines = [f"{_code(printable(report.path))} · {say(lang, zh, en)}" if report.path else say(lang, zh, en)]
    settings = settings_words(report, lang)
    if settings:
        lines += ["", say(lang, f"设置：{settings}", f"Settings: {settings}")]
    for remark in report.remarks:
        lines += ["", f"> {_escaped(printable(pick(remark, lang)))}"]
    return lines


def finding_markdown(finding: Finding, labels: dict[tuple[int, int], str], lang: str) -> list[str]:
    """A section about one finding."""
    fault = finding.fault
    severity = pick(SEVERITY_WORDS[finding.level], lang)
    lines = [f"## {severity}{say(lang, '：', ': ')}{_escaped(title(finding, lang))}", ""]
    about = [
        (say(lang, "列", "column"), _code(finding.column)),
        (say(lang, "公式", "formula"), _code(fault.formula)),
        (say(lang, "类别", "class"), class_words(finding, lang)),
        (say(lang, "涉及", "hits"), share_words(finding, lang)),
        (say(lang, "原因", "cause"), _escaped(filled(fault.cause, finding, lang))),
        (say(lang, "改法", "change"), _escaped(filled(fault.change, finding, lang))),
        (say(lang, "参见", "see"), f"<{fault.link}>" if fault.link else ""),
    ]
    lines += [f"- {name}{say(lang, '：', ': ')}{text}" for name, text in about if text]
    if finding.places:
        heads = say(lang, "| 行 | 位置 | token | 应为 | 实为 |", "| row | t | token | expected | found |")
        lines += ["", heads, "|---:|---:|---|---:|---:|"]
        for place in finding.places:
            expected, found = place_numbers(place.expected, place.found)
            label = _label(place.row, place.token, labels)
            cells = (_index(place.row), _index(place.token), _code(printable(label)) if label else "", expected, found)
            lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _index(index: int | None) -> str:
    return "" if index is None else str(index)


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
