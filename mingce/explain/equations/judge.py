"""Judging an equation: an identity, true under conditions, or wrong with a counter-example from the rollout at hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mingce.base.errors import MingceError
from mingce.explain.answer import Answer, example_line, legible
from mingce.explain.code_refs import CodeRef
from mingce.explain.derive.sheet import sheet_of
from mingce.explain.equations import wording
from mingce.explain.equations.names import SETTINGS
from mingce.explain.equations.reading import Equation, Reading, read
from mingce.explain.equations.tree import Mean, Minus, Node, Num, Op, Sym, Unknown, has, nodes, symbols
from mingce.explain.equations.trial import (
    Trial,
    conditions_for,
    difference_of,
    factor_of,
    mean_conditions,
    related,
    trial_of,
    with_whitened,
)  # fmt: skip
from mingce.explain.equations.worlds import Row, of_sheet
from mingce.explain.example import changed, worked
from mingce.record.rollout import Rollout
from mingce.specs.estimators import GAE
from mingce.specs.kl import kl_name

RIGHT, HALF, WRONG = "right", "half", "wrong"


@dataclass(frozen=True)
class EquationVerdict:
    """What comes of an equation. `equation` is as it was read, `text` the verdict in words.

    `conditions` are names of what it takes to hold (`lam1`, `gamma1`, `last`, `expectation` …), joined by `+` where
    several must come together. `lines` are both sides with the numbers of token `t`; `formula` is the right one for the
    quantity it speaks of.
    """

    status: str
    equation: str
    text: str
    conditions: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    formula: str = ""
    t: int | None = None
    left: float | None = None
    right: float | None = None
    code: tuple[CodeRef, ...] = ()


def judge_equation(text: str, rollout: Rollout, lang: str) -> EquationVerdict | None:
    """The verdict on the first equation of a text; None where it has none."""
    verdicts = judge_equations(text, rollout, lang)
    return verdicts[0] if verdicts else None


def judge_equations(text: str, rollout: Rollout, lang: str) -> list[EquationVerdict]:
    """The verdicts on all equations, inequalities and numeric claims of a text, in their order."""
    reading = read(text)
    verdicts = [_judged(one, reading, rollout, lang) for one in reading.equations]
    return [one for one in verdicts if one is not None]


def verdict_answer(verdict: EquationVerdict, rollout: Rollout, lang: str) -> Answer:
    """A verdict as the tutor shows answers."""
    sheet = sheet_of(rollout)
    t = verdict.t if verdict.t is not None else (sheet.slots[0] if sheet.slots else 0)
    return Answer(
        lang, verdict.text, title=verdict.equation, about=example_line(legible(rollout), t, lang),
        formula="\n".join(verdict.formula.split(",  ")), lines=verdict.lines, code=verdict.code,
    )  # fmt: skip


def _judged(equation: Equation, reading: Reading, rollout: Rollout, lang: str) -> EquationVerdict | None:
    supposed = _under(rollout, reading.settings)
    fixed = _fixed(reading, rollout)
    trial = trial_of(equation, rollout.settings.estimator or GAE, fixed, len(sheet_of(rollout).slots))
    row, own = _row_for(trial, supposed)
    if not own:
        trial = replace(trial, estimator=GAE)
    if _only_here(trial):
        return _here(equation, trial, row, wording.Words(trial, row, own, supposed, lang))
    best = _best(trial)
    words = wording.Words(best.trial, row, own, supposed, lang)
    if best.status == RIGHT:
        return words.right(best.cut_matters, bool(reading.settings) or reading.last or reading.first_update)
    more = difference_of(best.trial)
    pinned = not _told(best.conditions) and _has_numbers(best.trial) and best.trial.holds_in(row) is not False
    if pinned and best.trial.holds(_settings_of(row)):
        return words.only_here()
    if best.status == HALF:
        return words.half(best.conditions, best.in_mean, more)
    whitened = with_whitened(best.trial).holds() if has_kind(best.trial, "advantages") else False
    return words.wrong(more, factor_of(best.trial), whitened)


def _told(conditions: tuple[tuple[str, ...], ...]) -> bool:
    """Whether they say more than that it holds at the last token."""
    return any(one != ("last",) for one in conditions)


def _has_numbers(trial: Trial) -> bool:
    """Whether a number stands in it that may be a setting's."""
    return any(isinstance(one, Num) and one.decimals for side in (trial.left, trial.right) for one in nodes(side))


def _under(rollout: Rollout, settings: dict[str, float]) -> Rollout:
    """The rollout under the settings that the text names, where it can be computed anew."""
    known = {name: x for name, x in settings.items() if name in ("gamma", "lam", "beta")}
    try:
        return changed(rollout, None, **known) if known else rollout
    except MingceError:
        return rollout


