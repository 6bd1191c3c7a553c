"""K9: numbers that cannot be what they claim: not finite, positive log-probs, fill values, half precision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from mingce.audit import geometry, rounding
from mingce.audit.alignment import NEARLY_SURE
from mingce.audit.evidence import Bools, Evidence, Floats, once
from mingce.audit.finding import Check, Fault, Finding, phrase
from mingce.audit.geometry import ASSISTANT
from mingce.audit.kl import kl_estimates, kl_slopes
from mingce.record.dump import LOSS, RAW

LOG_PROBS = ("rollout_log_probs", "old_log_probs", "ref_log_probs", "new_log_probs")
# Columns in the order in which they are made: what is not finite in one makes the later ones so.
MAKING = (
    *LOG_PROBS[:3], "entropy", "scores", "kl", "rewards", "values", "deltas", RAW, "returns", LOSS,
    "new_log_probs", "new_values", "ratio", "importance_weights",
)  # fmt: skip
OPPOSITE = {"rollout_log_probs": "old_log_probs", "old_log_probs": "rollout_log_probs"}
FARTHEST = -1000.0  # no model gives a token that it drew so small a log-probability
ROUNDING = 1e-3  # a log-softmax in float32 may end this far above 0, not farther

# ── what can be wrong ──────────────────────────────────────────────────────────────────────────────────────────────

BEHIND_MASK = Fault.of("nonfinite-behind-mask", "bug", (38,), "every stored number is finite, where m_t = 0 as well")
NOT_FINITE = Fault.of(
    "nonfinite", "bug", (), "every stored number is finite where m_t = 1", "huggingface/trl/issues/6789"
)
DEGENERATE = Fault.of("degenerate-whitening", "bug", (31,), "Â_t = (A_t − μ)/√(σ² + ε), 0 where σ is undefined")
FILLED = Fault.of("fill-value-as-log-prob", "bug", (28,), "log-probs of chosen tokens come from a model")
FILLED_TAIL = Fault.of(
    "log-probs-end-early", "bug", (12, 28), "one log-prob a chosen token", "rllm-org/rllm/issues/816"
)
COARSE_NEAR = -(2.0**-6)  # from where on single precision has digits that half precision has not
DECIDED = 1e-4  # nats; the entropy of a policy that has but one token left
IMPROBABLE, CERTAIN, DOUBTFUL = -12.0, -0.01, 0.25
"""A policy that doubts says of so many tokens something between the first two."""
TELLING = 8  # tokens from which one column is said to follow from another
NEVER_FILLED = Fault.of("column-all-zero", "note", ())
PAD_FILL = Fault.of("pad-fill-value", "convention", (28,))
POSITIVE = Fault.of("positive-log-prob", "bug", (21,), "log π(a_t) ≤ 0", "AI-Hypercomputer/maxtext/pull/5231")
HALF = Fault.of("half-precision-log-probs", "bug", (21,), "log π(a_t) in float32")
ROUNDED_DUMP = Fault.of("rounded-dump", "note", (21,), report="")

# ── not finite ─────────────────────────────────────────────────────────────────────────────────────────────────────


def finite(e: Evidence) -> Iterator[Finding]:
    """The first column, in the order of making, that holds a NaN or an inf; later ones inherit it."""
    behind: dict[str, Bools] = {}
    for name in (one for one in MAKING if e.dump.holds(one)):
        bad = ~np.isfinite(e.dump.column(name))
        if not bad.any():
            continue
        chosen = bad & e.mask
        if not chosen.any():
            behind[name] = bad
        elif not behind:
            yield _not_finite(e, name, chosen)
            return
    if behind:
        bad = np.logical_or.reduce(list(behind.values()))
        values = {"columns": ", ".join(map(e.dump.name_of, behind)), "count": int(bad.sum())}
        column = next(iter(behind))
        places = e.places(behind[column], np.zeros(bad.shape), e[column])
        yield Finding(BEHIND_MASK, e.dump.name_of(column), values, places, float(bad.any(axis=1).mean()))


def _not_finite(e: Evidence, name: str, bad: Bools) -> Finding:
    count, share = int(bad.sum()), float(bad.any(axis=1).mean())
    places = e.places(bad, np.full(bad.shape, np.nan), e[name])
    credit = (RAW, LOSS) if e.has("values") else (RAW, LOSS, "returns")
    if name not in credit:  # without a critic the returns are advantages by another name
        negative = bool((e[name][bad] == -np.inf).all()) and name in LOG_PROBS
        return Finding(NOT_FINITE, name, {"column": name, "count": count}, places, share, classes=(14,) * negative)
    tokens = int(e.mask.sum())
    why = "audit.one_token" if tokens <= 1 else "audit.alone_in_group" if _alone(e, bad) else "audit.no_variance"
    return Finding(DEGENERATE, e.dump.name_of(name), {"count": count, **phrase("why", why)}, places, share)


def _alone(e: Evidence, bad: Bools) -> bool:
    if "group" not in e.dump.rows:
        return False
    groups = [str(one) for one in e.row("group")]
    return all(groups.count(groups[row]) == 1 for row in np.flatnonzero(bad.any(axis=1))[:64])


# ── log-probs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def log_probs(e: Evidence) -> Iterator[Finding]:
    """Fill values inside and outside the mask, and log-probs above 0."""
    for name in LOG_PROBS:
        if name not in e.dump.columns or not e.mask.any():
            continue
        column = e[name]
        if not column[e.mask].any():
            yield Finding(NEVER_FILLED, name, {"column": name})
            continue
        filled = fills(e, name)
        known = name in e.blamed
        if filled.any() and not known:
            yield from _filled(e, name, filled)
        yield from _pad_fill(e, name)
        above = e.mask & ~filled & (column > ROUNDING) & np.isfinite(column)
        if above.any() and not known and e.kind(name) == "float32":
            values = {"column": name, "largest": float(column[above].max())}
            yield Finding(
                POSITIVE, name, values, e.places(above, np.zeros(above.shape), column), float(above.any(axis=1).mean())
            )


@once
def fills(e: Evidence, name: str) -> Bools:
    """[B, T] chosen tokens whose log-prob in this column is a fill value: 0, ±1 or a huge negative number."""
    column = e[name]
    found: Bools = e.mask & np.isfinite(column) & ((column == 1.0) | (column <= FARTHEST))
    other = OPPOSITE.get(name, "old_log_probs")
    other = other if other in e.dump.columns else "ref_log_probs"
    if other in e.dump.columns and other != name and _doubts(column[e.mask]):
        known = e.mask & np.isfinite(e[other])
        zero = _runs((column == 0.0) & e.mask & ~_decided(e, name), 2) & known & (e[other] < -0.5)
        zero = _runs(zero, 2)
        sure = known & (e[other] < -0.5) & (column < 0.0) & (column > NEARLY_SURE)  # such a policy rounds to 0, too
        if (zero.sum() >= 4 or _runs(zero, 3).any()) and sure.sum() < zero.sum() / 20:
            # the run's own tokens, and those of it on which the other column has no opinion
            found |= _grown(zero, (column == 0.0) & e.mask)
        found |= _runs((column == -1.0) & known & (np.abs(e[other] + 1.0) > 0.5), 4)
    if "role" in e.dump.columns:  # what others wrote has no log-prob; that it is marked as chosen is told by K1 roles
        found &= (e["role"] == ASSISTANT) | (e["role"] == 0)
    found &= ~geometry.chosen_pads(e).any(axis=1, keepdims=True)  # a row whose mask is wrong says nothing here
    return found


def _doubts(numbers: Floats) -> bool:
    """Whether a policy has any doubt: one that is sure says 0 of the one token and next to nothing of the others."""
    others = numbers[numbers != 0.0]
    return len(others) > 0 and bool(np.mean((others > IMPROBABLE) & (others < CERTAIN)) >= DOUBTFUL)


def _decided(e: Evidence, name: str) -> Bools:
    """[B, T] tokens at which the policy's own entropy says that there was no choice: their log-prob rounds to 0."""
    if "entropy" not in e.dump.columns or name == "ref_log_probs":
        return np.zeros_like(e.mask)
    entropy = np.abs(e["entropy"])
    decided: Bools = (entropy > 0.0) & (entropy < DECIDED)  # exactly 0 may be a fill value itself,
    if (decided & e.mask & (e[name] == 0.0)).any():  # unless such a policy is seen to round its log-probs to 0
        decided = entropy < DECIDED
    return decided


