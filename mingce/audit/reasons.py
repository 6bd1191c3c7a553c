"""Why a column of two dumps differs: each reason is a relation of the numbers that holds on (nearly) all tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from mingce.audit.diff import MASKS, Side, compared
from mingce.audit.evidence import Bools, Floats, Ints, all_finite, last_slot, part_numbers
from mingce.audit.kl import kl_estimates
from mingce.base.texts import sentence_pair
from mingce.record.dump import LOSS, RAW

Words = tuple[str, str]
Reason = tuple[str, Words]
"""Its code, and the sentence in both languages."""
UNKNOWN: Reason = ("", ("", ""))
NEARLY = 0.99  # of the tokens must fit
LEAST = 8  # tokens to say anything


def reason(one: Side, two: Side, name: str) -> Reason:
    """The first reason that fits, "" where none does."""
    finders: dict[str, tuple[Callable[[Side, Side, str], Iterator[Reason]], ...]] = {
        "token_ids": (_permuted, _other_tokens),
        "scores": (_permuted, _score_index, _affine),
        "kl": (_permuted, _estimator, _shifted, _affine),
        "rewards": (_permuted, _reward_fit, _score_index, _shifted, _affine),
        "deltas": (_permuted, _credit, _shifted, _affine),
        RAW: (_permuted, _whitened, _credit, _shifted),
        LOSS: (_permuted, _whitened, _credit, _shifted),
        "returns": (_permuted, _credit, _affine, _shifted),
    }
    usual = (_mask,) if name in MASKS else (_permuted, _shifted, _affine, _temperature, _noise)
    for finder in finders.get(name, usual):
        for found in finder(one, two, name):
            return found
    return UNKNOWN


def because(key: str, /, **values: object) -> Reason:
    """The reason whose code is its sentence's name."""
    return key.partition(".")[2].replace("_", "-"), sentence_pair(key, **values)


# ── relations ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Line(NamedTuple):
    """b = slope·a + intercept."""

    slope: float
    intercept: float

    def at(self, a: Floats) -> Floats:
        return self.slope * a + self.intercept


def _close(a: Floats, b: Floats, rounding: float) -> bool:
    """Whether nearly all of these numbers agree, up to what storing them may have done."""
    if len(a) < LEAST or not all_finite(a, b):
        return False
    scale = float(np.abs(np.concatenate([a, b])).max())
    return bool(scale > 0 and (np.abs(a - b) <= max(4 * rounding, 1e-4) * scale).mean() >= NEARLY)


def _rounding(one: Side, two: Side, *names: str) -> float:
    return max(side.rounding(name) for side in (one, two) for name in names if side.e.dump.holds(name))


def _line(a: Floats, b: Floats, least: int = LEAST) -> Line | None:
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
    rows = ~np.isclose(a, b, rtol=1e-4, atol=1e-6).all(axis=1)
    if rows.sum() < 2 or not all_finite(a, b):
        return
    weights = np.cos(np.arange(a.shape[1]))  # a key that tells rows apart by more than their sum
    order_a, order_b = np.argsort(a[rows] @ weights, kind="stable"), np.argsort(b[rows] @ weights, kind="stable")
    if np.isclose(a[rows][order_a], b[rows][order_b], rtol=1e-4, atol=1e-6).all():
        yield because("audit.rows_permuted", count=int(rows.sum()))


def _shifted(one: Side, two: Side, name: str) -> Iterator[Reason]:
    a, b, where = one.column(name), two.column(name), one.mask & two.mask
    rounding = _rounding(one, two, name)
    for by in (1, -1, 2, -2):
        moved, there = np.roll(b, -by, axis=1), np.roll(where, -by, axis=1)
        there[:, -by if by > 0 else 0 : None if by > 0 else -by] = False
        both = where & there
        if _close(a[both], moved[both], rounding) and float(np.ptp(a[where])) > 0:
            yield because("audit.shift", by=by)


