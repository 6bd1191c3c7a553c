"""A few rows, or a turn of one, whose log-probs are of other tokens while the rest of the batch is in line.

A token is far when its two log-probs differ by more than nearly all of the batch's do. Under the batch's own share p₀
of far tokens, a stretch with a share p₁ of them has the likelihood ratio e^S, and the chance that any of the N
stretches that begin somewhere in the batch reaches S is at most N·e^(−S): the bound on false alarms holds for the whole
batch, however many rows it has. Noise that comes in clusters may pass that bound; it does not make a row's numbers as
strange to one another as those of a shuffled row, which is asked as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mingce.audit.evidence import Bools, Floats, Ints

Kind = Literal["shift", "drift", "row", "order", "policy", "unknown"]
LEAST = 8  # tokens that a stretch must have
LEAST_BATCH = 100  # tokens that say what is usual
ODDS = 1e-5  # of a false alarm on a batch of independent tokens
SHARES = (0.03, 0.1, 0.3, 0.7)  # p₁: a nearly certain policy is surprised by one token in thirty
FAR = 0.3  # nats from which a token can be far at all
STRANGE = 0.6  # of the difference between shuffled numbers; 1 where the two columns know nothing of one another
AT_HOME = 0.45  # and what the rest of the batch must stay below
MOST_SHARE = 0.25  # of the rows: beyond it the batch is out of line, which `alignment` is about
LEAST_POLICY, LEAST_ROWS = 10, 16  # tokens of a row and rows of a batch, to tell a row of another policy
APART, FEW = 0.1, 0.06  # nats between such a row's policies, and the share of rows that may be of another one
MOST = 256  # tokens of a stretch that are compared with one another
CAP = 3.0  # nats that one difference counts at most
SHIFTS = (-1, 1, -2, 2, -3, 3)
REPAIRED = 0.35  # of the difference as stored: what a rearrangement must get below
MOVED = 0.5  # of the tokens: so many must become others by it


@dataclass(frozen=True)
class Stray:
    """A stretch of one row that is out of line, and the rearrangement that explains it."""

    row: int
    start: int  # first slot
    end: int  # last slot
    strangeness: float
    kind: Kind = "unknown"
    shift: int = 0  # a[t] belongs to b[t + shift]
    other: int = -1  # the row that a's numbers belong to
    whole: bool = True  # it is all of the row's tokens but one or two
    turn: int = 0  # which run of chosen tokens it is, from 1; 0 where it is not one


def strays(a: Floats, b: Floats, use: Bools, ids: Floats | None = None) -> list[Stray]:
    """Stretches of few rows in which a [B, T] and b [B, T] are about different tokens.

    Where the ids are known, a rearrangement that puts most tokens onto the same ones explains nothing.
    """
    total = int(use.sum())
    if total < LEAST_BATCH:
        return []
    gap = np.where(use, np.abs(a - b), 0.0)
    far = use & (gap > max(FAR, 3 * float(np.quantile(gap[use], 0.8))))
    count = use.sum(axis=1)
    usual = _usual_share(far.sum(axis=1), count)
    found = list(_stretches(far, use, usual, float(np.log(total / ODDS))))
    seen = {row for row, _, _ in found}
    if not found or len(seen) > max(1.0, MOST_SHARE * int((count > 0).sum())):
        return []
    rest = use & ~np.isin(np.arange(len(a)), list(seen))[:, None]
    if int(rest.sum()) < LEAST_BATCH // 2 or strangeness(a[rest], b[rest]) > AT_HOME:
        return []
    strange = []
    for row, start, end in found:
        slots = start + np.flatnonzero(use[row, start : end + 1])
        how = strangeness(a[row, slots], b[row, slots])
        if how > STRANGE:
            strange.append(_explained(a, b, use, ids, row, slots, how))
    return strange


def other_policies(a: Floats, b: Floats, use: Bools) -> list[Stray]:
    """Few rows that are about the same tokens, but nearly every one of them as far off as few tokens of the others."""
    count = use.sum(axis=1)
    rows = np.flatnonzero(count >= LEAST_POLICY)
    if len(rows) < LEAST_ROWS:
        return []
    gap = np.where(use, np.abs(a - b), 0.0)
    if not (gap.sum(axis=1)[rows] > 0.5 * APART * count[rows]).any():  # no row is far off on half of its tokens
        return []
    gap = np.where(use, gap, np.nan)[rows]
    low, middle = np.nanquantile(gap, [0.2, 0.5], axis=1)
    usual = float(np.median(middle))
    top = float(np.nanquantile(gap, 0.9))
    far = (middle > max(APART, 10 * usual, 2 * top)) & (low > 3 * usual)
    if not far.any() or far.mean() > FEW:
        return []
    found = []
    for row in rows[far]:
        slots = np.flatnonzero(use[row])
        how = strangeness(a[row, slots], b[row, slots])
        found.append(Stray(int(row), int(slots[0]), int(slots[-1]), how, "policy"))
    return found


def strangeness(a: Floats, b: Floats) -> float:
    """Mean |a − b| over what it is between tokens that have nothing to do with one another."""
    if len(a) > MOST:
        pick = np.linspace(0, len(a) - 1, MOST).astype(np.int64)
        a, b = a[pick], b[pick]
    apart = np.minimum(np.abs(a[:, None] - b[None, :]), CAP)
    own = float(np.trace(apart))
    others = (float(apart.sum()) - own) / max(len(a) * (len(a) - 1), 1)
    return own / len(a) / others if others > 1e-9 else 0.0


def _usual_share(far: Ints, count: Ints) -> float:
    """The share of far tokens in the batch without the twentieth of the rows that have the most; one row at least."""
    rows = np.flatnonzero(count)
    order = rows[np.argsort(far[rows] / count[rows], kind="stable")]
    kept = order[: max(len(order) - max(1, len(order) // 20), 1)]
    return float((far[kept].sum() + 1) / (count[kept].sum() + 1))


def _stretches(far: Bools, use: Bools, usual: float, least: float) -> Iterator[tuple[int, int, int]]:
    """(row, first, last slot) of the most unusual stretch of each row that chance does not explain."""
    rows = np.flatnonzero(far.sum(axis=1) >= 4)
    best = np.full(len(rows), least)
    place = np.zeros((len(rows), 2), dtype=np.int64)
    each = np.arange(len(rows))
    for share in SHARES:
        if share < 2 * usual or not len(rows):
            continue
        score = np.where(far[rows], np.log(share / usual), np.log((1 - share) / (1 - usual))) * use[rows]
        sums = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(score, axis=1)], axis=1)
        gain = sums - np.minimum.accumulate(sums, axis=1)
        end = gain.argmax(axis=1)
        won = gain[each, end] - np.log(len(SHARES)) > best
        if not won.any():
            continue
        before = np.where(np.arange(sums.shape[1])[None, :] <= end[:, None], sums, np.inf)
        start = before.shape[1] - 1 - before[:, ::-1].argmin(axis=1)
        best[won] = gain[each, end][won] - np.log(len(SHARES))
        place[won] = np.stack([start, end - 1], axis=1)[won]
    for at in np.flatnonzero(best > least):
        row, start, end = int(rows[at]), int(place[at, 0]), int(place[at, 1])
        if int(use[row, start : end + 1].sum()) >= LEAST:
            yield row, start, end


def _explained(a: Floats, b: Floats, use: Bools, ids: Floats | None, row: int, slots: Ints, how: float) -> Stray:
    """The stretch with the simplest rearrangement that brings its numbers together."""
    inside = np.flatnonzero(use[row])
    first, last = int(slots[0]), int(slots[-1])
    early, late = int((inside < first).sum()), int((inside > last).sum())
    whole = early <= 2 and late <= 2
    turn = 0 if whole else _turn(use[row], first, last)
    found = Stray(row, first, last, how, whole=whole, turn=turn)
    size = float(np.minimum(np.abs(a[row, slots] - b[row, slots]), CAP).mean())

    def moves(here: Ints, there: Ints, to: int = row) -> bool:
        return ids is None or float((ids[row, here] != ids[to, there]).mean()) > MOVED

    def repaired(x: Floats, y: Floats) -> bool:
        near = len(x) >= LEAST // 2 and float(np.minimum(np.abs(x - y), CAP).mean()) < REPAIRED * size
        return near and strangeness(x, y) < AT_HOME  # numbers that are all alike are near any others like them

    width = a.shape[1]
    for by in SHIFTS:
        there = slots[(slots + by >= 0) & (slots + by < width)]
        there = there[use[row, there + by]]
        if len(there) >= 0.6 * len(slots) and moves(there, there + by) and repaired(a[row, there], b[row, there + by]):
            kind: Kind = "shift" if early <= 2 or turn else "drift"
            return Stray(row, first, last, how, kind, by, whole=whole, turn=turn)
    other = _other_row(a, b, use, row, slots, REPAIRED * size)
    if other >= 0 and moves(slots, slots, other):
        return Stray(row, first, last, how, "row", other=other, whole=whole, turn=turn)
    turned = repaired(a[row, slots], b[row, slots[::-1]]) or _halves(a[row, slots], b[row, slots], REPAIRED * size)
    if turned and moves(slots, slots[::-1]):
        return Stray(row, first, last, how, "order", whole=whole, turn=turn)
    if not whole and not turn and late <= 2:
        return Stray(row, first, last, how, "drift", whole=False)
    return found


def _turn(used: Bools, first: int, last: int) -> int:
    """The number of the run of chosen tokens that lies between these slots, up to a token at each end; 0 for none."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], used, [False]]).astype(np.int8)))
    runs = list(zip(edges[::2], edges[1::2] - 1, strict=True))
    for number, (start, end) in enumerate(runs, 1):
        if len(runs) > 1 and abs(int(start) - first) <= 1 and abs(int(end) - last) <= 1:
            return number
    return 0


