"""Judging lists: rewards, KL, TD errors, advantages, returns, probabilities against what the text itself gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mingce.explain.claims import truth
from mingce.explain.claims.context import GLOBAL, Context
from mingce.explain.claims.expected import WEAK, Reading, readings
from mingce.explain.claims.expressions import Number
from mingce.explain.claims.formulas import formula
from mingce.explain.claims.names import CREDIT_KINDS
from mingce.explain.claims.quantities import Series, Where
from mingce.explain.claims.rounding import agrees, aligned, fits, most_decimals, near, same_shape
from mingce.explain.claims.truth import Rows
from mingce.explain.claims.verdicts import Answer, Pair, Verdict, lines_note, note, settings_note

ENOUGH = 0.6
"""The share of numbers that must agree before unstated settings count as found."""
LOOSE_UNITS = 3.0
MOST_FORMULAS = 2
GRID_TOKENS = 24
"""Longer lists are not searched for their γ and λ."""
INFORMATIVE = 4
"""So many numbers besides the last must agree with an unusual pair before it counts as found."""
Place = tuple[int, int]
"""(row, token)."""


@dataclass(frozen=True)
class Fit:
    """A reading and where a series disagrees with it; `loose` if rounded inputs explain some of it."""

    reading: Reading
    wrong: tuple[Place, ...]
    total: int
    error: float
    loose: bool = False

    @property
    def hits(self) -> int:
        return self.total - len(self.wrong)


def fit_of(series: Series, reading: Reading) -> Fit:
    kind, decimals = series.kind, most_decimals(series.rows)
    compared = list(aligned(series, reading.rows[kind], reading.slots))
    apart = [one for one in compared if not agrees(one[2], one[3], decimals)]
    wrong = tuple(
        (b, t) for b, t, number, should in apart
        if not fits(number, should, reading.slack(kind, b, t), reading.most, decimals)
    )  # fmt: skip
    error = sum((number.value - should) ** 2 for _, _, number, should in compared)
    return Fit(reading, wrong, len(compared), error, len(wrong) < len(apart))


def is_that(series: Series, rows: Rows) -> bool:
    """True if a series is these numbers."""
    return same_shape(series, rows) and not fit_of(series, Reading({series.kind: rows}, "")).wrong


def judge_list(context: Context, series: Series) -> Verdict | None:
    """The verdict on a list, None if it is simply given. Where its label names several kinds, one that fits will do."""
    verdict = _judge(context, series)
    if verdict is None or verdict.status != "wrong":
        return _wrong_sums(series) or verdict
    for kind in series.other_kinds:
        other = _judge(context, replace(series, kind=kind, other_kinds=()))
        if other is not None and other.status == "right":
            return other
    if series.variant or series.where.supposed or series.other_kinds:
        return _unknown(series, note("check_log.other_case"))
    return verdict


def _wrong_sums(series: Series) -> Verdict | None:
    """The verdict on [0 − 0.01, 1 − 0.02] = [−0.01, 0.99] where a sum does not give the number after it."""
    decimals = most_decimals(series.rows)
    for row in series.sums:
        pairs = enumerate(zip(row, series.rows[0], strict=True))
        places = tuple((0, t) for t, (sum_, n) in pairs if sum_ and n and not agrees(n, sum_.value, decimals))
        if places:
            right = Answer((tuple(sum_.value for sum_ in row if sum_ is not None),))
            return Verdict("wrong", series.where, series.kind, claim_text(series), series.rows, (right,), places)
    return None


def _judge(context: Context, series: Series) -> Verdict | None:
    tried: list[Fit] = []
    for reading in readings(context, series, None if series.gap is not None else series.width):
        if same_shape(series, reading.rows[series.kind], reading.slots):
            tried.append(fit_of(series, reading))
            if not tried[-1].wrong and not reading.guessed:
                break
    if not tried:
        checkable = series.kind in CREDIT_KINDS and not series.where.by_user
        return _unknown(series, note("check_log.no_inputs")) if checkable else None
    tried = [one for one in tried if one.reading.section in (series.where.section, GLOBAL)] or tried
    fit = max(tried, key=lambda one: (one.hits, not one.reading.carried, -one.error))
    if not fit.wrong:
        return _right(series, fit.reading, fit.loose)
    if not _convicts(series, fit):
        return _unknown(series, note("check_log.no_inputs"))
    wrong = _unexplained(context, series, fit)
    if not wrong:
        return _right(series, fit.reading, loose=True)
    if fit.reading.guessed and fit.reading.how == "recursion" and fit.hits < ENOUGH * fit.total:
        return _no_pair(context, series, fit.reading)
    return _wrong(context, series, fit.reading, wrong)


def claim_text(series: Series) -> str:
    """The list as claimed, for people."""
    rows = [
        "[" + ", ".join("…" if n is None else f"{n.value:.{max(n.decimals, 0)}f}" for n in row) + "]"
        for row in series.rows
    ]
    return rows[0] if len(rows) == 1 else "[" + ", ".join(rows) + "]"


def _convicts(series: Series, fit: Fit) -> bool:
    """False if the inputs may belong to another example and too few numbers agree to say that they do not."""
    reading = fit.reading
    if reading.section == GLOBAL:
        return (series.kind in CREDIT_KINDS and not series.monte_carlo) or (
            2 * fit.hits >= fit.total and (fit.hits >= 2 or not series.places)
        )
    if reading.how == "score_minus_kl" and reading.section != series.where.section:
        return False
    if fit.hits >= 2 and 2 * fit.hits >= fit.total:
        return True
    if reading.how in WEAK:
        return reading.how != "return_minus_value" and reading.section == series.where.section
    last = (0, len(reading.rows[series.kind][0]) - 1)
    same_end = reading.how == "recursion" and last not in fit.wrong and (fit.hits > 1 or fit.total < INFORMATIVE)
    return not reading.carried and (reading.section == series.where.section or same_end)


def _unexplained(context: Context, series: Series, fit: Fit) -> tuple[Place, ...]:
    """The wrong places that rounding on the way does not explain: worked out from the numbers shown beside them."""
    reading, decimals = fit.reading, most_decimals(series.rows)
    if reading.how != "recursion" or series.kind == "deltas" or series.gap is not None:
        return fit.wrong
    beside = _shown_advantages(context, series, reading) if series.kind == "returns" else {}
    wrong = set(fit.wrong)
    shown = {(b, t): number for b, t, number, _ in aligned(series, reading.rows[series.kind], reading.slots)}
    for b, t in sorted(fit.wrong, reverse=True):
        number = shown[b, t]
        following = shown.get((b, t + 1)) if (b, t + 1) not in wrong else None
        ways: list[float] = []
        if following is not None and series.kind == "advantages":
            ways.append(reading.rows["deltas"][b][t] + reading.gamma * reading.lam * following.value)
        if following is not None and series.kind == "returns" and reading.lam == 1.0:
            ways.append(reading.rows["rewards"][b][t] + reading.gamma * following.value)
        if (b, t) in beside:
            ways.append(beside[b, t].value + reading.rows["values"][b][t])
        close = near(number, reading.rows[series.kind][b][t], LOOSE_UNITS, decimals)
        if close and any(agrees(number, way, decimals) for way in ways):
            wrong.discard((b, t))
    return tuple(sorted(wrong))


def _shown_advantages(context: Context, series: Series, reading: Reading) -> dict[Place, Number]:
    """The text's own advantages beside its returns, if they are right up to rounding."""
    rows, slots = reading.rows["advantages"], reading.slots
    for other in context.lists("advantages", series.where):
        if same_shape(other, rows, slots) and other.gap is None:
            decimals, pairs = most_decimals(other.rows), list(aligned(other, rows, slots))
            if all(near(number, should, 1.0, decimals) for _, _, number, should in pairs):
                return {(b, t): number for b, t, number, _ in pairs}
    return {}


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def basis(reading: Reading) -> tuple[Pair, ...]:
    """The settings and inputs a reading rests on."""
    settings = (settings_note(reading.settings, reading.open),) if reading.settings else ()
    return (*settings, lines_note(reading.lines)) if reading.carried else settings


