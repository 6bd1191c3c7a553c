"""The one score of each row, as it was given and as its rewards hold it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mingce.audit.composition import FAIR, GOOD, Account, account, exceptions, held_scores, leaks, outcomes
from mingce.audit.evidence import Bools, Evidence, Floats, Ints, finite, once, rows_with
from mingce.audit.fitting import Sample, fit_beta
from mingce.audit.kl import Penalty, usual_penalties

DENSE = 0.1  # of the rows may hold more than one score
LEAST_ROWS = 4


@dataclass(frozen=True)
class RowScores:
    """[B] what each row was given, what its rewards hold, how far that may be off, and the slot where it sits."""

    given: Floats
    held: Floats
    room: Floats
    slot: Ints
    rows: Bools  # those that are judged


@once
def legible(e: Evidence) -> Account | None:
    """The rewards taken apart, where score and KL can be told from each other."""
    found = account(e)
    if found is None or not found.quiet.any() or found.gain is None:
        return None
    if found.moved is None:
        return found if found.explained >= FAIR else None
    return None if found.reach is None else found  # else something stands on every token


@once
def row_scores(e: Evidence) -> RowScores | None:
    """None where scores are dense, or nothing says what a row was given."""
    found, both = legible(e), held_scores(e)
    if found is None or both is None:
        return None
    held, room = both
    inside = found.rewards.known & ~leaks(e, found)
    if "scores" in e.dump.columns:
        scores = finite(e["scores"])
        if dense(scores):
            return None
        given, inside = scores.sum(axis=1), inside & (e.mask | (scores != 0) | (np.abs(found.taken) <= found.room))
    elif (known := outcomes(e)) is not None:
        given = known
    else:
        return None
    kept = np.where(inside & (np.abs(held) > room), held, 0.0)
    if "scores" not in e.dump.columns:
        kept = np.where(found.rewards.column == 0, 0.0, kept)  # a KL that was lost is no score
    if "scores" not in e.dump.columns and dense(kept):
        return None  # the outcome need not be their sum
    slot = np.where((kept != 0).any(axis=1), np.abs(kept).argmax(axis=1), np.maximum(e.last, 0))
    rows = rows_with(e.mask) & ~rows_with(exceptions(e, found) | leaks(e, found))
    for name in ("old_log_probs", "ref_log_probs"):  # a KL that cannot be told from the score
        if name in e.dump.columns and found.penalty is not None:
            rows = rows & ~rows_with(e.mask & ~(np.isfinite(e[name]) & (e[name] <= 1e-3)))
    at = np.arange(len(held))
    return RowScores(given, kept.sum(axis=1), room[at, slot] if held.shape[1] else given * 0, slot, rows)


def dense(scores: Floats) -> bool:
    """Whether many rows hold more than one score."""
    return bool(len(scores)) and bool(((scores != 0).sum(axis=1) > 1).mean() > DENSE)


@once
def overwritten(e: Evidence) -> Bools | None:
    """[B] rows whose score stands alone on its token though every other token pays its KL, or whose last token holds
    nothing where the score sits behind it; None where few tell."""
    found, row = legible(e), row_scores(e)
    if found is None or row is None or found.penalty is None or found.moved is not None:
        return None
    at, behind = np.arange(len(row.slot)), (row.slot == e.last + 1) & (e.last >= 0)
    slot = np.where(behind, np.maximum(e.last, 0), row.slot)
    rewards, paid = found.rewards.column[at, slot], found.paid[at, slot]
    room = 4 * found.error[at, slot] + 1e-6 * np.abs(row.given) + 1e-12
    telling = e.mask[at, slot] & (np.abs(paid) > 3 * room + np.where(behind, 0.0, row.room))
    alone = telling & (np.abs(rewards - np.where(behind, 0.0, row.given)) <= room)
    return alone if telling.sum() >= 3 and alone.sum() >= 0.95 * telling.sum() else None


@once
def row_kl(e: Evidence) -> tuple[Penalty, float] | None:
    """The kind and the price of a KL that was summed over each row and taken off its one score."""
    found, scores = account(e), row_scores(e)
    if found is None or found.penalty is not None or scores is None or scores.rows.sum() < LEAST_ROWS:
        return None
    gap = scores.given - scores.held
    for one in usual_penalties(e):
        total = np.where(e.mask, one.column, 0.0).sum(axis=1)
        error = np.sqrt(np.where(e.mask, np.square(one.room), 0.0).sum(axis=1))
        rows = scores.rows
        fit = fit_beta(Sample(gap[rows], total[rows], scores.room[rows] / 4, error[rows]))
        if fit.explained >= GOOD and not fit.weak and fit.beta and (np.abs(gap) > scores.room)[rows].mean() > 0.5:
            return one, fit.beta
    return None