def _affine(one: Side, two: Side, name: str) -> Iterator[Reason]:
    where = compared(one, two, name)
    a, b = one.column(name)[where], two.column(name)[where]
    line = _line(a, b)
    if line is None or not _close(line.at(a), b, _rounding(one, two, name)):
        return
    if abs(line.intercept) < 1e-4 * float(np.abs(b).max()):
        if abs(line.slope + 1) < 1e-3:
            yield because("audit.sign")
        elif abs(line.slope) > 1e-6:
            yield because("audit.scale", slope=line.slope)
    elif abs(line.slope - 1) < 1e-3:
        yield because("audit.offset", intercept=line.intercept)
    elif abs(line.slope) > 1e-6:
        yield because("audit.affine", **line._asdict())


def _temperature(one: Side, two: Side, name: str) -> Iterator[Reason]:
    if not name.endswith("log_probs"):
        return
    a, b = _both(one, two, name)
    line = _line(a, b, 64)
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
            yield "mask-eos", sentence_pair(key, big=big, small=small)
        else:
            yield because("audit.mask_longer", big=big, small=small, count=int(extra.sum()))
    for by in (1, -1):
        if np.array_equal(a, np.roll(b, by, axis=1)):
            yield "shift", sentence_pair("audit.mask_shift", by=by)


def _ends_with_eos(side: Side, extra: Bools) -> bool:
    eos = side.e.settings.eos_id
    if eos is None or not side.e.dump.holds("token_ids"):
        return False
    return bool((side.column("token_ids")[extra] == eos).mean() > 0.5)


# ── scores, KL, rewards ────────────────────────────────────────────────────────────────────────────────────────────


def _score_index(one: Side, two: Side, name: str) -> Iterator[Reason]:
    """One number per row, at another slot."""
    a, b = (side.column("scores" if side.e.dump.holds("scores") else name) for side in (one, two))
    single = ((a != 0).sum(axis=1) == 1) & ((b != 0).sum(axis=1) == 1)
    if single.sum() < 2 or not np.allclose(a[single].sum(axis=1), b[single].sum(axis=1), rtol=2.0**-7, atol=1e-6):
        return
    offset = (b[single] != 0).argmax(axis=1) - (a[single] != 0).argmax(axis=1)
    if not offset.any():
        return
    if len(np.unique(offset)) == 1:
        yield because("audit.score_offset", offset=int(offset[0]))
    else:
        yield because("audit.score_place", a=_place_of(one, a, single), b=_place_of(two, b, single))


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


def _estimator(one: Side, two: Side, name: str) -> Iterator[Reason]:
    a, b = _penalty(one, "kl"), _penalty(two, "kl")
    if a and b and (a.estimator != b.estimator or abs(a.beta - b.beta) > 0.01):
        yield because("audit.kl_estimator", a=a, b=b)


def _reward_fit(one: Side, two: Side, name: str) -> Iterator[Reason]:
    if not (one.e.has("scores") and two.e.has("scores")):
        return
    a, b = _penalty(one, "rewards"), _penalty(two, "rewards")
    if a is None or b is None:
        return
    if a.estimator != b.estimator or abs(a.beta - b.beta) > 1e-3 * max(abs(a.beta), abs(b.beta)):
        yield because("audit.kl_penalty", a=a, b=b)
        return
    behind = ~one.mask & ~two.mask
    if (np.abs(one.column(name) - two.column(name)) > 1e-6)[behind].any():
        yield because("audit.behind_mask")


# ── credit ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Discounts(NamedTuple):
    """A_t = r_t + γ·V_{t+1} − V_t + γλ·A_{t+1}; `skips` masked tokens, or recurses through them; None: no holes."""

    gamma: float
    gamma_lam: float
    skips: bool | None

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
    hole = np.diff(order, axis=1) > 1
    left, right = (a - r + v)[:, :-1], np.stack([v[:, 1:], a[:, 1:]], axis=-1)
    plain = there & ~hole
    if plain.sum() < LEAST or not all_finite(left[plain], right[plain]):
        return None
    fitted, *_ = np.linalg.lstsq(right[plain], left[plain], rcond=None)
    coarse = max(side.rounding(n) for n in ("values", "rewards")) > 1e-4
    near = (0.05 if coarse else 1e-3) * max(float(np.abs(left[plain]).max()), 1e-9)
    if (np.abs(right[plain] @ fitted - left[plain]) > near).mean() > 1 - NEARLY:
        return None
    skips = None
    if (there & hole).any():
        skips = bool((np.abs(right @ fitted - left) <= near)[there & hole].mean() > 0.5)
    return Discounts(float(fitted[0]), float(fitted[1]), skips)