def _filled(e: Evidence, name: str, filled: Bools) -> Iterator[Finding]:
    column = e[name]
    if geometry.retokenised(e) and name == "rollout_log_probs":
        return
    places = e.places(filled, np.full(filled.shape, np.nan), column)
    slots = np.arange(filled.shape[1])[None, :]
    start = np.where(filled.any(axis=1), filled.argmax(axis=1), filled.shape[1])[:, None]
    to_the_end = ((slots < start) | filled | ~e.mask).all(axis=1) & filled.any(axis=1)
    rows = filled.any(axis=1)
    values = {"column": name, "count": int(filled.sum()), "value": float(column[filled][0]), "rows": int(rows.sum())}
    tail = name == "rollout_log_probs" and bool(to_the_end[rows].all()) and not column[filled].any()
    fault = FILLED_TAIL if tail else FILLED
    lengths = [np.sort(kept.sum(axis=1)) for kept in (column != 0, e.mask, e.attended)]
    moved = not column[filled].any() and any(np.array_equal(lengths[0], one) for one in lengths[1:])  # of other rows
    classes = (*fault.classes, 37) if moved else None
    yield Finding(fault, name, values, places, float(rows.mean()), classes=classes)


def _pad_fill(e: Evidence, name: str) -> Iterator[Finding]:
    outside = e[name][~e.mask & ~e.attended]
    if len(outside) and outside[0] != 0 and np.isfinite(outside[0]) and bool((outside == outside[0]).all()):
        yield Finding(PAD_FILL, name, {"column": name, "value": float(outside[0])})


