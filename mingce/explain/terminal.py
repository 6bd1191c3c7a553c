"""The walk in a terminal: tables whose numbers stand under their tokens, full-width ones too, in blocks that fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.rule import Rule
from rich.style import Style
from rich.text import Text

from mingce.base.numbers import number as shown
from mingce.columns import COLUMNS
from mingce.explain.walk import Line, Stage, Walk
from mingce.explain.walk_texts import label
from mingce.explain.wrapping import padded, wrapped
from mingce.progress.text import MUTED
from mingce.progress.tokens import credit_style
from mingce.specs import ESTIMATORS, POLICY_LOSSES

UNDERLINED = Style(underline=True, bold=True)
GAP, LEAST_MEANING, WIDEST_PROSE = 2, 26, 100
_SETTINGS = (  # with the column whose numbers they make
    ("estimator", "", "advantages"), ("gamma", "γ", "advantages"), ("lam", "λ", "advantages"),
    ("n", "n", "advantages"), ("k", "k", "advantages"), ("beta", "β", "scores"), ("kl_estimator", "KL", "kl"),
    ("clip_low", "ε_low", "policy_loss"), ("clip_high", "ε_high", "policy_loss"), ("dual_clip", "c", "policy_loss"),
    ("value_clip", "ε_V", "value_loss"),
)  # fmt: skip


def show(console: Console, walk: Walk) -> None:
    """Prints the whole walk."""
    for part in rendered(walk, console.width):
        console.print(part, soft_wrap=True, highlight=False)


def rendered(walk: Walk, width: int) -> Iterator[Text | Rule]:
    """Line by line, no line wider than `width`."""
    yield from (Text(line, style="bold") for line in wrapped(heading(walk), width))
    yield from _prose(settings_line(walk), width, MUTED)
    for note in walk.notes:
        yield from _prose(note, width, "yellow")
    if walk.wrongs:
        yield from _prose(label("wrongs", walk.lang, count=walk.wrongs), width, "bold red")
    if walk.opening:
        yield Text()
        yield from _prose(walk.opening, width)
    for number, stage in enumerate(walk.stages, 1):
        yield Text()
        yield from _stage(walk, stage, number, width)


def heading(walk: Walk) -> str:
    """`请问1+1=2？ → 是的，等于2！`, and where it comes from."""
    rollout = walk.rollout
    said = rollout.response if rollout.has_texts or rollout.step is not None else ""
    text = " → ".join(part for part in (rollout.question or rollout.prompt, said) if part) or label("title", walk.lang)
    if len(text) > 400:
        text = text[:200] + " … " + text[-200:]
    if rollout.step is not None:
        text = label("step", walk.lang, step=rollout.step, row=rollout.row) + "   " + text
    return text


def settings_line(walk: Walk) -> str:
    """`gae   γ=1   λ=0.95 …`: what the numbers are made with, as far as it is known."""
    settings, columns = walk.rollout.settings.as_dict(), walk.rollout.columns
    estimator = ESTIMATORS.get(settings.get("estimator") or "")
    loss = POLICY_LOSSES.get(settings.get("policy_loss") or "")
    aside = {"n", "k", "lam"} - set(estimator.settings if estimator else ())
    aside |= {"clip_low", "clip_high", "dual_clip"} - set(loss.settings) if loss else set()
    known = [
        (symbol, settings.get(name)) for name, symbol, column in _SETTINGS if column in columns and name not in aside
    ]
    texts = [f"{symbol}={_plain(x)}" if symbol else str(x) for symbol, x in known if x is not None]
    if walk.rollout.bootstrap:
        texts.append(label("after", walk.lang, after=shown(walk.rollout.bootstrap)))
    return "   ".join(texts)


def wrong(line: Line, lang: str) -> str:
    """The sentence about a number of the ledger that the twin does not confirm."""
    recorded, computed = shown(line.recorded), shown(line.computed)
    return label("wrong", lang, t=line.t, token=line.token, recorded=recorded, computed=computed)


def _plain(value: object) -> str:
    return shown(value) if isinstance(value, int | float) else str(value)


def _stage(walk: Walk, stage: Stage, number: int, width: int) -> Iterator[Text | Rule]:
    if stage.skipped:
        text = f"{number}  {stage.title}   " + label("skipped", walk.lang, why=stage.skipped)
        yield from _prose(text, width, MUTED)
        return
    yield Rule(Text(f"{number}  {stage.title}", style="bold"), align="left", style=MUTED)
    yield from (Text(line, style="cyan") for line in wrapped(stage.formula, width))
    yield Text()
    yield from table(walk, stage, width)
    if stage.remark:
        yield from _prose(stage.remark, width, "yellow")
    if stage.lines:
        yield Text()
        yield from _lines(stage.lines, width)
    for line in stage.lines:
        if not line.agrees:
            yield from _prose(f"✗ {wrong(line, walk.lang)}", width, "bold red")
    if stage.words:
        yield Text()
        yield from _prose(stage.words, width)
    for place, ref in enumerate(stage.code):
        yield Text(f"{'↳' if place == 0 else ' '} {ref.file}:{ref.line}  {ref.short}", style=MUTED)


def _lines(lines: Sequence[Line], width: int) -> Iterator[Text]:
    """`0 是  δ_0 = … = 0.04   0.04 > 0：…`; where both do not fit side by side the meaning stands below."""
    index = max(len(str(line.t)) for line in lines)
    token = max(cell_len(line.token) for line in lines)
    formula = max(cell_len(line.substituted) for line in lines)
    left = index + 1 + token + GAP
    room = width - left - formula - GAP
    for line in lines:
        head = f"{line.t:>{index}} {padded(line.token, token, right=False)}" + " " * GAP
        style = "" if line.agrees else "red"
        if room >= LEAST_MEANING:
            meaning = wrapped(line.meaning, room)
            text = Text.assemble((head, MUTED), (padded(line.substituted, formula, right=False), style))
            yield text.append(" " * GAP + meaning[0]) if line.meaning else text
            for more in meaning[1:]:
                yield Text(" " * (left + formula + GAP) + more)
            continue
        for place, part in enumerate(wrapped(line.substituted, width - left)):
            yield Text.assemble((head if place == 0 else " " * left, MUTED), (part, style))
        for part in wrapped(line.meaning, width - left) if line.meaning else ():
            yield Text(" " * left + part, style=MUTED)


def table(walk: Walk, stage: Stage, width: int) -> Iterator[Text]:
    """Tokens across, each column of numbers under its token; as many blocks as the width needs."""
    side = {"action": label("action", walk.lang), "state": label("state", walk.lang)}
    names = [f"{COLUMNS[name].symbol} {side[COLUMNS[name].alignment]}" for name in stage.columns]
    left = max(map(cell_len, [*names, "token"]))
    wrong = {line.t for line in stage.lines if not line.agrees}
    credit = walk.rollout.columns.get("advantages") or [None] * len(walk.rollout.tokens)
    largest = max((abs(x) for x in credit if x is not None), default=0.0)
    cells = {t: [shown(column[t]) for column in stage.columns.values()] for t in walk.slots}
    widths = {t: max(map(cell_len, [str(t), walk.tokens[t], *cells[t]])) for t in walk.slots}
    for number, block in enumerate(_blocks(walk.slots, widths, width - left)):
        if number:
            yield Text()
        gaps = [" ⋯" if t - before > 1 else "  " for before, t in zip((block[0] - 1, *block), block, strict=False)]
        head, tokens = Text(padded("t", left, right=False)), Text(padded("token", left, right=False))
        for t, gap in zip(block, gaps, strict=True):
            head.append(gap + padded(str(t), widths[t]))
            room = " " * (GAP + widths[t] - cell_len(walk.tokens[t]))
            paint = credit_style(credit[t], largest)
            tokens.append(room).append(walk.tokens[t], style=paint + UNDERLINED if t == walk.token else paint)
        head.stylize(MUTED)
        yield head
        yield tokens
        for place, name in enumerate(stage.columns):
            line = Text.assemble((padded(names[place], left, right=False), MUTED if name != stage.id else "bold"))
            for t in block:
                bad = name == stage.id and t in wrong
                style = "bold red" if bad else "bold" if name == stage.id else ""
                line.append(" " * GAP + padded(cells[t][place], widths[t]), style=style)
            yield line


def _blocks(slots: Sequence[int], widths: dict[int, int], room: int) -> Iterator[list[int]]:
    block: list[int] = []
    used = 0
    for t in slots:
        if block and used + GAP + widths[t] > room:
            yield block
            block, used = [], 0
        block.append(t)
        used += GAP + widths[t]
    yield block


def _prose(text: str, width: int, style: str = "") -> Iterator[Text]:
    for line in wrapped(text.replace("`", ""), min(width, WIDEST_PROSE)):
        yield Text(line, style=style)
