"""An answer as Markdown, for the log and for pipes, and as styled lines for a terminal; word for word the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from mingce.base.texts import sentence
from mingce.explain.answer import Answer, Judgement, Table
from mingce.explain.peer_code import peers_of
from mingce.explain.wrapping import padded, wrapped
from mingce.progress.text import MUTED

WIDEST = 100
_ITEM = re.compile(r"(?:- |\d+\. )")
_MARKS = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*")


def markdown(answer: Answer) -> str:
    """The answer as it stands in the log."""
    return "\n\n".join(_markdown(answer))


def _markdown(answer: Answer) -> Iterator[str]:
    if answer.title:
        yield f"## {answer.title}"
    yield from _verdicts(answer)
    if answer.about:
        yield f"> {answer.about}"
    if answer.text:
        yield answer.text
    if answer.formula or answer.lines:
        yield "\n".join(["```", *filter(None, [answer.formula]), *answer.lines, "```"])
    for table in answer.tables:
        yield _markdown_table(table)
    if answer.code:
        yield _code(answer)
    if answer.choices:
        yield "\n".join([_offer(answer), "", *_numbered(answer)])


def rendered(answer: Answer, width: int) -> Iterator[RenderableType]:
    """The same in a terminal of that width."""
    width = min(width, WIDEST)
    if answer.title:
        yield from _prose(answer.title, width, "bold")
    for verdict in _verdicts(answer):
        yield from _prose(verdict, width)
        yield Text()
    if answer.about:
        yield from _prose(answer.about, width, MUTED)
    if (answer.title and not answer.judgements) or answer.about:
        yield Text()
    if answer.text:
        yield from _prose(answer.text, width)
    if answer.formula or answer.lines:
        yield Text()
        formulas = answer.formula.split("\n") if answer.formula else []
        for number, line in enumerate((*formulas, *answer.lines)):
            for place, part in enumerate(wrapped(line, width - 4)):
                yield Text("    " if place else "  ").append(part, style="cyan" if number < len(formulas) else "none")
    for table in answer.tables:
        yield _terminal_table(table)
    if answer.code:
        yield from _prose(("" if answer.tables else "\n") + _code(answer), width, MUTED)
    if answer.choices:
        yield Text()
        yield from _prose("\n".join([_offer(answer), *_numbered(answer)]), width, MUTED)


def _verdicts(answer: Answer) -> Iterator[str]:
    """The claims of the question, each judged in its own paragraph."""
    for one in answer.judgements:
        verdict, label, reason = judged_words(one, answer.lang)
        if verdict == "near":
            yield sentence("tutor.judged_near", answer.lang, quote=one.quote, reason=reason).rstrip()
            continue
        reading = sentence("tutor.read_as", answer.lang, reading=one.reading) if one.reading else ""
        values = {"verdict": label, "quote": one.quote, "reading": reading, "reason": reason}
        yield sentence("tutor.judged", answer.lang, **values).rstrip()


END_OF = {"zh": "。", "en": "."}


def judged_words(one: Judgement, lang: str) -> tuple[str, str, str]:
    """The verdict (right, wrong, half, or near), that in a word, and the reason."""
    label = sentence(f"tutor.{'asked' if one.asked else 'claim'}_{one.verdict}", lang)
    if not one.near:
        return one.verdict, label, one.reason
    if not one.reading:
        return "near", sentence("tutor.claim_near", lang), sentence("tutor.not_judged", lang)
    near = {"reading": one.reading, "verdict": label.lower(), "reason": one.reason}
    said = sentence("tutor.near_reason", lang, **near)
    return "near", sentence("tutor.claim_near", lang), said if one.reason else f"{said.rstrip('：: 。.')}{END_OF[lang]}"


def _offer(answer: Answer) -> str:
    return sentence("tutor.open" if answer.topic is None else "tutor.related", answer.lang)


def _numbered(answer: Answer) -> list[str]:
    return [f"{number}. {title}" for number, (_, title) in enumerate(answer.choices, 1)]


def _code(answer: Answer) -> str:
    """Where our code is, and in a second line where verl computes the same."""
    places = " · ".join(f"`{ref.file}:{ref.line}` {ref.short}" for ref in answer.code)
    said = sentence("tutor.code", answer.lang, places=places)
    peers = [peer for ref in answer.code for peer in peers_of(ref.name)[:1] if peer.package == "verl"]
    if not peers:
        return said
    names = " · ".join(dict.fromkeys(f"`{peer.short}`" for peer in peers))
    return said + "\n" + sentence("tutor.peers", answer.lang, trainer=peers[0].title, names=names)


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _markdown_table(table: Table) -> str:
    """Padded, so that it can be read as it stands."""
    rows = [[cell.replace("\n", " ").replace("|", "\\|") for cell in row] for row in (table.headings, *table.rows)]
    widths = [max(3, *(cell_len(row[k]) for row in rows)) for k in range(len(rows[0]))]
    rule = ["-" * width if k in table.texts else "-" * (width - 1) + ":" for k, width in enumerate(widths)]
    lines = [[padded(cell, widths[k], right=k not in table.texts) for k, cell in enumerate(row)] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (lines[0], rule, *lines[1:]))


def _terminal_table(table: Table) -> RichTable:
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False, header_style=MUTED)
    for k, heading in enumerate(table.headings):
        shown.add_column(Text(heading), justify="left" if k in table.texts else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))
    return shown


# ── prose ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _prose(text: str, width: int, style: str = "") -> Iterator[Text]:
    """Markdown paragraphs as wrapped lines: formulas and bold words coloured, list items hanging."""
    for paragraph in text.split("\n"):
        item = _ITEM.match(paragraph)
        indent = cell_len(item[0]) if item else 0
        styled = _styled(paragraph, style)
        plain, at = styled.plain, 0
        for place, line in enumerate(wrapped(plain, width - indent)):
            at = plain.index(line, at)
            yield Text(" " * indent * (place > 0)).append_text(styled[at : at + len(line)])
            at += len(line)


def _styled(text: str, style: str) -> Text:
    found, at = Text(style=style), 0
    for mark in _MARKS.finditer(text):
        found.append(text[at : mark.start()])
        found.append(mark[1] or mark[2].replace("`", ""), style="cyan" if mark[1] else "bold")
        at = mark.end()
    return found.append(text[at:])