def _runs(marked: Bools, least: int) -> Bools:
    """The marked slots that stand in a run of at least `least`."""
    kept = marked.copy()
    for _ in range(least - 1):  # erode, then grow back
        kept[:, 1:] &= kept[:, :-1].copy()
        kept[:, :1] = False
    for _ in range(least - 1):
        kept[:, :-1] |= kept[:, 1:].copy()
    runs: Bools = kept & marked
    return runs


def _grown(seed: Bools, within: Bools) -> Bools:
    """`seed` with the rest of the runs of `within` that it touches."""
    starts = within & ~np.pad(within, ((0, 0), (1, 0)))[:, :-1]
    label = np.cumsum(starts, axis=1) * within + (np.arange(len(within)) * (within.shape[1] + 1))[:, None]
    grown: Bools = within & np.isin(label, label[seed & within])
    return grown


# ── half precision ─────────────────────────────────────────────────────────────────────────────────────────────────


def half_precision(e: Evidence) -> Iterator[Finding]:
    """Log-probs on the grid of a 16-bit format, in a dump with finer columns: computed so, or only stored?"""
    kinds = {name: e.kind(name) for name in MAKING if e.dump.holds(name)}
    coarse = {name: kind for name, kind in kinds.items() if kind not in (None, "float32")}
    own = [name for name in LOG_PROBS[1:] if name in coarse and _tells(e, name)]
    if not own:
        return
    finer = [name for name, kind in kinds.items() if kind == "float32"]
    alone = set(coarse) <= set(LOG_PROBS)
    values = {"columns": ", ".join(own), "kind": coarse[own[0]]}
    # the engine's log-probs come from elsewhere: that they are finer says nothing about how this dump was written
    mixed = bool([name for name in finer if name != "rollout_log_probs"] or (finer and alone))
    used = [says for says in _computed_with(e) if says is not None] if mixed else []
    uneven = any(kinds.get(name) == "float32" for name in LOG_PROBS)  # who stores rounded log-probs rounds them all
    if not mixed or False in used or not (used or uneven):
        yield Finding(ROUNDED_DUMP, own[0], values)
        return
    places = e.places(e.mask & (e[own[0]] != 0), np.full(e.mask.shape, np.nan), e[own[0]])[:3]
    yield Finding(HALF, own[0], values, places, severity=None if used else "suspicious")


