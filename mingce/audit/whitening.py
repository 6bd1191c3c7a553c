"""K7: how the advantages were whitened: over which tokens, over which part of the batch, with which variance.

Every way of whitening is tried on the raw advantages; the one that gives the stored numbers is the one that was used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mingce.audit import baselines, factors, misfits
from mingce.audit.credit import raw_advantages, raw_error, step_of
from mingce.audit.evidence import Bools, Evidence, Floats, Ints, finite, part_numbers, rows_with, share_of_rows, shift
from mingce.audit.finding import Check, Fault, Finding, NotJudged, phrase
from mingce.audit.steps_of_credit import SURE
from mingce.record.dump import LOSS, RAW
from mingce.specs.comparisons import BY_CRITIC

EPSILON = 1e-8
WHITENS = ("verl", "trl", "openrlhf")

WRONG_TOKENS = Fault.of("whitened-over-other-tokens", "bug", (29,), "Â_t = (A_t − μ)/σ with μ, σ over m_t = 1")
WRONG_SCOPE = Fault.of("whitened-in-parts", "bug", (30,), "Â_t = (A_t − μ)/σ with one μ, σ for the whole batch")
PER_RANK = Fault.of("whitened-per-rank", "convention", (30,), "Â_t = (A_t − μ)/σ with μ, σ of the rank", "")
MEAN_BACK = Fault.of("mean-added-back", "bug", (32,), "mean of Â_t = 0 over chosen tokens")
HOW = Fault.of("whitening", "convention", (), "Â_t = (A_t − μ)/√(σ² + ε)")
PADS = Fault.of("advantages-on-pads", "convention", (), "Â_t where m_t = 0")
DEGENERATE = Fault.of("whitening-degenerate", "bug", (31,), "N ≤ 1 ⇒ Â = 0")
OTHER_STATISTICS = Fault.of("whitened-with-other-statistics", "suspicious", (29, 30), "Â_t = (A_t − μ)/σ", "")
SIGN = Fault.of("advantage-sign", "bug", (33, 37), "Â_t rises with A_t", "")
SCALE = Fault.of("advantage-scale", "suspicious", (), "Â_t = A_t or (A_t − μ)/σ, not times a factor")
BASELINE = Fault.of("baseline", "convention", (), "Â_t = R_t − b")
CUT = Fault.of("advantages-cut", "suspicious", (), "Â_t = (A_t − μ)/σ, not held within bounds")
NOT_WHITENED = Fault.of("not-whitened-as-usual", "suspicious", (32, 29), "Â_t = (A_t − μ)/σ", "")
UNEXPLAINED = Fault.of("whitening-unexplained", "suspicious", (29, 30, 33), "Â_t = (A_t − μ)/σ", "")


@dataclass(frozen=True)
class Way:
    """One way of whitening, as numbers [B, T] and what to call it."""

    tokens: str  # chosen, attended, all
    scope: str  # batch, rank, micro_batch, row, block
    parts: int
    bessel: bool
    kind: str  # whitened, mean back, scaled, centred, raw


def _statistics(raw: Floats, over: Bools, part: Ints, parts: int, bessel: bool) -> tuple[Floats, Floats]:
    """[B, 1] mean and standard deviation of each row's part."""
    kept = np.where(over, raw, 0.0)
    count = np.bincount(part, over.sum(axis=1), parts)
    mean = np.bincount(part, kept.sum(axis=1), parts) / np.maximum(count, 1)
    squares = np.where(over, np.square(raw - mean[part][:, None]), 0.0).sum(axis=1)
    variance = np.bincount(part, squares, parts) / np.maximum(count - bessel, 1)
    return mean[part][:, None], np.sqrt(variance + EPSILON)[part][:, None]


