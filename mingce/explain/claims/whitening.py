"""Judging whitened lists, means and deviations. Dividing by n and by n − 1 are both accepted."""

from __future__ import annotations

from collections.abc import Iterator

from mingce.explain.claims import truth
from mingce.explain.claims.context import Column, Context
from mingce.explain.claims.expected import Reading
from mingce.explain.claims.expressions import Call, Listing, Symbol, evaluate, shown
from mingce.explain.claims.extraction import list_rows
from mingce.explain.claims.formulas import bracketed, show
from mingce.explain.claims.lists import claim_text, fit_of, place_of, rows_of
from mingce.explain.claims.names import COLUMN_KINDS
from mingce.explain.claims.quantities import Equation, Series
from mingce.explain.claims.rounding import agrees, near, same_shape, unit_of_rounded
from mingce.explain.claims.verdicts import Answer, Pair, Verdict, note


def judge_whitened(context: Context, series: Series) -> Verdict | None:
    """The verdict on a whitened list: against the list it is made from, or those of its length near it."""
    claim = claim_text(series)
    raws = [raw for raw in _raw_lists(context, series) if truth.deviation(raw.rows, False)]
    if not raws:
        why = (note("check_log.no_inputs"),)
        unknown = Verdict("unknown", series.where, "whitened", claim, series.rows, notes=why)
        return None if series.where.by_user else unknown
    for raw in raws:
        for reading, label in _readings(raw):
            if not fit_of(series, reading).wrong:
                answer = Answer(reading.rows["whitened"], label)
                return Verdict(
                    "right", series.where, "whitened", claim, series.rows, (answer,), basis=(label,),
                    rows=rows_of(series),
                )  # fmt: skip
        if any(not fit_of(series, reading).wrong for reading in _with_shown_statistics(context, series, raw)):
            why = (note("check_log.loose"),)
            return Verdict(
                "right", series.where, "whitened", claim, series.rows, notes=why, loose=True, rows=rows_of(series)
            )
    return _wrong(series, claim, raws)


def _readings(raw: Column) -> Iterator[tuple[Reading, Pair]]:
    """What a list is when whitened, by both divisors, and how far off if it is shown rounded."""
    for unbiased, key in ((True, "check_log.by_n_less_1"), (False, "check_log.by_n")):
        sigma = truth.deviation(raw.rows, unbiased)
        rows = truth.standardised(raw.rows, truth.mean(raw.rows), sigma)
        off = tuple(tuple(raw.unit / 2 / sigma * (2 + 1.2 * abs(z)) for z in row) for row in rows)
        off_by = {"whitened": off} if raw.unit else {}
        yield Reading({"whitened": rows}, "whitened", off=off_by, slots=raw.slots), note(key)


def _raw_lists(context: Context, series: Series) -> list[Column]:
    if series.source is not None:
        row = tuple(number.value for number in series.source if number is not None)
        column = Column((row,), series.where.line, unit=unit_of_rounded(series.source))
        return [column] if len(row) == series.width else []
    columns = context.columns("advantages", series.where, series.width)
    fitting = [column for column in columns if same_shape(series, column.rows, column.slots)]
    before = [column for column in fitting if column.line <= series.where.line]
    here = [column for column in before if column.section == series.where.section]
    return here[:1] or before or fitting[:1]


def _with_shown_statistics(context: Context, series: Series, raw: Column) -> Iterator[Reading]:
    """The list made with the rounded mean and deviation that the text shows, where these are right."""
    numbers = [
        (fact.statistic, number)
        for fact in context.facts
        if isinstance(fact, Equation) and fact.statistic and fact.where.question == series.where.question
        if (number := shown(fact.chain.sides[-1])) is not None
    ]
    mu, sigmas = truth.mean(raw.rows), [truth.deviation(raw.rows, unbiased) for unbiased in (True, False)]
    means = [mu, *(number.value for name, number in numbers if name == "mean" and agrees(number, mu))]
    for name, number in numbers:
        if name == "std" and number.value > 0 and any(agrees(number, sigma) for sigma in sigmas):
            for one in means:
                rows = truth.standardised(raw.rows, one, number.value)
                yield Reading({"whitened": rows}, "whitened", slots=raw.slots)


