"""Advantages that were changed once more after they were made: times a column, by row, by position, by another mean."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, finite
from mingce.audit.finding import Fault, Finding, phrase
from mingce.record.dump import LOSS

TIMES = Fault.of("advantage-times-column", "suspicious", (), "Â_t = A_t or (A_t − μ)/σ, not times a column")
VARIES = Fault.of("advantage-varies", "suspicious", (1, 33), "A_t = A_i on every token of row i")
LARGEST = 20.0


def columns(e: Evidence) -> Iterator[tuple[str, Floats]]:
    """(the sentence, [B, T]) what advantages may have been multiplied by."""
    count = np.maximum(e.mask.sum(axis=1, keepdims=True), 1).astype(np.float64)
    whole = np.ones(e.mask.shape)
    if e.has("importance_weights"):
        yield "audit.times_weights", finite(e["importance_weights"])
        with np.errstate(all="ignore"):
            yield "audit.over_weights", finite(1 / e["importance_weights"])
    names = ("new_log_probs", "old_log_probs", "rollout_log_probs")
    for one, other, key in ((0, 1, "audit.times_ratio"), (1, 2, "audit.times_rollout_ratio")):
        if e.has(names[one], names[other]):
            gap = np.clip(finite(e[names[one]] - e[names[other]]), -LARGEST, LARGEST)
            yield key, np.exp(gap)
            yield key, np.exp(-gap)
    yield "audit.over_row_length", whole / count
    yield "audit.over_root_length", whole / np.sqrt(count)
    yield "audit.times_row_length", whole * count
    yield "audit.times_mean_length", count.mean() * whole / count
    if e.has("old_log_probs"):
        with np.errstate(all="ignore"):
            yield "audit.times_probability", np.exp(np.clip(finite(e["old_log_probs"]), -LARGEST, 0.0))
    if e.has("entropy"):
        yield "audit.times_entropy", finite(e["entropy"])
    place = np.cumsum(e.mask, axis=1) - 1
    gamma = e.settings.gamma
    if gamma is not None and 0 < gamma < 1:
        yield "audit.times_position", gamma ** place.astype(np.float64)
        yield "audit.times_position", gamma ** (count - 1 - place)


def times_column(e: Evidence, numbers: Floats, room: Floats, found: Floats, judged: Bools) -> Finding | None:
    """The stored advantages are the expected ones times a column, up to one factor for all."""
    for key, column in columns(e):
        made = numbers * column
        telling = judged & (np.abs(made) > 10 * room)
        if telling.sum() < 16 or np.ptp(column[telling]) < 1e-3 * float(np.abs(column[telling]).max()):
            continue
        factor = float(np.median(found[telling] / made[telling]))
        slack = room * (1 + np.abs(factor * column)) + 1e-4 * np.abs(found)
        if factor and (np.abs(factor * made - found) <= slack)[judged].mean() > 0.99:
            places = e.places(judged & (np.abs(numbers - found) > room), numbers, found)
            return Finding(TIMES, e.dump.name_of(LOSS), phrase("what", key) | {"factor": factor}, places)
    return None


def varies(e: Evidence, found: Floats, places_from: Floats) -> Finding:
    """Advantages that should be one number a row and are not: what they vary with."""
    column, mask = e.dump.name_of(LOSS), e.mask
    key = "audit.varies_unknown"
    if _alike(found, mask, axis=0):
        key = "audit.varies_by_slot"
    else:
        for name, factor in columns(e):
            with np.errstate(all="ignore"):
                even = finite(found / factor)
            if _alike(even, mask, axis=1):
                key = name
                break
    first = places_from[np.arange(len(mask)), mask.argmax(axis=1)][:, None]
    expected = np.broadcast_to(first, found.shape)
    off = mask & (
        np.abs(found - expected) > 4e-7 * (1 + np.abs(expected))
    )  # no row that `constant_rows` finds uneven is without a token
    rows = off.any(axis=1)
    said = {"count": int(rows.sum()), "total": int(mask.any(axis=1).sum()), "row": int(np.flatnonzero(rows)[0])}
    share = said["count"] / max(said["total"], 1)
    return Finding(VARIES, column, said | phrase("what", key), e.places(off, expected, found), share)


def _alike(x: Floats, mask: Bools, axis: int) -> bool:
    """Whether the numbers are one along the axis wherever there are two of them."""
    high = np.where(mask, x, -np.inf).max(axis=axis, initial=-np.inf)
    low = np.where(mask, x, np.inf).min(axis=axis, initial=np.inf)
    two = mask.sum(axis=axis) >= 2
    if not two.any():
        return False
    return bool((high[two] - low[two] <= 1e-4 * (1e-3 + np.abs(high[two]))).all())
