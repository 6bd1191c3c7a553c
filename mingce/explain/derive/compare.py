"""Two of something side by side: the same column under two settings, one column at several tokens, two columns."""

from __future__ import annotations

from collections.abc import Sequence

from mingce.base.numbers import number as shown
from mingce.base.texts import sentence
from mingce.columns import TOKEN_COLUMNS
from mingce.explain.answer import HEAD, TAIL, Answer, Table, example_line, legible
from mingce.explain.code_refs import CodeRef, resolve
from mingce.explain.derive.derivation import derive, name_of
from mingce.explain.derive.links import link_of
from mingce.explain.derive.sheet import Sheet, bracketed, sheet_of
from mingce.explain.derive.table import quantity_of
from mingce.explain.derive.work import Derivation
from mingce.record.rollout import Rollout
from mingce.specs.settings import SYMBOLS

SAME = 5e-5
"""What differs by less reads the same."""
MOST_TOKENS = 64

_READS = {
    "kl": {"kl_estimator", "kl_clamp"},
    "rewards": {"beta"},
    "deltas": {"gamma"},
    "advantages": {"estimator", "gamma", "lam", "n", "k"},
    "policy_loss": {"policy_loss", "clip_low", "clip_high", "dual_clip"},
    "clipped": {"policy_loss", "clip_low", "clip_high", "dual_clip"},
    "dual_clipped": {"policy_loss", "dual_clip"},
    "value_loss": {"value_clip"},
    "value_clipped": {"value_clip"},
}
"""The settings in a column's own formula."""


def _numbers(rollout: Rollout, quantity: str, lang: str) -> dict[int, float]:
    """The quantity by chosen slot: all of a column, both ends of what a long row would have to derive."""
    known, sheet = quantity_of(quantity), sheet_of(rollout)
    if known is None or known[0].of_row:
        return {}
    if quantity in sheet.columns:
        return {t: x for t in sheet.slots if (x := sheet.at(quantity, t)) is not None}
    slots = sheet.slots if len(sheet.slots) <= MOST_TOKENS else [*sheet.slots[:HEAD], *sheet.slots[-TAIL:]]
    works = {t: known[0].work(sheet, t, lang, known[1]) for t in slots}
    return {t: work.result for t, work in works.items() if work is not None}


def _ends(slots: Sequence[int]) -> list[int | None]:
    return list(slots) if len(slots) <= HEAD + TAIL else [*slots[:HEAD], None, *slots[-TAIL:]]


def _joined(parts: Sequence[str], lang: str) -> str:
    return ("" if lang == "zh" else " ").join(part for part in parts if part)


def _listed(slots: Sequence[int], lang: str) -> str:
    texts = [str(t) for t in slots[:8]] + (["…"] if len(slots) > 8 else [])
    return ("、" if lang == "zh" else ", ").join(texts)


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def compare_settings(before: Rollout, after: Rollout, quantity: str, lang: str) -> Answer:
    """What other settings, or other numbers, make of a quantity: token by token, what moved, what did not and why."""
    spec = quantity_of(quantity)
    if spec is not None and spec[0].of_row:
        return _compare_row(before, after, quantity, lang)
    old, new = _numbers(before, quantity, lang), _numbers(after, quantity, lang)
    both = [t for t in old if t in new]
    changes = _changed_settings(before, after)
    title = sentence("compare.title_settings", lang, name=name_of(quantity, lang), changes=changes)
    if not both:
        return Answer(lang, sentence("compare.nothing", lang, name=name_of(quantity, lang)), title=title)
    moved = {t: new[t] - old[t] for t in both if abs(new[t] - old[t]) > SAME}
    symbol = spec[0].symbol if spec else quantity
    rows = [
        ("…",) * 5
        if t is None
        else (str(t), legible(before).tokens[t].text, shown(old[t]), shown(new[t]), shown(_difference(old[t], new[t])))
        for t in _ends(both)
    ]
    sides = [f"{sentence(key, lang)}\n{symbol}" for key in ("compare.before", "compare.after")]
    headings = ("t", "token", *sides, sentence("compare.difference", lang))
    text = _joined([*_what_moved(moved, both, old, new, lang), _why(before, after, quantity, both, moved, lang)], lang)
    most = max(moved, key=lambda t: abs(moved[t])) if moved else both[-1]
    lines = [line for one in (before, after) for line in _own_line(one, quantity, most, lang)]
    return Answer(
        lang, text, title=title, about=example_line(legible(before), most, lang),
        formula=_formula(before, quantity, lang), lines=tuple(dict.fromkeys(lines)),
        tables=(Table(headings, tuple(rows), texts=(1,)),), code=_code(after, quantity),
    )  # fmt: skip


