"""K8: advantages that compare the samples of one prompt: are they compared with the right rows, by a known formula?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mingce.audit.credit import constant_rows
from mingce.audit.evidence import Bools, Evidence, Floats, Ints, finite, part_numbers
from mingce.audit.finding import Check, Fault, Finding, Place
from mingce.base.texts import sentence_pair
from mingce.record.dump import LOSS, unknown_estimator
from mingce.specs import ESTIMATORS, Estimator

MISFORMED = Fault.of("groups-misformed", "bug", (1,), "A_i = (x_i − mean_g)/std_g over the rows g that share a prompt")
DESYNC = Fault.of("rows-desynchronised", "bug", (37,), "A_i = f(x_i, group of i)")
INCOMPLETE = Fault.of(
    "group-statistics-of-missing-rows", "bug", (1, 37),
    "A_i = (x_i − mean_g)/std_g over the rows of g in the batch", "allenai/open-instruct/pull/1794",
)  # fmt: skip
MASKED_REWARD = Fault.of("group-counts-masked-reward", "bug", (10,), "x_i = Σ_t m_t·r_t", "verl-project/verl/pull/6362")
SINGLETON = Fault.of(
    "group-of-one", "suspicious", (31,), "a group of one has nothing to compare with: A = 0", "rllm-org/rllm/pull/776"
)
HOW = Fault.of("group-advantage", "convention", (), "A_i = f(x_i, rows of the same prompt)")
UNEXPLAINED = Fault.of("group-unexplained", "suspicious", (), "A_i = (x_i − mean_g)/std_g")

Words = tuple[str, str]
FORMULAS = ("(x − mean)/std", "(x − mean)/biased std", "x − mean", "x − mean of the others", "x")


def _compare(x: Floats, part: Ints, formula: str) -> Floats:
    parts = int(part.max(initial=-1)) + 1
    size = np.bincount(part, minlength=parts)[part]
    mean = (np.bincount(part, x, parts) / np.maximum(np.bincount(part, minlength=parts), 1))[part]
    gap = x - mean
    if formula == "x":
        return x
    if formula == "x − mean":
        return gap
    if formula == "x − mean of the others":
        return np.where(size > 1, gap * size / np.maximum(size - 1, 1), x)
    squares = np.bincount(part, gap * gap, parts)[part]
    std = np.sqrt(squares / np.maximum(size - (formula == FORMULAS[0]), 1))
    return np.where(std > 1e-7 * (1 + np.abs(mean)), gap / np.maximum(std, 1e-12), 0.0)


def _groups(e: Evidence) -> Ints | None:
    """[B] the number of each row's prompt: by its ids, else by the dumped group or uid."""
    if e.has("prompt_ids"):
        names = [",".join(map(str, ids)) for ids in e.row("prompt_ids")]
    elif e.has("group|uid"):
        names = [str(name) for name in e.row("group" if e.has("group") else "uid")]
    else:
        return None
    return part_numbers(names)


