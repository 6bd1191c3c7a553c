"""What the rewards of a dump are made of: r_t = a·s_t − b·k_t + c, with the k, the prices and the c that fit.

a = 1 and c = 0 unless rewards were scaled or whitened. The tokens that hold no score give k, b and c away; what they
leave is the score that the rewards hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, finite, last_slot, once
from mingce.audit.fitting import SLACK, SPREADS, Fit, Sample, fit_beta, weighted_median
from mingce.audit.implied import Rewards, token_rewards
from mingce.audit.kl import STORED, Penalty, other_penalties, usual_penalties
from mingce.specs.kl import kl_name

GOOD, FAIR = 0.98, 0.6  # shares of the telling tokens: all but a few rows, more than half
LOOSE = 1e-2  # of the penalty: what a trainer's half precision leaves
LEAST = 8
LARGE = 100_000  # slots
USUAL_PRICE = 0.05
LESS = 0.01  # how much below 1 the standard deviation of whitened rewards may stay


@dataclass(frozen=True)
class Account:
    """The rewards [B, T] taken apart."""

    rewards: Rewards
    quiet: Bools  # chosen tokens that should hold the penalty alone
    taken: Floats  # a·s − r, or −r where the scores are not stored
    error: Floats  # of that
    penalty: Penalty | None  # None: nothing was taken off
    price: float = 0.0  # b
    explained: float = 1.0  # share of the telling quiet tokens
    slack: float = SLACK
    doubt: float = 0.0  # how far the price may be off, relative to it
    weak: bool = False  # rounding hides the penalty on nearly every token
    moved: Floats | None = None  # [B, 1] c, where it is not 0
    reach: Bools | None = None  # the slots that c was added to
    whitened: bool = False
    gain: float | None = 1.0  # a; None where it cannot be told

    @property
    def beta(self) -> float | None:
        """The price of the KL in the rewards before they were scaled."""
        return None if self.gain is None else self.price / self.gain

    @property
    def paid(self) -> Floats:
        """b·k on every slot."""
        return np.zeros_like(self.taken) if self.penalty is None else self.price * self.penalty.column

    @property
    def room(self) -> Floats:
        """How far s − r may lie from b·k."""
        error = self.error if self.penalty is None else self.error + abs(self.price) * self.penalty.room
        largest = float(np.abs(self.rewards.column).max(initial=0.0))
        return np.asarray(SPREADS * error + self.slack * np.abs(self.paid) + 1e-9 * largest + 1e-12)


@once
def account(e: Evidence) -> Account | None:
    """The rewards taken apart as far as they can be; None without rewards."""
    rewards = token_rewards(e)
    if rewards is None:
        return None
    known = e.mask & rewards.known
    if "scores" in e.dump.columns:
        scores = finite(e["scores"])
        known = known & np.isfinite(e["scores"])
        taken, error = np.where(rewards.known, scores - rewards.column, 0.0), rewards.error + e.error("scores")
        quiet = known & (scores == 0)
        if quiet.sum() < max(LEAST, 0.05 * known.sum()):
            quiet = known
    else:  # the score is somewhere near the end of the row: the tokens before it hold the penalty alone
        taken, error = np.where(rewards.known, -rewards.column, 0.0), rewards.error
        quiet = known & (np.arange(e.mask.shape[1]) < e.last[:, None])
    for one in ("old_log_probs", "ref_log_probs"):
        if one in e.dump.columns:
            quiet = quiet & np.isfinite(e[one])
    return _taken_apart(e, Account(rewards, quiet, taken, error, None))


def _taken_apart(e: Evidence, bare: Account) -> Account:
    if not bare.quiet.any():
        return bare
    silent = float((np.abs(bare.taken) <= bare.room)[bare.quiet].mean())
    if silent == 1.0:
        return bare
    found = _fitted(e, bare)
    if found.explained >= GOOD and not found.weak:
        return _rescaled(e, found)
    # what rounding of the log-probs may hide, at a usual price
    usual = usual_penalties(e)
    hidden = (e.settings.beta or USUAL_PRICE) * usual[0].room if usual else np.zeros_like(bare.taken)
    if not (np.abs(bare.taken) > bare.room + SPREADS * hidden)[bare.quiet].any():
        return replace(bare, error=bare.error + hidden, weak=True)
    if found.explained >= GOOD:
        return _rescaled(e, found)
    if 1 - silent <= 0.1 and found.explained < FAIR:
        return replace(bare, explained=silent)
    thin = _thin(e)  # what some of the rows do not show is not looked for in all
    if thin is not None and (thin.penalty is None or not thin.penalty.way) and thin.moved is None and thin.gain == 1:
        return found
    if found.explained >= 0.9:
        return _odd(e, bare, found)
    tries = [one for one in (_moved(e, bare), _scaled(e, bare)) if one is not None and one.explained > 0.95]
    if whole := [one for one in tries if one.reach is not None]:  # one rule for the batch
        return max(whole, key=lambda one: one.explained)
    odd = _odd(e, bare, found)
    return odd if odd.explained >= 0.9 or not tries else tries[0]


def _thin(e: Evidence) -> Account | None:
    """The account of every n-th row of a large dump; None for a small one."""
    every = e.mask.size // LARGE
    if every < 2 or len(e.mask) < 2 * every:
        return None
    dump = e.dump
    columns = {name: column[::every] for name, column in dump.columns.items()}
    rows = {name: row[::every] for name, row in dump.rows.items()}
    return account(Evidence(replace(dump, columns=columns, rows=rows)))


def _fitted(e: Evidence, bare: Account) -> Account:
    """The kind of KL and its price that explain most."""
    wanted = kl_name(e.settings.kl_estimator)
    best = _best(list(_fits(bare, usual_penalties(e), SLACK)), wanted)
    if best is None:
        return replace(bare, explained=0.0)
    if best[1].explained < GOOD:
        loose = _best(list(_fits(bare, usual_penalties(e), LOOSE)), wanted)
        if loose is not None and loose[1].explained >= GOOD > best[1].explained + 0.2:
            return _with(bare, *loose, LOOSE)
    return _with(bare, *best, SLACK)


def _odd(e: Evidence, bare: Account, found: Account) -> Account:
    """What was taken off by mistake instead, if it explains much more."""
    fits = [(one, fit) for one, fit in _fits(bare, other_penalties(e), SLACK) if not fit.weak]
    best = _best(fits, "")
    if best is None or 1 - best[1].explained > 0.5 * (1 - found.explained):
        return found
    return _with(bare, *best, SLACK)


def _with(bare: Account, penalty: Penalty, fit: Fit, slack: float) -> Account:
    found = replace(bare, penalty=penalty, price=fit.beta, explained=fit.explained, slack=slack)
    return replace(found, doubt=fit.doubt, weak=fit.weak)


def _rescaled(e: Evidence, found: Account) -> Account:
    """The same, whitened where the rewards have the standard deviation 1 and their mean was too small to show."""
    declared, whiten = e.settings.beta, e.settings.whiten_rewards
    as_declared = declared is not None and abs(found.price - declared) <= (0.01 + 2 * found.doubt) * abs(declared)
    if whiten is False or as_declared or not found.rewards.stored:
        return found
    for reach in reaches(e):
        if unit_deviation(e, found.rewards.column, reach):
            moved = np.zeros((len(e.mask), 1))
            gain = _gain(e, replace(found, moved=moved, reach=reach))
            same = gain is not None and abs(gain - 1) < 1e-3
            return found if same else replace(found, moved=moved, reach=reach, whitened=True, gain=gain)
    return found


def _fits(bare: Account, penalties: Iterator[Penalty] | list[Penalty], slack: float) -> Iterator[tuple[Penalty, Fit]]:
    for one in penalties:
        yield one, fit_beta(Sample.of(bare.taken, one, bare.quiet, bare.error), slack)


def _best(fits: list[tuple[Penalty, Fit]], wanted: str) -> tuple[Penalty, Fit] | None:
    """The kind of the settings if it explains as much as any, else the plainest of those that fit as well."""
    if not fits:
        return None
    least = min(fit.missed for _, fit in fits)
    near = [(one, fit) for one, fit in fits if fit.missed <= 1.02 * least + 2e-3]
    near = [pair for pair in near if pair[0].kind != STORED] or near  # a kind says more than the dumped column
    meant = [pair for pair in near if pair[0].kind == wanted]
    if meant:
        return meant[0]
    closest = min(fit.left for _, fit in near)
    return next(pair for pair in near if pair[1].left <= 1.2 * closest + 1e-3)


# ── every token of a row holds something besides ───────────────────────────────────────────────────────────────────


def _moved(e: Evidence, bare: Account) -> Account | None:
    """A number on every token of a row beside the KL: whitened rewards, or the score spread over the row."""
    quiet = bare.quiet & (bare.quiet.sum(axis=1, keepdims=True) >= 3)
    if not quiet.any():
        return None
    nothing = Penalty("", "", np.zeros_like(bare.taken), np.zeros_like(bare.taken))
    tries = [_moved_by(bare, one, quiet) for one in (nothing, *usual_penalties(e))]
    if max(one.explained for one in tries) < GOOD and any(
        unit_deviation(e, bare.rewards.column, reach) for reach in reaches(e)
    ):
        tries += [_moved_by(bare, one, quiet) for one in other_penalties(e)]
    most = max(one.explained for one in tries)
    near = [one for one in tries if one.explained >= most - 5e-3]
    wanted = kl_name(e.settings.kl_estimator)
    meant = (one for one in near if one.penalty and one.penalty.kind == wanted and not one.penalty.way)
    return _whitened(e, next(meant, near[0]))


def _moved_by(bare: Account, penalty: Penalty, quiet: Bools) -> Account:
    """The price of this KL beside whatever number each row holds on every token."""
    y, k = _centred(bare.taken, quiet), _centred(penalty.column, quiet)
    if np.abs(k).max() <= 1e-9 * np.abs(penalty.column).max():  # one number a row: nothing beside what was moved
        k = np.zeros_like(k)
    fit = fit_beta(Sample(y[quiet], k[quiet], bare.error[quiet], penalty.room[quiet]))
    price = weighted_median(y[quiet], k[quiet])
    column = -_row_medians(bare.taken - price * penalty.column, quiet)
    tried = replace(bare, penalty=penalty if penalty.kind else None, price=price, moved=column)
    gap = np.abs(tried.taken + column - tried.paid)[quiet]
    share = float((gap <= tried.room[quiet] + SPREADS * 2.0**-22 * np.abs(tried.taken[quiet])).mean())
    return replace(tried, explained=share, doubt=fit.doubt, weak=fit.weak)


def _centred(column: Floats, where: Bools) -> Floats:
    kept = np.where(where, column, 0.0)
    mean = kept.sum(axis=1, keepdims=True) / np.maximum(where.sum(axis=1, keepdims=True), 1)
    return np.where(where, column - mean, 0.0)


def _row_medians(column: Floats, where: Bools) -> Floats:
    """[B, 1] the median of each row's judged slots; 0 in a row without one."""
    ordered = np.sort(np.where(where, column, np.inf), axis=1)
    count = where.sum(axis=1)
    middle = ordered[np.arange(len(ordered)), np.maximum(count - 1, 0) // 2]
    return np.where(count > 0, middle, 0.0)[:, None]


def _whitened(e: Evidence, found: Account) -> Account:
    """The same, with the one c of the batch and a if the rewards have the standard deviation 1 that whitening gives."""
    assert found.moved is not None
    rows = found.quiet.sum(axis=1) >= 3
    level = float(np.median(found.moved[rows]))
    room = float(np.median(found.room[found.quiet])) + 1e-5 * abs(level)
    if not (np.abs(found.moved[rows] - level) <= 2 * room).mean() > 0.95:
        return found
    one = np.full_like(found.moved, level)
    for reach in reaches(e):
        if unit_deviation(e, found.rewards.column, reach):
            gain = _gain(e, replace(found, moved=one, reach=reach))
            return replace(found, moved=one, reach=reach, whitened=True, gain=gain)
    return replace(found, moved=one, reach=e.mask)


def reaches(e: Evidence) -> list[Bools]:
    """The slots that rewards may have been whitened over: those of the values, one past the end, the chosen ones."""
    slots = np.arange(e.mask.shape[1])[None, :]
    after = (slots == last_slot(e.mask)[:, None] + 1) & e.mask.any(axis=1, keepdims=True)
    kept = [e.dump.columns["value_mask"].astype(bool)] if "value_mask" in e.dump.columns else []
    return [*kept, e.mask | after, e.mask]


def unit_deviation(e: Evidence, rewards: Floats, reach: Bools) -> bool:
    """Whether the rewards have the standard deviation 1 over these slots, Bessel's or the biased one.

    The ε under the root makes it a little less where the rewards hardly differ.
    """
    seen = rewards[reach]
    if len(seen) < LEAST:
        return False
    above = 5e-3 if "rewards" in e.dump.columns and e.grid("rewards") else 2e-4
    return any(1 - LESS <= float(seen.std(ddof=bessel)) <= 1 + above for bessel in (1, 0))


def _gain(e: Evidence, found: Account) -> float | None:
    """a = 1/σ, from scores that are known, or from the mean that was added back: c = μ·(1 − 1/σ)."""
    assert found.moved is not None
    assert found.reach is not None
    held = np.where(found.reach, found.rewards.column - found.moved, 0.0) + np.where(e.mask, found.paid, 0.0)
    if "scores" in e.dump.columns:
        known = finite(e["scores"])
        gain = weighted_median(held[known != 0], known[known != 0])
    elif (outcome := outcomes(e)) is not None:
        gain = weighted_median(held.sum(axis=1), outcome)
    else:
        level, mean = float(found.moved.max()), float(found.rewards.column[found.reach].mean())
        gain = 1 - level / mean if abs(mean) > 1e-3 else 0.0
    return gain if gain > 1e-6 else None


def nothing_scored(e: Evidence) -> bool:
    """Whether rewards were whitened though no row scored: nothing but the KL is in them, over a variance near ε."""
    if not e.settings.whiten_rewards:
        return False
    if "scores" in e.dump.columns:
        return not finite(e["scores"]).any()
    outcome = outcomes(e)
    return outcome is not None and not outcome.any()


def outcomes(e: Evidence) -> Floats | None:
    """[B] the rows' scores where they are stored apart; 0 where one is not finite."""
    if "outcome" not in e.dump.rows:
        return None
    try:
        return finite(np.array([float(one) for one in e.row("outcome")]))
    except (TypeError, ValueError):
        return None


def _scaled(e: Evidence, bare: Account) -> Account | None:
    """Dense scores times a, by least squares on scores, KL and 1 together."""
    if "scores" not in e.dump.columns:
        return None
    scores = finite(e["scores"])
    at = np.flatnonzero(bare.quiet & (scores != 0))
    if len(at) < LEAST or np.ptp(scores.flat[at]) == 0:
        return None
    at = at[:: max(1, len(at) // 20000)]
    rewards, best = bare.rewards.column, None
    for one in (None, *usual_penalties(e)):
        columns = [scores, np.ones_like(scores), *([] if one is None else [one.column])]
        design = np.stack([column.flat[at] for column in columns], axis=1)
        solved = np.linalg.lstsq(design, rewards.flat[at], rcond=None)[0]
        gain, level, price = float(solved[0]), float(solved[1]), -float(solved[2]) if one is not None else 0.0
        tried = replace(bare, penalty=one, price=price, gain=gain)
        gap = np.abs(rewards - gain * scores - level + tried.paid).flat[at]
        share = float((gap <= tried.room.flat[at] + abs(gain) * 4 * e.error("scores").flat[at]).mean())
        if gain > 0 and (best is None or share > best.explained + 2e-3):
            moved = np.full((len(scores), 1), level) if abs(level) > float(np.median(tried.room)) else None
            taken = np.where(bare.rewards.known, gain * scores - rewards, 0.0)
            best = replace(tried, taken=taken, explained=share, moved=moved, reach=e.mask)
    if best is None or best.moved is None:
        return best
    white = next((reach for reach in reaches(e) if unit_deviation(e, rewards, reach)), None)
    return best if white is None else replace(best, whitened=True, reach=white)


# ── what is left ───────────────────────────────────────────────────────────────────────────────────────────────────


def leaks(e: Evidence, found: Account) -> Bools:
    """[B, T] slots behind the mask on which the rewards hold the KL."""
    if found.penalty is None or found.moved is not None:
        return np.zeros_like(e.mask)
    paid, room = found.paid, found.room
    close = (np.abs(paid) > room) & (np.abs(found.taken - paid) <= room)
    return np.asarray(close & found.rewards.known & ~e.mask)


def exceptions(e: Evidence, found: Account) -> Bools:
    """[B, T] quiet tokens that do not follow the law of the others."""
    moved = 0.0 if found.moved is None else found.moved
    off = found.quiet & (np.abs(found.taken + moved - found.paid) > found.room + 1e-5 * np.abs(moved))
    if "scores" not in e.dump.columns:
        off = off & (off.sum(axis=1, keepdims=True) > 1)  # a single one is the score, somewhere else than expected
    return np.asarray(off)


@once
def held_scores(e: Evidence) -> tuple[Floats, Floats] | None:
    """[B, T] the scores that the rewards hold once the KL is added back, and how far each may be off."""
    found = account(e)
    if found is None:
        return None
    rewards, gain = found.rewards.column, found.gain or 1.0
    if found.moved is not None and found.reach is not None:
        rewards = np.where(found.reach, rewards - found.moved, rewards)
    held = (rewards + np.where(e.mask | leaks(e, found), found.paid, 0.0)) / gain
    largest = float(np.abs(held).max(initial=0.0))
    return held, found.room / abs(gain) + (1e-4 if found.moved is not None else 1e-6) * largest
