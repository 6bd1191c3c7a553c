"""Deriving a number of a rollout: `derive(rollout, "advantages", 2, "zh")`, and the derivation as an answer."""

from __future__ import annotations

from mingce.base.numbers import number as shown
from mingce.base.texts import sentence, sentences
from mingce.explain.answer import Answer, column_tables, example_line, legible
from mingce.explain.code_refs import resolve
from mingce.explain.derive.sheet import HEAD, TAIL, Sheet, ends, sheet_of
from mingce.explain.derive.table import quantity_of
from mingce.explain.derive.work import Derivation, Quantity, Work
from mingce.explain.topic import listed
from mingce.record.rollout import Rollout

MOST_TOKENS = 64
"""A longer row is derived at both ends."""


def derive(rollout: Rollout, quantity: str, t: int | None, lang: str) -> Derivation | None:
    """The number of that name at slot t, or at every chosen token where t is None; None where it cannot be computed.

    Numbers of the row take no t. What lacks is told by `missing_for`.
    """
    known, sheet = quantity_of(quantity), sheet_of(rollout)
    if known is None or not sheet.slots:
        return None
    spec, argument = known
    if spec.of_row:
        work = spec.work(sheet, sheet.slots[0], lang, argument)
        return None if work is None else _derivation(spec, quantity, sheet, None, work, lang)
    if t is None:
        return _everywhere(spec, quantity, argument, sheet, lang)
    if not 0 <= t < len(rollout.mask):
        return None
    if t not in sheet.place:
        reading = sentence("derive.not_chosen", lang, t=t, token=sheet.token(t))
        return Derivation(quantity, t, _title(spec, quantity, t, lang), f"m_{t} = 0", (), None, reading)
    work = spec.work(sheet, t, lang, argument)
    return None if work is None else _derivation(spec, quantity, sheet, t, work, lang)


def missing_for(rollout: Rollout, quantity: str) -> tuple[str, ...]:
    """Columns the quantity reads that the rollout has not; empty also for a name that is no quantity."""
    known, sheet = quantity_of(quantity), sheet_of(rollout)
    if known is None:
        return ()
    return tuple(name for name in known[0].columns if name not in sheet.columns)


def _derivation(spec: Quantity, name: str, sheet: Sheet, t: int | None, work: Work, lang: str) -> Derivation:
    return Derivation(
        name, t, _title(spec, name, t, lang), spec.formula(sheet, lang), work.lines, work.result,
        work.reading + _ledger_note(sheet, spec.name, t, lang),
        tuple(resolve(place) for place in spec.code(sheet)),
        tuple(one for one in spec.columns if one in sheet.columns),
    )  # fmt: skip


def _everywhere(spec: Quantity, name: str, argument: int | None, sheet: Sheet, lang: str) -> Derivation | None:
    """The quantity at every chosen token, the last one first, each in one line."""
    slots = sheet.slots[::-1]
    if len(slots) > MOST_TOKENS:  # the middle of a long row is not written, and need not be computed
        slots = [*slots[:HEAD], *slots[-TAIL - 1 :]]
    works = {t: work for t in slots if (work := spec.work(sheet, t, lang, argument)) is not None}
    if not works:
        return None
    first = works[min(works)]
    if len(works) == 1:
        return _derivation(spec, name, sheet, min(works), first, lang)
    results = tuple((t, works[t].result) for t in sorted(works))
    whole = sheet.column(spec.name)
    if whole is not None:
        results = tuple(zip(sheet.slots, whole, strict=True))
    low, high = (pick(results, key=lambda pair: pair[1]) for pick in (min, max))
    said = {"symbol": spec.symbol, "n": len(results), "low": shown(low[1]), "low_t": low[0], "high": shown(high[1]),
            "high_t": high[0], "row": listed([x for _, x in results])}  # fmt: skip
    same = abs(high[1] - low[1]) < 1e-9
    reading = sentence("derive.everywhere_same" if same else "derive.everywhere", lang, **said)
    return Derivation(
        name, None, _title(spec, name, None, lang), spec.formula(sheet, lang),
        _ends([work.own or work.lines[-1] for work in works.values()], len(slots) < len(sheet.slots)), None, reading,
        tuple(resolve(place) for place in spec.code(sheet)),
        tuple(one for one in spec.columns if one in sheet.columns), results,
    )  # fmt: skip


def _ends(lines: list[str], cut: bool) -> tuple[str, ...]:
    return (*lines[:HEAD], "…", *lines[HEAD:]) if cut else ends(lines)


def name_of(quantity: str, lang: str) -> str:
    """What people call it: `优势`, `advantage`; the name itself where it has none."""
    head, _, rest = quantity.partition("(")
    names = sentences("derive", lang)
    said = names.get(f"name_{head.partition('/')[0]}", head)
    if rest and f"name_{rest.rstrip(')')}" in names:
        return sentence("derive.statistic_of", lang, statistic=said, column=names[f"name_{rest.rstrip(')')}"])
    return (
        said + (f" ({rest.rstrip(')')})" if rest else "") + ("" if "/" not in head else f" ({head.partition('/')[2]})")
    )


def _title(spec: Quantity, name: str, t: int | None, lang: str) -> str:
    symbol = spec.symbol
    if t is not None:
        symbol = symbol.replace("{t+1}", f"({t}+1)").replace("{t+l}", f"({t}+l)").replace("_t", f"_{t}")
    said = name_of(name, lang)
    return f"{said} {symbol}" if not spec.of_row else said


def _ledger_note(sheet: Sheet, name: str, t: int | None, lang: str) -> str:
    """A sentence where the ledger has another number than the definition gives."""
    recorded = None if t is None else sheet.ledger(name, t)
    if recorded is None:
        return ""
    return ("" if lang == "zh" else " ") + sentence("derive.ledger_differs", lang, x=shown(recorded))


def as_answer(derivation: Derivation, rollout: Rollout, lang: str) -> Answer:
    """The derivation with the columns its numbers come from, as the tutor shows answers."""
    about = legible(rollout)
    sheet = sheet_of(rollout)
    note = example_line(about, sheet.slots[0] if derivation.t is None else derivation.t, lang) if sheet.slots else ""
    return Answer(
        lang,
        derivation.reading,
        title=derivation.title,
        about=note,
        formula="\n".join(part.strip() for part in derivation.formula.split(",  ")),
        lines=derivation.lines,
        tables=tuple(column_tables(about, [name for name in derivation.columns if name in about.columns])),
        code=derivation.code,
    )
