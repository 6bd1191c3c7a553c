"""K10 and K11: were the tokens drawn from the policy the trainer believes, and are its log-probs theirs?

The order of the questions gives each bug one name: do the two columns speak of the same tokens; does the gap follow the
padding; is the sampler truncated; is the stored sampler the true one; does one temperature explain the gap; and only
then: it is another proper policy, which stale weights, dropout and engine numerics look like alike.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit import edges, entropies, geometry, hotspots, odd_rows, precision, proper, updated, updates
from mingce.audit.alignment import ENOUGH, Alignment, align, correlation, shifted
from mingce.audit.evidence import Bools, Evidence, Floats, once
from mingce.audit.finding import Check, Fault, Finding, Place, Severity, phrase
from mingce.audit.identities import SURE, Gap, explained, gap, surprise
from mingce.audit.updates import comparable, only, padding

QUIET, LOUD = 1e-3, 0.08  # mean |d| in nats: below the one nothing is said, above the other it is another policy
TAIL = 0.05  # so is it when this share of the ratios lies outside [0.9, 1.1]
MOST = 200_000  # tokens that a regression reads
CARRIERS = 30  # numbers that must carry the variance before a correlation says anything

OLD, DRAWN = "old_log_probs", "rollout_log_probs"

# ── what can be wrong ──────────────────────────────────────────────────────────────────────────────────────────────

SHIFTED = Fault.of("shifted-log-probs", "bug", (18,), "log π_old(a_t) and log q(a_t) are about the same token")
REORDERED = Fault.of("reordered-log-probs", "bug", (40,), "log π_old(a_t) and log q(a_t) are about the same token")
DRIFTED = Fault.of("drifting-log-probs", "bug", (12,), "log π_old(a_t) and log q(a_t) are about the same token")
UNRELATED = Fault.of(
    "unrelated-log-probs", "bug", (6, 18, 40),
    "log π_old(a_t) and log q(a_t) are about the same token", "PrimeIntellect-ai/prime-rl/pull/1525",
)  # fmt: skip
PADDED = Fault.of("gap-grows-with-padding", "suspicious", (13,), "log π_old(a_t) does not depend on padding")
TRUNCATED = Fault.of("truncated-sampling", "bug", (14,), "E[exp(log π_old − log q)] = 1")
NOT_SAMPLED_FROM = Fault.of("rollout-log-probs-raw", "bug", (2,), "E[exp(log π_old − log q)] = 1")
TEMPERATURE = Fault.of("trainer-temperature", "bug", (2,), "E[−log π_old] = E[H]")
OFF_POLICY = Fault.of(
    "surprise-is-not-entropy", "suspicious", (2, 14), "E[−log π_old] = E[H]", "OpenRLHF/OpenRLHF/pull/853"
)
ENTROPY_UNIT = Fault.of("entropy-unit", "suspicious", (2,), "E[−log π_old] = E[H]", "")
OTHER_POLICY = Fault.of(
    "other-policy", "suspicious", (5, 6, 41), "log π_old(a_t) ≈ log q(a_t)", "huggingface/trl/issues/5312"
)
NOISE = Fault.of("engine-noise", "note", (5,), "log π_old(a_t) ≈ log q(a_t)")
IDLE = Fault.of("idle-clip", "bug", (20,), "ρ_t = π(a_t) / q(a_t)")

# ── trainer against sampler ────────────────────────────────────────────────────────────────────────────────────────


def rollout(e: Evidence) -> Iterator[Finding]:
    """One verdict about old against rollout log-probs."""
    finding = _pair(e)
    if finding:
        yield finding


@once
def _pair(e: Evidence) -> Finding | None:
    """What the two columns' difference is, if it is anything."""
    use = comparable(e, "old_log_probs", "rollout_log_probs")
    if use.sum() < ENOUGH or geometry.retokenised(e) or updates.transformed(e) or e.blamed & {OLD, DRAWN}:
        return None
    old, drawn = only(e, "old_log_probs", use), only(e, "rollout_log_probs", use)
    if (apart := hotspots.gap_in_one_place(e, old, drawn, use)) is not None:
        e.gap_explained = True
        return apart
    lie = align(old, drawn, use)
    if lie.kind != "aligned":
        e.blamed |= {"old_log_probs", "rollout_log_probs"}
        return _out_of_line(e, lie, use)
    seen = gap(old, drawn, use)
    if seen.size < QUIET:
        return None
    padded = padding(e, np.abs(old - drawn), use)
    if padded and geometry.positions_wrong(e):
        e.gap_explained = True  # the positions have said so
        return None
    if padded:
        return Finding(PADDED, "old_log_probs", padded)
    return _leaning(e, use, seen) or _temperature(e, use, seen) or _other_policy(e, use, seen)


