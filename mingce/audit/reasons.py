"""Why a column of two dumps differs: each reason is a relation of the numbers that holds on (nearly) all tokens.

A reason says which differences it explains; one that does not explain the first of them is not given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from mingce.audit.diff import MASKS, Side, compared
from mingce.audit.evidence import Bools, Floats, all_finite, last_slot
from mingce.audit.kl import kl_estimates
from mingce.base.texts import sentence_pair
from mingce.record.dump import LOSS, RAW

Words = tuple[str, str]
NEARLY = 0.99  # of the tokens must fit
LEAST = 8  # tokens to say anything


class Reason(NamedTuple):
    """Its code, the sentence in both languages, and [R, T] the differences that it explains; None: all."""

    code: str
    why: Words
    explains: Bools | None = None


UNKNOWN = Reason("", ("", ""))


def reason(one: Side, two: Side, name: str, at: tuple[int, int]) -> Reason:
    """The first reason that fits and explains the difference at that row and slot, "" where none does."""
    from mingce.audit.credit_reasons import credit, whitened  # which need what is here

    finders: dict[str, tuple[Callable[[Side, Side, str], Iterator[Reason]], ...]] = {
        "token_ids": (_permuted, _other_tokens),
        "scores": (_permuted, _score_index, _affine),
        "kl": (_permuted, _estimator, _shifted, _affine),
        "rewards": (_permuted, _reward_fit, _score_index, _shifted, _affine),
        "deltas": (_permuted, credit, _shifted, _affine),
        RAW: (_permuted, credit, _affine, _shifted),
        LOSS: (_permuted, whitened, credit, _shifted),
        "returns": (_permuted, credit, _affine, _shifted),
    }
    usual = (_mask,) if name in MASKS else (_permuted, _shifted, _affine, _temperature, _noise)
    for finder in finders.get(name, usual):
        for found in finder(one, two, name):
            if found.explains is None or found.explains[at]:
                return found
    return UNKNOWN


def because(key: str, explains: Bools | None = None, /, **values: object) -> Reason:
    """The reason whose code is its sentence's name."""
    return Reason(key.partition(".")[2].replace("_", "-"), sentence_pair(key, **values), explains)


# ── relations ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Line(NamedTuple):
    """b = slope·a + intercept."""

    slope: float
    intercept: float

    def at(self, a: Floats) -> Floats:
        return self.slope * a + self.intercept


def close(a: Floats, b: Floats, rounding: float) -> bool:
    """Whether nearly all of these numbers agree, up to what storing them may have done."""
    if len(a) < LEAST or not all_finite(a, b):
        return False
    scale = float(np.abs(np.concatenate([a, b])).max())
    return bool(scale > 0 and (np.abs(a - b) <= max(4 * rounding, 1e-4) * scale).mean() >= NEARLY)


def agrees(a: Floats, b: Floats, where: Bools, rounding: float) -> Bools:
    """[R, T] where the numbers agree as in `close`, or cannot be compared."""
    both = np.concatenate([a[where], b[where]])
    scale = float(np.abs(both[np.isfinite(both)]).max(initial=0.0))
    return ~where | (np.abs(a - b) <= max(4 * rounding, 1e-4) * scale)


def accounts(a: Floats, b: Floats, predicted: Floats) -> Bools:
    """[R, T] where B − A is what was predicted, up to a quarter."""
    gap = b - a
    return np.asarray(np.abs(gap - predicted) <= 0.25 * np.abs(gap) + 1e-9)


def rounding_of(one: Side, two: Side, *names: str) -> float:
    return max(side.rounding(name) for side in (one, two) for name in names if side.e.dump.holds(name))


def fit_line(a: Floats, b: Floats, least: int = LEAST) -> Line | None:
    """Least squares; None where `a` does not vary or too little is there."""
    if len(a) < least or not all_finite(a, b):
        return None
    spread = a - a.mean()
    if not (spread @ spread) > 0:
        return None
    slope = float(spread @ b / (spread @ spread))
    return Line(slope, float(b.mean() - slope * a.mean()))


def _both(one: Side, two: Side, name: str) -> tuple[Floats, Floats]:
    """Both columns on the tokens that both dumps call chosen."""
    where = one.mask & two.mask
    return one.column(name)[where], two.column(name)[where]


def _permuted(one: Side, two: Side, name: str) -> Iterator[Reason]:
    """The same rows, but in another order than the tokens they belong to."""
    a, b = one.column(name), two.column(name)
    rows = np.asarray(~np.isclose(a, b, rtol=1e-4, atol=1e-6).all(axis=1))
    if rows.sum() < 2 or not all_finite(a, b):
        return
    weights = np.cos(np.arange(a.shape[1]))  # a key that tells rows apart by more than their sum
    order_a, order_b = np.argsort(a[rows] @ weights, kind="stable"), np.argsort(b[rows] @ weights, kind="stable")
    if np.isclose(a[rows][order_a], b[rows][order_b], rtol=1e-4, atol=1e-6).all():
        yield because("audit.rows_permuted", np.broadcast_to(rows[:, None], a.shape), count=int(rows.sum()))