def _unknown(series: Series, why: Pair) -> Verdict:
    return Verdict("unknown", series.where, series.kind, claim_text(series), series.rows, notes=(why,))


def _right(series: Series, reading: Reading, loose: bool = False) -> Verdict:
    notes = (note("check_log.loose"),) if loose else ()
    answer = Answer(reading.rows[series.kind])
    return Verdict(
        "right", series.where, series.kind, claim_text(series), series.rows, (answer,),
        notes=notes, basis=basis(reading), loose=loose, rows=rows_of(series),
    )  # fmt: skip


def _wrong(context: Context, series: Series, reading: Reading, wrong: Sequence[Place]) -> Verdict:
    bases = context.bases(series.where, series.width)
    base = bases[0] if len(bases) == 1 else 0
    formulas = [formula(reading, series.kind, b, t, base) for b, t in wrong[:MOST_FORMULAS]]
    return Verdict(
        "wrong", place_of(series, reading, wrong[0][1]), series.kind, claim_text(series),
        series.rows, (Answer(reading.rows[series.kind]),), tuple(wrong), tuple(filter(None, formulas)),
        tuple(_causes(series, reading)), basis(reading), rows=rows_of(series),
        wrong_rows=tuple(place_of(series, reading, t).line for _, t in wrong),
    )  # fmt: skip