def _other_row(a: Floats, b: Floats, use: Bools, row: int, slots: Ints, room: float) -> int:
    """The other row whose b gives this row's a, or whose a gives its b; −1 where there is none."""
    both = use[:, slots]
    count = both.sum(axis=1)
    for mine, theirs in ((a[row, slots], b[:, slots]), (b[row, slots], a[:, slots])):
        apart = np.where(both, np.minimum(np.abs(mine[None, :] - theirs), CAP), 0.0).sum(axis=1)
        mean = np.where(count >= max(LEAST, 0.3 * len(slots)), apart / np.maximum(count, 1), np.inf)
        mean[row] = np.inf
        best = int(mean.argmin())
        second = np.partition(mean, 1)[1] if len(mean) > 1 else np.inf
        both_have = both[best]
        own = strangeness(mine[both_have], theirs[best, both_have])
        if mean[best] < min(room, 0.5 * second) and own < AT_HOME:  # where any row would do, it is none's
            return best
    return -1


def _halves(a: Floats, b: Floats, room: float) -> bool:
    """Whether one cut turns the stretch into its other order: the second part first."""
    half = len(a) // 2
    if half < LEAST:
        return False
    return any(
        float(np.minimum(np.abs(a - np.roll(b, turn)), CAP).mean()) < room for turn in (half, len(a) - half)
    )  # fmt: skip