def _fixed(reading: Reading, rollout: Rollout) -> tuple[str, ...]:
    """What the text itself says it is claimed under, and the kind of KL."""
    names = {("lam", 1.0): "lam1", ("lam", 0.0): "lam0", ("gamma", 1.0): "gamma1", ("beta", 0.0): "beta0"}
    fixed = [names.get((name, x), f"{name}={x}") for name, x in reading.settings.items()]
    fixed += ["last"] if reading.last else []
    kind = kl_name(rollout.settings.kl_estimator)
    return (*([kind] if kind else []), *fixed, *(["first"] if reading.first_update else []))


def _settings_of(row: Row) -> tuple[str, ...]:
    return tuple(f"{name}={x}" for name, x in row.settings.items())


def has_kind(trial: Trial, kind: str) -> bool:
    """Whether a symbol of that kind occurs."""
    return any(sym.kind == kind for side in (trial.left, trial.right) for sym in symbols(side))


@dataclass(frozen=True)
class _Best:
    trial: Trial
    status: str
    conditions: tuple[tuple[str, ...], ...] = ()
    in_mean: tuple[str, ...] | None = None
    cut_matters: bool = False


def _best(trial: Trial) -> _Best:
    """The kindest reading: a sum without bounds from t on or over the whole row, and what it takes."""
    tried = []
    for spread in (True, False):
        one = replace(trial, spread=spread)
        expected = _speaks_of_means(one)
        if not expected and one.holds():
            return _Best(one, RIGHT, cut_matters=not one.holds(cut=True))
        if expected and one.holds_in_expectation():
            return _Best(one, RIGHT)
        found = tuple(conditions_for(one)) if not expected else ()
        in_mean = mean_conditions(one) if found or one.about_values() else None
        tried.append(_Best(one, HALF if found or in_mean is not None else WRONG, found, in_mean))
        if not trial.free:
            break
    return min(tried, key=lambda one: (one.status != HALF, -len(one.conditions)))


def _speaks_of_means(trial: Trial) -> bool:
    """Whether it has an expectation, or Q, which a rollout does not record."""
    return any(has(side, Mean) for side in (trial.left, trial.right)) or has_kind(trial, "q")


def _row_for(trial: Trial, rollout: Rollout) -> tuple[Row, bool]:
    """The rollout's numbers, True; or the worked example's where it lacks what the equation speaks of, False."""
    row = of_sheet(sheet_of(rollout))
    kinds = {sym.kind for side in (trial.left, trial.right) for sym in symbols(side)}
    there = {*row.columns, *row.settings}
    return (row, True) if kinds <= there and row.count else (of_sheet(sheet_of(worked())), False)


# ── of this rollout alone ────────────────────────────────────────────────────────────────────────────────────────────


def _only_here(trial: Trial) -> bool:
    """Whether it is about the numbers of this rollout: tokens by index against a number, or against each other."""
    if trial.free:
        return False
    sides = (trial.left, trial.right)
    fixed = any(isinstance(one, Sym) and one.index is not None for side in sides for one in nodes(side))
    settings_alone = all(sym.kind in SETTINGS for side in sides for sym in symbols(side))
    plain = [side for side in sides if not symbols(side)]
    if trial.relation != "=" and trial.relation != "≈":
        return fixed
    shown = [one for side in plain for one in nodes(side) if isinstance(one, Num)]
    return bool(plain) and (fixed or settings_alone or any(one.decimals for one in shown))


def _here(equation: Equation, trial: Trial, row: Row, words: wording.Words) -> EquationVerdict | None:
    """A claim about numbers: right if it is so at the digits shown."""
    try:
        a, b = trial.values(row, None)
    except Unknown:
        return words.no_such_token()
    if trial.relation in ("=", "≈"):
        if abs(a - b) <= slack(trial):
            return words.number_right(a, b)
        if equation.ordinal:
            shifted = _one_less(trial)
            try:
                c, d = shifted.values(row, None)
            except Unknown:
                c, d = a, b
            if abs(c - d) <= slack(trial):
                return words.of(shifted).number_right(c, d, counted=True)
        return words.number_wrong(a, b)
    return words.number_right(a, b) if related(a, b, trial.relation) else words.number_wrong(a, b)


def slack(trial: Trial) -> float:
    """How far two sides may be apart by the rounding of the numbers that are written."""
    room = 1e-9
    for side in (trial.left, trial.right):
        for one in nodes(side):
            if isinstance(one, Num) and (one.decimals or not symbols(side)):
                room += 0.5 * 10.0**-one.decimals * (1.0 if one.decimals else 1e-6)
    return room


def _one_less(trial: Trial) -> Trial:
    """The same with every index counted from 1."""

    def moved(node: Node) -> Node:
        match node:
            case Sym(kind, Num(value, _), text) if value > 0:
                return Sym(kind, Num(value - 1), text)
            case Op(sign, left, right):
                return Op(sign, moved(left), moved(right))
            case Minus(of):
                return Minus(moved(of))
        return node

    return replace(trial, left=moved(trial.left), right=moved(trial.right))
