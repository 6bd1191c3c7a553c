"""Judging whitened lists, means and deviations. Dividing by n and by n − 1 are both accepted."""

from __future__ import annotations

from collections.abc import Iterator

from mingce.explain.claims import truth, wording
from mingce.explain.claims.context import Column, Context
from mingce.explain.claims.digits import unit_of_rounded
from mingce.explain.claims.expected import Expected
from mingce.explain.claims.expressions import Call, Listing, Symbol, evaluate, shown, symbols
from mingce.explain.claims.facts import Equation, Series, Where
from mingce.explain.claims.finding import list_rows
from mingce.explain.claims.fitting import fit_of
from mingce.explain.claims.formulas import bracketed, show
from mingce.explain.claims.names import COLUMN_KINDS
from mingce.explain.claims.rounding import agrees, same_shape
from mingce.explain.claims.series import claim_text
from mingce.explain.claims.truth import Rows
from mingce.explain.claims.verdicts import Answer, Verdict


def judge_whitened(context: Context, series: Series) -> Verdict | None:
    """The verdict on a whitened list: against the list it is made from, or those of its length near it."""
    claim = claim_text(series)
    raws = _raw_lists(context, series)
    if not raws:
        if series.where.by_user:
            return None
        return Verdict("unknown", series.where, "whitened", claim, series.rows, notes=(wording.NO_INPUTS,))
    for raw in raws:
        for unbiased in (True, False):
            reading = _reading(raw, unbiased)
            if reading is not None and not fit_of(series, reading).wrong:
                rows = reading.rows
                label = wording.BESSEL if unbiased else wording.BIASED
                return Verdict(
                    "right", series.where, "whitened", claim, series.rows, (Answer(label, rows),), basis=(label,)
                )
        if _loosely(context, series, raw):
            return Verdict("right", series.where, "whitened", claim, series.rows, notes=(wording.LOOSE,), loose=True)
    return _wrong(series, claim, raws)


def _reading(raw: Column, unbiased: bool) -> Expected | None:
    """What a list is when whitened, and how far off if it is shown rounded."""
    rows = truth.whitened(raw.rows, unbiased)
    if rows is None:
        return None
    spread = raw.unit / 2 / truth.deviation(raw.rows, unbiased)
    off = tuple(tuple(spread * (2 + 1.2 * abs(z)) for z in row) for row in rows) if raw.unit else None
    return Expected("whitened", rows, "", off=off)


def _raw_lists(context: Context, series: Series) -> list[Column]:
    if series.source is not None:
        row = tuple(number.value for number in series.source if number is not None)
        unit = unit_of_rounded(number for number in series.source if number is not None)
        return [Column((row,), series.where.line, False, unit=unit)] if len(row) == series.width else []
    columns = context.columns("advantages", series.where, series.width, carried=False)
    found = [column for column in columns if same_shape(series, column.rows)]
    before = [column for column in found if column.line <= series.where.line]
    here = [column for column in before if column.section == series.where.section]
    return here[:1] or before or found[:1]


def _loosely(context: Context, series: Series, raw: Column) -> bool:
    """True if the list was worked out with the rounded mean and deviation that the text shows, and these are right."""
    if not truth.deviation(raw.rows, False):
        return False
    stats = [
        (fact.statistic, number)
        for fact in context.facts
        if isinstance(fact, Equation) and fact.statistic and fact.where.question == series.where.question
        if (number := shown(fact.chain.sides[-1])) is not None
    ]
    means = [n.value for name, n in stats if name == "mean" and agrees(n, truth.mean(raw.rows))]
    sigmas = [n for name, n in stats if name == "std"]
    for sigma in sigmas:
        if sigma.value > 0 and any(agrees(sigma, truth.deviation(raw.rows, unbiased)) for unbiased in (True, False)):
            for mu in [*means, truth.mean(raw.rows)]:
                rows = truth.whitened_with(raw.rows, mu, sigma.value)
                if not fit_of(series, Expected("whitened", rows, "")).wrong:
                    return True
    return False


