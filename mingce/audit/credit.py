"""K5 and K6: do advantages and returns follow from rewards and values?

One step of the recursion is judged at a time (`recursion.py`), so that a fault shows where it happens and not on every
token before it. Steps between neighbouring tokens give γ and λ away;
with them the steps over a hole, at the end of a short row and at the end of a full one are judged apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, either, finite, last_slot, rows_with, share_of_rows, shift
from mingce.audit.finding import Check, Fault, Finding, phrase
from mingce.audit.recursion import ENDS, HOLES, Columns, Discount, fit_discount, neighbours, one_step, round_discount
from mingce.record.dump import LOSS, RAW, unknown_estimator
from mingce.specs import ESTIMATORS

# ── what can be wrong ──────────────────────────────────────────────────────────────────────────────────────────────

RETURNS = Fault.of(
    "returns-broken", "bug", (33,), "R_t = A_t + V(s_t), with the raw advantages", "natolambert/rlhf-book/pull/216"
)
REWARD_MINUS_VALUE = Fault.of(
    "advantage-is-reward-minus-value", "bug", (33,), "A_t = δ_t + γλA_{t+1},  δ_t = r_t + γV(s_{t+1}) − V(s_t)"
)
VALUES_SHIFTED = Fault.of(
    "values-shifted", "bug", (19,), "δ_t = r_t + γV(s_{t+1}) − V(s_t), V(s_t) read before token t"
)
UNEXPLAINED = Fault.of(
    "advantage-unexplained", "bug", (33,),
    "A_t = r_t + γV(s_{t+1}) − V(s_t) + γλA_{t+1}", "natolambert/rlhf-book/pull/216",
)  # fmt: skip
ROWS_SWAPPED = Fault.of("credit-of-another-row", "bug", (37,), "A[i] computed from r[i] and V[i]")
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
LAST_STEP = Fault.of(
    "last-step-unexplained", "bug", (16, 19), "A_e = r_e − V_e at the last token of a response that ended"
)
OTHER_SETTINGS = Fault.of("gamma-lambda-differ", "suspicious", (), "A_t = δ_t + γλA_{t+1}")

# ── K5 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def raw_advantages(e: Evidence) -> Floats:
    """The advantages before whitening: stored, or returns − values, or the returns where there is no critic."""
    if e.has(RAW):
        return e[RAW]
    return e["returns"] - e["values"] if e.has("values") else e["returns"]


def no_recursion(e: Evidence) -> bool:
    """Whether the settings name an estimator whose advantages are no sums over what comes later."""
    spec = ESTIMATORS.get(e.settings.estimator or "")
    return unknown_estimator(e.dump) is not None or (spec is not None and spec.kind in ("window", "share"))


def recursion(e: Evidence) -> Iterator[Finding]:
    """Do the advantages follow from rewards and values?"""
    if no_recursion(e):
        return
    mask = _reach(e)
    c = Columns(finite(e["rewards"]), finite(e["values"]), finite(raw_advantages(e)))
    pairs = neighbours(mask)
    if pairs.sum() < 8:
        return
    swapped = _values_masked_elsewhere(e)
    if swapped is not None:
        yield swapped
        return
    loose = e.tolerance
    found = _fit(e, c, pairs)
    if np.isnan(found.residual):  # nothing but zeros
        return
    plausible = -0.01 <= found.gamma <= 1.01 and -0.02 <= found.decay <= found.gamma + 0.02
    if not (found.residual <= loose and (plausible or e.coarse)):
        e.broken.add("returns")
        yield _explain(e, c, pairs, found, loose)
        return
    found = round_discount(c, pairs, found)
    if abs(found.gamma) < 0.02 and abs(found.decay) < 0.02:
        gamma, lam = either(e.settings.gamma, 1.0), either(e.settings.lam, 0.95)
        expected = one_step(c, mask, gamma, gamma * lam, "skip", "end")
        yield Finding(REWARD_MINUS_VALUE, "advantages", {}, e.places(pairs, expected, c.advantages))
        return
    wanted, lam = either(e.settings.gamma, found.gamma), either(e.settings.lam, found.lam)
    gamma, decay = found.gamma, found.decay
    if fit_discount(c, pairs, (wanted, wanted * lam)).residual <= loose:
        gamma, decay = wanted, wanted * lam
    else:
        values = {"gamma": gamma, "lam": found.lam, "wanted_gamma": wanted, "wanted_lam": lam}
        yield Finding(OTHER_SETTINGS, "advantages", values)
    e.infer("gamma", gamma)
    e.infer("lam", decay / gamma if gamma else 0.0)
    yield from _at_holes(e, c, mask, gamma, decay)
    yield from _at_the_end(e, c, mask, gamma, decay)


def _fit(e: Evidence, c: Columns, pairs: Bools) -> Discount:
    return fit_discount(c, pairs, known_gamma=either(e.settings.gamma, 1.0))


def _explain(e: Evidence, c: Columns, pairs: Bools, found: Discount, loose: float) -> Finding:
    """Why the steps between neighbours do not fit: values one off, rows of others, returns from something else."""
    for by in (1, -1):
        moved = shift(c.values, by)
        inner = pairs & shift(pairs, by)
        for advantages in (c.advantages, c.advantages + c.values - moved):
            tried = _fit(e, Columns(c.rewards, moved, advantages), inner)
            if tried.residual <= loose and 0.05 <= tried.gamma <= 1.01:
                # R = r + V is also the one-step target of values one slot early
                same = (19, 33) if abs(tried.decay) < 0.02 else None
                return Finding(VALUES_SHIFTED, "advantages", {"by": by}, classes=same)
    if e.has(LOSS, "returns", "values") and not e.has(RAW):
        white = finite(e[LOSS])
        gap = np.where(e.mask, c.advantages - white, 0.0)
        if np.abs(gap).max(initial=0.0) <= loose * float(e.scale(white).max(initial=0.0)):
            how = phrase("how", "audit.returns_of_final")
            return Finding(RETURNS, "returns", how, e.places(e.mask, e["values"], e["returns"]))
    for by in (1, -1, 2, -2):
        above = 0.0 if e.has(RAW) else c.values  # else it is the returns that are another row's
        raw = np.roll(c.advantages + above, by, 0) - above
        tried = _fit(e, Columns(c.rewards, c.values, raw), pairs)
        if tried.residual <= loose and 0.05 <= tried.gamma <= 1.01:
            return Finding(ROWS_SWAPPED, "advantages", {"by": by})
    return _scattered(e, c, pairs, loose) or Finding(UNEXPLAINED, "advantages", {"residual": found.residual})


def _scattered(e: Evidence, c: Columns, pairs: Bools, loose: float) -> Finding | None:
    """Most steps fit some γ and λ and a few tokens do not: those."""
    kept, scale = pairs, e.scale(c.rewards, c.values, c.advantages)
    for _ in range(4):
        found = _fit(e, c, kept)
        if np.isnan(found.residual):
            return None
        expected = one_step(c, e.mask, found.gamma, found.decay, "skip", "end")
        gap = np.where(pairs, np.abs(expected - c.advantages) / scale, 0.0)
        kept = pairs & (gap <= max(3 * float(np.median(gap[pairs])), loose))
    off = pairs & (gap > 3 * loose)
    if found.residual > loose or off.sum() > 0.2 * pairs.sum():
        return None
    places = e.places(off, expected, c.advantages)
    return Finding(UNEXPLAINED, "advantages", {"residual": float(gap.max())}, places, share_of_rows(off, pairs))


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


def _off(e: Evidence, c: Columns, expected: Floats, where: Bools, tolerance: float) -> Bools:
    scale = e.scale(c.rewards, c.values, c.advantages)
    return where & (np.abs(expected - c.advantages) > tolerance * scale)


def _shown(e: Evidence, off: Bools, where: Bools) -> bool:
    """Whether what is off counts: any token of a dump in single precision, a tenth of them in a rounded one."""
    return bool(off.any()) and (not e.coarse or off.sum() > 0.1 * where.sum())


def _at_holes(e: Evidence, c: Columns, mask: Bools, gamma: float, decay: float) -> Iterator[Finding]:
    before = mask.copy()
    before[:, :-1] &= ~mask[:, 1:]
    before[:, -1:] = False
    before &= np.arange(mask.shape[1]) < e.last[:, None]
    if not before.any():
        return
    expected = one_step(c, mask, gamma, decay, "skip", "end")
    off = _off(e, c, expected, before, e.tolerance)
    if not _shown(e, off, before):
        return
    share, places = share_of_rows(off, before), e.places(off, expected, c.advantages)
    gaps = {h: float(np.abs(one_step(c, mask, gamma, decay, h, "end") - c.advantages)[before].mean()) for h in HOLES}
    best = min(gaps, key=lambda h: gaps[h])
    if best == "cut":
        yield Finding(HOLE_CUTS, "advantages", {}, places, share)
        return
    how = {"zero": "V = r = 0", "raw": "V, r as they are", "skip": "?"}[best]
    yield Finding(THROUGH_HOLES, "advantages", {"how": how}, places, share)


def _at_the_end(e: Evidence, c: Columns, mask: Bools, gamma: float, decay: float) -> Iterator[Finding]:
    """What follows the last chosen token: nothing where the response ended, perhaps a bootstrap where it was cut."""
    last = last_slot(mask)
    rows = np.flatnonzero(last >= 0)
    at_last = np.zeros_like(mask)
    at_last[rows, last[rows]] = True
    expected = one_step(c, mask, gamma, decay, "skip", "end")
    cut = last_rows_cut(e)
    off = _off(e, c, expected, at_last, e.tolerance)
    ended, stopped = at_last & ~cut[:, None], at_last & cut[:, None]
    if _shown(e, off & ended, ended):
        yield _bootstrap(e, c, mask, gamma, decay, expected, off & ended, ended)
    elif stopped.any() and cut.any() and e.has("bootstrap_value|finish_reason|eos_id|stop_ids"):
        if _shown(e, off & stopped, stopped):
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


def _bootstrap(
    e: Evidence, c: Columns, mask: Bools, gamma: float, decay: float, expected: Floats, off: Bools, ended: Bools
) -> Finding:
    places, share = e.places(off, expected, c.advantages), share_of_rows(off, ended)
    gaps = {}
    for end in ENDS[1:]:
        tried = one_step(c, mask, gamma, decay, "skip", end)
        gaps[end] = float(_off(e, c, tried, ended, e.tolerance).sum() / ended.sum())
    best = min(gaps, key=lambda end: gaps[end])
    if gaps[best] > 0.02:
        return Finding(LAST_STEP, "advantages", {}, places, share)
    how = {"value": "V[e+1]", "slot": "V[e+1], and A[e+1] = −V[e+1]", "pads": "V on all pads"}[best]
    same = tuple(end for end in gaps if gaps[end] <= 0.02)
    return Finding(
        PAD_BOOTSTRAP, "advantages", {"how": how}, places, share, classes=(16, 19) if "slot" in same else None
    )


# ── returns without a critic ───────────────────────────────────────────────────────────────────────────────────────


def reward_to_go(e: Evidence) -> Iterator[Finding]:
    """Without values the returns are sums of the rewards still to come: R_t = r_t + γR_{t+1}."""
    if no_recursion(e) or e.has("values") or constant_rows(e, raw_advantages(e)):
        return
    rewards, returns = finite(e["rewards"]), finite(raw_advantages(e))
    c = Columns(rewards, np.zeros_like(rewards), returns)
    pairs = neighbours(e.mask)
    here = pairs[:, :-1]
    later = returns[:, 1:][here]
    power = float(later @ later)
    if len(later) < 8 or power == 0:
        return
    gamma = float((returns - rewards)[:, :-1][here] @ later / power)
    gamma = round(gamma, 4)
    if not 0 < gamma <= 1.01:
        return
    steps = one_step(c, e.mask, gamma, gamma, "skip", "end")
    if _shown(e, _off(e, c, steps, pairs, e.tolerance), pairs):
        return
    e.infer("gamma", gamma)
    yield from _at_holes(e, c, e.mask, gamma, gamma)


def constant_rows(e: Evidence, column: Floats) -> bool:
    """Whether every row holds one number on all of its chosen tokens."""
    high = np.where(e.mask, column, -np.inf).max(axis=1, initial=-np.inf)
    low = np.where(e.mask, column, np.inf).min(axis=1, initial=np.inf)
    some = e.mask.sum(axis=1) > 1
    return bool(some.any()) and bool((high[some] - low[some] <= 1e-6 * (1 + np.abs(high[some]))).all())


# ── K6 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def returns(e: Evidence) -> Iterator[Finding]:
    """R = A + V with the stored raw advantages."""
    if unknown_estimator(e.dump):
        return
    raw, values, found = finite(e[RAW]), finite(e["values"]), finite(e["returns"])
    where = e.mask & np.isfinite(e["returns"]) & np.isfinite(e[RAW])
    off = where & (np.abs(raw + values - found) > e.tolerance * e.scale(raw, values))
    if not _shown(e, off, where):
        return
    room = e.tolerance * max(float(np.abs(found[where]).max()), 1e-12)
    how = {"how": "", "how_zh": ""}
    if e.has(LOSS) and (np.abs(finite(e[LOSS]) + values - found)[where] <= room).mean() > 0.98:
        how = phrase("how", "audit.returns_of_whitened")
    for by in (1, -1):
        gap = np.abs(raw + shift(values, by) - found)[where & shift(e.mask, by)]
        if len(gap) and (gap <= room).mean() > 0.98:
            yield Finding(VALUES_SHIFTED, "returns", {"by": by}, e.places(off, raw + values, found))
            return
    e.broken.add("returns")
    yield Finding(RETURNS, "returns", how, e.places(off, raw + values, found), float(off.any(axis=1).mean()))


CHECKS = (
    Check.of("K5 gae", ("rewards", "values", f"{RAW}|returns"), recursion),
    Check.of("K5 sums", ("rewards", f"{RAW}|returns"), reward_to_go),
    Check.of("K6 returns", (RAW, "values", "returns"), returns),
)  # fmt: skip
