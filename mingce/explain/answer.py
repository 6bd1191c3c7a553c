"""An answer: a topic's words with the example's numbers, its formula written out, tables, and where the code is.

Plain data; mingce.explain.answer_view writes it as Markdown and shows it in a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.columns import COLUMNS
from mingce.explain import example
from mingce.explain.account import substituted
from mingce.explain.code_refs import CodeRef, resolve
from mingce.explain.topic import POINT, Grid, Topic, Values, text_of, values_of
from mingce.progress.tokens import END, visible
from mingce.record.rollout import Rollout
from mingce.specs.settings import SYMBOLS

HEAD, TAIL = 10, 6
"""Of a long response so many tokens from each end are shown."""
LONGEST_TEXT, WIDEST_TABLE = 60, 62
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_GAP = re.compile(r"[,;]?\s{2,}")


@dataclass(frozen=True)
class Table:
    """Headings, of which the second line is a symbol, and cells as text; `texts` are the columns without numbers."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """A claim of the question: its words, whether they hold (right, wrong, half), and the reason.

    `reading` is how the claim was understood, where it was said in other words than ours; `near` if that is only the
    statement nearest to it, and the verdict is that one's; `asked` if it was only asked whether it is so.
    """

    quote: str
    verdict: str
    reason: str
    reading: str = ""
    near: bool = False
    asked: bool = False


@dataclass(frozen=True)
class Answer:
    """What is said. `topic` is None where it is only a sentence; `choices` are (id, title) offered by number.

    `judgements` come first. `declined` if the question is none of the tutor's; `action` is what the person asked to be
    done besides: "save" the dialogue, "draw" a picture.
    """

    lang: str
    text: str
    title: str = ""
    judgements: tuple[Judgement, ...] = ()
    about: str = ""
    formula: str = ""
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    code: tuple[CodeRef, ...] = ()
    choices: tuple[tuple[str, str], ...] = ()
    topic: str | None = None
    level: str | None = None
    declined: bool = False
    action: str = ""


def topic_answer(
    topic: Topic, rollout: Rollout, t: int | None, level: str, lang: str, others: Sequence[Topic]
) -> Answer:
    """The topic at a level with the rollout's numbers, or with the worked example's where the rollout lacks some.

    `t` is the token that is spoken of, the first chosen one if None; `others` are the related topics.
    """
    about, lacking = legible(rollout), missing(topic, rollout, t, level, lang)
    if lacking:
        about, t = example.worked(), None
    slots = reference.chosen(about.columns["response_mask"])
    t = slots[0] if t is None else t
    note = ""
    if topic.needs:
        note = example_line(about, t, lang, level)
        if lacking:
            names = ("、" if lang == "zh" else ", ").join(lacking)
            gap = "" if lang == "zh" else " "
            note = sentence("tutor.other_example", lang, names=names) + gap + note
    formal = level != "child" and not level.startswith(POINT)  # a child gets words only
    tables = []
    if formal:
        tables += column_tables(about, topic.table)
    if topic.grid is not None and formal:
        tables.append(_grid(topic, topic.grid(about, t), values_of(topic, about, t), lang))
    return Answer(
        lang,
        text_of(topic, about, t, level, lang),
        title=topic.title[0 if lang == "zh" else 1],
        about=note,
        formula="\n".join(_GAP.split(topic.formula)) if formal else "",
        lines=_lines(topic, about) if formal else (),
        tables=tuple(tables),
        code=tuple(resolve(name) for name in topic.code) if formal else (),
        choices=tuple((other.id, other.title[0 if lang == "zh" else 1]) for other in others),
        topic=topic.id,
        level=level,
    )


def missing(topic: Topic, rollout: Rollout, t: int | None, level: str, lang: str) -> list[str]:
    """What of the topic's numbers the rollout cannot give; names of columns, or of settings."""
    columns = [name for name in topic.needs if name not in rollout.columns]
    slots = reference.chosen(rollout.columns["response_mask"])
    if columns or not topic.needs:
        return columns
    if not slots:
        return ["response_mask"]
    values = values_of(topic, rollout, slots[0] if t is None else t)
    words = topic.said(level)[0 if lang == "zh" else 1]
    return sorted({name for name in _PLACEHOLDER.findall(words + topic.each) if values.get(name) is None})