def _ways(e: Evidence, raw: Floats, loss: Bools) -> Iterator[tuple[Way, Floats, Floats]]:
    """Each way with its numbers and what the raw ones were divided by. Clean ways first."""
    rows = len(raw)
    one = np.zeros(rows, np.int64)
    everything = np.ones_like(loss)
    whole = (("chosen", loss), ("attended", e.attended), ("all", everything))
    unit = np.ones((rows, 1))
    yield Way("chosen", "batch", 1, True, "raw"), raw, unit
    for tokens, over in whole:
        for bessel in (True, False):
            mean, std = _statistics(raw, over, one, 1, bessel)
            yield Way(tokens, "batch", 1, bessel, "whitened"), (raw - mean) / std, std
            yield Way(tokens, "batch", 1, bessel, "mean back"), (raw - mean) / std + mean, std
            if tokens == "chosen":
                yield Way(tokens, "batch", 1, bessel, "scaled"), raw / std, std
                yield Way(tokens, "batch", 1, bessel, "centred"), raw - mean, unit
    count = np.maximum(loss.sum(axis=0, keepdims=True), 1)  # the wrong axis: each position over the rows
    mean = np.where(loss, raw, 0.0).sum(axis=0, keepdims=True) / count
    squares = np.where(loss, np.square(raw - mean), 0.0).sum(axis=0, keepdims=True)
    for bessel in (True, False):
        std = np.sqrt(squares / np.maximum(count - bessel, 1) + EPSILON)
        yield Way("chosen", "slot", raw.shape[1], bessel, "whitened"), (raw - mean) / std, std
    for scope, part in _parts(e, rows):
        parts = int(part.max()) + 1
        for tokens, over in whole:
            for bessel in (True, False):
                mean, std = _statistics(raw, over, part, parts, bessel)
                yield Way(tokens, scope, parts, bessel, "whitened"), (raw - mean) / std, std


def _parts(e: Evidence, rows: int) -> Iterator[tuple[str, Ints]]:
    """Ways to cut the batch: by rank, mini- and micro-batch as dumped, by row, then equal blocks as a guess."""
    for name in ("rank", "micro_batch", "minibatch"):
        if e.has(name):
            part = part_numbers(e.row(name))
            if 1 < int(part.max(initial=0)) + 1 < rows:
                yield name, part
    if rows > 1:
        yield "row", np.arange(rows)
    for parts in (2, 3, 4, 6, 8, 16, 32):
        if rows % parts == 0 and rows // parts > 1:
            yield "block", np.arange(rows) // (rows // parts)


SCOPES = {
    "rank": "audit.scope_rank", "micro_batch": "audit.scope_micro_batch", "minibatch": "audit.scope_minibatch",
    "row": "audit.scope_row", "slot": "audit.scope_slot", "block": "audit.scope_block",
}  # fmt: skip
TOKENS = {"attended": "audit.over_attention_mask", "all": "audit.over_whole_tensor"}
HOWS = {
    ("raw", True): "audit.not_whitened", ("whitened", True): "audit.whitened_bessel",
    ("whitened", False): "audit.whitened_biased", ("scaled", True): "audit.scaled_bessel",
    ("scaled", False): "audit.scaled_biased", ("centred", True): "audit.centred", ("centred", False): "audit.centred",
}  # fmt: skip


def whitening(e: Evidence) -> Iterator[Finding]:
    """Which way of whitening gives the stored advantages?"""
    if "returns" in e.broken and not e.has(RAW):
        raise NotJudged  # the raw advantages would be returns − values
    raw, error = raw_advantages(e), raw_error(e)
    loss = e.mask & e.loss_mask
    found = e[LOSS]
    judged = loss & np.isfinite(raw) & np.isfinite(found)
    count = int(judged.sum())
    if count == 1:
        value = float(found[judged][0])
        if abs(value) > 1e-3 and not np.isclose(value, float(raw[judged][0])):
            yield Finding(DEGENERATE, e.dump.name_of(LOSS), {"count": count, "found": value})
        return
    if count < 4 or count < loss.sum() or not _varied(raw[judged], error[judged]):
        raise NotJudged
    raw, found = finite(raw), finite(found)
    tried = _tried(e, raw, error, found, judged)
    best = _chosen(tried, count)
    if best is not None:
        yield from _judge(e, best, found, raw, loss, judged)
    else:
        yield from _unexplained(e, tried, raw, error, found, judged)