def _leaning(e: Evidence, use: Bools, seen: Gap) -> Finding | None:
    """One of the two columns holds no probabilities of the drawn tokens: which, where that can be told."""
    old, drawn = only(e, OLD, use), only(e, DRAWN, use)
    ratio, z = 1 + seen.ratio.mean, seen.ratio.z
    values, places = {"ratio": ratio, "z": z, "reverse": seen.reverse.mean}, _farthest(e, use)
    mine = proper.surprise_of(e, old, use, _has_entropy(e, use))
    if seen.truncated and correlation(old, drawn, use) > 0.8:
        if proper.cut_by_sampler(e, old - drawn, use, mine):
            return Finding(TRUNCATED, DRAWN, values, places)
        return Finding(proper.LEANING, OLD, proper.leaning(ratio, z), places)
    one_sided = seen.down < 0.25 * seen.up  # raw log q under a trainer that renormalises over the kept tokens
    line = _line(e, use) if seen.not_drawn_from else 0.0
    if not seen.not_drawn_from or not (one_sided or line > 0.3):
        return None
    if proper.raw_by_sampler(mine, seen.reverse.mean, line):
        return Finding(NOT_SAMPLED_FROM, DRAWN, values, places, classes=(2, 14) if one_sided else None)
    return Finding(proper.LEANING, OLD, proper.leaning(ratio, z), places)


def _out_of_line(e: Evidence, lie: Alignment, use: Bools) -> Finding:
    column, other = "old_log_probs", "rollout_log_probs"
    shift = lie.shift
    third = _third(e, use)
    if third is not None and correlation(e[other], third, use) < correlation(e[column], third, use) - 0.1:
        column, other, shift = other, column, -shift
    values = {"column": column, "other": other, "before": lie.correlation, "after": lie.repaired, "shift": -shift}
    share = float(lie.rows.sum() / max(use.any(axis=1).sum(), 1))
    places = _farthest(e, use & lie.rows[:, None], first=True)
    if lie.kind == "shift":
        return Finding(SHIFTED, column, values, places, share)
    if lie.kind == "drift":
        row, token = next(iter(lie.starts.items()))
        places = tuple(
            Place(one, at, float(e["rollout_log_probs"][one, at]), float(e["old_log_probs"][one, at]))
            for one, at in list(lie.starts.items())[:5]
        )
        values |= {"count": len(lie.starts), "row": row, "token": token}
        return Finding(DRIFTED, "rollout_log_probs", values, places, share)
    if lie.kind == "unrelated":
        return Finding(UNRELATED, column, values, places, share)
    if lie.kind == "rows":
        pairs = ", ".join(f"{to}←{start}" for to, _, start in lie.moves[:4])
        values |= phrase("what", "audit.rows_exchanged", pairs=pairs)
        return Finding(REORDERED, column, values, places, share, classes=(37, 40))
    if lie.kind == "layout":
        return Finding(REORDERED, column, values | phrase("what", "audit.other_layout"), places, share)
    pieces = ", ".join(f"[{at}:{end + 1}]←{start}" for at, end, start in lie.moves[:4])
    values |= phrase("what", "audit.blocks_moved", pieces=pieces)
    return Finding(REORDERED, column, values, places, share)


def _third(e: Evidence, use: Bools) -> Floats | None:
    """A column that knows the true order: the reference's log-probs, or minus the entropy."""
    for name, sign in (("ref_log_probs", 1.0), ("entropy", -1.0)):
        if name in e.dump.columns:
            seen = use & (np.abs(e[name]) < 1000)
            if e[name][seen].any():
                return sign * only(e, name, seen)
    return None


def _temperature(e: Evidence, use: Bools, seen: Gap) -> Finding | None:
    """One temperature turns the trainer's policy into the sampler's: d is a line in log p (and in H)."""
    r2 = _line(e, use) if seen.size > 0.02 else 0.0
    if r2 < 0.5:
        return None
    size = np.abs(only(e, OLD, use) - only(e, DRAWN, use))
    if _line(e, use & (size <= np.quantile(size[use], 0.95))) < 0.3:
        return None  # a few tokens alone make the line
    values = {"r2": r2, "surprise_zh": "", "surprise": ""}
    if not _has_entropy(e, use):
        return Finding(TEMPERATURE, "old_log_probs", values, _farthest(e, use), severity="suspicious")
    off = surprise(only(e, "old_log_probs", use), only(e, "entropy", use), use)
    if abs(off.z) <= SURE:
        return None
    values |= phrase("surprise", "audit.surprise", mean=off.mean, z=off.z)
    return Finding(TEMPERATURE, "old_log_probs", values, _farthest(e, use))


