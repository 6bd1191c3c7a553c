"""What may have gone wrong in a list: another rule, or other settings, give the very numbers claimed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from mingce.algorithms import reference
from mingce.explain.claims import truth, wording
from mingce.explain.claims.context import Context
from mingce.explain.claims.expected import Expected
from mingce.explain.claims.facts import Series
from mingce.explain.claims.fitting import is_that
from mingce.explain.claims.inputs import Inputs
from mingce.explain.claims.rounding import agrees, most_decimals, same_shape
from mingce.explain.claims.verdicts import Pair

GRID_TOKENS = 24
"""Longer lists are not searched for their γ and λ."""


def diagnosis(context: Context, series: Series, reading: Expected) -> Iterator[Pair]:
    """What may have gone wrong: another rule gives the very numbers claimed."""
    given, used = reading.inputs, reading.settings
    if given is None or series.gap is not None:
        return
    gamma, lam = used["gamma"], used.get("lam", 1.0)
    credit = truth.credit(given.rewards, given.values, gamma, lam, given.after)
    if series.kind == "advantages":
        mixed = tuple((*r[:-1], d[-1]) for r, d in zip(given.rewards, credit["deltas"], strict=True))
        if is_that(series, truth.advantages_from_deltas(mixed, gamma * lam)):
            yield wording.REWARD_FOR_DELTA
            return
    if series.kind == "returns":
        for other in context.series("whitened", series.where):
            if (
                other.whole
                and same_shape(series, other.values)
                and is_that(series, truth.plus(other.values, given.values))
            ):
                yield wording.WHITENED_IN_RETURN
                return
    if series.kind in ("advantages", "returns"):
        for g, other_lam in _common_pairs() if context.searches_left >= 0 else ():
            rows = truth.credit(given.rewards, given.values, g, other_lam, given.after)[series.kind]
            if is_that(series, rows):
                yield wording.other_settings({"gamma": g, "lam": other_lam})
                return
        if _sum_holds(context, series, given):
            yield wording.SUM_HOLDS


def _common_pairs() -> Iterable[tuple[float, float]]:
    return ((gamma, lam) for gamma in truth.COMMON_GAMMAS for lam in truth.COMMON_LAMS)


def _sum_holds(context: Context, series: Series, given: Inputs) -> bool:
    """True if the text's own returns are its own advantages plus the values."""
    other_kind = "returns" if series.kind == "advantages" else "advantages"
    for other in context.series(other_kind, series.where):
        if other.whole and series.whole and same_shape(series, other.values):
            a, r = (series, other) if series.kind == "advantages" else (other, series)
            if is_that(r, truth.plus(a.values, given.values)):
                return True
    return False


@lru_cache(maxsize=256)
def any_pair(series: Series, given: Inputs) -> tuple[float, float] | None:
    """A pair (γ, λ) out of all with two decimals, γ from 0.8, that gives the numbers; only short lists are searched."""
    if sum(map(len, given.rewards)) > GRID_TOKENS or series.gap is not None:
        return None
    for gamma in range(100, 79, -1):
        for lam in range(100, -1, -1) if series.kind != "deltas" else (0,):
            pair = gamma / 100, lam / 100
            if _tail_fits(series, given, *pair) and is_that(
                series, truth.credit(given.rewards, given.values, *pair, given.after)[series.kind]
            ):
                return pair
    return None


def _tail_fits(series: Series, given: Inputs, gamma: float, lam: float) -> bool:
    """True if the last two numbers of the first row fit: what most pairs already fail."""
    rewards, values, row = given.rewards[0][-2:], given.values[0][-2:], series.rows[0][-2:]
    credit = reference.gae([rewards], [values], [[1] * len(rewards)], gamma, lam, given.after[:1])
    should = {"deltas": credit.deltas, "advantages": credit.advantages, "returns": credit.returns}[series.kind][0]
    decimals = most_decimals(series.rows)
    return all(number is None or agrees(number, x, decimals) for number, x in zip(row, should, strict=True))
