"""The walk as Markdown and as JSON, whole however long the response is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from mingce.base.numbers import number as shown
from mingce.columns import COLUMNS
from mingce.explain.terminal import heading, settings_line, wrong
from mingce.explain.walk import Stage, Walk
from mingce.explain.walk_texts import label

ACROSS = 16
"""Up to so many tokens stand across a table; more stand below each other."""
_SPAN = re.compile(r"(`[^`]*`)")
_MARKS = re.compile(r"([\\*_\[\]|#~])")


def markdown(walk: Walk) -> str:
    """The whole walk as one text."""
    return "\n".join(_parts(walk)) + "\n"


def _parts(walk: Walk) -> Iterator[str]:
    yield f"# {plain(heading(walk))}\n"
    yield f"{plain(settings_line(walk))}\n"
    for note in walk.notes:
        yield f"> {prose(note)}\n"
    if walk.wrongs:
        yield f"> **{prose(label('wrongs', walk.lang, count=walk.wrongs))}**\n"
    if walk.opening:
        yield f"{prose(walk.opening)}\n"
    for number, stage in enumerate(walk.stages, 1):
        yield f"## {number}. {stage.title}\n"
        if stage.skipped:
            yield f"*{prose(label('skipped', walk.lang, why=stage.skipped))}*\n"
            continue
        yield f"```\n{stage.formula}\n```\n"
        yield from _table(walk, stage)
        if stage.remark:
            yield f"> {prose(stage.remark)}\n"
        if stage.lines:
            yield from _lines(walk, stage)
        if stage.words:
            yield f"{prose(stage.words)}\n"
        yield " · ".join(f"`{ref.file}:{ref.line}` {plain(ref.short)}" for ref in stage.code) + "\n"


def _table(walk: Walk, stage: Stage) -> Iterator[str]:
    side = {"action": label("action", walk.lang), "state": label("state", walk.lang)}
    names = [f"`{COLUMNS[name].symbol}` {side[COLUMNS[name].alignment]}" for name in stage.columns]
    columns = list(stage.columns.values())
    if len(walk.slots) <= ACROSS:
        yield _row(["t", *(str(t) for t in walk.slots)])
        yield "|:--" + "|--:" * len(walk.slots) + "|"
        yield _row(["token", *(plain(walk.tokens[t]) for t in walk.slots)])
        for name, column in zip(names, columns, strict=True):
            yield _row([name, *(shown(column[t]) for t in walk.slots)])
    else:
        yield _row(["t", "token", *names])
        yield "|--:|:--" + "|--:" * len(names) + "|"
        for t in walk.slots:
            yield _row([str(t), plain(walk.tokens[t]), *(shown(column[t]) for column in columns)])
    yield ""


def _lines(walk: Walk, stage: Stage) -> Iterator[str]:
    if walk.token is None:
        yield _row(["t", "token", "=", label("meaning", walk.lang)])
        yield "|--:|:--|:--|:--|"
    for line in stage.lines:
        numbers = f"`{line.substituted}`"
        if walk.token is None:
            yield _row([str(line.t), plain(line.token), numbers.replace("|", "\\|"), prose(line.meaning)])
        else:
            yield f"{numbers} {prose(line.meaning)}".rstrip()
    yield ""
    for line in stage.lines:
        if not line.agrees:
            yield f"- ✗ **{plain(wrong(line, walk.lang))}**\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def prose(text: str) -> str:
    """Text of ours, whose formulas stand between backticks, with whatever a token put into it made harmless."""
    return "".join(part if part.startswith("`") else plain(part) for part in _SPAN.split(text))


def plain(text: str) -> str:
    """Text that is to be read as it stands."""
    text = _MARKS.sub(r"\\\1", text).replace("`", "\\`")
    return text.replace("&", "&amp;").replace("<", "&lt;")


def as_json(walk: Walk) -> str:
    """Everything the walk holds, numbers in full."""
    rollout = walk.rollout
    found: dict[str, Any] = {
        "lang": walk.lang,
        "level": walk.level,
        "prompt": rollout.prompt,
        "response": rollout.response,
        "step": rollout.step,
        "row": rollout.row,
        "settings": rollout.settings.as_dict(),
        "whitening": rollout.whitening and asdict(rollout.whitening),
        "bootstrap": rollout.bootstrap,
        "notes": list(walk.notes),
        "token": walk.token,
        "opening": walk.opening,
        "tokens": [{"t": t, "text": walk.tokens[t]} for t in walk.slots],
        "response_mask": [rollout.columns["response_mask"][t] for t in walk.slots],
        "disagreements": walk.wrongs,
        "stages": [_stage(walk, stage) for stage in walk.stages],
    }
    return json.dumps(found, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _stage(walk: Walk, stage: Stage) -> dict[str, Any]:
    return {
        "id": stage.id,
        "title": stage.title,
        "formula": stage.formula,
        "skipped": stage.skipped,
        "remark": stage.remark,
        "columns": {
            name: {"symbol": COLUMNS[name].symbol, "alignment": COLUMNS[name].alignment,
                   "numbers": [column[t] for t in walk.slots]}
            for name, column in stage.columns.items()
        },
        "lines": [line.__dict__ for line in stage.lines],
        "words": stage.words,
        "code": [ref._asdict() for ref in stage.code],
    }  # fmt: skip