def _varied(raw: Floats, error: Floats) -> bool:
    """Whether the raw advantages differ by more than rounding, so that a division by their spread says anything."""
    spread = float(np.std(raw))
    return spread > max(1e-6 * (1 + float(np.abs(raw).max())), 2 * float(np.sqrt(np.mean(error**2))))


@dataclass(frozen=True)
class Tried:
    """A way, its numbers, and how far the stored ones are from them, in units of what rounding may do."""

    way: Way
    numbers: Floats
    room: Floats
    off: float  # share of the tokens that are farther
    left: float  # root mean square


def _tried(e: Evidence, raw: Floats, error: Floats, found: Floats, judged: Bools) -> list[Tried]:
    tried: list[Tried] = []
    own, count = e.error(LOSS), int(judged.sum())
    noise, unit = (
        float(np.sqrt(np.mean(error[judged] ** 2))),
        float((own / np.maximum(np.abs(found), 1e-30))[judged].min()),
    )
    for way, numbers, std in _ways(e, raw, judged):
        if way.scope != "batch" and any(one.off == 0 for one in tried):
            break  # it was the whole batch
        # the mean and the deviation are of rounded numbers, and ε is added here or there
        k = noise / np.maximum(std, 1e-12)
        loose = unit + 2e-5 + 3 * k / count**0.5 + k * k + np.minimum(EPSILON / np.maximum(std, 1e-12) ** 2, 0.1)
        room = SURE * (error / std + own) + loose * (1 + np.abs(numbers))
        if np.mean(room[judged] ** 2) > 0.25 * np.mean(found[judged] ** 2):
            continue  # divided by next to nothing: anything would fit
        gap = np.abs(numbers - found)[judged] / room[judged]
        left = float(np.sqrt(np.mean(gap * gap)))
        tried.append(Tried(way, numbers, room, float((gap > 1).mean()), left))
        if left <= 0.02 and tried[-1].off == 0:
            break
    return tried


def _chosen(tried: list[Tried], count: int) -> Way | None:
    """The first that fits, or one that fits better beyond chance."""
    fitting = [one for one in tried if one.off == 0]
    if not fitting:
        return None
    first, best = fitting[0], min(fitting, key=lambda one: one.left)
    better = first.left > 0.1 and first.left**2 > best.left**2 * (1 + 50 / count)
    return best.way if better else first.way


def _unexplained(
    e: Evidence, tried: list[Tried], raw: Floats, error: Floats, found: Floats, judged: Bools
) -> Iterator[Finding]:
    """No way gives all the numbers: a baseline, a line in the raw ones, other rows, a few tokens, or nothing known."""
    column = e.dump.name_of(LOSS)
    room = SURE * (error + e.error(LOSS)) + 1e-5 * e.scale(raw, found)
    how = baselines.baseline(e, raw - found, room, judged)
    if how is not None:
        yield Finding(BASELINE, column, phrase("how", how))
        return
    if not any((one.way.kind, one.way.tokens, one.way.scope) == ("whitened", "chosen", "batch") for one in tried):
        return  # rounding has taken too much of it
    witness = misfits.returns_of_others(e, step_of(e), settled=False) if e.has("rewards", "values") else None
    if witness is not None:
        yield witness
        return
    best = min(tried, key=lambda one: (one.off, one.left))
    cut = _cut(e, tried, found, judged)
    if cut is not None or best.off <= 0.2:
        yield cut or _few(e, best, found, judged)
        return
    for one in tried:
        if one.way.kind in ("raw", "whitened") and (one.way.tokens, one.way.scope) == ("chosen", "batch"):
            moved = misfits.rows_alike(column, found, one.numbers, one.room, judged)
            if moved is not None:
                yield moved
                return
    for one in tried:
        if (one.way.tokens, one.way.scope) == ("chosen", "batch"):
            times = factors.times_column(e, one.numbers, one.room, found, judged)
            if times is not None:
                yield times
                return
    yield (
        _line(e, tried, raw, error, found, judged)
        or _other_returns(e, found, judged)
        or Finding(UNEXPLAINED, column, {"residual": best.left})
    )


