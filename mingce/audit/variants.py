"""Recursions that nobody means, one step at a time: advantages that follow from rewards and values another way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, either, finite, last_slot, rows_with, shift
from mingce.audit.finding import Fault, Finding, phrase
from mingce.audit.recursion import Discount, following
from mingce.audit.steps_of_credit import Step
from mingce.record.dump import RAW

OTHER = Fault.of("advantage-recursion", "bug", (33,), "A_t = r_t + γV(s_{t+1}) − V(s_t) + γλA_{t+1}")
ONE = 1e-3  # how near 1 a coefficient is 1


@dataclass(frozen=True)
class Law:
    """A_t = fixed + Σ coefficient·column: what is fixed, and the columns whose coefficients are free.

    The last two are V' and A', with γ and γλ for coefficients.
    """

    key: str
    fixed: Floats
    free: tuple[Floats, ...]
    target: Floats
    name: str = ""


def other_recursion(e: Evidence, step: Step, found: Discount) -> Finding | None:
    """The law that gives every step, named; None where none does, or rounding would let any."""
    if found.fits and 0 < found.gamma < found.decay <= 1 + 1e-3:
        said = {"gamma": found.gamma, "decay": found.decay}
        return _finding(e, step, "audit.trace_without_gamma", step.mask, said)
    if e.coarse:
        return None
    for law in _laws(e, step):
        solved = _solved(law, step, step.pairs)
        if solved is None or (law.name and abs(solved[0] - _usual(law.key)) < ONE):
            continue
        told: dict[str, object] = {"factor": float(solved[0]) if len(law.free) > 2 else 1.0, "name": law.name}
        return _finding(e, step, law.key, step.pairs, told)
    return None


def _usual(key: str) -> float:
    """The coefficient at which the law is the right one."""
    return {"audit.rewards_times": 1.0, "audit.value_times": -1.0}.get(key, 0.0)


def _finding(e: Evidence, step: Step, key: str, where: Bools, said: Mapping[str, object]) -> Finding:
    c, gamma, lam = step.columns, either(e.settings.gamma, 1.0), either(e.settings.lam, 0.95)
    expected = c.rewards - c.values + gamma * following(c.values, step.mask)
    expected = expected + gamma * lam * following(c.advantages, step.mask)
    places = e.places(where & step.off(expected), expected, c.advantages)
    return Finding(OTHER, "advantages", phrase("what", key, **said), places)


def _laws(e: Evidence, step: Step) -> Iterator[Law]:
    c, mask = step.columns, step.mask
    r, v, a = c.rewards, c.values, c.advantages
    after, later = following(v, mask), following(a, mask)
    if e.has("new_values"):
        new = np.where(mask, finite(e["new_values"]), 0.0)
        yield Law("audit.next_value_updated", r - v, (following(new, mask), later), a)
        yield Law("audit.own_value_updated", r - new, (after, later), a)
        both = a if e.has(RAW) else a + v - new
        yield Law("audit.values_updated", r - new, (following(new, mask), following(both, mask)), both)
    for by, key in ((1, "audit.rewards_early"), (-1, "audit.rewards_late")):
        yield Law(key, np.where(mask, shift(r, by), 0.0) - v, (after, later), a)
    if e.has("scores"):
        yield Law("audit.scores_for_rewards", np.where(mask, finite(e["scores"]), 0.0) - v, (after, later), a)
    yield Law("audit.rewards_times", -v, (r, after, later), a, "r")
    yield Law("audit.value_times", r, (v, after, later), a, "V")
    yield Law("audit.each_token_adds", r - v, (np.ones_like(r), after, later), a, "1")
    for name, column in _extras(e):
        yield Law("audit.adds_column", r - v, (np.where(mask, column, 0.0), after, later), a, name)


def _extras(e: Evidence) -> Iterator[tuple[str, Floats]]:
    for name in ("entropy", "old_log_probs", "kl", "importance_weights"):
        if e.has(name):
            yield name, finite(e[name])
    if e.has("old_log_probs", "ref_log_probs"):
        yield "log π_old − log π_ref", finite(e["old_log_probs"]) - finite(e["ref_log_probs"])


def _solved(law: Law, step: Step, where: Bools) -> Floats | None:
    """The coefficients, if they explain every step and γ and λ are such as a person may set."""
    at = np.flatnonzero(where)
    if len(at) < 16:
        return None
    at = at[:: max(1, len(at) // 20000)]
    weight = 1 / np.maximum(step.room.flat[at], 1e-300)
    design = np.stack([column.flat[at] for column in law.free], axis=1) * weight[:, None]
    y = (law.target - law.fixed).flat[at] * weight
    solved = np.asarray(np.linalg.lstsq(design, y, rcond=None)[0], np.float64)
    left = y - design @ solved
    gamma, decay = float(solved[-2]), float(solved[-1])
    plausible = -0.02 <= gamma <= 1.02 and -0.02 <= decay <= max(gamma, 0.0) + 0.02
    fits = float(np.sqrt(np.mean(left**2))) <= 1 and float(np.abs(left).max()) <= 4
    return solved if plausible and fits else None


def last_skipped(e: Evidence, step: Step) -> Finding | None:
    """The last token of every row has no advantage, and the token before it no part of it."""
    c, mask = step.columns, step.mask
    last = last_slot(mask)
    rows = np.flatnonzero(mask.sum(axis=1) >= 3)
    if len(rows) < 4:
        return None
    ends = last[rows]
    empty = np.abs(c.advantages[rows, ends]) <= step.room[rows, ends]
    lost = np.abs((c.rewards - c.values)[rows, ends]) > 4 * step.room[rows, ends]
    inner = step.pairs & (np.arange(mask.shape[1])[None, :] < last[:, None] - 1)
    told = lost.sum() >= 4 and empty[lost].mean() > 0.95
    if not told or inner.sum() < 16:
        return None
    found = step.like(inner).fit(unseen=either(e.settings.gamma, 1.0))
    if not (found.fits and found.plausible):
        return None
    at_last = np.zeros_like(mask)
    at_last[rows, ends] = True
    expected = c.rewards - c.values
    places = e.places(at_last & step.off(expected), expected, c.advantages)
    return Finding(OTHER, "advantages", phrase("what", "audit.last_skipped"), places)


# ── a few rows ─────────────────────────────────────────────────────────────────────────────────────────────────────


def of_rows(e: Evidence, step: Step, found: Discount, rows: Bools) -> str:
    """What the steps of few rows follow instead, by the γ and λ of all others: the key of the sentence."""
    c, mask = step.columns, step.mask
    where = step.pairs & rows[:, None]
    values, rewards = c.values, c.rewards
    tries: list[tuple[str, Floats, Floats, Floats]] = []
    for by in (1, -1):
        moved, inner = shift(values, by), np.where(mask, shift(rewards, by), 0.0)
        tries.append(("audit.row_values_shifted", rewards, moved, c.advantages))
        tries.append(("audit.row_values_shifted", rewards, moved, c.advantages + values - moved))
        tries.append(("audit.row_rewards_shifted", inner, values, c.advantages))
    if e.has("scores"):
        tries.append(("audit.row_without_kl", np.where(mask, finite(e["scores"]), 0.0), values, c.advantages))
    if e.has("new_values"):
        new = np.where(mask, finite(e["new_values"]), 0.0)
        tries.append(("audit.row_values_updated", rewards, new, c.advantages + values - new))
    tries.append(("audit.row_without_values", rewards, np.zeros_like(values), c.advantages))
    tries.append(("audit.row_without_values", rewards, np.zeros_like(values), c.advantages + values))
    tries.append(("audit.row_sign", rewards, values, -c.advantages))
    for key, r, v, a in tries:
        expected = r - v + found.gamma * following(v, mask) + found.decay * following(a, mask)
        fits = np.abs(expected - a) <= 2 * step.room
        if where.any() and fits[where].mean() > 0.85 and rows_with(where & fits)[rows].all():
            return key
    return "audit.row_unknown"