def _line(e: Evidence, use: Bools) -> float:
    """How much of d is a line in log p, p and H: nearly all under one temperature, nothing between two policies."""
    few = _some(use)
    p = e["old_log_probs"][few]
    third = e["entropy"][few] if _has_entropy(e, use) else p * p
    return explained(p - e["rollout_log_probs"][few], p, np.exp(p), third)


def _other_policy(e: Evidence, use: Bools, seen: Gap) -> Finding | None:
    values = {
        "size": seen.size, "p95": seen.p95, "largest": seen.largest, "outside": seen.outside,
        "ratio": 1 + seen.ratio.mean,
    }  # fmt: skip
    if seen.size < LOUD and seen.outside < TAIL:
        return Finding(NOISE, "rollout_log_probs", values, _farthest(e, use))
    if geometry.chosen_pads(e).any(axis=1).mean() > 0.5:
        e.gap_explained = True  # the mask does not say which tokens were drawn
        return None
    if updates.first_gap(e) > 0.5 * seen.size:
        e.gap_explained = True  # the trainer does not even agree with itself, and K10 first ratio says so
        return None
    classes = (6,) if _behind(e, use) else OTHER_POLICY.classes
    if updates.ratio_idle(e) and "importance_weights" not in e.dump.columns:
        first = updates.first_rows(e)
        if first is None or not first[use.any(axis=1)].all():
            return Finding(IDLE, "old_log_probs", values, _farthest(e, use))
        classes = tuple(sorted({*classes, 20}))
    severity: Severity | None = "note" if "importance_weights" in e.dump.columns else None  # corrected for, so meant
    return Finding(OTHER_POLICY, "rollout_log_probs", values, _farthest(e, use), severity=severity, classes=classes)


def _behind(e: Evidence, use: Bools) -> bool:
    """Whether the tokens say that an older version of the weights drew them."""
    version = e.settings.learner_version
    if version is None or "weight_versions" not in e.dump.columns:
        return False
    return bool((e["weight_versions"][use] < float(version)).mean() > 0.5)


# ── entropy ────────────────────────────────────────────────────────────────────────────────────────────────────────


def entropy(e: Evidence) -> Iterator[Finding]:
    """I3, where nothing has yet explained why sampler and trainer differ."""
    use = comparable(e, "old_log_probs") & (np.abs(e["entropy"]) < 1000) & ~edges.behind_stop(e)
    if "rollout_log_probs" in e.dump.columns:
        use &= comparable(e, "rollout_log_probs")
        verdict = _pair(e)
        if (verdict is not None and verdict.fault is not NOISE) or e.gap_explained:
            return
    if "old_log_probs" in e.blamed:
        return
    if use.sum() >= ENOUGH and (proxy := entropies.proxy(e, use)) is not None:
        yield proxy
        return
    if use.sum() < ENOUGH or not _has_entropy(e, use) or geometry.retokenised(e):
        return
    old, h = only(e, "old_log_probs", use), only(e, "entropy", use)
    if (wrong := entropies.impossible(e, old, h, use)) is not None:
        yield wrong
        return
    here = correlation(-old, h, use)
    for shift in (-1, 1):
        moved, both = shifted(h, use, shift)
        there = correlation(-old, moved, both)
        apart = (np.arctanh(min(there, 0.999)) - np.arctanh(min(max(here, -0.999), 0.999))) * np.sqrt(both.sum() / 2)
        many = min(_carriers(old[both]), _carriers(moved[both])) >= CARRIERS
        if many and there > 0.3 and there > here + 0.2 and apart > 2 * SURE:
            e.blamed.add("old_log_probs")
            values = {"column": "old_log_probs", "other": "entropy", "before": here, "after": there, "shift": -shift}
            yield Finding(SHIFTED, "old_log_probs", values)
            return
    off = surprise(old, h, use)
    level = float(h[use].mean())
    if abs(off.z) <= SURE or abs(off.mean) <= max(0.02, 0.03 * level):
        if e.has(DRAWN) and (wrong := entropies.out_of_line(e, old, h, use)) is not None:
            yield wrong
        return
    if not _cut(e) and (base := _entropy_base(old, h, use)):
        yield Finding(ENTROPY_UNIT, "entropy", {"base": base, "level": level, "mean": level + off.mean})
        return
    values = {"mean": off.mean, "z": off.z, "column": "old_log_probs", "other": "entropy", "before": here}
    if e.has(DRAWN) and (wrong := entropies.out_of_line(e, old, h, use)) is not None:
        yield wrong  # two columns of log-probs are about the same tokens: it is the entropy that is not
        return
    if off.mean > 0 and (spot := hotspots.surprise_in_one_place(e, old, h, use)) is not None:
        yield spot
        return
    if off.mean > max(1.0, 0.5 * level) and here < 0.1:
        e.blamed.add("old_log_probs")
        yield Finding(UNRELATED, "old_log_probs", values, severity="suspicious")
        return
    if off.mean <= 0:
        side, classes = "audit.sharper", _sharper(e)
    elif e.has("rollout_log_probs"):
        side, classes = "audit.flatter", (2,)
    else:  # nothing to hold the log-probs against: they may belong to other tokens
        side, classes = "audit.flatter_or_shifted", (2, 18)
    values |= phrase("side", side)
    yield Finding(OFF_POLICY, "old_log_probs", values, classes=classes)