def _credit(one: Side, two: Side, name: str) -> Iterator[Reason]:
    a, b = _discounts(one), _discounts(two)
    if a is None or b is None:
        return
    room = 0.03 if _rounding(one, two, "values", "rewards") > 1e-4 else 2e-3
    if abs(a.gamma - b.gamma) > room or abs(a.gamma_lam - b.gamma_lam) > room:
        yield because("audit.discount", a=a, b=b)
    elif a.skips is not None and b.skips is not None and a.skips != b.skips:
        yield because("audit.recursion", skips="A" if a.skips else "B")
    else:
        last = last_slot(one.mask & two.mask)
        off = np.abs(one.column(name) - two.column(name)) > 1e-4 * np.abs(one.column(name)).max(initial=0.0)
        if off[np.arange(len(off)), np.maximum(last, 0)].any():
            yield because("audit.bootstrap")


def _whitened(one: Side, two: Side, name: str) -> Iterator[Reason]:
    """A line between the two: the same credit, whitened otherwise."""
    where = one.mask & two.mask
    a, b = one.column(name), two.column(name)
    x, y = a[where], b[where]
    if len(x) < LEAST or not all_finite(x, y):
        return
    rounding, line = _rounding(one, two, name), _line(x, y)
    if line and _close(line.at(x), y, rounding) and abs(line.slope) > 1e-6:
        yield because("audit.whitening", what=_whitening(x, y, line), **line._asdict())
        return
    parts = {"rank": "audit.part_rank", "micro_batch": "audit.part_micro_batch", "group": "audit.part_group"}
    for key, words in parts.items():
        side = next((s for s in (one, two) if key in s.e.dump.rows), None)
        if side is None:
            continue
        groups = part_numbers([side.e.dump.rows[key][row] for row in side.rows])
        if len(np.unique(groups)) > 1 and _lines_by(a, b, where, groups, rounding):
            yield "whitening-scope", sentence_pair("audit.whitening_part", part=sentence_pair(words))
            return
    if _lines_by(a, b, where, np.arange(len(a), dtype=np.int64), rounding):
        yield "whitening-scope", sentence_pair("audit.whitening_row")


def _whitening(a: Floats, b: Floats, line: Line) -> Words:
    """What of the whitening differs, from mean and spread of both."""
    flat_a, flat_b = abs(a.std() - 1) < 0.02, abs(b.std() - 1) < 0.02
    if line.slope < 0:
        return sentence_pair("audit.whitening_sign")
    if flat_a != flat_b:
        white, raw = ("A", "B") if flat_a else ("B", "A")
        return sentence_pair("audit.whitening_one", white=white, raw=raw)
    if flat_a and abs(line.slope - 1) < 1e-4 and abs(line.intercept) > 1e-4:
        return sentence_pair("audit.whitening_mean", keeps="A" if abs(a.mean()) > abs(b.mean()) else "B")
    if flat_a and abs(abs(line.slope**2 - 1) - 1 / len(a)) < 0.2 / len(a):
        return sentence_pair("audit.whitening_bessel")
    return sentence_pair("audit.whitening_tokens" if flat_a else "audit.whitening_line")


def _lines_by(a: Floats, b: Floats, where: Bools, groups: Ints, rounding: float) -> bool:
    """Whether b is a line of a within every group of rows that has enough tokens."""
    tried = 0
    for group in np.unique(groups):
        rows = groups == group
        x, y = a[rows][where[rows]], b[rows][where[rows]]
        if len(x) < LEAST:
            continue
        line = _line(x, y)
        if line is None or not _close(line.at(x), y, rounding):
            return False
        tried += 1
    return tried >= 2
