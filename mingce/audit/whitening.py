"""K7: how the advantages were whitened: over which tokens, over which part of the batch, with which variance.

Every way of whitening is tried on the raw advantages; the one that gives the stored numbers is the one that was used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mingce.audit.credit import raw_advantages
from mingce.audit.evidence import Bools, Evidence, Floats, Ints, finite, part_numbers
from mingce.audit.finding import Check, Fault, Finding, phrase
from mingce.record.dump import LOSS, RAW

EPSILON = 1e-8

WRONG_TOKENS = Fault.of("whitened-over-other-tokens", "bug", (29,), "Â_t = (A_t − μ)/σ with μ, σ over m_t = 1")
WRONG_SCOPE = Fault.of("whitened-in-parts", "bug", (30,), "Â_t = (A_t − μ)/σ with one μ, σ for the whole batch")
PER_RANK = Fault.of("whitened-per-rank", "convention", (30,), "Â_t = (A_t − μ)/σ with μ, σ of the rank", "")
MEAN_BACK = Fault.of("mean-added-back", "bug", (32,), "mean of Â_t = 0 over chosen tokens")
HOW = Fault.of("whitening", "convention", (), "Â_t = (A_t − μ)/√(σ² + ε)")
PADS = Fault.of("advantages-on-pads", "convention", (), "Â_t where m_t = 0")
DEGENERATE = Fault.of("whitening-degenerate", "bug", (31,), "N ≤ 1 ⇒ Â = 0")
UNEXPLAINED = Fault.of("whitening-unexplained", "suspicious", (), "Â_t = (A_t − μ)/σ")


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


def _ways(e: Evidence, raw: Floats, loss: Bools) -> Iterator[tuple[Way, Floats]]:
    """Clean ways first: the first that fits is taken."""
    rows = len(raw)
    one = np.zeros(rows, np.int64)
    everything = np.ones_like(loss)
    whole = (("chosen", loss), ("attended", e.attended), ("all", everything))
    yield Way("chosen", "batch", 1, True, "raw"), raw
    for tokens, over in whole:
        for bessel in (True, False):
            mean, std = _statistics(raw, over, one, 1, bessel)
            yield Way(tokens, "batch", 1, bessel, "whitened"), (raw - mean) / std
            yield Way(tokens, "batch", 1, bessel, "mean back"), (raw - mean) / std + mean
            if tokens == "chosen":
                yield Way(tokens, "batch", 1, bessel, "scaled"), raw / std
                yield Way(tokens, "batch", 1, bessel, "centred"), raw - mean
    for scope, part in _parts(e, rows):
        parts = int(part.max()) + 1
        for tokens, over in whole:
            for bessel in (True, False):
                mean, std = _statistics(raw, over, part, parts, bessel)
                yield Way(tokens, scope, parts, bessel, "whitened"), (raw - mean) / std


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
    "row": "audit.scope_row", "block": "audit.scope_block",
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
        return  # the raw advantages would be returns − values
    raw = raw_advantages(e)
    loss = e.mask & e.loss_mask
    found = e[LOSS]
    judged = loss & np.isfinite(raw) & np.isfinite(found)
    count = int(judged.sum())
    if count == 1:
        value = float(found[judged][0])
        if abs(value) > 1e-3 and not np.isclose(value, float(raw[judged][0])):
            yield Finding(DEGENERATE, e.dump.name_of(LOSS), {"count": count, "found": value})
        return
    spread = float(np.std(raw[judged])) if count else 0.0
    if count < 4 or spread < 1e-6 * (1 + float(np.abs(raw[judged]).max())) or judged.sum() < loss.sum():
        return
    raw = finite(raw)
    tolerance = (2e-2 if e.coarse else 1e-4) * max(float(np.sqrt(np.mean(np.square(found[judged])))), 1e-12)
    fits: dict[Way, float] = {}
    for way, numbers in _ways(e, raw, loss):
        fits[way] = float(np.sqrt(np.mean(np.square(numbers - found)[judged])))
        if fits[way] <= 0.1 * tolerance:
            break
    best = min(fits, key=lambda way: fits[way])
    near = [way for way, left in fits.items() if left <= max(tolerance if e.coarse else 0.0, 1.5 * fits[best])]
    best = near[0]  # the cleanest of those that fit as well
    if fits[best] > tolerance:
        yield Finding(UNEXPLAINED, e.dump.name_of(LOSS), {"residual": fits[best]})
        return
    yield from _judge(e, best, found, raw, loss, judged)


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
    else:
        yield Finding(HOW, e.dump.name_of(LOSS), phrase("how", HOWS[way.kind, way.bessel]))
        behind = ~loss & np.isfinite(found)
        if way.kind == "whitened" and behind.any() and (np.abs(found[behind]) > 1e-6).mean() > 0.5:
            yield Finding(PADS, e.dump.name_of(LOSS), {"pad": float(np.median(found[behind]))})


CHECKS = (Check.of("K7 whitening", (LOSS, f"{RAW}|returns"), whitening),)
