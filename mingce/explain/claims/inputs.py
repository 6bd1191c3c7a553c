"""What a claim of credit can be worked out from: rewards and values that belong together, near the claim."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from mingce.explain.claims import truth
from mingce.explain.claims.context import Column, Context
from mingce.explain.claims.facts import Scalar, Series
from mingce.explain.claims.truth import Rows

MOST_INPUTS = 6
Claim = Series | Scalar


@dataclass(frozen=True)
class Inputs:
    """Rewards and values that belong together; `after` is the value behind each row's last token.

    `units` are one unit of their last digits, 0 where they are exact.
    """

    rewards: Rows
    values: Rows
    after: tuple[float, ...]
    lines: tuple[int, int]
    carried: bool
    scores_as_rewards: bool = False
    units: tuple[float, float] = (0.0, 0.0)


def inputs(context: Context, claim: Claim, width: int | None) -> Iterator[Inputs]:
    """Rewards and values of one length near the claim; values may have one more, for the state behind the end."""
    seen: set[tuple[Rows, Rows]] = set()
    rewards = list(_rewards(context, claim, width))
    for (paid, by_scores), more in product(rewards, (0, 1)):
        for worth in context.columns("values", claim.where, paid.width + more):
            if [len(row) for row in worth.rows] != [len(row) + more for row in paid.rows]:
                continue
            values = tuple(row[: len(row) - more] for row in worth.rows)
            if (paid.rows, values) in seen:
                continue
            if len(seen) == MOST_INPUTS:
                return
            seen.add((paid.rows, values))
            told = context.value_after(claim.where.question, paid.width)
            after = tuple(row[-1] if more else told for row in worth.rows)
            carried = paid.carried or worth.carried
            units = (paid.unit, worth.unit)
            yield Inputs(paid.rows, values, after, (paid.line, worth.line), carried, by_scores, units)


def _rewards(context: Context, claim: Claim, width: int | None) -> Iterator[tuple[Column, bool]]:
    """Rewards near the claim: listed; worked out from scores and KL; the scores themselves where nothing else is."""
    listed = context.columns("rewards", claim.where, width)
    yield from ((column, False) for column in listed if not column.carried)
    worked = list(_worked_rewards(context, claim, width))
    yield from ((column, False) for column in worked)
    if not any(not column.carried for column in listed) and not worked:
        for column in context.columns("scores", claim.where, width, carried=False):
            yield column, True
    yield from ((column, False) for column in listed if column.carried)


def _worked_rewards(context: Context, claim: Claim, width: int | None) -> Iterator[Column]:
    betas = context.stated("beta", claim.where)[:2]
    for scores in context.columns("scores", claim.where, width, carried=False)[:2] if betas else ():
        for kl, _ in kls(context, claim, scores):
            for beta in betas:
                yield Column(truth.rewards(scores.rows, kl.rows, beta), scores.line, False)


def kls(context: Context, claim: Claim, scores: Column) -> Iterator[tuple[Column, tuple[int, ...]]]:
    """KL of the tokens that `scores` is about: listed, from log-probabilities, or one number for all."""
    shape = [len(row) for row in scores.rows]
    for listed in context.columns("kl", claim.where, scores.width, carried=False):
        if [len(row) for row in listed.rows] == shape:
            yield listed, (listed.line,)
    for old, ref in paired(context, claim, "old_log_probs", "ref_log_probs", scores.width):
        if [len(row) for row in old.rows] == shape:
            yield Column(truth.kl(old.rows, ref.rows), old.line, False, unit=old.unit + ref.unit), (old.line, ref.line)
    constant = context.constant("kl", claim.where.question)
    if constant is not None:
        rows = tuple((constant.number.value,) * length for length in shape)
        yield Column(rows, constant.where.line, False), (constant.where.line,)


def paired(context: Context, claim: Claim, one: str, other: str, width: int | None) -> Iterator[tuple[Column, Column]]:
    for a in context.columns(one, claim.where, width, carried=False):
        for b in context.columns(other, claim.where, a.width, carried=False):
            if [len(row) for row in a.rows] == [len(row) for row in b.rows]:
                yield a, b