def _other_returns(e: Evidence, found: Floats, judged: Bools) -> Finding | None:
    """The advantages are whitened from the returns less another value than the own one: R ≠ A + V."""
    if e.has(RAW) or not e.has("values", "returns"):
        return None
    values, returns = finite(e["values"]), finite(e["returns"])
    for by in (1, -1):
        inner = judged & shift(e.mask, by)
        x, y = (returns - shift(values, by))[inner], found[inner]
        if len(x) < 16 or np.ptp(x) == 0:
            continue
        slope, offset = np.polyfit(x, y, 1)
        if slope > 0 and (np.abs(slope * x + offset - y) <= 1e-3 * (1 + np.abs(y))).mean() > 0.99:
            key = "audit.returns_of_next_value" if by == 1 else "audit.returns_of_previous_value"
            own = (found - offset) / slope + values
            return Finding(misfits.RETURNS, "returns", phrase("how", key), e.places(inner, own, returns))
    return None


def _few(e: Evidence, best: Tried, found: Floats, judged: Bools) -> Finding:
    """All but a few tokens fit: those, which may be of other rows or have another sign."""
    column, wrong = e.dump.name_of(LOSS), judged & (np.abs(best.numbers - found) > best.room)
    places, share = e.places(wrong, best.numbers, found), share_of_rows(wrong, judged)
    if (np.abs(best.numbers + found) <= best.room)[wrong].all():
        return Finding(SIGN, column, {"factor": -1.0}, places, share)
    moved = misfits.rows_alike(column, found, best.numbers, best.room, judged, rows_with(wrong))
    residual = float(np.abs(best.numbers - found)[wrong].max())
    if moved is None and share <= misfits.FEW:
        key = _of_few(e, best, found, wrong)
        return misfits.few_rows(column, rows_with(wrong), places, share, key)
    return moved or Finding(UNEXPLAINED, column, {"residual": residual}, places, share, classes=(33, 37))


def _of_few(e: Evidence, best: Tried, found: Floats, wrong: Bools) -> str:
    """What the advantages of few rows are instead: one slot off, 0, times a factor; the key of the sentence."""
    rows = rows_with(wrong)[:, None] & e.mask
    for by in (1, -1):
        inner = rows & shift(e.mask, by)
        if inner.any() and (np.abs(shift(best.numbers, by) - found) <= best.room + shift(best.room, by))[inner].all():
            return "audit.row_advantages_shifted"
    if not found[rows].any():
        return "audit.row_advantages_zero"
    with np.errstate(all="ignore"):
        quotient = (found / best.numbers)[rows & (np.abs(best.numbers) > 10 * best.room)]
    if len(quotient) >= 3 and np.ptp(quotient) <= 1e-2 * abs(float(np.median(quotient))):
        return "audit.row_advantages_scaled"
    return "audit.row_unknown"


def _cut(e: Evidence, tried: list[Tried], found: Floats, judged: Bools) -> Finding | None:
    """The advantages held within bounds."""
    low, high = float(found[judged].min()), float(found[judged].max())
    for one in tried:
        held = np.clip(one.numbers, low, high)
        wrong = judged & (np.abs(one.numbers - found) > one.room)
        if (np.abs(held - found) <= one.room)[judged].all() and wrong.sum() >= 2:
            places = e.places(wrong, one.numbers, found)
            return Finding(CUT, e.dump.name_of(LOSS), {"low": low, "high": high}, places, share_of_rows(wrong, judged))
    return None


