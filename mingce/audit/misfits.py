"""Why advantages do not follow from rewards and values: other returns, values one off, rows of others, a few tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mingce.audit.evidence import (
    Bools,
    Evidence,
    Floats,
    Ints,
    all_finite,
    either,
    finite,
    rows_with,
    share_of_rows,
    shift,
)
from mingce.audit.finding import Fault, Finding, Place, phrase
from mingce.audit.recursion import Discount, following, one_step
from mingce.audit.steps_of_credit import SURE, Step
from mingce.audit.variants import last_skipped, of_rows, other_recursion
from mingce.record.dump import LOSS, RAW

MOST_ROWS = 512  # among which rows are sought that belong together
FEW = 0.1  # of the rows: so many are named one by one
LEAST = 6  # tokens that two rows must have in common to be compared

RETURNS = Fault.of(
    "returns-broken", "bug", (33,), "R_t = A_t + V(s_t), with the raw advantages", "natolambert/rlhf-book/pull/216"
)
VALUES_SHIFTED = Fault.of(
    "values-shifted", "bug", (19,), "δ_t = r_t + γV(s_{t+1}) − V(s_t), V(s_t) read before token t"
)
UNEXPLAINED = Fault.of(
    "advantage-unexplained", "bug", (33, 37, 19),
    "A_t = r_t + γV(s_{t+1}) − V(s_t) + γλA_{t+1}", "natolambert/rlhf-book/pull/216",
)  # fmt: skip
FEW_ROWS = Fault.of(
    "credit-of-few-rows", "bug", (33, 37, 19), "A_t = r_t + γV(s_{t+1}) − V(s_t) + γλA_{t+1}",
    "natolambert/rlhf-book/pull/216",
)  # fmt: skip
ROWS_SWAPPED = Fault.of("credit-of-another-row", "bug", (37,), "A[i] computed from r[i] and V[i]")


def explain(e: Evidence, step: Step, found: Discount) -> Iterator[Finding]:
    """Why the steps between neighbours do not fit."""
    reason = (
        returns_of_others(e, step, found, settled=False)
        or _values_shifted(e, step)
        or _returns_of_final(e, step)
        or last_skipped(e, step)
        or _few(e, step)
        or rows_of_others(e, step)
        or other_recursion(e, step, found)
    )
    yield reason or Finding(UNEXPLAINED, "advantages", {"residual": found.residual})


def _values_shifted(e: Evidence, step: Step) -> Finding | None:
    c, unseen = step.columns, either(e.settings.gamma, 1.0)
    for by in (1, -1):
        moved = shift(c.values, by)
        for advantages in (c.advantages, c.advantages + c.values - moved):
            tried = step.like(shift(step.pairs, by), values=moved, advantages=advantages).fit(unseen=unseen)
            if tried.fits and tried.plausible and tried.gamma >= 0.05:
                # R = r + V is also the one-step target of values one slot early
                same = (19, 33) if abs(tried.decay) < 0.02 else None
                return Finding(VALUES_SHIFTED, "advantages", {"by": by}, classes=same)
    return None


def _returns_of_final(e: Evidence, step: Step) -> Finding | None:
    """R = Â + V: what is taken for the raw advantages are the final ones."""
    if not e.has(LOSS, "returns", "values") or e.has(RAW):
        return None
    off = e.mask & (np.abs(step.columns.advantages - finite(e[LOSS])) > SURE * (step.room + e.error(LOSS)))
    if off.any():
        return None
    how = phrase("how", "audit.returns_of_final")
    return Finding(RETURNS, "returns", how, e.places(e.mask, e["values"], e["returns"]))


# ── the final advantages as a witness ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Whitened:
    """The recursion that final advantages Â = p·(A − μ) obey, and the A that they were made of."""

    gamma: float
    decay: float
    raw: Floats


def fit_whitened(e: Evidence, step: Step) -> Whitened | None:
    """γ, γλ, p and μ from Â_t = p·(r_t − V_t + γV') + γλ·Â' − p·μ·(1 − γλ), if the final advantages obey it."""
    c, here = step.columns, step.pairs
    white = finite(e[LOSS])
    design = np.stack(
        [(c.rewards - c.values)[here], following(c.values, step.mask)[here], following(white, step.mask)[here],
         np.ones(int(here.sum()))], axis=1,
    )  # fmt: skip
    y = white[here]
    if len(y) < 16 or np.ptp(y) == 0:
        return None
    own = e.error(LOSS) + following(e.error(LOSS), step.mask) + 2e-5 * e.scale(white)
    inputs = e.error("rewards") + e.error("values") + following(e.error("values"), step.mask)
    slope, room = 0.0, own[here]
    for _ in range(3):  # the room depends on the slope
        solution = np.linalg.lstsq(design / room[:, None], y / room, rcond=None)[0]
        slope = float(solution[0])
        room = (own + abs(slope) * inputs)[here]
    left = (y - design @ solution) / room
    if slope == 0 or float(np.sqrt(np.mean(left**2))) > 1:
        return None
    gamma, decay = float(solution[1]) / slope, float(solution[2])
    if not (-0.05 <= gamma <= 1.05 and -0.05 <= decay <= gamma + 0.05):
        return None
    last = np.flatnonzero(e.last >= 0)
    at = last, np.maximum(e.last[last], 0)
    mean = float(np.median((c.rewards - c.values)[at] - white[at] / slope))
    return Whitened(gamma, decay, white / slope + mean)


def returns_of_others(e: Evidence, step: Step, found: Discount | None = None, settled: bool = True) -> Finding | None:
    """The final advantages follow from rewards and values, so it is the returns that do not: R ≠ A + V.

    `settled`: the returns obey a recursion of their own, so the final advantages must obey that of the settings.
    """
    if e.has(RAW) or not e.has(LOSS, "returns", "values") or not all_finite(e[LOSS][e.mask], e["returns"][e.mask]):
        return None
    witness = fit_whitened(e, step)
    if witness is None:
        return None
    if settled and found is not None:
        gamma = either(e.settings.gamma, witness.gamma)
        decay = gamma * either(e.settings.lam, witness.decay / witness.gamma if witness.gamma else 0.0)
        meant = abs(witness.gamma - gamma) + abs(witness.decay - decay)
        taken = abs(witness.gamma - found.gamma) + abs(witness.decay - found.decay)
        if meant > 0.25 * taken:
            return None
    values, returns = finite(e["values"]), finite(e["returns"])
    expected = witness.raw + values
    room = SURE * step.room + 1e-3 * e.scale(expected)
    off = e.mask & (np.abs(expected - returns) > room)
    if not off.any():
        return None
    places, share = e.places(off, expected, returns), share_of_rows(off, e.mask)
    for by in (1, -1):
        inner = e.mask & shift(e.mask, by)
        if inner.any() and (np.abs(witness.raw + shift(values, by) - returns) <= room)[inner].mean() > 0.98:
            return Finding(VALUES_SHIFTED, "returns", {"by": by}, places, share)
    how = {"how": "", "how_zh": ""}
    if (np.abs(finite(e[LOSS]) + values - returns) <= room)[e.mask].mean() > 0.98:
        how = phrase("how", "audit.returns_of_final")
    return Finding(RETURNS, "returns", how, places, share)


# ── a few tokens ───────────────────────────────────────────────────────────────────────────────────────────────────


def _few(e: Evidence, step: Step) -> Finding | None:
    """Most steps fit some γ and λ and a few tokens do not: those."""
    kept, found = step.pairs, Discount(np.nan, np.nan, np.nan)
    for _ in range(6):
        found = step.like(kept).fit()
        if np.isnan(found.residual):
            return None
        gap = np.abs(
            one_step(step.columns, step.mask, found.gamma, found.decay, "skip", "end") - step.columns.advantages
        )
        gap = gap / step.room
        kept = step.pairs & (gap <= max(3 * float(np.median(gap[step.pairs])), SURE))
    if not (found.fits and found.plausible) or kept.sum() < 0.8 * step.pairs.sum():
        return None
    return next(iter(scattered(e, step, found)), None)


def scattered(e: Evidence, step: Step, found: Discount) -> Iterator[Finding]:
    """Tokens at which the γ and λ of all others do not hold: of rows that are another row's, or any."""
    expected = one_step(step.columns, step.mask, found.gamma, found.decay, "skip", "end")
    off = step.pairs & step.off(expected)
    if not off.any():
        return
    moved = rows_of_others(e, step, rows_with(off), (found.gamma, found.decay))
    gap = np.abs(expected - step.columns.advantages) / e.scale(expected, step.columns.advantages)
    places = e.places(off, expected, step.columns.advantages)
    share = share_of_rows(off, step.pairs)
    if moved is None and share <= FEW:
        yield few_rows("advantages", rows_with(off), places, share, of_rows(e, step, found, rows_with(off)))
        return
    yield moved or Finding(UNEXPLAINED, "advantages", {"residual": float(gap[off].max())}, places, share)


def few_rows(column: str, rows: Bools, places: tuple[Place, ...], share: float, key: str) -> Finding:
    """That the credit of few rows is off, and which."""
    numbers = np.flatnonzero(rows)
    named = ", ".join(str(int(row)) for row in numbers[:5])
    values = {"column": column, "count": len(numbers), "total": len(rows), "rows": named}
    return Finding(FEW_ROWS, column, values | phrase("what", key), places, share)


# ── rows of others ─────────────────────────────────────────────────────────────────────────────────────────────────


def rows_alike(
    column: str, found: Floats, expected: Floats, room: Floats, judged: Bools, bad: Bools | None = None
) -> Finding | None:
    """Whether the rows of a column that are not what they should be are what other rows should be."""
    rows = np.flatnonzero(rows_with(judged))[:MOST_ROWS]
    inside = judged[rows].astype(np.float64)
    common = inside @ inside.T
    lengths = inside.sum(axis=1)
    squares = _cross((found[rows], -expected[rows]), (found[rows], -expected[rows]), inside)
    most = (np.square(room[rows]) * inside) @ inside.T
    same = (common >= LEAST) & (common == np.minimum.outer(lengths, lengths))
    fits: Bools = np.asarray(same & (squares <= np.maximum(most, 1e-300)))
    said: Bools = np.asarray(np.abs(found[rows]) > room[rows]) & (inside > 0)  # a row of zeros is like any other
    fits &= rows_with(said)[:, None]
    return _exchanged(rows, fits, column, bad)


Term = tuple[Floats | None, Floats | None]
"""What a row itself and what another row add to a number of the recursion."""


def rows_of_others(
    e: Evidence, step: Step, bad: Bools | None = None, known: tuple[float, float] | None = None
) -> Finding | None:
    """Whether the returns, the rewards or the values of the rows in doubt are those of other rows."""
    rows = np.flatnonzero(rows_with(step.pairs))
    if bad is not None:
        rows = np.concatenate([rows[bad[rows]], rows[~bad[rows]]])
    rows = np.sort(rows[:MOST_ROWS])
    if len(rows) < 2:
        return None
    settings = e.settings
    if known is None and settings.gamma is not None and settings.lam is not None:
        known = float(settings.gamma), float(settings.gamma) * float(settings.lam)
    found = [one for name, fits in _fits_of_others(e, step, rows, known) if (one := _exchanged(rows, fits, name, bad))]
    return max(found, key=lambda one: int(one.values["count"]), default=None)


def _exchanged(rows: Ints, fits: Bools, column: str, bad: Bools | None) -> Finding | None:
    """The finding that most rows in doubt are other rows', by whether row i fits row j."""
    doubtful = np.ones(len(rows), bool) if bad is None else bad[rows]
    wrong = np.flatnonzero(doubtful & ~np.diag(fits))
    mates = [(int(rows[i]), int(rows[np.flatnonzero(fits[i])[0]])) for i in wrong if fits[i].any()]
    if len(mates) < max(1 if bad is not None and len(wrong) == 1 else 2, 0.6 * len(wrong)):
        return None
    pairs = ", ".join(f"{to}←{start}" for to, start in mates[:4])
    return Finding(
        ROWS_SWAPPED, column, {"column": column, "count": len(mates), "pairs": pairs}, (), len(mates) / len(rows)
    )


def _fits_of_others(
    e: Evidence, step: Step, rows: Ints, known: tuple[float, float] | None
) -> Iterator[tuple[str, Bools]]:
    """For each column [i, j]: whether row i's step holds with that column taken from row j."""
    c, inside = step.columns, step.pairs[rows].astype(np.float64)
    stored = e.has(RAW)
    target = c.advantages if stored else c.advantages + c.values  # R_t = r_t + γ(1−λ)·V' + γλ·R'
    rewards, values = c.rewards[rows], c.values[rows]
    value, later = following(c.values, step.mask)[rows], following(target, step.mask)[rows]
    target = target[rows]
    base = values - rewards if stored else -rewards
    room = np.square(step.room[rows]) * inside
    common = inside @ inside.T
    most = (room @ inside.T + inside @ room.T) / np.maximum(common, 1)
    if known is not None and not stored:
        known = known[0] - known[1], known[1]
    moves: dict[str, tuple[Term, Term, Term]] = {
        "returns" if not stored else "advantages": ((base, target), (value, None), (None, later)),
        "values": ((target - rewards, values if stored else None), (None, value), (later, None)),
        "rewards": ((target + (values if stored else 0.0), -rewards), (value, None), (later, None)),
    }
    for name, terms in moves.items():
        left = _left(*terms, inside, known) / np.maximum(common, 1)
        yield name, (left <= np.maximum(most, 1e-300)) & (common >= LEAST)


def _left(y: Term, one: Term, two: Term, inside: Floats, known: tuple[float, float] | None) -> Floats:
    """[i, j] the squares that a·one + b·two leave of y over the tokens that rows i and j have in common."""
    y1, y2, yy = _cross(y, one, inside), _cross(y, two, inside), _cross(y, y, inside)
    s11, s12, s22 = _cross(one, one, inside), _cross(one, two, inside), _cross(two, two, inside)
    if known is None:
        ridge = 1e-12 * (s11 + s22) + 1e-300
        det = (s11 + ridge) * (s22 + ridge) - s12 * s12
        a, b = (y1 * (s22 + ridge) - y2 * s12) / det, (y2 * (s11 + ridge) - y1 * s12) / det
        odd = (a < -0.05) | (a > 1.05) | (b < -0.05) | (b > 1.05)
    else:
        a, b = np.full_like(yy, known[0]), np.full_like(yy, known[1])
        odd = np.zeros(yy.shape, bool)
    left = yy - 2 * a * y1 - 2 * b * y2 + a * a * s11 + 2 * a * b * s12 + b * b * s22
    return np.where(odd, np.inf, np.maximum(left, 0.0))


def _cross(x: Term, y: Term, inside: Floats) -> Floats:
    """[i, j] Σ_t x·y over common tokens, each the sum of a term of row i and one of row j."""
    (xi, xj), (yi, yj) = x, y
    total = np.zeros((len(inside), len(inside)))
    if xi is not None and yi is not None:
        total += (xi * yi * inside) @ inside.T
    if xj is not None and yj is not None:
        total += inside @ (xj * yj * inside).T
    if xi is not None and yj is not None:
        total += (xi * inside) @ (yj * inside).T
    if xj is not None and yi is not None:
        total += (yi * inside) @ (xj * inside).T
    return total


def last_rewards_moved(e: Evidence, step: Step, off: Bools, last: Bools) -> Finding | None:
    """The rewards that the advantages of the last tokens were made of are there, but in other rows."""
    c = step.columns
    used, stored, room = (c.advantages + c.values)[last], c.rewards[last], step.room[last]
    wrong = np.flatnonzero(off[last])
    order = np.argsort(stored)
    place = np.clip(np.searchsorted(stored[order], used[wrong]), 1, max(len(order) - 1, 1))
    if len(wrong) < 2 or len(order) < 2:
        return None
    sides = np.stack([order[place - 1], order[place]])
    mates = sides[np.abs(stored[sides] - used[wrong]).argmin(axis=0), np.arange(len(wrong))]
    near = np.abs(used[wrong] - stored[mates]) <= SURE * (room[wrong] + room[mates])
    if not near.all() or len(np.unique(stored[mates])) < min(3, len(wrong)):
        return None
    rows = np.flatnonzero(rows_with(last))
    pairs = ", ".join(f"{rows[i]}←{rows[j]}" for i, j in zip(wrong[:4], mates[:4], strict=True))
    values = {"column": "rewards", "count": len(wrong), "pairs": pairs}
    return Finding(ROWS_SWAPPED, "rewards", values, (), len(wrong) / len(rows))
