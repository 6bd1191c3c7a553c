"""Do two columns of log-probs speak of the same tokens? If not: shifted, reordered in blocks, of other rows, drifted.

Two models that score the same tokens agree on which are likely, so their log-probs correlate, nearly always above 0.9.
When they do not, the scan asks which simple rearrangement brings the correlation back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from mingce.audit.evidence import Bools, Floats, Ints, shift

Kind = Literal["aligned", "shift", "layout", "blocks", "rows", "drift", "unrelated"]
ENOUGH = 200  # tokens that a statistical verdict needs
NEARLY_SURE = -1e-3
"""The log-prob of a token that the policy hardly doubts."""
COLLAPSED = 0.8
"""The share of such tokens above which the few others show no pattern that could be out of line."""
SHIFTS = (-1, 1, -2, 2, -3, 3)
MOST_ROWS, MOST_TOKENS = 64, 20_000  # that the scans read; a bug of this kind is in nearly every row
LOST, FOUND = 0.6, 0.75  # correlation below which columns are out of line, and above which a rearrangement explains it
GAP = 0.3  # mean |difference| in nats below which they are in line whatever the correlation (a nearly certain policy)


@dataclass(frozen=True)
class Alignment:
    """How column `a` lies on column `b`; `rows` are those that are out of line."""

    kind: Kind
    rows: Bools = field(default_factory=lambda: np.zeros(0, bool))
    correlation: float = 1.0  # as stored, on the rows out of line
    repaired: float = 1.0  # after the rearrangement
    shift: int = 0  # a[t] belongs to b[t + shift]
    moves: tuple[tuple[int, int, int], ...] = ()  # (first slot, last slot, where it belongs) of the first such row
    starts: dict[int, int] = field(default_factory=dict)  # row → token where the drift begins


def align(a: Floats, b: Floats, use: Bools) -> Alignment:
    """The simplest account of how a [B, T] lies on b [B, T] where `use`."""
    calm = np.zeros(len(a), bool)
    if use.sum() < ENOUGH or (a[use] > NEARLY_SURE).mean() > COLLAPSED:
        return Alignment("aligned", calm)
    count = use.sum(axis=1)
    gap = np.where(use, np.abs(a - b), 0.0).sum(axis=1) / np.maximum(count, 1)
    rows = (count >= 8) & (_by_row(a, b, use) < LOST) & (gap > GAP)
    if correlation(a, b, use) < 0.5 and np.abs(a - b)[use].mean() > GAP:
        rows = count > 0
    elif rows.mean() < 0.5 and (gap[~rows & (count > 0)] > GAP / 3).mean() > 0.5:
        rows = calm  # nothing is in line to compare with: two different policies, not two orders
    far = use & (np.abs(a - b) > 0.5)
    if far.sum() > 0.03 * use.sum() and np.median(np.abs(a - b)[use]) < 0.05:
        rows |= far.sum(axis=1) > 0.05 * count  # most tokens are in line, some far out of it
    drift = _drift(a, b, use)
    if (use & rows[:, None]).sum() < ENOUGH:
        return drift or Alignment("aligned", calm)
    bad = use & rows[:, None]
    before = correlation(a, b, bad)
    few = _largest(bad)
    found = _shift(a, b, bad) or _layout(a, b, use) or _blocks(a[few], b[few], bad[few]) or _other_rows(a, b, use, rows)
    found = found or _moves(a[few], b[few], bad[few], few) or drift
    if found:
        if found.kind == "drift":
            rows = np.isin(np.arange(len(a)), list(found.starts))
        return Alignment(found.kind, rows, before, found.repaired, found.shift, found.moves, found.starts)
    # a stale policy is not a nat a token away from the one that follows it
    lost = before < GAP or (before < LOST and float((b - a)[bad].mean()) > 1.0)
    return Alignment("unrelated" if lost else "aligned", rows, before, before)


def correlation(a: Floats, b: Floats, use: Bools) -> float:
    """Pearson's correlation over the slots where `use`; 0 when either is constant."""
    x, y = a[use], b[use]
    if len(x) < 3:
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x * x).sum() * (y * y).sum()))  # not a BLAS product: its threads cost more than they give
    return float((x * y).sum()) / scale if scale > 1e-12 else 0.0