def _line(e: Evidence, tried: list[Tried], raw: Floats, error: Floats, found: Floats, judged: Bools) -> Finding | None:
    """The stored advantages are a line in the raw ones: flipped, times a factor, or with another mean and deviation."""
    x, y = raw[judged], found[judged]
    slope = float((x - x.mean()) @ (y - y.mean()) / ((x - x.mean()) @ (x - x.mean())))
    offset = float(y.mean() - slope * x.mean())
    column, room = e.dump.name_of(LOSS), SURE * (abs(slope) * error + e.error(LOSS))[judged]
    room = room + 1e-4 * (abs(offset) + np.abs(y))
    if slope == 0 or not (np.abs(slope * x + offset - y) <= room).all():
        return None
    plain = {
        one.way.kind: one.numbers for one in reversed(tried) if one.way.scope == "batch" and one.way.tokens == "chosen"
    }
    for kind in (kind for kind in ("raw", "whitened") if kind in plain):
        numbers = plain[kind][judged]
        factor = float(numbers @ y / (numbers @ numbers))
        if not (np.abs(factor * numbers - y) <= 3 * room).all():
            continue
        places = e.places(judged, plain[kind], found)
        if factor < 0:
            return Finding(SIGN, column, {"factor": factor}, places)
        classes = (29, 30) if kind == "whitened" else None
        return Finding(SCALE, column, {"factor": factor}, places, classes=classes)
    if slope < 0:
        return Finding(SIGN, column, {"factor": slope}, e.places(judged, -found, found))
    return Finding(OTHER_STATISTICS, column, {"mean": -offset / slope, "std": 1 / slope})


def _judge(e: Evidence, way: Way, found: Floats, raw: Floats, loss: Bools, judged: Bools) -> Iterator[Finding]:
    parts = np.zeros(len(raw), np.int64)
    mean, std = _statistics(raw, loss, parts, 1, True)
    expected = (raw - mean) / std
    places = e.places(judged & (np.abs(expected - found) > 1e-3), expected, found)
    if way.kind == "mean back":
        yield Finding(MEAN_BACK, e.dump.name_of(LOSS), {"mean": float(found[judged].mean())}, places)
    elif way.scope != "batch":
        if way.scope == "rank" and e.dump.source == "trl":
            yield Finding(PER_RANK, e.dump.name_of(LOSS))
        else:
            said = phrase("scope", SCOPES[way.scope]) | {"parts": way.parts}
            classes = (29, 30) if way.tokens != "chosen" else None
            yield Finding(WRONG_SCOPE, e.dump.name_of(LOSS), said, places, classes=classes)
    elif way.tokens != "chosen":
        yield Finding(WRONG_TOKENS, e.dump.name_of(LOSS), phrase("over", TOKENS[way.tokens]), places)
    elif way.kind != "whitened" and _always_whitens(e, way.kind):
        how = phrase("how", HOWS[way.kind, way.bessel])
        classes = (33, 29) if way.kind == "raw" else (32, 29)
        yield Finding(NOT_WHITENED, e.dump.name_of(LOSS), how | {"source": e.dump.source}, places, classes=classes)
    else:
        yield Finding(HOW, e.dump.name_of(LOSS), phrase("how", HOWS[way.kind, way.bessel]))
        behind = ~loss & np.isfinite(found)
        if way.kind == "whitened" and behind.any() and (np.abs(found[behind]) > 1e-6).mean() > 0.5:
            yield Finding(PADS, e.dump.name_of(LOSS), {"pad": float(np.median(found[behind]))})


def _always_whitens(e: Evidence, kind: str) -> bool:
    """Whether the trainer subtracts the mean and divides by the deviation whatever its settings: with a critic."""
    if not e.has("values", "rewards|kl|outcome") or e.settings.estimator not in (None, *BY_CRITIC):
        return False
    return e.dump.source in WHITENS or kind == "scaled"


CHECKS = (Check.of("K7 whitening", (LOSS, f"{RAW}|returns"), whitening),)
