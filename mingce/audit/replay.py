"""K14: score the dump's tokens again with the model that is said to have scored them.

    replay(dump, "path/of/the/policy", reference="path/of/the/start", critic="path/of/our/critic")

The model must be the one of the dump's own step. A dump of a step after an update needs that step's checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mingce.audit.alignment import shifted
from mingce.audit.evidence import Bools, Evidence, Floats
from mingce.audit.finding import Fault, Finding, Place, Severity, phrase
from mingce.audit.rescoring import Rescored, Rescorer, rescored_values
from mingce.base.errors import ColumnError
from mingce.record.dump import Dump

FINE = 1e-3  # nats, mean: two float32 passes of one model are nearer than this
BETTER = 0.3  # another way of scoring must leave this share of the gap or less
LEAST_TOKENS = 16
GRID = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.5)

AGREES = Fault.of("replay-agrees", "note", (), "column = model(prompt, response)")
PRECISION = Fault.of(
    "replay-precision", "note", (5, 21), "column = model(prompt, response)", "OpenRLHF/OpenRLHF/pull/634"
)
NO_PRECISION = Fault.of("replay-no-16-bit-pass", "note", (), "column = model(prompt, response)")
TEMPERATURE = Fault.of("replay-temperature", "bug", (2,), "log π = log_softmax(logits / τ) with the τ of sampling")
KNOWN_TEMPERATURE = Fault.of(
    "replay-temperature-found", "convention", (2,), "log π = log_softmax(logits / τ)", "huggingface/trl/issues/3169"
)
SHIFT = Fault.of("replay-shift", "bug", (18,), "log π_t = log_softmax(logits_{t−1})[y_t]")
LEFT_PAD = Fault.of("replay-left-pad", "bug", (13,), "log π(y | x) does not depend on the padding before x")
DROPOUT = Fault.of("replay-two-passes", "bug", (41,), "log π_old = log π_new before the first update")
ROLLOUT = Fault.of("replay-rollout", "suspicious", (5, 6), "log π_rollout = log π_old", "huggingface/trl/issues/5312")
DIFFERS = Fault.of(
    "replay-differs", "suspicious", (5, 6, 41), "column = model(prompt, response)", "huggingface/trl/pull/3234"
)
REFERENCE = Fault.of(
    "replay-reference-is-policy", "bug", (22,), "log π_ref = reference(prompt, response)", "huggingface/trl/issues/3194"
)
VALUES_SHIFT = Fault.of("replay-values-shift", "bug", (19,), "V_t is read at the token before y_t")
VALUES_DIFFER = Fault.of("replay-values-differ", "suspicious", (19,), "V_t = critic(prompt, y_<t)")


@dataclass(frozen=True)
class Verdict:
    """How a column compares with the model."""

    finding: Finding
    gap: float  # mean, to the right way of scoring

    @property
    def fine(self) -> bool:
        return self.finding.fault in (AGREES, PRECISION, KNOWN_TEMPERATURE)


def replay(
    dump: Dump,
    model: str | Path,
    *,
    reference: str | Path | None = None,
    critic: str | Path | None = None,
    rows: int = 32,
    dtype: str = "auto",
    device: str = "auto",
    watch: Callable[[str], None] = lambda words: None,
) -> list[Finding]:
    """What the model says of the dump's log-probs and values, on `rows` of its rows."""
    for name in ("prompt_ids", "token_ids"):
        if not dump.has(name):
            raise ColumnError(f"the dump has no {name}, so nothing can be scored again; dump it too.", column=name)
    e = Evidence(dump)
    chosen = Rescored.of(e, rows)
    watch(str(model))
    policy = Rescorer(model, chosen, e.settings, dtype, device)
    findings = list(_policy(e, chosen, policy))
    if reference is not None and e.has("ref_log_probs"):
        watch(str(reference))
        findings += _reference(e, chosen, policy, Rescorer(reference, chosen, e.settings, dtype, device))
    if policy.skipped:
        findings.append(Finding(NO_PRECISION, "old_log_probs", {}))
    if critic is not None and e.has("values"):
        watch(str(critic))
        findings += _values(e, chosen, rescored_values(critic, chosen, dtype, device))
    return findings


def _policy(e: Evidence, chosen: Rescored, policy: Rescorer) -> Iterator[Finding]:
    old = _judged(e, chosen, policy, "old_log_probs") if e.has("old_log_probs") else None
    if old and (passes := _two_passes(e, chosen, policy, old)):
        yield passes
    elif old:
        yield old.finding
    truncated = any(one not in (None, 0, -1, 1) for one in (e.settings.top_p, e.settings.top_k, e.settings.min_p))
    if not e.has("rollout_log_probs") or truncated:
        return
    rollout = _judged(e, chosen, policy, "rollout_log_probs")
    if rollout and rollout.finding.fault is DIFFERS and old and old.fine:
        yield Finding(ROLLOUT, "rollout_log_probs", {"gap": rollout.gap}, rollout.finding.places)
    elif rollout and not (old and old.finding.fault is rollout.finding.fault):
        yield rollout.finding