def moves(before: Rollout, after: Rollout, quantity: str, lang: str) -> list[tuple[int, float, float]]:
    """The slots at which a quantity changed, with both numbers, the largest change first."""
    old, new = _numbers(before, quantity, lang), _numbers(after, quantity, lang)
    moved = [(t, old[t], new[t]) for t in old if t in new and abs(new[t] - old[t]) > SAME]
    return sorted(moved, key=lambda one: -abs(one[2] - one[1]))


def _difference(old: float, new: float) -> float:
    return new - old if abs(new - old) > 1e-12 * max(abs(old), abs(new)) else 0.0


def _compare_row(before: Rollout, after: Rollout, quantity: str, lang: str) -> Answer:
    one, other = derive(before, quantity, None, lang), derive(after, quantity, None, lang)
    changes, name = _changed_settings(before, after), name_of(quantity, lang)
    title = sentence("compare.title_settings", lang, name=name, changes=changes)
    if one is None or other is None or one.result is None or other.result is None:
        return Answer(lang, sentence("compare.nothing", lang, name=name), title=title)
    difference = _difference(one.result, other.result)
    said = {"name": name, "before": shown(one.result), "after": shown(other.result), "difference": shown(difference)}
    key = "row_moved" if abs(difference) > SAME else "row_same"
    return Answer(
        lang, sentence(f"compare.{key}", lang, **said), title=title, formula=one.formula,
        lines=(*one.lines, *other.lines), code=one.code,
    )  # fmt: skip


def _changed_settings(before: Rollout, after: Rollout) -> str:
    """`λ: 0.95 → 0.5`."""
    old, new = before.settings.as_dict(), after.settings.as_dict()
    changes = [
        f"{SYMBOLS.get(name, name)}: {_said(old[name])} → {_said(new[name])}" for name in old if old[name] != new[name]
    ]
    if before.bootstrap != after.bootstrap:
        changes.append(f"V(s_T): {shown(before.bootstrap)} → {shown(after.bootstrap)}")
    return ", ".join(changes) or "="


def _said(x: object) -> str:
    return shown(float(x)) if isinstance(x, int | float) and not isinstance(x, bool) else str(x)


def _what_moved(
    moved: dict[int, float], both: Sequence[int], old: dict[int, float], new: dict[int, float], lang: str
) -> list[str]:
    if not moved:
        return [sentence("compare.none_moved", lang, n=len(both))]
    most = max(moved, key=lambda t: abs(moved[t]))
    up = sum(x > 0 for x in moved.values())
    said: dict[str, object] = {"moved": len(moved), "n": len(both), "up": up, "down": len(moved) - up, "most": most}
    said |= {"old": shown(old[most]), "new": shown(new[most])}
    parts = [sentence("compare.moved", lang, **said)]
    flipped = [t for t in moved if old[t] * new[t] < 0]
    if flipped:
        parts.append(sentence("compare.flipped", lang, slots=_listed(flipped, lang)))
    return parts


def _why(
    before: Rollout, after: Rollout, quantity: str, both: Sequence[int], moved: dict[int, float], lang: str
) -> str:
    """Why what did not move did not: it reads no changed setting, or it is the last token and nothing follows it."""
    old, new = before.settings.as_dict(), after.settings.as_dict()
    changed = [name for name in old if old[name] != new[name]]
    symbols = ", ".join(SYMBOLS.get(name, name) for name in changed)
    if not moved and changed:
        key = "no_effect" if settings_read(quantity).intersection(changed) else "does_not_read"
        return sentence(f"compare.{key}", lang, name=name_of(quantity, lang), settings=symbols)
    still = [t for t in both if t not in moved]
    last = both[-1]
    if changed == ["lam"] and quantity in ("advantages", "returns") and last in still:
        return sentence("compare.last_same", lang, t=last, delta=shown(sheet_of(after).at("deltas", last)))
    if still and moved:
        return sentence("compare.still", lang, slots=_listed(still, lang))
    return ""


def settings_read(quantity: str) -> set[str]:
    """The settings in a column's formula and in those of the columns it is computed from."""
    column = TOKEN_COLUMNS.get(quantity)
    if column is None:
        return set().union(*_READS.values())
    before = (name for name in (*column.inputs, *column.optional) if name in TOKEN_COLUMNS)
    return _READS.get(quantity, set()).union(*map(settings_read, before))


