"""Why advantages, returns and deltas of two dumps differ: discounts, the recursion, the end of a row, the whitening."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mingce.audit.diff import Side
from mingce.audit.evidence import Bools, Floats, Ints, all_finite, last_slot, part_numbers
from mingce.audit.reasons import (
    LEAST,
    NEARLY,
    Line,
    Reason,
    Words,
    accounts,
    agrees,
    because,
    close,
    fit_line,
    rounding_of,
)
from mingce.base.texts import sentence_pair
from mingce.record.dump import LOSS, RAW


class Discounts(NamedTuple):
    """A_t = r_t + γ·V_{t+1} − V_t + γλ·A_{t+1}; `skips` masked tokens, or recurses through them; None: no holes.

    `fits` [R, T] is where a token's credit follows from the next chosen one's so, `holes` where masked tokens follow.
    """

    gamma: float
    gamma_lam: float
    skips: bool | None
    fits: Bools
    holes: Bools

    def __str__(self) -> str:
        return f"γ = {self.gamma:.4g}, λ = {self.gamma_lam / self.gamma if self.gamma else 0.0:.4g}"


def _discounts(side: Side) -> Discounts | None:
    """γ and γλ from the numbers of one dump, by least squares."""
    if not side.e.has("rewards", "values", f"{RAW}|returns"):
        return None
    reward, value, mask = side.column("rewards"), side.column("values"), side.mask
    credit = side.column(RAW) if side.e.has(RAW) else side.column("returns") - value
    order = np.argsort(~mask, axis=1, kind="stable")
    r, v, a = (np.take_along_axis(x, order, axis=1) for x in (reward, value, credit))
    m = np.take_along_axis(mask, order, axis=1)
    there = m[:, :-1] & m[:, 1:]
    hole = there & (np.diff(order, axis=1) > 1)
    left, right = (a - r + v)[:, :-1], np.stack([v[:, 1:], a[:, 1:]], axis=-1)
    plain = there & ~hole
    if plain.sum() < LEAST or not all_finite(left[plain], right[plain]):
        return None
    fitted, *_ = np.linalg.lstsq(right[plain], left[plain], rcond=None)
    coarse = max(side.rounding(n) for n in ("values", "rewards")) > 1e-4
    near = (0.05 if coarse else 1e-3) * max(float(np.abs(left[plain]).max()), 1e-9)
    fits = there & (np.abs(right @ fitted - left) <= near)
    if (plain & ~fits).sum() > (1 - NEARLY) * plain.sum():
        return None
    skips = bool(fits[hole].mean() > 0.5) if hole.any() else None
    return Discounts(float(fitted[0]), float(fitted[1]), skips, _in_slots(fits, order), _in_slots(hole, order))


def _in_slots(found: Bools, order: Ints) -> Bools:
    """What was found of the chosen tokens one after another, at the slots they stand in."""
    slots = np.zeros(order.shape, dtype=bool)
    np.put_along_axis(slots, order[:, :-1], found, axis=1)
    return slots


def credit(one: Side, two: Side, name: str) -> Iterator[Reason]:
    """Other discounts, another way through tool tokens, another value behind the end."""
    a, b, raw_a, raw_b = _discounts(one), _discounts(two), _raw(one), _raw(two)
    if a is None or b is None or raw_a is None or raw_b is None:
        return
    sound = _follows(one, name, raw_a) & _follows(two, name, raw_b)
    room = 0.03 if rounding_of(one, two, "values", "rewards") > 1e-4 else 2e-3
    if abs(a.gamma - b.gamma) > room or abs(a.gamma_lam - b.gamma_lam) > room:
        yield because("audit.discount", sound & (a.fits | a.holes) & (b.fits | b.holes), a=a, b=b)
    elif a.skips is not None and b.skips is not None and a.skips != b.skips:
        before = np.arange(one.width)[None, :] <= last_slot(a.holes | b.holes)[:, None]
        yield because("audit.recursion", sound & before, skips="A" if a.skips else "B")
    else:
        last, rows = np.maximum(last_slot(one.mask & two.mask), 0), np.arange(len(one.rows))
        gap = np.where(one.mask & two.mask, raw_b - raw_a, 0.0)
        ends = _differs(raw_a, raw_b)[rows, last]
        for column in ("rewards", "values"):
            ends &= ~_differs(one.column(column), two.column(column))[rows, last]
        later = np.cumsum((one.mask & two.mask)[:, ::-1], axis=1)[:, ::-1] - 1  # chosen tokens behind each
        carried = gap[rows, last][:, None] * a.gamma_lam ** np.maximum(later, 0)
        if ends.any():
            yield because("audit.bootstrap", sound & ends[:, None] & accounts(raw_a, raw_b, carried))


def _follows(side: Side, name: str, raw: Floats) -> Bools:
    """[R, T] where the column is what raw advantages make of it: in each row a line of them, if it is whitened."""
    if name != LOSS:
        return np.ones(raw.shape, dtype=bool)
    column, sound = side.column(name), np.zeros(raw.shape, dtype=bool)
    for row, where in enumerate(side.mask):
        line = fit_line(raw[row][where], column[row][where], 3)
        if line is not None:
            fitted = line.at(raw[row])[None]
            sound[row] = agrees(fitted, column[row][None], where[None], side.rounding(name))[0]
    return sound


def _differs(a: Floats, b: Floats) -> Bools:
    """[R, T] whether the columns differ by more than rounding."""
    return np.asarray(np.abs(a - b) > 1e-4 * np.abs(a).max(initial=0.0))


# ── whitening ──────────────────────────────────────────────────────────────────────────────────────────────────────


def whitened(one: Side, two: Side, name: str) -> Iterator[Reason]:
    """A line between the two: the same credit, whitened otherwise."""
    where = one.mask & two.mask
    a, b = one.column(name), two.column(name)
    x, y = a[where], b[where]
    if len(x) < LEAST or not all_finite(x, y):
        return
    rounding, line = rounding_of(one, two, name), fit_line(x, y)
    if line and close(line.at(x), y, rounding) and abs(line.slope) > 1e-6:
        explains = agrees(line.at(a), b, where, rounding)
        raws = [raw[where] for side in (one, two) if (raw := _raw(side)) is not None]
        yield because("audit.whitening", explains, what=_whitening(x, y, line, raws, rounding), **line._asdict())
        return
    parts = {"rank": "audit.part_rank", "micro_batch": "audit.part_micro_batch", "group": "audit.part_group"}
    for key, words in parts.items():
        side = next((s for s in (one, two) if key in s.e.dump.rows), None)
        if side is None:
            continue
        groups = part_numbers([side.e.dump.rows[key][row] for row in side.rows])
        explains_parts = _lines_by(a, b, where, groups, rounding) if len(np.unique(groups)) > 1 else None
        if explains_parts is not None:
            why = sentence_pair("audit.whitening_part", part=sentence_pair(words))
            yield Reason("whitening-scope", why, explains_parts)
            return
    explains_rows = _lines_by(a, b, where, np.arange(len(a), dtype=np.int64), rounding)
    if explains_rows is not None:
        yield Reason("whitening-scope", sentence_pair("audit.whitening_row"), explains_rows)


def _raw(side: Side) -> Floats | None:
    """The advantages before whitening, as far as the dump tells: by themselves, or as returns without values."""
    if side.e.dump.holds(RAW):
        return side.column(RAW)
    return side.column("returns") - side.column("values") if side.e.has("returns", "values") else None


def _whitening(a: Floats, b: Floats, line: Line, raws: list[Floats], rounding: float) -> Words:
    """What of the whitening differs; that one side does not whiten is said only where its raw advantages are known."""
    if line.slope < 0:
        return sentence_pair("audit.whitening_sign")
    flat = {"A": abs(a.std() - 1) < 0.02, "B": abs(b.std() - 1) < 0.02}
    columns, other = {"A": a, "B": b}, {"A": "B", "B": "A"}
    raw = [name for name, column in columns.items() if any(close(column, one, rounding) for one in raws)]
    if len(raw) == 1 and flat[other[raw[0]]]:
        return sentence_pair("audit.whitening_one", white=other[raw[0]], raw=raw[0])
    if flat["A"] and flat["B"]:
        return _both_flat(a, b, line)
    if flat["A"] == flat["B"] or raw:
        return sentence_pair("audit.whitening_line")
    white = "A" if flat["A"] else "B"
    rest = columns[other[white]]
    if not raws:
        spread = {"mean": float(rest.mean()), "std": float(rest.std())}
        return sentence_pair("audit.whitening_either", white=white, other=other[white], **spread)
    if any(close(rest - rest.mean(), one - one.mean(), rounding) for one in raws):
        return sentence_pair("audit.whitening_centred", white=white, centred=other[white])
    return sentence_pair("audit.whitening_tokens")


def _both_flat(a: Floats, b: Floats, line: Line) -> Words:
    """Both have a spread of 1."""
    if abs(line.slope - 1) < 1e-4 and abs(line.intercept) > 1e-4:
        return sentence_pair("audit.whitening_mean", keeps="A" if abs(a.mean()) > abs(b.mean()) else "B")
    if abs(abs(line.slope**2 - 1) - 1 / len(a)) < 0.2 / len(a):
        return sentence_pair("audit.whitening_bessel")
    return sentence_pair("audit.whitening_tokens")


def _lines_by(a: Floats, b: Floats, where: Bools, groups: Ints, rounding: float) -> Bools | None:
    """[R, T] where b is a line of a, if it is one within every group of rows that has enough tokens; else None."""
    tried, explains = 0, np.ones(where.shape, dtype=bool)
    for group in np.unique(groups):
        rows = groups == group
        x, y = a[rows][where[rows]], b[rows][where[rows]]
        if len(x) < LEAST:
            continue
        line = fit_line(x, y)
        if line is None or not close(line.at(x), y, rounding):
            return None
        explains[rows] = agrees(line.at(a[rows]), b[rows], where[rows], rounding)
        tried += 1
    return explains if tried >= 2 else None