def _nearer(a: Floats, moved: Floats, b: Floats, use: Bools) -> bool:
    """Whether moving b has brought it nearer to a.

    Where all rows say the same, as after a collapse, a few numbers decide the correlation and any order may raise it;
    but two models that score the same tokens also say much the same of them. Nor is anything explained if what b found
    unlikely only falls out of sight: of a policy that has become certain, nothing in a is as unlikely.
    """
    kept = np.abs(moved[use]).mean() > 0.5 * np.abs(b[use]).mean()
    return bool(kept) and float(np.abs(a - moved)[use].mean()) < 0.7 * float(np.abs(a - b)[use].mean())


def _by_row(a: Floats, b: Floats, use: Bools) -> Floats:
    """[B] the correlation within each row."""
    x, y = _unit(a, use), _unit(b, use)
    found: Floats = (x * y).sum(axis=1)
    found[~(x.any(axis=1) & y.any(axis=1))] = 1.0  # a constant row is in line with anything
    return found


def _unit(x: Floats, use: Bools) -> Floats:
    """Each row with its mean taken off, at length 1; 0 where not in use and in constant rows."""
    seen = np.where(use, x, 0.0)
    centred = np.where(use, seen - seen.sum(axis=1, keepdims=True) / np.maximum(use.sum(axis=1, keepdims=True), 1), 0.0)
    length = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    unit: Floats = np.divide(centred, length, out=np.zeros_like(centred), where=length > 1e-9)
    return unit


def _largest(use: Bools) -> Ints:
    """The rows with the most tokens, in their order."""
    count = use.sum(axis=1)
    order = np.argsort(-count, kind="stable")[:MOST_ROWS]
    enough = int(np.searchsorted(np.cumsum(count[order]), MOST_TOKENS)) + 1
    return np.sort(order[:enough])


# ── one shift for all rows ─────────────────────────────────────────────────────────────────────────────────────────


def shifted(b: Floats, use: Bools, by: int) -> tuple[Floats, Bools]:
    """b[t + by] in slot t, and where both it and slot t are in use."""
    return shift(b, by), use & shift(use, by)