def _own_line(rollout: Rollout, quantity: str, t: int, lang: str) -> list[str]:
    made = derive(rollout, quantity, t, lang)
    return [made.lines[-1]] if made is not None and made.lines else []


def _formula(rollout: Rollout, quantity: str, lang: str) -> str:
    known = quantity_of(quantity)
    return "" if known is None else "\n".join(known[0].formula(sheet_of(rollout), lang).split(",  "))


def _code(rollout: Rollout, quantity: str) -> tuple[CodeRef, ...]:
    known = quantity_of(quantity)
    return () if known is None else tuple(resolve(place) for place in known[0].code(sheet_of(rollout)))


# ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def compare_tokens(rollout: Rollout, quantity: str, ts: Sequence[int], lang: str) -> Answer:
    """One quantity at several tokens: its numbers, the largest and the least, and what makes the difference."""
    name, known = name_of(quantity, lang), quantity_of(quantity)
    made = [one for t in dict.fromkeys(ts) if (one := derive(rollout, quantity, t, lang)) is not None]
    there = [one for one in made if one.result is not None]
    title = sentence(
        "compare.title_tokens", lang, name=name, slots=_listed([one.t for one in made if one.t is not None], lang)
    )
    if known is None or not there:
        text = made[0].reading if made else sentence("compare.nothing", lang, name=name)
        return Answer(lang, text, title=title)
    about, sheet = legible(rollout), sheet_of(rollout)
    parts = [_order(there, sheet, name, lang)]
    parts += [one.reading for one in made if one.result is None]
    if len(there) == 2:
        parts.append(_gap_of(quantity, there[0], there[1], sheet, lang))
    names = [one for one in known[0].columns if one in sheet.columns and one != quantity]
    headings = ("t", "token", *(f"{one}\n{TOKEN_COLUMNS[one].symbol}" for one in names), f"{name}\n{known[0].symbol}")
    rows = [
        (str(one.t), about.tokens[one.t].text, *(shown(sheet.at(other, one.t)) for other in names), shown(one.result))
        for one in there
        if one.t is not None
    ]
    return Answer(
        lang, _joined(parts, lang), title=title, about=example_line(about, there[0].t or 0, lang),
        formula=_formula(rollout, quantity, lang), lines=tuple(one.lines[-1] for one in there if one.lines),
        tables=(Table(headings, tuple(rows), texts=(1,)),), code=there[0].code,
    )  # fmt: skip


def _order(made: Sequence[Derivation], sheet: Sheet, name: str, lang: str) -> str:
    ranked = sorted(((one.result or 0.0, one.t or 0) for one in made), reverse=True)
    (high, first), (low, last) = ranked[0], ranked[-1]
    if len(ranked) == 1:
        return sentence("compare.one_token", lang, name=name, t=first, x=shown(high))
    if abs(high - low) <= SAME:
        return sentence(
            "compare.equal_tokens", lang, name=name, slots=_listed(sorted(t for _, t in ranked), lang), x=shown(high)
        )
    said = {"name": name, "first": first, "token": sheet.token(first), "high": shown(high), "last": last,
            "other": sheet.token(last), "low": shown(low), "gap": shown(high - low)}  # fmt: skip
    return sentence("compare.order", lang, **said)


def _gap_of(quantity: str, one: Derivation, other: Derivation, sheet: Sheet, lang: str) -> str:
    """Of a TD error or an advantage: which part of it makes the difference between two tokens."""
    parts = {s: _parts(quantity, sheet, s) for s in (one.t, other.t) if s is not None}
    if len(parts) < 2 or any(part is None for part in parts.values()):
        return ""
    first, second = ([*part] for part in parts.values() if part is not None)
    gaps = [(name, x - y) for (name, x), (_, y) in zip(first, second, strict=True)]
    total = (one.result or 0.0) - (other.result or 0.0)
    if abs(total) <= SAME:
        return ""
    terms = " + ".join(f"{name}: {bracketed(x)}" for name, x in gaps)
    most = max(gaps, key=lambda gap: abs(gap[1]))[0]
    return sentence("compare.gap", lang, one=one.t, other=other.t, total=shown(total), terms=terms, most=most)