def _wrong(series: Series, claim: str, raws: list[Column]) -> Verdict:
    answers: list[Answer] = []
    wrong: tuple[tuple[int, int], ...] = ()
    formulas: list[str] = []
    for raw in raws[:2]:
        for unbiased in (True, False):
            reading = _reading(raw, unbiased)
            if reading is None:
                continue
            rows = reading.rows
            zh, en = wording.BESSEL if unbiased else wording.BIASED
            if len(raws) > 1:
                zh, en = f"第 {raw.line} 行的数，{zh}", f"of line {raw.line}, {en}"
            answers.append(Answer((zh, en), rows))
            fit = fit_of(series, reading)
            wrong = wrong or fit.wrong
            if not formulas:
                b, t = fit.wrong[0]
                mu, sigma = truth.mean(raw.rows), truth.deviation(raw.rows, unbiased)
                formulas.append(
                    f"(A − μ)/σ = ({show(raw.rows[b][t])} − {bracketed(mu)})/{show(sigma)} = {show(rows[b][t])}"
                )
    notes = (wording.NEITHER_WHITENED,) if len(raws) > 1 else ()
    return Verdict("wrong", series.where, "whitened", claim, series.rows, tuple(answers), wrong, tuple(formulas), notes)


# ── means and deviations ─────────────────────────────────────────────────────────────────────────────────────────────


def judge_statistic(context: Context, equation: Equation) -> Verdict | None:
    """The verdict on `σ = std(advantages_raw) = 0.13`."""
    assert equation.statistic
    number = shown(equation.chain.sides[-1])
    assert number is not None
    rows = _of(context, equation)
    name = equation.statistic
    if rows is None:
        return None
    if name == "mean":
        truths = {"": truth.mean(rows)}
    else:
        power = 1 if name == "std" else 2
        truths = {"n − 1": truth.deviation(rows, True) ** power, "n": truth.deviation(rows, False) ** power}
    claim = f"{name} = {number.value:.{max(number.decimals, 0)}f}"
    decimals = 0 if equation.chain.approximate and number.decimals == 0 else 2
    rounded = any(
        agrees(number, value, decimals) or (decimals == 0 and abs(value - number.value) <= 0.5)
        for value in truths.values()
    )
    answers = tuple(
        Answer(wording.BESSEL if key == "n − 1" else wording.BIASED if key else ("", ""), ((value,),))
        for key, value in truths.items()
    )
    if rounded:
        return Verdict("right", equation.where, name, claim, ((number,),), answers)
    below = "" if name == "mean" else " / ".join(f"{show(value, 5)} (÷ {key})" for key, value in truths.items())
    worked = f"{name} = {below or show(truth.mean(rows), 5)}"
    return Verdict("wrong", equation.where, name, claim, ((number,),), answers, ((0, 0),), (worked,))


def _of(context: Context, equation: Equation) -> Rows | None:
    """The numbers a statistic is of: in its brackets, or the nearest advantages where the text is about whitening."""
    for side in equation.chain.sides:
        for call in _calls(side):
            argument = call.arguments[0]
            if isinstance(argument, Listing):
                rows, gap = list_rows(argument)
                if rows and gap is None:
                    return tuple(tuple(n.value for n in row if n is not None) for row in rows)
            kinds = [symbol.kind for symbol in symbols(argument) if symbol.kind in COLUMN_KINDS]
            if isinstance(argument, Symbol) and kinds and kinds[0]:
                found = context.columns(kinds[0], equation.where, carried=False)
                before = [column for column in found if column.line <= equation.where.line]
                return (before or found)[0].rows if found else None
    if not _about_whitening(context, equation.where) or any(
        evaluate(side) is None for side in equation.chain.sides[1:]
    ):
        return None
    found = [c for c in context.columns("advantages", equation.where, carried=False) if c.line <= equation.where.line]
    return found[0].rows if len(found) == 1 else None


def _calls(node: object) -> Iterator[Call]:
    if isinstance(node, Call) and node.name in ("mean", "avg", "average", "std", "var"):
        yield node


def _about_whitening(context: Context, where: Where) -> bool:
    """True if the same section holds a whitened list."""
    return any(series.where.section == where.section for series in context.series("whitened", where))