def _shift(a: Floats, b: Floats, use: Bools) -> Alignment | None:
    few = _largest(use)
    a, b, use = a[few], b[few], use[few]
    width = a.shape[1]
    early = use & (np.cumsum(use, axis=1) <= np.maximum(use.sum(axis=1, keepdims=True) // 2, 4))
    for by in SHIFTS[: max(0, 2 * (width - 2))]:
        moved, both = shifted(b, use, by)
        found = correlation(a, moved, both)
        # a drift shifts the rest of a row; a shift by one is there from the first token
        better = found > FOUND and correlation(a, moved, both & early) > FOUND and found > correlation(a, b, use) + 0.2
        if better and _nearer(a, moved, b, both):
            return Alignment("shift", repaired=found, shift=by)
    return None


def _layout(a: Floats, b: Floats, use: Bools) -> Alignment | None:
    """One of the two written time-major, [T, B], and read as [B, T]."""
    rows, width = a.shape
    orders = np.arange(rows * width)
    for order in (orders.reshape(width, rows).T.ravel(), orders.reshape(rows, width).T.ravel()):
        moved, both = b.ravel()[order].reshape(a.shape), use & use.ravel()[order].reshape(a.shape)
        found = correlation(a, moved, both)
        if both.sum() >= ENOUGH // 2 and found > FOUND and found > correlation(a, b, use) + 0.2:
            return Alignment("layout", repaired=found)
    return None


# ── blocks of a row in another order ───────────────────────────────────────────────────────────────────────────────


def _blocks(a: Floats, b: Floats, use: Bools) -> Alignment | None:
    """Try the orders that context parallelism and packing give: the same cut in every row."""
    rows, width = a.shape
    lengths = np.where(use.any(axis=1), width - use[:, ::-1].argmax(axis=1), 0)
    slots = np.arange(width)[None, :]
    before = correlation(a, b, use)
    best: Alignment | None = None
    for domain in (np.full(rows, width), lengths):
        for order in _orders():
            size = np.maximum(domain // len(order), 1)[:, None]
            block = slots // size
            inside = block < len(order)
            source = np.where(inside, order[np.minimum(block, len(order) - 1)] * size + slots % size, slots)
            inside &= source < width
            source = np.minimum(source, width - 1)
            both = use & np.take_along_axis(use, source, axis=1) & inside
            if both.sum() < max(ENOUGH // 2, 0.3 * use.sum()):
                continue
            moved = np.take_along_axis(b, source, axis=1)
            found = correlation(a, moved, both)
            enough = max(FOUND, 0.4 + 0.6 * before, best.repaired if best else 0.0)
            if found > enough and _nearer(a, moved, b, both):
                length = int(size[0, 0])
                moves = tuple(
                    (to * length, to * length + length - 1, int(start) * length)
                    for to, start in enumerate(order)
                    if to != start
                )
                best = Alignment("blocks", repaired=found, moves=moves)
    return best


def _orders() -> Iterator[Ints]:
    """order[i] = which block stands in place i: zigzag and its inverse, reversed, rotated, two blocks swapped."""
    for blocks in (2, 4, 8, 16):
        plain = np.arange(blocks)
        if blocks > 2:
            zigzag = np.stack([plain[: blocks // 2], plain[::-1][: blocks // 2]], axis=1).ravel()
            yield zigzag
            yield np.argsort(zigzag)
            yield plain[::-1]
        for turn in range(1, blocks):
            yield np.roll(plain, turn)
        for one in range(blocks if 2 < blocks < 16 else 0):
            for other in range(one + 1, blocks):
                swapped = plain.copy()
                swapped[[one, other]] = other, one
                yield swapped


# ── another row's log-probs ────────────────────────────────────────────────────────────────────────────────────────


def _other_rows(a: Floats, b: Floats, use: Bools, rows: Bools) -> Alignment | None:
    """Whether most rows' numbers are those of some other row."""
    picked = np.flatnonzero(rows)[:512]
    if len(picked) < 4:
        return None

    match = _unit(a[picked], use[picked]) @ _unit(b[picked], use[picked]).T
    best = match.argmax(axis=1)
    hits = [
        (int(row), int(picked[other]))
        for row, other in zip(picked, best, strict=True)
        if picked[other] != row
        and (use[row] & use[picked[other]]).sum() >= 8
        and correlation(a[row], b[picked[other]], use[row] & use[picked[other]]) > FOUND + 0.1
    ]
    if len(hits) < 0.6 * len(picked):
        return None
    return Alignment("rows", repaired=FOUND + 0.1, moves=tuple((row, row, other) for row, other in hits[:8]))


# ── any other order of pieces, and drift ───────────────────────────────────────────────────────────────────────────


def _moves(a: Floats, b: Floats, use: Bools, names: Ints) -> Alignment | None:
    """Match every stretch of a few tokens of `a` with the place in `b` where it fits, in the longest rows."""
    order = np.argsort(-use.sum(axis=1), kind="stable")[:8]
    spread = float(a[use].std())
    found: list[tuple[int, Ints, Ints]] = []
    judged = matched = away = 0
    lags: list[int] = []
    for row in order:
        slots = np.flatnonzero(use[row])[:1024]
        if len(slots) < 24:
            continue
        lag, sure, varied = _lags(a[row, slots], b[row, slots], spread)
        judged, matched = judged + int(varied.sum()), matched + int((varied & sure).sum())
        away += int((varied & sure & (lag != 0)).sum())
        lags.extend(lag[varied & sure & (lag != 0)].tolist())
        found.append((int(row), slots[varied & sure], lag[varied & sure]))
    if judged < 60 or matched < 0.6 * judged or away < 0.25 * matched:
        return None
    seen = np.array(lags)
    one_way = max((seen > 0).mean(), (seen < 0).mean()) > 0.97
    if one_way and np.quantile(np.abs(seen), 0.95) <= 8:
        starts = {int(names[row]): int(slots[lag != 0][0]) for row, slots, lag in found if (lag != 0).any()}
        return Alignment("drift", repaired=matched / judged, starts=starts)
    row, slots, lag = found[0]
    edges = np.flatnonzero(np.diff(lag)) + 1
    pieces = list(zip(np.split(slots, edges), np.split(lag, edges), strict=True))
    moves = tuple((int(at[0]), int(at[-1]), int(at[0] + by[0])) for at, by in pieces if len(at) > 1 and by[0])
    return Alignment("blocks", repaired=matched / judged, moves=moves[:8])


def _lags(a: Floats, b: Floats, spread: float, window: int = 5) -> tuple[Ints, Bools, Bools]:
    """For each token of one row: the lag at which its neighbourhood fits best, if it fits, if it could tell."""
    length = len(a)
    gaps = np.abs(a[:, None] - b[None, :])
    total = np.zeros((length, length))
    half = window // 2
    for step in range(-half, half + 1):  # along the diagonals
        lo, hi = max(0, -step), length - max(0, step)
        part = np.full((length, length), spread)
        part[lo:hi, lo:hi] = gaps[lo + step : hi + step, lo + step : hi + step]
        total += part
    total /= window
    best = total.argmin(axis=1)
    padded = np.pad(a, half, mode="edge")
    varied = np.lib.stride_tricks.sliding_window_view(padded, window).std(axis=1) > 0.4 * spread
    inner = (np.arange(length) >= half) & (np.arange(length) < length - half)
    return best - np.arange(length), total.min(axis=1) < 0.1 * spread, varied & inner


def _drift(a: Floats, b: Floats, use: Bools) -> Alignment | None:
    """Rows that are in line up to a token and out of line from there on."""
    width = a.shape[1]
    gap = np.where(use, np.minimum(np.abs(a - b), 2.0), 0.0)
    count = use.sum(axis=1)
    n, s = np.cumsum(use, axis=1), np.cumsum(gap, axis=1)
    left, right = s / np.maximum(n, 1), (s[:, -1:] - s) / np.maximum(count[:, None] - n, 1)
    weight = n * (count[:, None] - n) * (right - left) * np.abs(right - left)
    start = weight.argmax(axis=1) + 1  # the first slot of the second part
    pick = np.arange(len(a)), np.minimum(start, width) - 1
    prefix, suffix = n[pick], count - n[pick]
    jump = (left[pick] < 0.1) & (right[pick] > 0.4) & (prefix >= 4) & (suffix >= 8)
    tail = use & (np.arange(width)[None, :] >= start[:, None]) & jump[:, None]
    jump &= _by_row(a, b, tail) < 0.5
    tail &= jump[:, None]
    calm = ~jump & (count >= 8) & ~((right[pick] > 0.4) & (right[pick] > 3 * left[pick]))  # a jump, on too few tokens
    rest = gap.sum(axis=1)[calm] / count[calm]
    enough = tail.sum() >= (40 if jump.sum() >= 2 else ENOUGH // 2)
    if not enough or (len(rest) and np.median(rest) > 0.1):
        return None
    starts = {int(row): int(start[row]) for row in np.flatnonzero(jump)}
    left_over = correlation(a, b, tail)
    return Alignment("drift", jump, left_over, left_over, starts=starts)