def _entropy_base(old: Floats, h: Floats, use: Bools) -> str:
    """The base in which the entropy fits the log-probs, at high and at low entropies alike; "" where none does.

    Another temperature bends the relation: it is not one factor for certain and for uncertain tokens.
    """
    cut = np.quantile(h[use], [1 / 3, 2 / 3])
    parts = [use & (h <= cut[0]), use & (h > cut[0]) & (h <= cut[1]), use & (h > cut[1])]
    for base, unit in (("2", np.log(2.0)), ("10", np.log(10.0))):
        whole = surprise(old, unit * h, use)
        near = abs(whole.mean) < 0.03 * unit * float(h[use].mean()) and abs(whole.z) < SURE - 1
        if near and all(abs(surprise(old, unit * h, part).z) < SURE - 1 for part in parts):
            return base
    return ""


def _carriers(x: Floats) -> float:
    """How many numbers carry the variance: a nearly certain policy has thousands of tokens and two surprises."""
    squares = (x - x.mean()) ** 2
    return float(squares.sum() ** 2 / max((squares**2).sum(), 1e-300))


def _sharper(e: Evidence) -> tuple[int, ...]:
    """Which of temperature and truncation the settings leave possible."""
    temperature, top_p, cut = e.settings.temperature, e.settings.top_p, _cut(e)
    if temperature is not None and float(temperature) == 1 and cut:
        return (14,)
    if temperature is not None and float(temperature) != 1 and top_p is not None and not cut:
        return (2,)
    return (2, 14)


def _cut(e: Evidence) -> bool:
    """Whether the settings say that unlikely tokens are never drawn."""
    top_p, top_k, min_p = e.settings.top_p, e.settings.top_k, e.settings.min_p
    return bool((top_p is not None and float(top_p) < 1) or (top_k is not None and int(top_k) > 0) or min_p)


def _has_entropy(e: Evidence, use: Bools) -> bool:
    """Whether there is an entropy of a distribution: not all 0, and not the proxy −log p."""
    if "entropy" not in e.dump.columns:
        return False
    h = e["entropy"][use]
    finite = bool(np.isfinite(h).all())
    return finite and bool(h.any()) and not np.allclose(h, -e["old_log_probs"][use], atol=1e-2)


def _some(use: Bools) -> Bools:
    """At most MOST of the slots in use, evenly spread."""
    every = int(use.sum()) // MOST + 1
    some: Bools = use & (np.cumsum(use.ravel()).reshape(use.shape) % every == 0)
    return some


def _farthest(e: Evidence, use: Bools, first: bool = False) -> tuple[Place, ...]:
    """A few tokens at which old and rollout log-probs are far apart: the first such, or the farthest of all."""
    old, drawn = only(e, "old_log_probs", use), only(e, "rollout_log_probs", use)
    size = np.abs(old - drawn)
    if first:
        return e.places(size > 0.3, drawn, old)
    top = np.argpartition(size.ravel(), -5)[-5:] if size.size > 5 else np.arange(size.size)
    top = top[np.argsort(-size.ravel()[top])]
    width = size.shape[1]
    return tuple(
        Place(int(at // width), int(at % width), float(drawn.ravel()[at]), float(old.ravel()[at])) for at in top
    )


CHECKS: tuple[Check, ...] = (
    *odd_rows.CHECKS,
    Check.of("K10 rollout", ("old_log_probs", "rollout_log_probs"), rollout),
    Check.of("K11 entropy", ("old_log_probs", "entropy"), entropy),
    *updates.CHECKS,
    *updated.CHECKS,
    precision.VALUES,  # last: columns out of line bring fill values inside the mask
)  # fmt: skip
