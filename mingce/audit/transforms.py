"""Is a column of log-probs another function of them than itself: in another base, not a logarithm, summed up …?

Two columns about the same tokens differ by noise. Where one of them is a known function of the other, that function
takes nearly all of the difference away; nothing else here does, neither another policy nor another temperature.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mingce.audit.evidence import Bools, Floats

LEAST = 50  # tokens
MOST = 50_000  # tokens that are read
LEFT = 0.15  # of the difference: what the right function may leave
BASES = {"2": np.log(2.0), "10": np.log(10.0)}
POSITIVE = 0.05  # of the tokens: so many numbers above 0 are no rounding
SAME = 0.05  # nats: as close as two engines are on most tokens
CARRIERS = 5  # numbers that must carry the variance
HIGHEST = -0.5  # nats: nobody holds log-probs above it, and where a policy has collapsed all of them lie there


@dataclass(frozen=True)
class Transform:
    """The sentence that names the function, and its numbers."""

    key: str
    values: dict[str, Any]


def transform(x: Floats, y: Floats, use: Bools, same_policy: bool = True) -> Transform | None:
    """What x [B, T] is of the log-probs y [B, T] where `use`; None where it is itself, or nothing known.

    A sharper policy than y's is nearly everywhere above it, so only one of the `same_policy` may hold the likeliest.
    """
    if int(use.sum()) < LEAST:
        return None
    every = int(use.sum()) // MOST + 1  # rows, evenly spread: such a column is so in all of them
    x, y, use = x[::every], y[::every], use[::every]
    if int(use.sum()) < LEAST:
        return None
    mine, theirs = x[use], y[use]
    if not _told_apart(mine, theirs):
        return None
    gap = float(np.median(np.abs(mine - theirs)))
    if gap < SAME:
        return _clamped(mine, theirs)
    whole = float(np.abs(mine - theirs).mean())
    best: tuple[float, Transform | None] = (LEFT, None)
    for key, values, made in _candidates(y, use):
        left = np.abs(mine - made[use])
        share = max(float(np.median(left)) / gap, float(left.mean()) / (2 * whole))
        if share < best[0] and _goes_with(mine, made[use]):
            best = (share, Transform(key, values))
    if best[1] is not None:
        return best[1]
    likeliest = _likeliest(mine, theirs) if same_policy else None
    return _clamped(mine, theirs) or likeliest or _logits(mine, theirs)


def _told_apart(x: Floats, y: Floats) -> bool:
    """Whether enough different numbers carry what the columns say: a policy that writes one answer again and again, or
    is all but certain, has few, and many a function gives those."""
    pairs = np.unique(np.stack([x, y]), axis=1)
    if pairs.shape[1] < LEAST:
        return False
    squares = (pairs[0] - pairs[0].mean()) ** 2
    return float(squares.sum() ** 2) >= CARRIERS * float((squares**2).sum())


def _goes_with(x: Floats, y: Floats) -> bool:
    """Whether the two rise and fall together, and x is not merely near 0, where any small number fits."""
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return scale > 0 and float((x * y).sum()) > 0.9 * scale


def _candidates(y: Floats, use: Bools) -> Iterator[tuple[str, dict[str, Any], Floats]]:
    for base, unit in BASES.items():
        yield "audit.log_base", {"base": base}, y / unit
    kept = np.where(use, y, 0.0)
    with np.errstate(all="ignore"):
        yield "audit.probabilities", {}, np.exp(np.minimum(y, 1.0))
    yield "audit.cumulative", {}, np.cumsum(kept, axis=1)
    yield "audit.backward_sums", {}, np.cumsum(kept[:, ::-1], axis=1)[:, ::-1]
    count = np.maximum(use.sum(axis=1, keepdims=True), 1)
    yield "audit.over_length", {}, y / count
    yield "audit.whole_row", {}, np.broadcast_to(kept.sum(axis=1, keepdims=True), y.shape)
    yield "audit.row_mean", {}, np.broadcast_to(kept.sum(axis=1, keepdims=True) / count, y.shape)
    yield "audit.sign_of_log", {}, -y


def _clamped(x: Floats, y: Floats) -> Transform | None:
    """x = max(y, floor): one number again and again, below which the other column goes on.

    Rows that begin alike have one number again and again, too, but so has the other column there.
    """
    floor = float(x.min())
    held = x == floor
    count = int(held.sum())
    if count < max(8, 0.01 * len(x)) or count == len(x) or floor > HIGHEST or len(np.unique(y[held])) < 3:
        return None
    below = float((y[held] < floor + SAME).mean()) > 0.95 and float(np.median(y[held])) < floor - 2 * SAME
    rest = np.abs(x - y)[~held]
    same = len(rest) < 8 or float(np.median(rest)) < max(SAME, 0.1 * float(np.median(floor - y[held])))
    return Transform("audit.clamped", {"floor": floor}) if below and same else None


def _likeliest(x: Floats, y: Floats) -> Transform | None:
    """x is the log-prob of the likeliest token: the same where that was drawn, larger everywhere else, and by far.

    Or it is the drawn one's less that of the likeliest: 0 where that was drawn.
    """
    above = x - y
    if float((above > -2 * SAME).mean()) > 0.98 and float(((np.abs(x) < 1e-5) & (y < -SAME)).mean()) > 0.1:
        return Transform("audit.less_likeliest", {})  # 0 where the likeliest was drawn, though it is not certain
    same = float(((np.abs(above) < SAME) & (y < -2 * SAME)).mean())
    if same > 0.02 and float((above > -2 * SAME).mean()) > 0.98 and float(np.median(above[above > SAME])) > 0.7:
        return Transform("audit.likeliest", {})
    return None


def _logits(x: Floats, y: Floats) -> Transform | None:
    """Numbers far above 0 that go with the log-probs: log Σ exp was not taken off."""
    if float((x > 0.1).mean()) < POSITIVE or np.ptp(x) <= 1.0:
        return None
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return Transform("audit.logits", {}) if scale > 0 and float((x * y).sum()) > 0.5 * scale else None
