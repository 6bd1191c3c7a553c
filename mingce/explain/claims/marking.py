"""A text sentence by sentence, each right, wrong or not checkable: `marked(text)`, and as a page `html(…)`.

The segments' texts put together are the text itself, to the last character.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from mingce.base.numbers import percent
from mingce.base.texts import sentence
from mingce.explain.claims.check import check
from mingce.explain.claims.formulas import show_rows
from mingce.explain.claims.plain import plain
from mingce.explain.claims.tokens import read_number
from mingce.explain.claims.verdicts import Answer, Pair, Verdict

Mark = Literal["right", "wrong", "unverified", "plain"]
MOST_EXPLAINED = 2000
"""So many segments have notes; those after them have only their colour."""
LONGEST_NOTE = 1000
_SENTENCE = re.compile(
    r"[^\n]*?(?:[。！？；]+[”’）]*|[!?;]+(?=\s|$)|(?<!\d)\.(?=\s)|(?<=\d)\.(?=\s+[A-Z一-鿿\n])|$)\s*"
)
_NUMBER = re.compile(r"(?<![\w.])[-−]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,3})?%?")
LONGEST_LINE = 20_000


@dataclass(frozen=True)
class Segment:
    """A sentence, or what lies between two. `right` are the right numbers, `notes` the reasons, (中文, English)."""

    text: str
    status: Mark = "plain"
    notes: tuple[Pair, ...] = ()
    right: tuple[Pair, ...] = ()
    formulas: tuple[str, ...] = ()


def marked(text: str) -> list[Segment]:
    """The whole text with the verdicts of check-log in their places."""
    return segments(text, check(text).verdicts)


def segments(text: str, verdicts: Iterable[Verdict]) -> list[Segment]:
    """The text with verdicts in their places; neighbours of which nothing is said are one segment."""
    by_line: dict[int, list[tuple[Mark, Verdict]]] = defaultdict(list)
    for verdict in verdicts:
        for place, status in _lines(verdict):
            by_line[place].append((status, verdict))
    out: list[Segment] = []
    for number, line in enumerate(lines_of(text), 1):
        out.extend(_marked_line(line, by_line[number]) if number in by_line else [Segment(line)])
    return list(_joined(out))


def lines_of(text: str) -> list[str]:
    """Lines with their ends, cut at newlines only, as check-log counts them."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + [last for last in lines[-1:] if last]


def _lines(verdict: Verdict) -> Iterator[tuple[int, Mark]]:
    """Every line a verdict is about: of a table's column the rows, each right or wrong by itself."""
    status: Mark = "unverified" if verdict.status == "unknown" else verdict.status
    if not verdict.rows:
        yield from ((line, status) for line in dict.fromkeys((verdict.where.line, *verdict.lines)))
        return
    for line in dict.fromkeys(verdict.rows):
        yield line, "right" if status == "wrong" and line not in verdict.wrong_rows else status


def _marked_line(line: str, about: Sequence[tuple[Mark, Verdict]]) -> Iterator[Segment]:
    """A line's sentences, each with the verdicts on numbers that stand in it."""
    parts = sentences_of(line)
    groups: dict[int, list[tuple[Mark, Verdict]]] = defaultdict(list)
    for status, verdict in about:
        for place in _places(parts, verdict):
            groups[place].append((status, verdict))
    for place, part in enumerate(parts):
        yield _segment(part, groups[place]) if groups[place] else Segment(part)


def sentences_of(line: str) -> list[str]:
    """A line cut after each sentence; a table's row is one."""
    if line.count("|") >= 2 or len(line) > LONGEST_LINE:
        return [line]
    return [match[0] for match in _SENTENCE.finditer(line) if match[0]]


def _places(parts: Sequence[str], verdict: Verdict) -> list[int]:
    """Which sentences a verdict is about: the one that holds most of the numbers claimed, all for words."""
    if len(parts) == 1 or verdict.claimed is None:
        return list(range(len(parts)))
    claimed = {round(n.value, 9) for row in verdict.claimed for n in row if n is not None}
    held = [len(claimed & {round(x, 9) for x, _ in numbers_in(part)}) for part in parts]
    best = max(held)
    return [place for place, count in enumerate(held) if count == best][-1:] if best else list(range(len(parts)))


def numbers_in(text: str) -> list[tuple[float, int]]:
    """Every number of a text with its decimals; a percentage as a share."""
    found = []
    for match in _NUMBER.finditer(plain(text[:LONGEST_LINE])):
        number = read_number(match[0].lstrip("-−"))
        if number is not None:
            found.append((-number.value if match[0][0] in "-−" else number.value, number.decimals))
    return found


