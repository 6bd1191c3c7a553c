"""`mingce check-log`: a dialogue's worked numbers, each held against what the float64 twins give."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from mingce.base.atomic import atomic_write
from mingce.base.errors import DataError, SettingError
from mingce.base.terminal import write
from mingce.base.texts import sentence
from mingce.explain.claims.check import Report, check
from mingce.explain.claims.formulas import show_rows
from mingce.explain.claims.marking import html, segments
from mingce.explain.claims.verdicts import Answer, Pair, Status, Verdict
from mingce.explain.dialogue import read_text
from mingce.explain.wrapping import padded, wrapped

SCHEMA = 1
STDIN = Path("-")
LARGEST = 16_000_000
LONGEST_QUOTE = 400
MARKS: dict[Status, tuple[str, str]] = {"right": ("✓", "green"), "wrong": ("✗", "bold red"), "unknown": ("?", "yellow")}
QUOTED = ("words", "arithmetic", "count")
SHORT_QUOTE = 80
INDENT = 4
MIN_ROOM = 20


def check_log(
    console: Console,
    path: Path,
    *,
    lang: str = "zh",
    as_json: bool = False,
    wrong_only: bool = False,
    page: Path | None = None,
) -> int:
    """Checks a dialogue log or any text and prints the verdicts; the exit code is 0, or 1 if something is wrong.

    The path `-` is standard input; `page` is an HTML file to write the marked text to.
    """
    text = _text(path)
    report = check(text, path)
    if page is not None:
        title = sentence("check_log.page_title", lang, name=clean(path.name if path != STDIN else "stdin"))
        _write_page(page, html(segments(text, report.verdicts), lang, title))
    if as_json:
        write(json.dumps(as_values(report, path), ensure_ascii=False, indent=2, allow_nan=False) + "\n")
        return report.exit_code
    if page is None:
        show(console, report, path, lang, wrong_only=wrong_only)
    else:
        console.print(_count(report, path, lang), soft_wrap=True)
        console.print(Text(sentence("check_log.wrote", lang, path=page)), soft_wrap=True)
    return report.exit_code


def _write_page(path: Path, page: str) -> None:
    if path.is_dir() or not path.parent.is_dir():
        raise SettingError(f"--html {path} cannot be written: give a file in a directory that is there.")
    try:
        atomic_write(path, page.encode("utf-8", "replace"))
    except OSError as error:
        raise SettingError(f"--html {path} cannot be written: {error.strerror}.") from error


def _text(path: Path) -> str:
    """What a file, or standard input, holds."""
    if path == STDIN:
        buffer = getattr(sys.stdin, "buffer", None)  # a stand-in for standard input may have none
        data = sys.stdin.read(LARGEST + 1).encode() if buffer is None else buffer.read(LARGEST + 1)
        return _decoded(data, path)
    if path.is_dir():
        raise DataError(f"{path} is a directory; give a dialogue log or another text file.")
    if path.is_file() and path.stat().st_size > LARGEST:
        raise _too_large(path)
    return _whole(read_text(path), path)


def _decoded(data: bytes, path: Path) -> str:
    if len(data) > LARGEST:
        raise _too_large(path)
    try:
        return _whole(data.decode("utf-8-sig").replace("\r\n", "\n"), path)
    except UnicodeDecodeError:
        raise DataError("standard input is not UTF-8; give a dialogue log, Markdown or plain text.") from None


def _whole(text: str, path: Path) -> str:
    if "\0" in text:
        raise DataError(f"{path} is not a text: it holds a zero byte; give a dialogue log, Markdown or plain text.")
    return text


def _too_large(path: Path) -> DataError:
    return DataError(f"{path} is larger than {LARGEST // 1_000_000} MB; give the part that holds the numbers.")


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_values(report: Report, path: Path) -> dict[str, Any]:
    """The report as JSON holds it, in both languages."""
    return {
        "schema": SCHEMA,
        "file": str(path),
        "questions": report.questions,
        "right": len(report.of("right")),
        "wrong": len(report.of("wrong")),
        "unknown": len(report.of("unknown")),
        "claims": [_values(verdict) for verdict in report.verdicts],
    }


def _values(verdict: Verdict) -> dict[str, Any]:
    where, claimed = verdict.where, verdict.claimed
    return {
        "status": verdict.status,
        "question": where.question or None,
        "by": None if where.by_user is None else "user" if where.by_user else "assistant",
        "line": where.line,
        "other_lines": list(verdict.lines),
        "kind": verdict.kind,
        "rule": verdict.claim if verdict.kind == "words" else None,
        "quote": where.quote[:LONGEST_QUOTE],
        "claimed": None if claimed is None else [[None if n is None else n.value for n in row] for row in claimed],
        "right": [{**_pair(answer.label), "numbers": [list(row) for row in answer.rows]} for answer in verdict.right],
        "wrong_at": [list(place) for place in verdict.wrong_at],
        "formulas": list(verdict.formulas),
        "rounded_loosely": verdict.loose,
        "notes": [_pair(note) for note in verdict.notes],
        "basis": [_pair(note) for note in verdict.basis],
    }


def _pair(pair: Pair) -> dict[str, str]:
    return {"zh": pair[0], "en": pair[1]}


# ── terminal ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def show(console: Console, report: Report, path: Path, lang: str, *, wrong_only: bool = False) -> None:
    """Every verdict under its question, and the count at the end."""
    question = -1
    for verdict in report.verdicts:
        if wrong_only and verdict.status != "wrong":
            continue
        if verdict.where.question != question:
            question = verdict.where.question
            if question:
                console.print(Text(sentence("check_log.question", lang, number=question), style="bold"))
        _show_verdict(console, verdict, lang)
    console.print(_count(report, path, lang), soft_wrap=True)


def _show_verdict(console: Console, verdict: Verdict, lang: str) -> None:
    mark, style = MARKS[verdict.status]
    which = 0 if lang == "zh" else 1
    joined = ("、", ", ")[which].join(str(line) for line in (verdict.where.line, *verdict.lines))
    kind = sentence(f"check_log.kind_{verdict.kind}", lang)
    head = Text(f"{mark} ", style=style)
    head.append(
        f"{sentence('check_log.lines', lang, lines=joined)}  {kind}", style="bold" if verdict.status == "wrong" else ""
    )
    notes, basis = ([pair[which] for pair in pairs] for pairs in (verdict.notes, verdict.basis))
    semicolon = ("；", "; ")[which]
    if verdict.status != "wrong":
        claim = clean(verdict.claim if verdict.kind not in QUOTED else verdict.where.quote[:SHORT_QUOTE])
        _print(console, head, semicolon.join([claim, *basis, *notes]), "dim", INDENT)
        return
    _print(console, head, clean(verdict.claim) if verdict.kind not in QUOTED else "", "", INDENT)
    _labelled(console, sentence("check_log.says", lang), clean(verdict.where.quote), "red", lang)
    for answer in verdict.right:
        label = answer.label[which]
        brackets = ("（{}）", " ({})")[which].format(label) if label else ""
        _labelled(console, sentence("check_log.right", lang), _numbers(verdict, answer) + brackets, "green", lang)
    for formula in verdict.formulas:
        _labelled(console, sentence("check_log.worked", lang), formula, "", lang)
    for note in notes:
        _labelled(console, sentence("check_log.why", lang), note, "", lang)
    if basis:
        _labelled(console, sentence("check_log.with", lang), semicolon.join(basis), "", lang)


def _numbers(verdict: Verdict, answer: Answer) -> str:
    if verdict.kind == "share":
        return f"{100 * answer.rows[0][0]:.1f}%"
    shown = show_rows(answer.rows)
    return shown.strip("[]") if len(answer.rows[0]) == 1 else shown


def _labelled(console: Console, label: str, text: str, style: str, lang: str) -> None:
    prefix = " " * INDENT + padded(label, 6 if lang == "zh" else 8, right=False)
    _print(console, Text(prefix, style="dim"), text, style, cell_len(prefix))


def _print(console: Console, head: Text, text: str, style: str, indent: int) -> None:
    """The head and then the text, its further lines indented."""
    if text:
        head = head + Text("" if head.plain.endswith(" ") else "  ")
    room = console.width - 1
    first, *rest = wrapped(text, room - head.cell_len) if head.cell_len + MIN_ROOM < room else ["", text]
    if rest:
        rest = wrapped(" ".join(rest) if not first else text[len(first) :].lstrip(), room - indent)
    console.print(head + Text(first, style=style), soft_wrap=True)
    for line in rest:
        console.print(Text(" " * indent + line, style=style), soft_wrap=True)


def clean(text: str) -> str:
    """A stranger's text without control characters, and not endless."""
    text = text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + " …"
    return "".join(c if c.isprintable() else " " for c in text)


def _count(report: Report, path: Path, lang: str) -> Text:
    totals = {status: len(report.of(status)) for status in MARKS}
    if not any(totals.values()):
        return Text(sentence("check_log.nothing", lang, path=path))
    style = "bold red" if totals["wrong"] else "bold green"
    return Text(sentence("check_log.totals", lang, path=path, **totals), style=style)
