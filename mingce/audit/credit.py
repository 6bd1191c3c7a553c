"""K5 and K6: do advantages and returns follow from rewards and values?

One step of the recursion is judged at a time (`recursion.py`), so that a fault shows where it happens and not on every
token before it. Steps between neighbouring tokens give γ and λ away;
with them the steps over a hole, at the end of a short row and at the end of a full one are judged apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit import factors, misfits
from mingce.audit.evidence import Bools, Evidence, Floats, either, finite, last_slot, rows_with, share_of_rows, shift
from mingce.audit.finding import Check, Fault, Finding, NotJudged, phrase
from mingce.audit.misfits import RETURNS, VALUES_SHIFTED
from mingce.audit.recursion import (
    ENDS,
    HOLES,
    Columns,
    Discount,
    following,
    neighbours,
    of_next_row,
    one_step,
    round_discount,
)
from mingce.audit.steps_of_credit import SURE, Step
from mingce.record.dump import LOSS, RAW, unknown_estimator
from mingce.specs import ESTIMATORS
from mingce.specs.comparisons import BASELINE_OF_PROMPT, BASELINE_OF_TOKEN, SUMS_OF_REWARDS, WITHIN_PROMPT

SINGLE = 1e-5  # of the row's largest number: what sums over a long row lose in single precision

# ── what can be wrong ──────────────────────────────────────────────────────────────────────────────────────────────

REWARD_MINUS_VALUE = Fault.of(
    "advantage-is-reward-minus-value", "bug", (33,), "A_t = δ_t + γλA_{t+1},  δ_t = r_t + γV(s_{t+1}) − V(s_t)"
)
VALUES_OTHER_MASK = Fault.of(
    "values-masked-by-another-row", "bug", (19, 37),
    "V(s_t) kept where m_t = 1, of the same row", "volcengine/verl/pull/1440",
)  # fmt: skip
THROUGH_HOLES = Fault.of(
    "recursion-through-tool-tokens", "bug", (3,),
    "A_t = δ_t + γλA_{t'} with t' the next chosen token", "verl-project/verl/pull/2337",
)  # fmt: skip
HOLE_CUTS = Fault.of(
    "hole-cuts-credit", "bug", (3,), "A_t = δ_t + γλA_{t'} with t' the next chosen token", "verl-project/verl/pull/6376"
)
PAD_BOOTSTRAP = Fault.of(
    "pad-value-bootstraps", "bug", (16,), "A_e = r_e − V_e at the last token of a response that ended"
)
TRUNCATED_TERMINAL = Fault.of(
    "truncated-as-terminal", "note", (34,), "A_e = r_e − V_e, instead of r_e + γV(s_{e+1}) − V_e"
)
TRUNCATED_BOOTSTRAP = Fault.of("truncated-bootstrapped", "convention", (34,), "A_e = r_e + γV(s_{e+1}) − V_e", "")
ACROSS_ROWS = Fault.of(
    "recursion-across-rows", "bug", (16, 33), "A_e = r_e − V_e at the last token of a response that ended"
)
LAST_STEP = Fault.of(
    "last-step-unexplained", "bug", (16, 19), "A_e = r_e − V_e at the last token of a response that ended"
)
FINISHED = Fault.of(
    "finished-rows-bootstrapped", "bug", (16, 34), "A_e = r_e − V_e at the last token of a response that ended"
)
OTHER_SUMS = Fault.of("returns-are-no-sums", "bug", (33,), "R_t = r_t + γR_{t+1}", "")
OTHER_SETTINGS = Fault.of("gamma-lambda-differ", "suspicious", (33,), "A_t = δ_t + γλA_{t+1}", "")

# ── K5 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def raw_advantages(e: Evidence) -> Floats:
    """The advantages before whitening: stored, or returns − values, or the returns where there is no critic."""
    if e.has(RAW):
        return e[RAW]
    return e["returns"] - e["values"] if e.has("values") else e["returns"]


def raw_error(e: Evidence) -> Floats:
    """[B, T] how far rounding may have moved them."""
    if e.has(RAW):
        return e.error(RAW)
    return e.error("returns") + e.error("values") if e.has("values") else e.error("returns")


def step_of(e: Evidence) -> Step:
    """The columns of the recursion, the slots it runs over, and how far rounding may move a step of it."""
    mask = _reach(e)
    values = finite(e["values"]) if e.has("values") else np.zeros(e.mask.shape)
    c = Columns(finite(e["rewards"]), values, finite(raw_advantages(e)))
    error = raw_error(e)
    room = e.error("rewards") + error + following(error, mask)
    if e.has(RAW, "values"):  # elsewhere the values are in the raw advantages' error already
        room = room + e.error("values") + following(e.error("values"), mask)
    return Step(c, mask, neighbours(mask), room + SINGLE * e.scale(c.rewards, c.values, c.advantages))


def no_recursion(e: Evidence) -> bool:
    """Whether the settings name an estimator whose advantages are no sums over what comes later."""
    spec = ESTIMATORS.get(e.settings.estimator or "")
    return unknown_estimator(e.dump) is not None or (spec is not None and spec.kind in ("window", "turns", "share"))


def recursion(e: Evidence) -> Iterator[Finding]:
    """Do the advantages follow from rewards and values?"""
    if no_recursion(e):
        raise NotJudged
    step = step_of(e)
    c, mask, pairs = step.columns, step.mask, step.pairs
    if pairs.sum() < 8:  # γ and λ cannot be seen; the last tokens do not ask for them
        yield from _at_the_end(e, step, Discount(1.0, 1.0, 0.0))
        return
    swapped = _values_masked_elsewhere(e)
    if swapped is not None:
        yield swapped
        return
    found = step.fit(unseen=either(e.settings.gamma, 1.0))
    if np.isnan(found.residual):  # nothing but zeros
        raise NotJudged
    if not (found.fits and found.plausible):
        e.broken.add("returns")
        yield from misfits.explain(e, step, found)
        return
    found = round_discount(c, pairs, step.room, found)
    if abs(found.gamma) < 0.02 and abs(found.decay) < 0.02:
        gamma, lam = either(e.settings.gamma, 1.0), either(e.settings.lam, 0.95)
        expected = one_step(c, mask, gamma, gamma * lam, "skip", "end")
        yield Finding(REWARD_MINUS_VALUE, "advantages", {}, e.places(pairs, expected, c.advantages))
        return
    gamma, lam = either(e.settings.gamma, found.gamma), either(e.settings.lam, found.lam)
    wanted = step.fit((gamma, gamma * lam))
    if wanted.fits:
        found = Discount(wanted.gamma, wanted.decay, wanted.residual, found.errors)
    else:
        wrong = misfits.returns_of_others(e, step, found)
        if wrong is not None:
            e.broken.add("returns")
            yield wrong
            return
        values = {"gamma": found.gamma, "lam": found.lam, "wanted_gamma": gamma, "wanted_lam": lam}
        yield Finding(OTHER_SETTINGS, "advantages", values)
    yield from misfits.scattered(e, step, found)
    e.infer("gamma", found.gamma)
    e.infer("lam", found.lam)
    yield from _at_holes(e, step, found)
    yield from _at_the_end(e, step, found)


def _reach(e: Evidence) -> Bools:
    """[B, T] the slots the recursion runs over: the chosen tokens, and one more where the score sits after them."""
    if not e.settings.score_after_last and e.dump.source != "trl":
        return e.mask
    if e.has("value_mask"):
        return e.dump.columns["value_mask"].astype(bool)
    after = (np.arange(e.mask.shape[1]) == e.last[:, None] + 1) & (e.last[:, None] >= 0)
    return np.asarray(e.mask | after)


def _values_masked_elsewhere(e: Evidence) -> Finding | None:
    """Values that are exactly 0 from some chosen token to the end of the row, in several rows: no critic says that."""
    values = e["values"]
    zero = (values == 0) & e.mask
    nothing_after = np.cumsum((~zero & e.mask)[:, ::-1], axis=1)[:, ::-1] == 0
    tail = zero & nothing_after
    cut = tail.sum(axis=1) >= 2
    if zero.sum() > 0.9 * e.mask.sum() or cut.sum() < 3:
        return None
    expected = np.full_like(values, np.nan)
    return Finding(VALUES_OTHER_MASK, "values", {}, e.places(tail, expected, values), float(cut.mean()))


def _at_holes(e: Evidence, step: Step, found: Discount) -> Iterator[Finding]:
    c, mask, gamma, decay = step.columns, step.mask, found.gamma, found.decay
    before = mask.copy()
    before[:, :-1] &= ~mask[:, 1:]
    before[:, -1:] = False
    before &= np.arange(mask.shape[1]) < e.last[:, None]
    if not before.any():
        return
    expected = one_step(c, mask, gamma, decay, "skip", "end")
    unsure = [4 * np.abs(following(x, mask)) for x in (c.values, c.advantages)]
    room = step.room + unsure[0] * found.errors[0] + unsure[1] * found.errors[1]
    off = before & (np.abs(expected - c.advantages) > SURE * room)
    if not off.any():
        return
    share, places = share_of_rows(off, before), e.places(off, expected, c.advantages)
    gaps = {h: float(np.abs(one_step(c, mask, gamma, decay, h, "end") - c.advantages)[off].mean()) for h in HOLES}
    best = min(gaps, key=lambda h: gaps[h])
    if best == "cut":
        yield Finding(HOLE_CUTS, "advantages", {}, places, share)
        return
    how = {"zero": "V = r = 0", "raw": "V, r as they are", "skip": "?"}[best]
    yield Finding(THROUGH_HOLES, "advantages", {"how": how}, places, share)


def _at_the_end(e: Evidence, step: Step, found: Discount) -> Iterator[Finding]:
    """What follows the last chosen token: nothing where the response ended, perhaps a bootstrap where it was cut."""
    last = last_slot(step.mask)
    rows = np.flatnonzero(last >= 0)
    at_last = np.zeros_like(step.mask)
    at_last[rows, last[rows]] = True
    expected = one_step(step.columns, step.mask, found.gamma, found.decay, "skip", "end")
    cut = last_rows_cut(e)
    off = at_last & step.off(expected)
    ended, stopped = at_last & ~cut[:, None], at_last & cut[:, None]
    if (off & ended).any():
        moved = misfits.last_rewards_moved(e, step, off & ended, at_last)
        yield moved or _bootstrap(e, step, found, expected, off & ended, ended)
    elif stopped.any() and cut.any() and e.has("bootstrap_value|finish_reason|eos_id|stop_ids"):
        if (off & stopped).any():
            yield Finding(TRUNCATED_BOOTSTRAP, "advantages", {}, (), float(rows_with(off & stopped)[cut].mean()))
        else:
            yield Finding(TRUNCATED_TERMINAL, "advantages", {"count": int(cut.sum())}, (), float(cut.mean()))


def last_rows_cut(e: Evidence) -> Bools:
    """[B] rows that the length limit ended, as far as the dump tells; full rows where it does not."""
    last = last_slot(_reach(e))
    full: Bools = np.asarray(last == e.mask.shape[1] - 1)
    if e.has("finish_reason"):
        return np.array([reason == "length" for reason in e.row("finish_reason")])
    stops = e.stop_ids
    if stops and e.has("token_ids") and e.mask.shape[1]:
        ids = e.dump.columns["token_ids"][np.arange(len(last)), np.maximum(last, 0)]
        full = full & ~np.isin(ids, sorted(stops))
    return full


def _bootstrap(e: Evidence, step: Step, found: Discount, expected: Floats, off: Bools, ended: Bools) -> Finding:
    places, share = e.places(off, expected, step.columns.advantages), share_of_rows(off, ended)
    gaps = {}
    for end in ENDS[1:]:
        tried = one_step(step.columns, step.mask, found.gamma, found.decay, "skip", end)
        missed = step.off(tried)
        gaps[end] = float(max((off & missed).sum() / off.sum(), (ended & missed & ~off).sum() / ended.sum()))
    best = min(gaps, key=lambda end: gaps[end])
    if gaps[best] > 0.02:
        for by in (1, -1):
            leaked = of_next_row(step.columns, step.mask, found.gamma, found.decay, by)
            if not (ended & step.off(expected + leaked[:, None])).any():
                return Finding(ACROSS_ROWS, "advantages", {}, places, share)
        return _own_value(e, step, found, off) or Finding(LAST_STEP, "advantages", {}, places, share)
    how = {"value": "V[e+1]", "slot": "V[e+1], and A[e+1] = −V[e+1]", "pads": "V on all pads"}[best]
    same = tuple(end for end in gaps if gaps[end] <= 0.02)
    classes: tuple[int, ...] | None = (16, 19) if "slot" in same else None
    if best != "value" and (step.columns.rewards * ~e.attended * ~step.mask).any():
        classes = (15, 16, 28)  # rewards on the padding, of fill values
    return Finding(PAD_BOOTSTRAP, "advantages", {"how": how}, places, share, classes=classes)


def _own_value(e: Evidence, step: Step, found: Discount, off: Bools) -> Finding | None:
    """Whether the value that the last tokens are bootstrapped with is one that the dump has elsewhere."""
    c = step.columns
    gap, room = (c.advantages - c.rewards + c.values)[off], 2 * step.room[off]
    tries = [("audit.boot_own", c.values)]
    if e.has("new_values"):
        tries.append(("audit.boot_updated", finite(e["new_values"])))
    first = np.broadcast_to(c.values[np.arange(len(c.values)), step.mask.argmax(axis=1)][:, None], c.values.shape)
    tries.append(("audit.boot_first", first))
    for key, column in tries:
        if (np.abs(gap - found.gamma * column[off]) <= room).all():
            places = e.places(off, c.rewards - c.values, c.advantages)
            return Finding(FINISHED, "advantages", phrase("what", key), places, float(rows_with(off).mean()))
    return None


# ── returns without a critic ───────────────────────────────────────────────────────────────────────────────────────


def reward_to_go(e: Evidence) -> Iterator[Finding]:
    """Without values the returns are sums of the rewards still to come: R_t = r_t + γR_{t+1}."""
    if no_recursion(e) or e.has("values") or constant_rows(e, raw_advantages(e)):
        raise NotJudged
    step = step_of(e)
    c, pairs = step.columns, step.pairs
    here = pairs[:, :-1]
    later = c.advantages[:, 1:][here]
    power = float(later @ later)
    if len(later) < 8 or power == 0:
        raise NotJudged
    gamma = float((c.advantages - c.rewards)[:, :-1][here] @ later / power)
    gamma = round(gamma, 4)
    if not 0 < gamma <= 1.01 or (pairs & step.off(one_step(c, e.mask, gamma, gamma, "skip", "end"))).any():
        yield _no_sums(e, step)
        return
    wanted = either(e.settings.gamma, gamma)
    undiscounted = e.settings.estimator in (*BASELINE_OF_PROMPT, *BASELINE_OF_TOKEN)
    if wanted != gamma and not undiscounted:
        if (pairs & step.off(one_step(c, e.mask, wanted, wanted, "skip", "end"))).any():
            values = {"gamma": gamma, "lam": 1.0, "wanted_gamma": wanted, "wanted_lam": 1.0}
            yield Finding(OTHER_SETTINGS, "returns", values)
        else:
            gamma = wanted
    e.infer("gamma", gamma)
    yield from _at_holes(e, step, Discount(gamma, gamma, 0.0))


def _no_sums(e: Evidence, step: Step) -> Finding:
    """Returns that are not the sums of the rewards still to come: of rewards one slot off, discounted otherwise, …"""
    if e.settings.estimator not in SUMS_OF_REWARDS and e.dump.source != "verl":
        raise NotJudged  # another estimator's
    if e.has(LOSS) and e.has("returns") and np.array_equal(e[LOSS][e.mask], e["returns"][e.mask]):
        if e.settings.estimator in WITHIN_PROMPT:
            raise NotJudged  # said of the groups
        return factors.varies(e, finite(e[LOSS]), finite(e[LOSS]))
    c, settings = step.columns, e.settings
    gammas = dict.fromkeys((either(settings.gamma, 1.0), 1.0, 0.99, 0.95))
    tries: list[tuple[str, Floats]] = [("audit.sums_shifted_early", shift(c.rewards, 1) * e.mask)]
    tries.append(("audit.sums_shifted_late", shift(c.rewards, -1) * e.mask))
    if e.has("scores"):
        tries.append(("audit.sums_of_scores", np.where(e.mask, finite(e["scores"]), 0.0)))
    for key, rewards in tries:
        for gamma in gammas:
            moved = step.like(rewards=rewards)
            if not (step.pairs & moved.off(one_step(moved.columns, e.mask, gamma, gamma, "skip", "end"))).any():
                return Finding(OTHER_SUMS, "returns", phrase("what", key), classes=(33, 9))
    expected = one_step(c, e.mask, next(iter(gammas)), next(iter(gammas)), "skip", "end")
    places = e.places(step.pairs & step.off(expected), expected, c.advantages)
    return Finding(OTHER_SUMS, "returns", phrase("what", "audit.sums_unknown"), places, severity="suspicious")


def constant_rows(e: Evidence, column: Floats) -> bool:
    """Whether every row holds one number on all of its chosen tokens."""
    high = np.where(e.mask, column, -np.inf).max(axis=1, initial=-np.inf)
    low = np.where(e.mask, column, np.inf).min(axis=1, initial=np.inf)
    some = e.mask.any(axis=1)
    return bool(some.any()) and bool((high[some] - low[some] <= 1e-6 * (1 + np.abs(high[some]))).all())


# ── K6 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _values_of_states(e: Evidence) -> Floats:
    """Each token's value; with a turn as one action, that of its turn's first token."""
    values, spec = finite(e["values"]), ESTIMATORS.get(e.settings.estimator or "")
    if spec is None or spec.kind != "turns":
        return values
    turn = e["turn"] if e.has("turn") else np.zeros(e.mask.shape)
    whole = values.copy()
    for row, mask in enumerate(e.mask):
        slots = np.flatnonzero(mask)
        begins = np.flatnonzero(np.diff(turn[row, slots], prepend=np.nan) != 0)
        whole[row, slots] = np.repeat(values[row, slots[begins]], np.diff([*begins, len(slots)]))
    return whole


def returns(e: Evidence) -> Iterator[Finding]:
    """R = A + V with the stored raw advantages."""
    if unknown_estimator(e.dump):
        return
    raw, values, found = finite(e[RAW]), _values_of_states(e), finite(e["returns"])
    where = e.mask & np.isfinite(e["returns"]) & np.isfinite(e[RAW])
    room = SURE * (e.error(RAW) + e.error("values") + e.error("returns")) + SINGLE * e.scale(raw, values)
    off = where & (np.abs(raw + values - found) > room)
    if not off.any():
        return
    how = {"how": "", "how_zh": ""}
    if e.has(LOSS) and (np.abs(finite(e[LOSS]) + values - found) <= room + e.error(LOSS))[where].mean() > 0.98:
        how = phrase("how", "audit.returns_of_whitened")
    for by in (1, -1):
        near = (np.abs(raw + shift(values, by) - found) <= room + shift(e.error("values"), by))[
            where & shift(e.mask, by)
        ]
        if len(near) and near.mean() > 0.98:
            yield Finding(VALUES_SHIFTED, "returns", {"by": by}, e.places(off, raw + values, found))
            return
    e.broken.add("returns")
    yield Finding(RETURNS, "returns", how, e.places(off, raw + values, found), share_of_rows(off, where))


CHECKS = (
    Check.of("K5 gae", ("rewards", "values", f"{RAW}|returns"), recursion),
    Check.of("K5 sums", ("rewards", f"{RAW}|returns"), reward_to_go),
    Check.of("K6 returns", (RAW, "values", "returns"), returns),
)  # fmt: skip