def _judged(e: Evidence, chosen: Rescored, scorer: Rescorer, column: str) -> Verdict | None:
    """The way of scoring that gives this column."""
    found, mask = chosen.cut(e[column]), chosen.mask & np.isfinite(chosen.cut(e[column]))
    if int(mask.sum()) < LEAST_TOKENS:
        return None
    right, wanted = scorer.right(), scorer.temperature
    gap = _gap(found, right, mask)
    room = FINE + (2.0**-8 * float(np.abs(found[mask]).mean()) if e.grid(column) else 0.0)
    values = {"column": column, "gap": gap, "tokens": int(mask.sum())}

    def verdict(fault: Fault, more: Mapping[str, object] | None = None, severity: Severity | None = None) -> Verdict:
        off = mask & (np.abs(found - right) > room)
        share = float(off.any(axis=1).sum() / max(mask.any(axis=1).sum(), 1))
        places = _places(chosen, off, right, found)
        return Verdict(Finding(fault, column, {**values, **(more or {})}, places, share, severity), gap)

    if gap <= room:
        return verdict(AGREES)
    few, few_mask = chosen.few(found), chosen.few(mask)
    few_gap = _gap(few, chosen.few(right), few_mask)

    def explains(again: Floats, mask: Bools = few_mask) -> bool:
        left = _gap(few, again, mask)
        return left <= max(room, 2 * noise) and left < BETTER * few_gap

    noise = scorer.noise()
    for shift in (-1, 1, -2, 2):
        moved, both = shifted(chosen.few(right), few_mask, shift)
        if int(both.sum()) >= LEAST_TOKENS and explains(moved, both):
            return verdict(SHIFT, phrase("way", "audit.slot_holds", shift=shift))
    if wanted != 1 and explains(scorer.at(1.0)):
        level: Severity | None = "convention" if column == "ref_log_probs" else None
        return verdict(TEMPERATURE, {"found": 1.0, "wanted": wanted}, level)
    ways: tuple[tuple[Fault, Callable[[], Floats | None], str], ...] = (
        (LEFT_PAD, scorer.without_mask, "audit.pads_attended"),
        (LEFT_PAD, scorer.without_positions, "audit.positions_from_pads"),
        (SHIFT, scorer.unshifted, "audit.own_position"),
    )
    for fault, again, key in ways:
        other = again()
        if other is not None and explains(other):
            return verdict(fault, phrase("way", key))
    if gap <= 3 * noise:
        return verdict(PRECISION, {"noise": noise})
    for temperature in GRID:
        if explains(scorer.at(temperature)):
            known = e.settings.temperature is not None
            return verdict(TEMPERATURE if known else KNOWN_TEMPERATURE, {"found": temperature, "wanted": wanted})
    return verdict(DIFFERS)


def _two_passes(e: Evidence, chosen: Rescored, policy: Rescorer, old: Verdict) -> Finding | None:
    """Old and new log-probs that differ from the model and from each other, each by noise of its own."""
    if old.finding.fault is not DIFFERS or not e.has("new_log_probs"):
        return None
    right, one, two = policy.right(), chosen.cut(e["old_log_probs"]), chosen.cut(e["new_log_probs"])
    mask = chosen.mask & np.isfinite(one) & np.isfinite(two)
    first, second = (one - right)[mask], (two - right)[mask]
    between, spread = float(np.abs(first - second).mean()), float(np.abs(second).mean())
    if min(between, spread) < 0.5 * old.gap or not first.std() or not second.std():
        return None
    if abs(float(np.corrcoef(first, second)[0, 1])) > max(0.3, 5 / np.sqrt(len(first))):
        return None
    return Finding(DROPOUT, "old_log_probs", {"between": between, "gap": old.gap}, old.finding.places)


def _reference(e: Evidence, chosen: Rescored, policy: Rescorer, reference: Rescorer) -> Iterator[Finding]:
    verdict = _judged(e, chosen, reference, "ref_log_probs")
    if verdict is None:
        return
    found = chosen.cut(e["ref_log_probs"])
    mask = chosen.mask & np.isfinite(found)
    if not verdict.fine and _gap(found, policy.right(), mask) < BETTER * verdict.gap:
        yield Finding(REFERENCE, "ref_log_probs", {}, verdict.finding.places)
    else:
        yield verdict.finding


def _values(e: Evidence, chosen: Rescored, right: Floats) -> Iterator[Finding]:
    found = chosen.cut(e["values"])
    mask = chosen.mask & np.isfinite(found)
    if int(mask.sum()) < LEAST_TOKENS:
        return
    gap, scale = _gap(found, right, mask), float(np.abs(right[mask]).mean()) + 1e-6
    values = {"column": "values", "gap": gap, "tokens": int(mask.sum())}
    room = (2.0**-7 if e.grid("values") else FINE) * scale + 1e-5
    if gap <= room:
        yield Finding(AGREES, "values", values)
        return
    off = mask & (np.abs(found - right) > room)
    places = _places(chosen, off, right, found)
    for shift in (-1, 1):
        moved, both = shifted(right, mask, shift)
        if int(both.sum()) >= LEAST_TOKENS and _gap(found, moved, both) < min(BETTER * gap, 20 * room):
            yield Finding(VALUES_SHIFT, "values", values | {"slot": f"t{shift:+d}"}, places)
            return
    yield Finding(VALUES_DIFFER, "values", values, places)


def _places(chosen: Rescored, off: Bools, expected: Floats, found: Floats) -> tuple[Place, ...]:
    """The first tokens where `off`, in the dump's rows."""
    return tuple(
        Place(int(chosen.rows[row]), int(t), float(expected[row, t]), float(found[row, t]))
        for row, t in np.argwhere(off)[:3]
    )


def _gap(found: Floats, again: Floats, mask: Bools) -> float:
    return float(np.abs(found - again)[mask].mean()) if mask.any() else np.inf