def rows_of(series: Series) -> tuple[int, ...]:
    """The lines in which the numbers of a table's column stand."""
    return tuple(place.line for place in series.places)


def place_of(series: Series, reading: Reading, t: int) -> Where:
    """Where the number of the t-th chosen token stands."""
    if not series.places:
        return series.where
    slots = series.slots or (reading.slots if len(reading.rows[series.kind][0]) < series.width else None)
    return series.places[slots[t] if slots else t]


def _causes(series: Series, reading: Reading) -> Iterator[Pair]:
    """What may have gone wrong: another rule or other settings give the very numbers claimed."""
    if reading.how != "recursion" or series.gap is not None or series.kind == "deltas":
        return
    rewards, deltas = reading.rows["rewards"], reading.rows["deltas"]
    mixed = tuple((*r[:-1], d[-1]) for r, d in zip(rewards, deltas, strict=True))
    if series.kind == "advantages" and is_that(series, truth.discounted(mixed, reading.gamma * reading.lam)):
        yield note("check_log.reward_for_delta")
        return
    for gamma in truth.COMMON_GAMMAS:
        for lam in truth.COMMON_LAMS:
            if is_that(series, _credit(reading, gamma, lam)[series.kind]):
                yield note("check_log.other_settings", settings=settings_note({"gamma": gamma, "lam": lam}))
                return


def _credit(reading: Reading, gamma: float, lam: float) -> dict[str, Rows]:
    """What the same inputs give under another pair."""
    return truth.credit(reading.rows["rewards"], reading.rows["values"], gamma, lam, reading.after)


def _no_pair(context: Context, series: Series, reading: Reading) -> Verdict:
    """The verdict where γ and λ are not stated and no common pair gives the numbers."""
    context.searches_left -= 1
    searched = sum(map(len, reading.rows["rewards"])) <= GRID_TOKENS and context.searches_left >= 0
    pair = _any_pair(series, reading) if searched and series.gap is None else None
    if pair is not None:
        settings = {"gamma": pair[0], "lam": pair[1]}
        if sum(len(row) - 1 for row in series.rows) < INFORMATIVE:
            return _unknown(series, note("check_log.unusual", settings=settings_note(settings)))
        return _right(series, replace(reading, rows=_credit(reading, *pair), settings=settings))
    offers = [_offer(reading, *pair) for pair in truth.COMMONEST]
    nearest = min(offers, key=lambda one: fit_of(series, one).error)
    label = note("check_log.nearest_pair", settings=settings_note(nearest.settings))
    answers = [Answer(nearest.rows[series.kind], label)]
    if nearest is not offers[0]:
        answers.append(Answer(offers[0].rows[series.kind], settings_note(offers[0].settings)))
    verdict = _wrong(context, series, nearest, fit_of(series, nearest).wrong or ((0, 0),))
    none = note("check_log.no_pair") if searched else note("check_log.no_common_pair")
    carried = (lines_note(reading.lines),) if reading.carried else ()
    return replace(verdict, right=tuple(answers), notes=(none, *verdict.notes), basis=carried)


def _offer(reading: Reading, gamma: float, lam: float) -> Reading:
    rows = {**reading.rows, **_credit(reading, gamma, lam)}
    return replace(reading, rows=rows, settings={"gamma": gamma, "lam": lam})


def _any_pair(series: Series, reading: Reading) -> tuple[float, float] | None:
    """A pair (γ, λ) out of all with two decimals, γ from 0.8, that gives the numbers."""
    for gamma in range(100, 79, -1):
        for lam in range(100, -1, -1) if series.kind != "deltas" else (0,):
            if is_that(series, _credit(reading, gamma / 100, lam / 100)[series.kind]):
                return gamma / 100, lam / 100
    return None
