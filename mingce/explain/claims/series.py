"""Judging lists: rewards, KL, TD errors, advantages, returns, probabilities against what the text itself gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mingce.algorithms import reference
from mingce.explain.claims import truth, wording
from mingce.explain.claims.context import Context
from mingce.explain.claims.diagnosis import GRID_TOKENS, any_pair, diagnosis
from mingce.explain.claims.expected import Expected, expected
from mingce.explain.claims.facts import Series
from mingce.explain.claims.fitting import Fit, Place, fit_of
from mingce.explain.claims.formulas import formula
from mingce.explain.claims.inputs import Inputs
from mingce.explain.claims.names import CREDIT_KINDS
from mingce.explain.claims.rounding import agrees, aligned, most_decimals, near, same_shape
from mingce.explain.claims.truth import Rows
from mingce.explain.claims.verdicts import Answer, Pair, Verdict

FITS = 0.6
"""The share of numbers that must agree before unstated settings count as found."""
LOOSE_UNITS = 3.0
MOST_FORMULAS = 2
MOST_BESIDE = 3


def judge(context: Context, series: Series) -> Verdict | None:
    """The verdict on a list, None if it is simply given. Where its label names several kinds, one that fits will do."""
    verdict = _judge(context, series)
    if verdict is None or verdict.status != "wrong":
        return _misworked(series) or verdict
    for kind in series.maybe:
        other = _judge(context, replace(series, kind=kind, maybe=()))
        if other is not None and other.status == "right":
            return other
    if series.variant or series.where.supposed:
        return replace(verdict, status="unknown", right=(), wrong_at=(), formulas=(), notes=(wording.OTHER_CASE,))
    return verdict


def _misworked(series: Series) -> Verdict | None:
    """The verdict on [0 − 0.01, 1 − 0.02] = [−0.01, 0.99] where a sum does not give the number after it."""
    decimals = most_decimals(series.rows)
    for row in series.worked:
        pairs = list(zip(row, series.rows[0], strict=True))
        wrong = [t for t, (sum_, n) in enumerate(pairs) if sum_ and n and not agrees(n, sum_.value, decimals)]
        if wrong:
            right = Answer(("", ""), (tuple(sum_.value for sum_ in row if sum_ is not None),))
            places = tuple((0, t) for t in wrong)
            return Verdict("wrong", series.where, series.kind, claim_text(series), series.rows, (right,), places)
    return None


def _judge(context: Context, series: Series) -> Verdict | None:
    claim = claim_text(series)
    tried = list(_fits(context, series))
    if not tried:
        if series.kind in CREDIT_KINDS and not series.where.by_user:
            return Verdict("unknown", series.where, series.kind, claim, series.rows, notes=(wording.NO_INPUTS,))
        return None
    fit = _best(context, series, tried)
    if fit.reading.inferred and "lam" in fit.reading.settings and fit.hits >= FITS * fit.total:
        context.found_pairs[series.where.question] = (fit.reading.settings["gamma"], fit.reading.settings["lam"])
    if not fit.wrong:
        return _right(series, claim, fit.reading, fit.loose)
    if not _convicts(context, series, fit):
        return Verdict("unknown", series.where, series.kind, claim, series.rows, notes=(wording.NO_INPUTS,))
    wrong = _not_explained(context, series, fit)
    if not wrong:
        return _right(series, claim, fit.reading, loose=True)
    if fit.reading.inferred & {"gamma", "lam"} and fit.reading.inputs and fit.hits < FITS * fit.total:
        return _no_pair(context, series, claim, fit.reading.inputs)
    return _wrong(context, series, claim, fit.reading, wrong)


def claim_text(series: Series) -> str:
    """The list as claimed, for people."""
    rows = [
        "[" + ", ".join("…" if n is None else f"{n.value:.{max(n.decimals, 0)}f}" for n in row) + "]"
        for row in series.rows
    ]
    return rows[0] if len(rows) == 1 else "[" + ", ".join(rows) + "]"


# ── readings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _fits(context: Context, series: Series) -> Iterator[Fit]:
    """How the series fits each reading; ends with the first that it fits without a fault, if nothing is left open."""
    width = None if series.gap is not None else series.width
    for reading in expected(context, series, width):
        if not same_shape(series, reading.rows):
            continue
        fit = fit_of(series, reading)
        yield fit
        if not fit.wrong and not reading.inferred:
            return
        if context.found_pairs.get(series.where.question) == _pair(reading) and fit.hits >= FITS * fit.total:
            return  # what the lists beside it have settled


def _pair(reading: Expected) -> tuple[float | None, float | None]:
    return reading.settings.get("gamma"), reading.settings.get("lam")


def _best(context: Context, series: Series, fits: Sequence[Fit]) -> Fit:
    """The reading most numbers agree with; where γ and λ are open, those of the lists beside it count too."""
    beside = _beside(context, series) if fits[0].reading.inferred else []

    def score(fit: Fit) -> tuple[int, int, float]:
        given, used = fit.reading.inputs, fit.reading.settings
        more = 0
        if given is not None and beside:
            lams = [used["lam"]] if "lam" in used else truth.COMMON_LAMS
            more = max(_hits(beside, given, used["gamma"], lam) for lam in lams)
        return fit.hits + more, -int(fit.reading.carried), -fit.error

    return max(fits, key=score)


def _hits(beside: Sequence[Series], given: Inputs, gamma: float, lam: float) -> int:
    """How many numbers of the lists beside agree with a pair (γ, λ)."""
    credit = truth.credit(given.rewards, given.values, gamma, lam, given.after)
    readings = [(other, Expected(other.kind, credit[other.kind], "recursion")) for other in beside]
    return sum(fit_of(other, reading).hits for other, reading in readings if same_shape(other, reading.rows))


def _beside(context: Context, series: Series) -> list[Series]:
    """The other lists of credit in the question that share its γ and λ."""
    return [
        other
        for kind in CREDIT_KINDS
        for other in context.series(kind, series.where)
        if other is not series and other.width == series.width and not other.settings and not other.monte_carlo
    ][:MOST_BESIDE]


def _convicts(context: Context, series: Series, fit: Fit) -> bool:
    """False if the inputs may belong to another example and too few numbers agree to say that they do not."""
    given, reading = fit.reading.inputs, fit.reading
    enough = fit.hits >= 2 and 2 * fit.hits >= fit.total
    if reading.carried or (given is not None and given.scores_as_rewards):
        return enough or _repeats(context, series)
    if reading.how == "return_minus_value":
        return enough
    return not reading.weak or enough or reading.section == series.where.section


def _repeats(context: Context, series: Series) -> bool:
    """True if the same list was claimed in an earlier question, where its inputs stood."""
    return any(
        other.rows == series.rows and other.where.question < series.where.question
        for other in context.series(series.kind, series.where, carried=True)
    )


def _not_explained(context: Context, series: Series, fit: Fit) -> tuple[Place, ...]:
    """The wrong places that rounding on the way does not explain: worked out from the numbers shown beside them."""
    reading = fit.reading
    given, used, decimals = reading.inputs, reading.settings, most_decimals(series.rows)
    if given is None or reading.kind == "deltas" or series.gap is not None:
        return fit.wrong
    credit = truth.credit(given.rewards, given.values, used["gamma"], used.get("lam", 1.0), given.after)
    shown = _shown_advantages(context, series, credit["advantages"]) if reading.kind == "returns" else None
    wrong = set(fit.wrong)
    for b, t in sorted(fit.wrong, reverse=True):
        number = series.rows[b][t]
        assert number is not None
        if not near(number, reading.rows[b][t], LOOSE_UNITS, decimals):
            continue
        ways: list[float] = []
        following = series.rows[b][t + 1] if t + 1 < len(series.rows[b]) and (b, t + 1) not in wrong else None
        if reading.kind == "advantages" and following is not None:
            decay = used["gamma"] * used.get("lam", 1.0)
            ways.append(reference.discounted_sum([credit["deltas"][b][t], following.value], decay)[0])
        if reading.kind == "returns":
            if following is not None and used.get("lam") == 1.0:
                ways.append(reference.discounted_sum([given.rewards[b][t], following.value], used["gamma"])[0])
            if shown is not None and (advantage := shown.rows[b][t]) is not None:
                ways.append(advantage.value + given.values[b][t])
        if any(agrees(number, way, decimals) for way in ways):
            wrong.discard((b, t))
    return tuple(sorted(wrong))


def _shown_advantages(context: Context, series: Series, rows: Rows) -> Series | None:
    """The text's own advantages beside its returns, if they are right up to rounding."""
    for other in context.series("advantages", series.where):
        if same_shape(other, rows) and other.gap is None:
            decimals = most_decimals(other.rows)
            if all(near(number, should, 1.0, decimals) for _, _, number, should in aligned(other, rows)):
                return other
    return None


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def basis(reading: Expected) -> tuple[Pair, ...]:
    """The settings and inputs a reading rests on."""
    notes: list[Pair] = []
    if reading.settings:
        notes.append(wording.settings_words(reading.settings, reading.inferred))
    if reading.inputs is not None and reading.inputs.scores_as_rewards:
        notes.append(wording.SCORES_AS_REWARDS)
    if reading.carried:
        notes.append(wording.carried_words(reading.lines))
    return tuple(notes)