def _tells(e: Evidence, name: str) -> bool:
    """Whether the column says how it was computed: near 0 a log-prob is a difference of large logits, with few digits.

    So the log-probs of a policy that hardly doubts lie on any grid.
    """
    column = e.dump.columns[name]
    far = column[e.mask & (column < COARSE_NEAR)]
    return e.dump.stored.get(name) in rounding.HALF or len(np.unique(far[: rounding.SEEN])) >= rounding.VARIED


def _computed_with(e: Evidence) -> Iterator[bool | None]:
    """Whether finer columns follow from the log-probs as they stand, digit by digit; None where that is not told."""
    with np.errstate(all="ignore"):
        if e.has("old_log_probs", "ref_log_probs"):
            x, rounded = e["old_log_probs"] - e["ref_log_probs"], e.error("old_log_probs") + e.error("ref_log_probs")
            slopes = kl_slopes(x)
            kinds = [(one, rounded * slopes[name]) for name, one in kl_estimates(x).items()]
            if e.has("kl") and e.kind("kl") == "float32":
                yield _any(_follows(e, e["kl"], one, moved) for one, moved in kinds)
            if e.has("rewards", "scores") and e.kind("rewards") == "float32":
                yield _any(_follows(e, e["scores"] - e["rewards"], one, moved) for one, moved in kinds)
        if e.has("ratio", "new_log_probs", "old_log_probs") and e.kind("ratio") == "float32":
            ratio, rounded = np.exp(e["new_log_probs"] - e["old_log_probs"]), e.error("old_log_probs")
            yield _follows(e, e["ratio"], ratio, ratio * (rounded + e.error("new_log_probs")))
        if e.has("approx_kl", "new_log_probs", "old_log_probs"):
            yield _logged_with(e, "approx_kl", "old_log_probs", "new_log_probs")


def _logged_with(e: Evidence, scalar: str, one: str, other: str) -> bool | None:
    """Whether a logged mean of two columns' difference is theirs to all its digits; None if it is another mean."""
    where = e.mask & e.loss_mask & np.isfinite(e[one]) & np.isfinite(e[other])
    x, logged, count = (e[one] - e[other])[where], e.dump.scalars[scalar], max(int(where.sum()), 1)
    noise = float(np.sqrt(np.sum((e.error(one) + e.error(other))[where] ** 2))) / count
    size = float(np.abs(x).mean()) if len(x) else 0.0
    gap = min(abs(logged - float(mean)) for mean in (x.mean(), (0.5 * x**2).mean(), (np.expm1(-x) + x).mean()))
    exact = 2e-6 * size + 1e-9
    if size == 0 or noise < 20 * exact or gap > 6 * noise:
        return None
    return gap <= exact


def _any(says: Iterable[bool | None]) -> bool | None:
    known = [one for one in says if one is not None]
    return any(known) if known else None


def _follows(e: Evidence, column: Floats, source: Floats, rounded: Floats) -> bool | None:
    """Whether the column is a multiple of the source to all its digits, on the tokens that rounding moves by more than
    the column's own; None where it is all but 0, or they are few."""
    where = e.mask & np.isfinite(column) & np.isfinite(source)
    x, y = source[where], column[where]
    power = float(x @ x)
    if power == 0 or float(y @ y) < 1e-12 * len(y):
        return None
    factor = float(x @ y) / power
    moved = abs(factor) * rounded[where]
    telling = moved > 50 * 1e-6 * (np.abs(y) + abs(factor) * np.abs(x))
    if telling.sum() < TELLING:
        return None
    near = np.abs(y - factor * x) <= 1e-4 * np.abs(y) + 0.02 * moved
    return bool(near[telling].mean() > 0.9)


VALUES = Check.of("K9 log-probs", ("|".join(LOG_PROBS),), log_probs)
CHECKS: tuple[Check, ...] = (
    Check.of("K9 finite", (), finite),
    Check.of("K9 half precision", ("|".join(LOG_PROBS),), half_precision),
)
