"""Comparisons within groups that were changed on the way: cut, over the length, by the others' deviation …"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.comparisons import Compared, Groups, Outcome, compare
from mingce.audit.evidence import Floats
from mingce.audit.finding import Fault, Finding, phrase
from mingce.audit.group_batch import Batch
from mingce.audit.steps_of_credit import SURE
from mingce.specs.comparisons import BIASED, MEAN, OTHERS, STD, WHITENED, WHITENED_ROWS, WITHIN

CHANGED = Fault.of("group-advantage-changed", "suspicious", (1, 33), "A_i = (x_i − mean_g)/std_g", "")
LOOSE = 2e-4  # of the number


def changed(b: Batch) -> Finding | None:
    """A known comparison that was changed afterwards, or whose mean or deviation is another one."""
    if b.e.coarse or len(np.unique(b.part[~b.singles])) < 2:
        return None
    varied = [x for x in b.outcomes if np.ptp(x.x) > 0]
    for x in varied:  # without a number that is fitted first
        for key, numbers in _others(b, x):
            room = np.full(len(numbers), 1e-5) + SURE * 2 * x.error
            if np.isfinite(numbers).all() and _fits(b, numbers, room):
                return _finding(b, key, compare(x, b.part, STD, b.lengths, False).numbers, {"how": STD})
    for x in varied:
        for formula in (*WITHIN, STD + WHITENED, STD + WHITENED_ROWS):
            made = compare(x, b.part, formula, b.lengths, False)
            if not np.isfinite(made.room).all() or not (np.abs(made.numbers) > 3 * made.room).any():
                continue
            for key, numbers, said in _after(b, made, formula not in (MEAN, OTHERS)):
                if _fits(b, numbers, made.room):
                    return _finding(b, key, made.numbers, {"how": formula, **said})
    return None


def _fits(b: Batch, numbers: Floats, room: Floats) -> bool:
    made = Compared(numbers, room * (1 + np.abs(numbers)) + LOOSE * np.abs(numbers) + 1e-6)
    return made.tells(b.found) and not b.misses(made).any()


def _finding(b: Batch, key: str, expected: Floats, said: dict[str, object]) -> Finding:
    wrong = b.judged & (np.abs(expected - b.found) > 1e-3 * (1 + np.abs(expected)))
    values = {"how": said["how"], **phrase("what", key, **said)}
    return Finding(CHANGED, b.column, values, b.places(expected, wrong), float(wrong.mean()))


def _after(b: Batch, made: Compared, divided: bool) -> Iterator[tuple[str, Floats, dict[str, object]]]:
    """(the sentence, the numbers, what it says) of each change of a finished comparison."""
    numbers, lengths = made.numbers, np.maximum(b.lengths, 1).astype(np.float64)
    low, high = float(b.found[b.judged].min()), float(b.found[b.judged].max())
    held = (numbers < low - 1e-3) | (numbers > high + 1e-3)
    inner = np.unique(numbers[b.judged & ~held].round(4))  # few of them are any few numbers
    if held.sum() >= 2 and low < high and len(inner) >= 3:
        yield "audit.change_cut", np.clip(numbers, low, high), {"low": low, "high": high}
    for key, factor in (
        ("audit.change_over_length", 1 / lengths), ("audit.change_times_length", lengths),
        ("audit.change_over_root_length", 1 / np.sqrt(lengths)),
    ):  # fmt: skip
        if np.ptp(factor) > 0:
            times = _factor(numbers * factor, b.found, b.judged)
            yield key, times * numbers * factor, {"factor": times}
    up, down = numbers > 0, numbers < 0
    if up[b.judged].any() and down[b.judged].any():
        good, bad = (_factor(numbers, b.found, b.judged & side) for side in (up, down))
        said: dict[str, object] = {"good": good, "bad": bad}
        yield "audit.change_one_sided", np.where(up, good, bad) * numbers, said
    gap = float(np.median((b.found - numbers)[b.judged]))
    if divided and abs(gap) > 1e-3:  # x less any number is a baseline
        yield "audit.change_offset", numbers + gap, {"offset": gap}
    yield "audit.change_magnitude", np.abs(numbers), {}
    yield "audit.change_sign_only", np.sign(numbers), {}
    yield "audit.change_tanh", np.tanh(numbers), {}


def _factor(x: Floats, y: Floats, where: Floats | np.ndarray) -> float:
    power = float(x[where] @ x[where])
    return float(x[where] @ y[where]) / power if power else 0.0


def _of_distinct(b: Batch, x: Outcome, bessel: int) -> Iterator[tuple[str, Floats]]:
    """By the mean and deviation of the different outcomes of the group, each counted once."""
    mean, std = np.zeros(len(b.part)), np.ones(len(b.part))
    for one in np.unique(b.part):
        rows = b.part == one
        values = np.unique(x.x[rows])
        mean[rows] = values.mean()
        if len(values) > 1:
            std[rows] = values.std(ddof=bessel)
    yield "audit.change_distinct", (x.x - mean) / std


def _others(b: Batch, x: Outcome) -> Iterator[tuple[str, Floats]]:
    """Other means and deviations than those of the group."""
    g, one = Groups(b.part), Groups(np.zeros_like(b.part))
    gap, alone = x.x - g.mean(x.x), g.size < 2
    left = np.maximum(g.size - 1, 1)
    others = (g.sum(x.x) - x.x) / left
    square = np.maximum((g.sum(x.x**2) - x.x**2) / left - others**2, 0.0)
    with np.errstate(all="ignore"):
        for bessel in (0, 1):
            yield from _of_distinct(b, x, bessel)
            spread = np.sqrt(square * left / np.maximum(left - bessel, 1))
            for epsilon in (0.0, 1e-8, 1e-6, 1e-5, 1e-4):
                made = np.where(alone, 0.0, (x.x - others) / (spread + epsilon))
                yield "audit.change_others_std", made
                yield "audit.change_others_std_only", np.where(alone, 0.0, gap / (spread + epsilon))
        for formula in (STD, BIASED):
            divided = compare(x, b.part, formula, b.lengths, False).numbers
            std = np.where(np.abs(divided) > 1e-9, gap / divided, 1.0)
            yield "audit.change_variance", gap / std**2
            yield "audit.change_root_std", gap / np.sqrt(np.abs(std))
            yield "audit.change_batch_mean", (x.x - one.mean(x.x)) / std
            for epsilon in (1.0, 0.5, 0.1, 0.01, 1e-3):
                yield "audit.change_epsilon", gap / (std + epsilon)
    if (np.abs(b.found - compare(x, b.part, MEAN, b.lengths, False).numbers) < 1e-6).all():
        return
    with np.errstate(all="ignore"):
        yield "audit.change_mean_magnitude", gap / np.where(alone, 1.0, g.mean(np.abs(gap)))
        parts = [x.x[b.part == one] for one in range(g.parts)]
        low, high = (np.array([pick(part) for part in parts])[b.part] for pick in (np.min, np.max))
        yield "audit.change_range", gap / np.where(high > low, high - low, 1.0)
        yield "audit.change_range", (x.x - low) / np.where(high > low, high - low, 1.0)
        weight = np.exp(x.x - high)
        yield "audit.change_softmax", weight / g.sum(weight) - 1 / g.size
        yield "audit.change_softmax", weight / g.sum(weight)
    order = np.lexsort((x.x, b.part))
    rank = np.empty(len(order))
    first = np.r_[True, b.part[order][1:] != b.part[order][:-1]]
    rank[order] = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    ranks = Outcome("rank", rank, np.zeros(len(rank)))
    for formula in (STD, BIASED, MEAN):
        yield "audit.change_ranks", compare(ranks, b.part, formula, b.lengths, False).numbers