def _right(series: Series, claim: str, reading: Expected, loose: bool = False) -> Verdict:
    return Verdict(
        "right",
        series.where,
        series.kind,
        claim,
        series.rows,
        (Answer(("", ""), reading.rows),),
        notes=(wording.LOOSE,) if loose else (),
        basis=basis(reading),
        loose=loose,
    )


def _wrong(context: Context, series: Series, claim: str, reading: Expected, wrong: tuple[Place, ...]) -> Verdict:
    bases = context.bases(series.where.question, series.width)
    base = bases[0] if len(bases) == 1 else 0
    formulas = tuple(text for b, t in wrong[:MOST_FORMULAS] if (text := formula(reading, b, t, base)))
    return Verdict(
        "wrong",
        series.places[wrong[0][1]] if series.places else series.where,
        series.kind,
        claim,
        series.rows,
        (Answer(("", ""), reading.rows),),
        wrong,
        formulas,
        tuple(diagnosis(context, series, reading)),
        basis(reading),
    )


def _no_pair(context: Context, series: Series, claim: str, given: Inputs) -> Verdict:
    """The verdict where γ and λ are not stated and no common pair gives the numbers."""
    context.searches_left -= 1
    found = any_pair(series, given) if context.searches_left >= 0 else None
    if found is not None:
        settings = {"gamma": found[0], "lam": found[1]}
        rows = truth.credit(given.rewards, given.values, *found, given.after)[series.kind]
        informative = sum(len(row) - 1 for row in series.rows)
        if informative >= 4:
            reading = Expected(
                series.kind, rows, "recursion", settings, frozenset({"gamma", "lam"}), given.carried, given
            )
            return _right(series, claim, reading)
        return Verdict("unknown", series.where, series.kind, claim, series.rows, notes=(wording.unusual(settings),))
    readings = []
    for gamma, lam in truth.COMMONEST:
        rows = truth.credit(given.rewards, given.values, gamma, lam, given.after)[series.kind]
        readings.append(
            fit_of(series, Expected(series.kind, rows, "recursion", {"gamma": gamma, "lam": lam}, inputs=given))
        )
    nearest = min(readings, key=lambda fit: fit.error)
    answers = [_answer(nearest.reading, wording.NEAREST)]
    if nearest is not readings[0]:
        answers.append(_answer(readings[0].reading, ("", "")))
    verdict = _wrong(context, series, claim, nearest.reading, nearest.wrong or ((0, 0),))
    searched = sum(map(len, given.rewards)) <= GRID_TOKENS and context.searches_left >= 0
    none = wording.NO_PAIR if searched else wording.NO_COMMON_PAIR
    carried = (wording.carried_words(given.lines),) if given.carried else ()
    return replace(verdict, right=tuple(answers), notes=(none, *verdict.notes), basis=carried)


def _answer(reading: Expected, label: Pair) -> Answer:
    zh, en = wording.settings_words(reading.settings, frozenset())
    return Answer((f"{label[0]} {zh}".strip(), f"{label[1]} {en}".strip()), reading.rows)