def _shifted(one: Side, two: Side, name: str) -> Iterator[Reason]:
    a, b, where = one.column(name), two.column(name), one.mask & two.mask
    rounding = rounding_of(one, two, name)
    for by in (1, -1, 2, -2):
        moved, there = np.roll(b, -by, axis=1), np.roll(where, -by, axis=1)
        there[:, -by if by > 0 else 0 : None if by > 0 else -by] = False
        both = where & there
        if close(a[both], moved[both], rounding) and float(np.ptp(a[where])) > 0:
            yield because("audit.shift", agrees(a, moved, both, rounding), by=by)


def _affine(one: Side, two: Side, name: str) -> Iterator[Reason]:
    where = compared(one, two, name)
    all_a, all_b = one.column(name), two.column(name)
    a, b, rounding = all_a[where], all_b[where], rounding_of(one, two, name)
    line = fit_line(a, b)
    if line is None or not close(line.at(a), b, rounding):
        return
    explains = agrees(line.at(all_a), all_b, where, rounding)
    if abs(line.intercept) < 1e-4 * float(np.abs(b).max()):
        if abs(line.slope + 1) < 1e-3:
            yield because("audit.sign", explains)
        elif abs(line.slope) > 1e-6:
            yield because("audit.scale", explains, slope=line.slope)
    elif abs(line.slope - 1) < 1e-3:
        yield because("audit.offset", explains, intercept=line.intercept)
    elif abs(line.slope) > 1e-6:
        yield because("audit.affine", explains, **line._asdict())


def _temperature(one: Side, two: Side, name: str) -> Iterator[Reason]:
    if not name.endswith("log_probs"):
        return
    a, b = _both(one, two, name)
    line = fit_line(a, b, 64)
    if line and np.corrcoef(a, b)[0, 1] > 0.95 and abs(line.slope - 1) > 0.05:
        yield because("audit.temperature", slope=line.slope)


def _noise(one: Side, two: Side, name: str) -> Iterator[Reason]:
    a, b = _both(one, two, name)
    if len(a) < 32 or not all_finite(a, b) or not a.std() or not b.std():
        return
    gap = b - a
    level = float(np.abs(gap).mean())
    if np.corrcoef(a, b)[0, 1] > 0.99 and level < 0.1 * a.std() and abs(gap.mean()) < 0.3 * level:
        yield because("audit.noise", level=level)


# ── tokens and masks ───────────────────────────────────────────────────────────────────────────────────────────────


def _other_tokens(one: Side, two: Side, name: str) -> Iterator[Reason]:
    differ = (one.column(name) != two.column(name)) & one.attended & two.attended
    yield because("audit.other_tokens", rows=int(differ.any(axis=1).sum()))


def _mask(one: Side, two: Side, name: str) -> Iterator[Reason]:
    a, b = one.column(name).astype(bool), two.column(name).astype(bool)
    for more, less, big, small, side in ((a, b, "A", "B", one), (b, a, "B", "A", two)):
        extra = more & ~less
        if not extra.any() or (less & ~more).any():
            continue
        last = last_slot(less)
        if not (extra & (np.arange(a.shape[1]) >= last[:, None])).any():
            yield because("audit.mask_holes", big=big, small=small)
        elif (extra.sum(axis=1) <= 1).all() and (extra[np.arange(len(a)), np.minimum(last + 1, a.shape[1] - 1)]).any():
            key = "audit.mask_eos" if _ends_with_eos(side, extra) else "audit.mask_last"
            yield Reason("mask-eos", sentence_pair(key, big=big, small=small))
        else:
            yield because("audit.mask_longer", big=big, small=small, count=int(extra.sum()))
    for by in (1, -1):
        if np.array_equal(a, np.roll(b, by, axis=1)):
            yield Reason("shift", sentence_pair("audit.mask_shift", by=by))


def _ends_with_eos(side: Side, extra: Bools) -> bool:
    eos = side.e.settings.eos_id
    if eos is None or not side.e.dump.holds("token_ids"):
        return False
    return bool((side.column("token_ids")[extra] == eos).mean() > 0.5)


# ── scores, KL, rewards ────────────────────────────────────────────────────────────────────────────────────────────