def _wrong(series: Series, claim: str, raws: list[Column]) -> Verdict:
    answers: list[Answer] = []
    for raw in raws[:2]:
        for reading, label in _readings(raw):
            label = note("check_log.of_line", line=raw.line, label=label) if len(raws) > 1 else label
            answers.append(Answer(reading.rows["whitened"], label))
    fits = [
        (fit_of(series, reading), unbiased)
        for (reading, _), unbiased in zip(_readings(raws[0]), (True, False), strict=True)
    ]
    fit, unbiased = max(fits, key=lambda one: one[0].hits)
    reading, wrong, rows = fit.reading, fit.wrong, raws[0].rows
    b, t = wrong[0]
    mu, sigma = bracketed(truth.mean(rows)), show(truth.deviation(rows, unbiased))
    worked = f"(A − μ)/σ = ({show(rows[b][t])} − {mu})/{sigma} = {show(reading.rows['whitened'][b][t])}"
    notes = (note("check_log.whitening_of_none"),) if len(raws) > 1 else ()
    where = place_of(series, reading, wrong[0][1])
    return Verdict(
        "wrong", where, "whitened", claim, series.rows, tuple(answers), wrong, (worked,), notes, rows=rows_of(series),
        wrong_rows=tuple(place_of(series, reading, t).line for _, t in wrong),
    )  # fmt: skip


# ── means and deviations ─────────────────────────────────────────────────────────────────────────────────────────────


def judge_statistic(context: Context, equation: Equation) -> Verdict | None:
    """The verdict on `σ = std(advantages_raw) = 0.13`."""
    name, number, column = equation.statistic, shown(equation.chain.sides[-1]), _source(context, equation)
    if name is None or number is None or column is None:
        return None
    if name == "mean":
        truths = [("", truth.mean(column.rows))]
    else:
        power = 1 if name == "std" else 2
        truths = [("n − 1", truth.deviation(column.rows, True) ** power)]
        truths.append(("n", truth.deviation(column.rows, False) ** power))
    labels = {"": ("", ""), "n − 1": note("check_log.by_n_less_1"), "n": note("check_log.by_n")}
    answers = tuple(Answer(((value,),), labels[key]) for key, value in truths)
    claim = f"{name} = {number.value:.{max(number.decimals, 0)}f}"
    coarse = 0.5 if equation.chain.approximate and number.decimals == 0 else 0.0
    if any(near(number, value, 0.5, off=max(coarse, column.unit / 2)) for _, value in truths):
        return Verdict("right", equation.where, name, claim, ((number,),), answers)
    values = " / ".join(f"{show(value, 5)} (÷ {key})" if key else show(value, 5) for key, value in truths)
    return Verdict("wrong", equation.where, name, claim, ((number,),), answers, ((0, 0),), (f"{name} = {values}",))


def _source(context: Context, equation: Equation) -> Column | None:
    """The numbers a statistic is of: in its brackets, or the only advantages where the text is about whitening."""
    where = equation.where
    for side in equation.chain.sides:
        if not isinstance(side, Call) or side.name not in ("mean", "avg", "average", "std", "var"):
            continue
        argument = side.arguments[0]
        if isinstance(argument, Listing):
            rows, gap = list_rows(argument)
            if rows and gap is None:
                return Column(tuple(tuple(n.value for n in row if n is not None) for row in rows), where.line)
        if isinstance(argument, Symbol) and argument.kind in COLUMN_KINDS and not argument.mark:
            columns = context.columns(argument.kind, where)
            before = [column for column in columns if column.line <= where.line]
            return (before or columns)[0] if columns else None
    whitening = any(series.where.section == where.section for series in context.lists("whitened", where))
    if not whitening or any(evaluate(side) is None for side in equation.chain.sides[1:]):
        return None
    columns = [column for column in context.columns("advantages", where) if column.line <= where.line]
    return columns[0] if len(columns) == 1 else None