def part_text(topic: Topic, rollout: Rollout, t: int, key: str, lang: str) -> str:
    """One text of a topic with the rollout's numbers, or the worked example's where the rollout lacks some."""
    if missing(topic, rollout, t, key, lang):
        rollout, t = example.worked(), 0
    return text_of(topic, rollout, t, key, lang)


def legible(rollout: Rollout) -> Rollout:
    """With texts that a terminal can be given: what a model says may hold anything."""
    tokens = [replace(token, text=visible(token.text) or END) for token in rollout.tokens]
    return replace(rollout, tokens=tokens, prompt=visible(rollout.prompt), response=visible(rollout.response))


def example_line(rollout: Rollout, t: int, lang: str, level: str = "engineer") -> str:
    """`例子：请问1+1=2？ → 是的，等于2！（γ = 1，λ = 0.95，β = 0.1；“是”，t = 0）`; a child is spared the symbols."""
    settings = [
        f"{symbol} = {shown(getattr(rollout.settings, name))}"
        for name, symbol in SYMBOLS.items()
        if getattr(rollout.settings, name) is not None
    ]
    if rollout.bootstrap:
        settings.append(f"V(s_T) = {shown(rollout.bootstrap)}")
    prompt, response, token = _short(rollout.prompt), _short(rollout.response), rollout.tokens[t].text
    pair = f"{prompt} → {response}" if prompt else response
    if rollout.step is not None:
        pair = sentence("tutor.step_and_row", lang, step=rollout.step, row=rollout.row, pair=pair)
    if level == "child":
        return sentence("tutor.example_of", lang, pair=pair)
    joined = ("，" if lang == "zh" else ", ").join(settings)
    return sentence("tutor.example_line", lang, pair=pair, settings=joined, token=token, t=t)


def column_tables(rollout: Rollout, names: Sequence[str]) -> list[Table]:
    """One line a token, one column a column of the ledger; as many tables as a terminal of 80 cells needs."""
    tables: list[Table] = []
    group: list[str] = []
    for name in (*names, None):
        if group and (name is None or sum(len(one) + 3 for one in (*group, name)) > WIDEST_TABLE):
            tables.append(_column_table(rollout, group))
            group = []
        if name is not None and name in rollout.columns:
            group.append(name)
    return tables


def _column_table(rollout: Rollout, names: Sequence[str]) -> Table:
    mask, tokens = rollout.columns["response_mask"], rollout.tokens
    rows: list[tuple[str, ...]] = []
    for t in _ends(range(len(tokens))):
        if t is None:
            rows.append(("…",) * (len(names) + 2))
            continue
        cells = (shown(rollout.columns[name][t]) if mask[t] or name == "response_mask" else "—" for name in names)
        rows.append((str(t), tokens[t].text, *cells))
    headings = tuple(f"{name}\n{COLUMNS[name].symbol}" for name in names)
    return Table(("t", "token", *headings), tuple(rows), texts=(1,))


def _lines(topic: Topic, rollout: Rollout) -> tuple[str, ...]:
    if not topic.each:
        return ()
    chosen = reference.chosen(rollout.columns["response_mask"])
    return tuple(
        "…" if t is None else substituted(topic.each, values_of(topic, rollout, t), formula=True)
        for t in _ends(chosen[::-1])
    )


def _grid(topic: Topic, grid: Grid, values: Values, lang: str) -> Table:
    words = topic.headings(lang)
    headings = tuple(substituted(words.get(name, name), values) for name in grid.headings)
    cells = tuple(tuple(x if isinstance(x, str) else shown(x) for x in row) for row in grid.rows)
    texts = tuple(k for k in range(len(headings)) if all(isinstance(row[k], str) for row in grid.rows))
    return Table(headings, cells, texts)


def _ends(slots: Sequence[int]) -> list[int | None]:
    """All slots of a short response; both ends of a long one with None between."""
    if len(slots) <= HEAD + TAIL:
        return list(slots)
    return [*slots[:HEAD], None, *slots[-TAIL:]]


def _short(text: str) -> str:
    half = LONGEST_TEXT // 2
    return text if len(text) <= LONGEST_TEXT else f"{text[:half]} … {text[-half:]}"