def _score_index(one: Side, two: Side, name: str) -> Iterator[Reason]:
    """One number per row, at another slot; rewards differ by just that where the scores do."""
    have = [side.e.dump.holds("scores") for side in (one, two)]
    if any(have) and not all(have):
        return  # one number of a score, another of a reward
    scored = "scores" if all(have) else name
    a, b = one.column(scored), two.column(scored)
    single = ((a != 0).sum(axis=1) == 1) & ((b != 0).sum(axis=1) == 1)
    if single.sum() < 2 or not np.allclose(a[single].sum(axis=1), b[single].sum(axis=1), rtol=2.0**-7, atol=1e-6):
        return
    offset = (b[single] != 0).argmax(axis=1) - (a[single] != 0).argmax(axis=1)
    if not offset.any():
        return
    moved = np.zeros(a.shape, dtype=bool)
    moved[single] = ((a != 0) | (b != 0))[single] & (offset != 0)[:, None]
    explains = moved & accounts(one.column(name), two.column(name), b - a)
    if len(np.unique(offset)) == 1:
        yield because("audit.score_offset", explains, offset=int(offset[0]))
    else:
        yield because("audit.score_place", explains, a=_place_of(one, a, single), b=_place_of(two, b, single))


def _place_of(side: Side, scores: Floats, rows: Bools) -> Words:
    at, width = (scores[rows] != 0).argmax(axis=1), scores.shape[1]
    chosen, attended = last_slot(side.mask)[rows], last_slot(side.attended)[rows]
    for where, key in (
        (chosen, "audit.on_last_chosen"),
        (attended, "audit.on_last_attended"),
        (chosen + 1, "audit.on_slot_after"),
        (np.full_like(at, side.e.mask.shape[1] - 1), "audit.on_last_column"),
    ):
        if (at == np.minimum(where, width - 1)).mean() > NEARLY:
            return sentence_pair(key)
    return sentence_pair("audit.on_no_fixed_slot")


class Penalty(NamedTuple):
    """s − r = beta · estimator(x)."""

    beta: float
    estimator: str

    def __str__(self) -> str:
        return "0" if not self.beta else f"{self.beta:.4g}·{self.estimator}"


def _penalty(side: Side, column: str) -> Penalty | None:
    """The estimator and price that explain s − r (or the kl column, at price 1)."""
    where = side.mask
    if not side.e.has("old_log_probs", "ref_log_probs") or where.sum() < LEAST:
        return None
    estimates = kl_estimates(side.column("old_log_probs") - side.column("ref_log_probs"))
    taken = (side.column("scores") - side.column("rewards") if column == "rewards" else side.column("kl"))[where]
    if not all_finite(taken):
        return None
    if not taken.any():
        return Penalty(0.0, "—")
    best: tuple[float, Penalty] | None = None
    for name, estimate in estimates.items():
        z = estimate[where]
        if all_finite(z) and z @ z > 0:
            beta = float(z @ taken / (z @ z))
            left = float(np.linalg.norm(taken - beta * z) / np.linalg.norm(taken))
            if best is None or left < best[0]:
                best = left, Penalty(beta, name)
    coarse = max(side.rounding(n) for n in ("old_log_probs", "ref_log_probs")) > 1e-4
    return best[1] if best and best[0] < (0.3 if coarse else 1e-2) else None


def _taken(side: Side, penalty: Penalty) -> Floats:
    """[R, T] what that penalty takes of each chosen token."""
    if not penalty.beta:
        return np.zeros(side.mask.shape)
    estimates = kl_estimates(side.column("old_log_probs") - side.column("ref_log_probs"))
    return np.where(side.mask, penalty.beta * estimates[penalty.estimator], 0.0)


def _estimator(one: Side, two: Side, name: str) -> Iterator[Reason]:
    a, b = _penalty(one, "kl"), _penalty(two, "kl")
    if a and b and (a.estimator != b.estimator or abs(a.beta - b.beta) > 0.01):
        explains = accounts(one.column(name), two.column(name), _taken(two, b) - _taken(one, a))
        yield because("audit.kl_estimator", explains, a=a, b=b)


def _reward_fit(one: Side, two: Side, name: str) -> Iterator[Reason]:
    if not (one.e.has("scores") and two.e.has("scores")):
        return
    a, b = _penalty(one, "rewards"), _penalty(two, "rewards")
    if a is None or b is None:
        return
    reward_a, reward_b = one.column(name), two.column(name)
    if a.estimator != b.estimator or abs(a.beta - b.beta) > 1e-3 * max(abs(a.beta), abs(b.beta)):
        scored = two.column("scores") - one.column("scores")
        explains = accounts(reward_a, reward_b, scored - _taken(two, b) + _taken(one, a))
        yield because("audit.kl_penalty", explains, a=a, b=b)
        return
    behind = ~one.mask & ~two.mask
    if not (np.abs(reward_a - reward_b) > 1e-6)[~behind].any():
        yield because("audit.behind_mask", behind)
