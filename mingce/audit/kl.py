"""The kinds of KL on whole columns, by the definitions of `mingce.specs.kl`, and ways in which they were got wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mingce.audit.evidence import Evidence, Floats, finite, once, shift
from mingce.specs.kl import KL_KINDS

LARGEST = 20.0
"""Differences of log-probs beyond this are held there, so that no exponential overflows."""
SINGLE = 2.0**-22
STORED = "kl"
"""The name of the dumped KL, whatever kind it is."""


def kl_estimates(x: Floats, *, clamp: bool = False) -> dict[str, Floats]:
    """Every kind of KL of x = log π − log π_ref; with `clamp` within the limits that verl sets."""
    estimates = {}
    for kind in KL_KINDS.values():
        with np.errstate(all="ignore"):
            held = x if kind.verl_clamp is None else np.clip(x, -LARGEST, LARGEST)
            estimate = kind.twin(held) + (0 if kind.verl_clamp is None else x - held)
        limit = kind.verl_clamp if clamp else None
        estimates[kind.name] = estimate if limit is None else np.clip(estimate, -limit, limit)
    return estimates


def kl_slopes(x: Floats) -> dict[str, Floats]:
    """|dk/dx| of every kind, by central differences: how much a rounded log-prob moves it."""
    step = 1e-6
    above, below = kl_estimates(x + step), kl_estimates(x - step)
    with np.errstate(all="ignore"):
        return {name: np.abs(above[name] - below[name]) / (2 * step) for name in above}


@dataclass(frozen=True)
class Penalty:
    """A column [B, T] that a trainer may have taken off its scores, and how far rounding may have moved it.

    `way` is the key of the sentence that says how it departs from the KL of policy and reference on the token itself;
    "" where it does not.
    """

    kind: str
    way: str
    column: Floats
    room: Floats


def _difference(e: Evidence, one: str, other: str) -> tuple[Floats, Floats]:
    """The difference of two columns of log-probs, and its error from rounding; 0 where it is not finite."""
    with np.errstate(all="ignore"):
        x = e[one] - e[other]
    known = np.isfinite(x)
    return np.where(known, x, 0.0), np.where(known, e.error(one) + e.error(other), 0.0) + SINGLE


def _of_difference(x: Floats, room: Floats, way: str = "", *, clamp: bool = True) -> Iterator[Penalty]:
    above, below = kl_estimates(x + room, clamp=clamp), kl_estimates(x - room, clamp=clamp)
    for name, column in kl_estimates(x, clamp=clamp).items():
        moved = np.maximum(np.abs(above[name] - column), np.abs(below[name] - column))
        yield Penalty(name, way, finite(column), finite(moved) + SINGLE * (1 + np.abs(x)))


@once
def usual_penalties(e: Evidence) -> list[Penalty]:
    """The kinds of KL of policy and reference on the token itself, the plainest first."""
    found: list[Penalty] = []
    if e.has("old_log_probs", "ref_log_probs"):
        x, room = _difference(e, "old_log_probs", "ref_log_probs")
        found.extend(_of_difference(x, room))
        found.extend(_unlimited(found, list(_of_difference(x, room, clamp=False)), e.dump.source == "trl"))
    if "kl" in e.dump.columns:
        found.append(Penalty(STORED, "", finite(e["kl"]), e.error("kl") + SINGLE))
    return found


def _unlimited(held: list[Penalty], free: list[Penalty], first: bool) -> list[Penalty]:
    """The kinds whose limit is reached, without it; TRL sets none, so that these come first there."""
    reached = [two for one, two in zip(held, free, strict=True) if (one.column != two.column).any()]
    if first:
        names = {one.kind: one for one in reached}
        held[:] = [names.get(one.kind, one) for one in held]
        return []
    return reached


def other_penalties(e: Evidence) -> Iterator[Penalty]:
    """What was taken off instead by mistake: of swapped models, of a neighbouring token, of other log-probs, rows."""
    if not e.has("old_log_probs", "ref_log_probs"):
        return
    x, room = _difference(e, "old_log_probs", "ref_log_probs")
    yield from (one for one in _of_difference(-x, room, "audit.kl_swapped") if one.kind == "k3")
    for log, name in ((np.log(2.0), "audit.kl_base_two"), (np.log(10.0), "audit.kl_base_ten")):
        # with k1, |x| and k2 another base of the logarithm is another β
        yield from (one for one in _of_difference(x / log, room / log, name) if one.kind == "k3")
    with np.errstate(all="ignore"):
        ratio = np.exp(np.clip(x, -LARGEST, LARGEST))
    yield Penalty("π/π_ref − 1", "audit.kl_as_ratio", ratio - 1, ratio * room + SINGLE)
    yield Penalty("π_ref/π − 1", "audit.kl_as_ratio", 1 / ratio - 1, room / ratio + SINGLE)
    for by, name in ((1, "audit.kl_of_next"), (-1, "audit.kl_of_previous")):
        yield from _of_difference(shift(x, by), shift(room, by) + SINGLE, name)
    for name, key in (("rollout_log_probs", "audit.kl_of_sampler"), ("new_log_probs", "audit.kl_of_updated")):
        if name in e.dump.columns:
            yield from _of_difference(*_difference(e, name, "ref_log_probs"), key)
    if "rollout_log_probs" in e.dump.columns:
        yield from _of_difference(*_difference(e, "old_log_probs", "rollout_log_probs"), "audit.kl_to_sampler")
    for by in (1, -1):
        yield from _of_difference(np.roll(x, by, 0), np.roll(room, by, 0), "audit.kl_of_other_row")
    yield from _of_rows(e, x, room)
    yield from _of_sums(e, x, room)


def _of_sums(e: Evidence, x: Floats, room: Floats) -> Iterator[Penalty]:
    """Other numbers than a token's own KL: without its negative part, added up along the row, over the length, of
    probabilities instead of their logarithms."""
    for sign in (1.0, -1.0):
        yield Penalty("k1", "audit.kl_cut_at_zero", sign * np.maximum(sign * x, 0.0), room)
    count = np.maximum(e.mask.sum(axis=1, keepdims=True), 1)
    for one in list(_of_difference(x, room)):
        yield Penalty(one.kind, "audit.kl_over_length", one.column / count, one.room / count)
        kept, error = np.where(e.mask, one.column, 0.0), np.where(e.mask, one.room, 0.0)
        yield Penalty(one.kind, "audit.kl_cumulated", np.cumsum(kept, axis=1), np.cumsum(error, axis=1))
        ahead, behind = (np.cumsum(column[:, ::-1], axis=1)[:, ::-1] for column in (kept, error))
        yield Penalty(one.kind, "audit.kl_to_come", ahead, behind)
    with np.errstate(all="ignore"):
        p, q = (np.exp(np.minimum(finite(e[name]), 0.0)) for name in ("old_log_probs", "ref_log_probs"))
    yield Penalty("π − π_ref", "audit.kl_of_probabilities", p - q, (p + q) * room + SINGLE)
    yield Penalty("π·k1", "audit.kl_weighted", p * x, p * (1 + np.abs(x)) * room + SINGLE)


def _of_rows(e: Evidence, x: Floats, room: Floats) -> Iterator[Penalty]:
    """A row's KL on each of its tokens: its mean, or its sum."""
    count = np.maximum(e.mask.sum(axis=1, keepdims=True), 1)
    for one in list(_of_difference(x, room)):
        total = np.where(e.mask, one.column, 0.0).sum(axis=1, keepdims=True)
        error = np.where(e.mask, one.room, 0.0).sum(axis=1, keepdims=True)
        for divisor, key in ((count, "audit.kl_of_row_mean"), (1, "audit.kl_of_row_sum")):
            column = np.broadcast_to(total / divisor, x.shape)
            yield Penalty(one.kind, key, column, np.broadcast_to(error / divisor, x.shape))