def _groupings(e: Evidence, true: Ints) -> Iterator[tuple[Words, Ints]]:
    """Ways in which trainers have formed groups by mistake."""
    rows = len(true)
    sizes = np.bincount(true)
    usual = int(np.median(sizes[sizes > 0]))
    yield sentence_pair("audit.by_row"), np.arange(rows)
    yield sentence_pair("audit.by_batch"), np.zeros(rows, np.int64)
    for size in {usual, int(sizes.max()), int(e.settings.group_size or usual)}:
        if 1 < size < rows:
            yield sentence_pair("audit.by_windows", size=size), np.arange(rows) // size
            if rows % size == 0:
                yield sentence_pair("audit.by_stride", stride=rows // size), np.arange(rows) % (rows // size)
    within = [(sentence_pair("audit.by_prompt_in_rank"), part_numbers(e.row("rank")))] if e.has("rank") else []
    within += [
        (sentence_pair("audit.by_prompt_in_blocks", parts=parts), np.arange(rows) * parts // rows)
        for parts in (2, 4, 8)
        if rows > 2 * parts
    ]
    for words, part in within:
        yield words, np.unique(true * rows + part, return_inverse=True)[1].astype(np.int64)
    for name, key in _BY.items():
        if e.has(name):
            yield sentence_pair(key), part_numbers(e.row(name))


_BY = {"uid": "audit.by_uid", "group": "audit.by_group", "rank": "audit.by_rank", "micro_batch": "audit.by_micro_batch"}


def _outcomes(e: Evidence) -> Iterator[tuple[str, Floats]]:
    for name in ("rewards", "scores"):
        if e.has(name):
            yield f"Σ m·{name}", np.where(e.mask, finite(e[name]), 0.0).sum(axis=1)
    if e.has("outcome"):
        yield "outcome", np.nan_to_num(np.array([float(x) for x in e.row("outcome")]))
    for name in ("rewards", "scores"):
        if e.has(name):
            yield f"Σ {name}", finite(e[name]).sum(axis=1)


def groups(e: Evidence) -> Iterator[Finding]:
    """Row-constant advantages: with which rows, and how, was each compared?"""
    column = e[LOSS]
    spec = ESTIMATORS.get(e.settings.estimator or "")
    if e.has("values") and not (spec is not None and spec.grouped):
        return
    if unknown_estimator(e.dump) or (
        spec is not None and spec.kind == "share"
    ):  # constant in a row, and compared with no other
        return
    true = _groups(e)
    used = np.flatnonzero(e.mask.any(axis=1))
    if true is None or len(used) < 4 or not np.isfinite(column[e.mask]).all() or not constant_rows(e, column):
        return
    found = column[used, e.mask.argmax(axis=1)[used]]
    size = np.abs(found).max(initial=0.0)
    if size > 0:
        tolerance = size * (3e-2 if e.coarse else 2e-3)
        findings = list(_decide(e, used, true, found, tolerance))
        alarming = any((one.severity or one.fault.severity) in ("bug", "suspicious") for one in findings)
        if not (alarming and spec is not None and _as_defined(e, spec, true, tolerance)):
            yield from findings


def _as_defined(e: Evidence, spec: Estimator, group: Ints, tolerance: float) -> bool:
    """Whether the advantages are what the declared estimator's definition makes of the rewards."""
    if spec.twin is None or not e.has("rewards"):
        return False
    columns = {"rewards": np.nan_to_num(e["rewards"]).tolist(), "response_mask": e.mask.tolist()}
    columns |= {"group": group.tolist()} | {name: e.dump.rows[name] for name in spec.row_inputs if e.has(name)}
    if not set(spec.inputs) <= columns.keys():
        return False
    advantages = np.array(spec.estimate(columns, e.settings.known()).advantages)
    return bool((np.abs(advantages - e[LOSS])[e.mask] <= tolerance).all())


def _decide(e: Evidence, used: Ints, everyone: Ints, found: Floats, tolerance: float) -> Iterator[Finding]:
    """`everyone` numbers the prompts of all rows; only the `used` ones have an advantage that counts."""

    column = e.dump.name_of(LOSS)

    def left(numbers: Floats) -> float:
        return float(np.quantile(np.abs(numbers - found), 0.98))

    whole = dict(_outcomes(e))
    outcomes = {name: x[used] for name, x in whole.items()}
    true = np.unique(everyone[used], return_inverse=True)[1]
    clean = {
        (formula, name): _normal(_compare(x, true, formula), found)
        for name, x in outcomes.items()
        for formula in FORMULAS[:4]
    }
    best = min(clean, key=lambda key: left(clean[key]))
    if len(used) < len(everyone):  # verl counts rows without a token in their group too
        clean |= {
            (formula, f"{name}, empty rows counted"): _normal(_compare(x, everyone, formula)[used], found)
            for name, x in whole.items()
            for formula in FORMULAS[:4]
        }
    singles = np.bincount(true)[true] == 1
    alone = singles & (np.abs(found) > tolerance)
    equals = _equals(next(iter(outcomes.values())), true) & (np.abs(found) < 0.1)  # rounding over almost no deviation
    judged = ~equals & (~singles | singles.all())
    for (formula, name), numbers in clean.items():
        gaps = np.abs(numbers - found)[judged]
        fits = np.quantile(gaps, 0.9) <= 2 * tolerance if e.coarse and len(gaps) else (gaps <= tolerance).all()
        if fits and not singles.all():
            masked = f"Σ m·{name.removeprefix('Σ ')}"
            if masked in outcomes and np.abs(outcomes[masked] - outcomes[name]).max() > tolerance:
                places = _row_places(used, clean[(formula, masked)], found, tolerance)
                yield Finding(MASKED_REWARD, column, {}, places)
            else:
                yield Finding(HOW, column, {"how": f"{formula}, x = {name}"})
            if alone.any():
                yield Finding(SINGLETON, column, {"count": int(alone.sum())})
            return
    if singles.all():
        if any(left(x) <= tolerance for x in outcomes.values()):
            yield Finding(SINGLETON, column, {"count": int(alone.sum())})
        return
    if any(left(_over_tokens(x, e.mask.sum(axis=1)[used])) <= tolerance for x in outcomes.values()):
        yield Finding(HOW, column, {"how": "whitened over the batch's tokens, as REINFORCE++"})
        return
    expected = clean[best]
    places = _row_places(used, expected, found, tolerance)
    wrong = _wrong_groups(e, used, true, outcomes, lambda numbers: left(numbers) <= tolerance)
    if wrong is not None:
        share = float((np.abs(expected - found) > tolerance).mean())
        yield Finding(MISFORMED, column, {"by": wrong[1], "by_zh": wrong[0]}, places, share)
        return
    unexplained = Finding(UNEXPLAINED, column, {"residual": left(expected)}, places)
    yield _rows_moved(e, used, true, found, clean, tolerance) or unexplained


def _wrong_groups(
    e: Evidence, used: Ints, true: Ints, outcomes: dict[str, Floats], fits: Callable[[Floats], bool]
) -> Words | None:
    """By what the groups were formed instead of by prompt, if the advantages show it."""
    for x in outcomes.values():
        for number, (words, part) in enumerate(_groupings_of(e, used, true)):
            for formula in FORMULAS if number == 0 else FORMULAS[:4]:  # x itself only with each row alone
                if fits(_compare(x, part, formula)):
                    return words
    return None


def _over_tokens(x: Floats, lengths: Ints) -> Floats:
    """x whitened with each row counted as often as it has tokens."""
    count = int(lengths.sum())
    mean = float(x @ lengths) / count
    variance = float(np.square(x - mean) @ lengths) / max(count - 1, 1)
    return np.asarray((x - mean) / max(variance, 1e-12) ** 0.5)


def _equals(x: Floats, part: Ints) -> Bools:
    """[B] rows of groups in which all outcomes are the same."""
    high, low = np.full(int(part.max()) + 1, -np.inf), np.full(int(part.max()) + 1, np.inf)
    np.maximum.at(high, part, x)
    np.minimum.at(low, part, x)
    return np.asarray((high - low <= 1e-5 * (1 + np.abs(high)))[part])


def _groupings_of(e: Evidence, used: Ints, true: Ints) -> Iterator[tuple[Words, Ints]]:
    whole = np.zeros(len(e.mask), np.int64)
    whole[used] = true
    for words, part in _groupings(e, whole):
        yield words, np.unique(part[used], return_inverse=True)[1]


def _normal(numbers: Floats, found: Floats) -> Floats:
    """The numbers, or those whitened over rows or tokens if that is what fits (an affine image, slope > 0)."""
    gap, target = numbers - numbers.mean(), found - found.mean()
    power = float(gap @ gap)
    if power == 0 or len(found) < 8:
        return numbers
    slope = float(gap @ target) / power
    image = slope * gap + found.mean()
    return image if slope > 0 and np.abs(image - found).max() < 0.1 * np.abs(numbers - found).max() else numbers


def _rows_moved(
    e: Evidence, used: Ints, true: Ints, found: Floats, clean: dict[tuple[str, str], Floats], tolerance: float
) -> Finding | None:
    """From some row on the advantages are those of other rows; or only groups that lack rows are off.

    A dropped row leaves its group without its true mean, so that rows of whole groups alone are judged.
    """
    sizes = np.bincount(true)
    whole = sizes[true] == sizes.max()
    rows = np.arange(len(found))
    for expected in clean.values():
        wrong = np.abs(expected - found) > tolerance
        places = _row_places(used, expected, found, tolerance)
        for by in (1, -1, 2, -2, 3, -3, 4, -4):
            other = np.clip(rows + by, 0, len(rows) - 1)
            judged = whole[other] & (rows + by == other)
            misses = judged & (np.abs(expected[other] - found) > tolerance)
            before = np.concatenate([[0], np.cumsum(wrong & whole)])  # misses if the move begins at row k
            after = np.concatenate([np.cumsum(misses[::-1])[::-1], [0]])
            start = int(np.argmin(before + after))
            moved = judged & ~misses & wrong & (rows >= start)
            if before[start] + after[start] == 0 and moved.sum() >= 3:
                said = {"row": int(used[min(start, len(used) - 1)]), "by": by}
                return Finding(DESYNC, e.dump.name_of(LOSS), said, places, float(wrong.mean()))
        if not whole.all() and wrong[~whole].mean() > 0.5 and not wrong[whole].any():
            return Finding(INCOMPLETE, e.dump.name_of(LOSS), {}, places, float(wrong.mean()))
    return None


def _row_places(used: Ints, expected: Floats, found: Floats, tolerance: float) -> tuple[Place, ...]:
    wrong = np.flatnonzero(np.abs(expected - found) > tolerance)[:5]
    return tuple(Place(int(used[i]), None, float(expected[i]), float(found[i])) for i in wrong)


CHECKS = (
    Check.of("K8 groups", (LOSS, "rewards|scores|outcome", "prompt_ids|group|uid"), groups),
)  # fmt: skip