def _parts(quantity: str, sheet: Sheet, t: int) -> list[tuple[str, float]] | None:
    gamma, decay, after = sheet.gamma, sheet.decay, sheet.following(t)
    if quantity == "deltas":
        r, ahead, now = sheet.at("rewards", t), sheet.next_value(t), sheet.at("values", t)
        if r is None or ahead is None or now is None or gamma is None:
            return None
        return [("r_t", r), ("γ·V(s_{t+1})", gamma * ahead), ("−V(s_t)", -now)]
    spec, delta = sheet.estimator, sheet.at("deltas", t)
    if quantity == "advantages" and spec is not None and spec.mixes_tokens and decay is not None and delta is not None:
        following = 0.0 if after is None else sheet.at("advantages", after)
        return None if following is None or sheet.cut_off(t) else [("δ_t", delta), ("γλ·A_{t+1}", decay * following)]
    if quantity == "rewards" and sheet.beta is not None:
        score, k = sheet.at("scores", t), sheet.at("kl", t)
        return None if score is None or k is None else [("score_t", score), ("−β·k_t", -sheet.beta * k)]
    return None


# ── quantities ───────────────────────────────────────────────────────────────────────────────────────────────────────


def compare_quantities(rollout: Rollout, a: str, b: str, t: int | None, lang: str) -> Answer:
    """Two quantities: what each is, what its slot t is about, the formula between them, their numbers side by side."""
    names = [name_of(one, lang) for one in (a, b)]
    title = sentence("compare.title_quantities", lang, a=names[0], b=names[1])
    specs = [quantity_of(one) for one in (a, b)]
    numbers = [_numbers(rollout, one, lang) for one in (a, b)]
    sheet, about = sheet_of(rollout), legible(rollout)
    parts = [_definition(one, name, lang) for one, name in zip((a, b), names, strict=True)]
    parts.append(_alignment(a, b, names, lang))
    link = link_of(a, b)
    at = t if t is not None and t in sheet.place else (sheet.slots[0] if sheet.slots else None)
    if link is not None:
        parts.append(sentence(f"compare.{link.sentence}", lang))
    lines = [line for one in (a, b) if at is not None for line in _own_line(rollout, one, at, lang)]
    worked = link.line(sheet, at) if link is not None and at is not None else None
    lines += [worked] if worked else []
    slots = [s for s in sheet.slots if any(s in column for column in numbers)]
    shown_slots = _ends(slots) if t is None else [s for s in slots if s == t]
    rows = [
        ("…",) * 4 if s is None else (str(s), about.tokens[s].text, *(shown(column.get(s)) for column in numbers))
        for s in shown_slots
    ]
    headings = (
        "t",
        "token",
        *(f"{one}\n{spec[0].symbol}" if spec else one for one, spec in zip((a, b), specs, strict=True)),
    )
    return Answer(
        lang, "\n\n".join(part for part in parts if part), title=title,
        about="" if at is None else example_line(about, at, lang),
        formula="" if link is None else "\n".join(link.formula.split(",  ")), lines=tuple(dict.fromkeys(lines)),
        tables=(Table(headings, tuple(rows), texts=(1,)),) if rows else (),
        code=tuple(dict.fromkeys((*_code(rollout, a), *_code(rollout, b)))),
    )  # fmt: skip


def _definition(quantity: str, name: str, lang: str) -> str:
    column = TOKEN_COLUMNS.get(quantity)
    if column is not None:
        meaning, symbol = (column.zh if lang == "zh" else column.en), column.symbol
    else:
        known = quantity_of(quantity)
        if known is None:
            return ""
        symbol = known[0].symbol
        meaning = known[0].formula(sheet_of_nothing(), lang)
    return sentence("compare.definition", lang, name=name, symbol=symbol, meaning=meaning)


def sheet_of_nothing() -> Sheet:
    """The worked example's sheet, for formulas that do not depend on a rollout."""
    from mingce.explain import example

    return sheet_of(example.worked())


def _alignment(a: str, b: str, names: Sequence[str], lang: str) -> str:
    """Which of the two is read before token t and which is about choosing it."""
    kinds = [TOKEN_COLUMNS[one].alignment if one in TOKEN_COLUMNS else "" for one in (a, b)]
    if not all(kinds):
        return ""
    if kinds[0] == kinds[1]:
        return sentence(f"compare.both_{kinds[0]}", lang)
    state, action = (names[0], names[1]) if kinds[0] == "state" else (names[1], names[0])
    return sentence("compare.state_and_action", lang, state=state, action=action)