def _segment(text: str, about: Sequence[tuple[Mark, Verdict]]) -> Segment:
    statuses = {status for status, _ in about}
    status: Mark = "wrong" if "wrong" in statuses else "right" if "right" in statuses else "unverified"
    told = [verdict for mark, verdict in about if mark == status and (status != "right" or verdict.loose)]
    notes = dict.fromkeys(note for verdict in told for note in (*verdict.notes, *verdict.basis))
    right = dict.fromkeys(_right(verdict, answer) for verdict in told for answer in verdict.right)
    formulas = dict.fromkeys(formula for verdict in told for formula in verdict.formulas)
    return Segment(text, status, tuple(notes), tuple(right) if status == "wrong" else (), tuple(formulas))


def _right(verdict: Verdict, answer: Answer) -> Pair:
    numbers = percent(answer.rows[0][0]) if verdict.kind == "share" else show_rows(answer.rows)
    numbers = numbers.strip("[]") if len(answer.rows[0]) == 1 else numbers
    zh, en = answer.label
    return f"{numbers}（{zh}）" if zh else numbers, f"{numbers} ({en})" if en else numbers


def _joined(parts: Iterable[Segment]) -> Iterator[Segment]:
    plain_text: list[str] = []
    for part in parts:
        if part.status == "plain":
            plain_text.append(part.text)
            continue
        if plain_text:
            yield Segment("".join(plain_text))
            plain_text = []
        yield part
    if plain_text:
        yield Segment("".join(plain_text))


# ── a page ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_STYLE = """
:root{color-scheme:light dark;--text:#1b1f24;--back:#fff;--muted:#667085;--right:#e3f5e6;--right-line:#2e8b47;
--wrong:#fde7e7;--wrong-line:#c62f2f;--open:#eef0f3;--note:#fff8f0}
@media (prefers-color-scheme:dark){:root{--text:#e6e8eb;--back:#14171a;--muted:#98a2b3;--right:#16321e;
--right-line:#5cc47a;--wrong:#451b1b;--wrong-line:#ff8080;--open:#23282e;--note:#241c14}}
body{margin:0 auto;max-width:60rem;padding:1.5rem 1rem 4rem;background:var(--back);color:var(--text);
font:1rem/1.65 system-ui,sans-serif}
h1{font-size:1.3rem;margin:0 0 .3rem}
.summary{position:sticky;top:0;padding:.5rem 0;background:var(--back);border-bottom:1px solid var(--open)}
.summary b{padding:.1rem .5rem;border-radius:.4rem;margin-inline-end:.5rem;font-weight:600}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font:inherit;margin:1rem 0}
.right{background:var(--right);box-shadow:inset 0 -2px var(--right-line)}
.wrong{background:var(--wrong);box-shadow:inset 0 -2px var(--wrong-line)}
.unverified{background:var(--open);color:var(--muted)}
aside{display:block;margin:.35rem 0 .6rem;padding:.4rem .7rem;border-inline-start:3px solid var(--wrong-line);
background:var(--note);font-size:.92rem}
aside div b{color:var(--muted);font-weight:500;margin-inline-end:.6rem}
code{font-family:ui-monospace,monospace}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html(parts: Sequence[Segment], lang: str, title: str) -> str:
    """One page that needs nothing else: the text marked, under each wrong sentence what is right and why."""
    counts = {status: sum(part.status == status for part in parts) for status in ("wrong", "right", "unverified")}
    summary = "".join(
        f'<b class="{status}">{escape(sentence(f"check_log.page_{status}", lang, count=count))}</b>'
        for status, count in counts.items()
    )
    if not any(counts.values()):
        summary = escape(sentence("check_log.page_nothing", lang))
    body, explained = [], 0
    for part in parts:
        body.append(_html_segment(part))
        if part.status == "wrong" and explained < MOST_EXPLAINED:
            explained += 1
            body.append(_html_notes(part, lang))
    language = "zh-CN" if lang == "zh" else "en"
    return (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_safe(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{_safe(title)}</h1>\n"
        f'<p class="summary">{summary}</p>\n<pre>{"".join(body)}</pre>\n</body>\n</html>\n'
    )


def _html_segment(part: Segment) -> str:
    if part.status == "plain":
        return _safe(part.text)
    text = part.text.rstrip()
    return f'<span class="{part.status}">{_safe(text)}</span>{_safe(part.text[len(text) :])}'


def _html_notes(part: Segment, lang: str) -> str:
    which = 0 if lang == "zh" else 1
    lines = [("right", pair[which]) for pair in part.right]
    lines += [("worked", formula) for formula in part.formulas] + [("why", pair[which]) for pair in part.notes]
    rows = (
        f"<div><b>{escape(sentence(f'check_log.{label}', lang))}</b>{_safe(text[:LONGEST_NOTE])}</div>"
        for label, text in lines
    )
    return f"<aside>{''.join(rows)}</aside>" if lines else ""


def _safe(text: str) -> str:
    """Escaped, and without characters that a page may not hold."""
    return escape("".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text))
