"""Columns that only say again what others say: TD errors, KL, ratio. Stored apart, they must still agree, token by token."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.credit import Columns, last_rows_cut, one_step
from mingce.audit.evidence import Bools, Evidence, Floats, rows_with
from mingce.audit.finding import Check, Fault, Finding
from mingce.audit.kl import kl_estimates

_CAUSE = (
    "这一列取自另一次计算，或写出之后被改过。",
    "The column comes from another computation, or was changed after it was made.",
)
_CHANGE = ("与它所依据的列在同一处写出。", "Write it where the columns it follows from are written.")
DELTAS = Fault(
    "td-error-disagrees", "bug", (), ("存下的 TD 误差与奖励和价值不符。", "The stored TD errors do not follow from rewards and values."),
    "δ_t = r_t + γV(s_{t+1}) − V(s_t)", _CAUSE, _CHANGE,
)  # fmt: skip
RATIO = Fault(
    "ratio-disagrees", "bug", (), ("存下的比值不等于新旧概率之比。", "The stored ratio is not the new probability over the old one."),
    "ρ_t = exp(log π_new − log π_old)", _CAUSE, _CHANGE,
)  # fmt: skip
KL = Fault(
    "kl-disagrees", "bug", (), ("存下的 KL 与两列 log-prob 不符，不是任何一种估计量。", "The stored KL follows from the log-probs by no known estimator."),
    "k_t = k(log π_old − log π_ref)", _CAUSE, _CHANGE,
)  # fmt: skip


def _differing(e: Evidence, fault: Fault, name: str, expected: Floats, where: Bools, room: Floats) -> Iterator[Finding]:
    """The tokens at which a stored column is further than `room` from what it should be; in rounded dumps if many are."""
    found = e[name]
    where = where & np.isfinite(expected) & np.isfinite(found)
    off = where & (np.abs(found - expected) > room)
    if off.any() and (not e.coarse or off.sum() > 0.1 * where.sum()):
        share = float(rows_with(off).sum() / max(int(rows_with(where).sum()), 1))
        yield Finding(fault, name, {}, e.places(off, expected, found), share)


def deltas(e: Evidence) -> Iterator[Finding]:
    """δ_t from the stored rewards and values, with the γ that the advantages gave away."""
    if "gamma" not in e.settings or "returns" in e.broken:
        return
    rewards, values = (np.nan_to_num(e[name], nan=0.0, posinf=0.0, neginf=0.0) for name in ("rewards", "values"))
    columns = Columns(rewards, values, np.zeros_like(rewards))
    expected = one_step(columns, e.mask, float(e.settings["gamma"]), 0.0, "skip", "end")
    cut = np.zeros_like(e.mask)  # what follows a row that was cut is a setting of its own
    rows = np.flatnonzero(last_rows_cut(e) & (e.last >= 0))
    cut[rows, e.last[rows]] = True
    yield from _differing(e, DELTAS, "deltas", expected, e.mask & ~cut, 5 * e.tolerance * e.scale(rewards, values))


def ratio(e: Evidence) -> Iterator[Finding]:
    with np.errstate(all="ignore"):
        expected = np.exp(e["new_log_probs"] - e["old_log_probs"])
    used = e.mask & e.dump.columns["loss_mask"].astype(bool) if e.has("loss_mask") else e.mask
    yield from _differing(e, RATIO, "ratio", expected, used, 5 * e.tolerance * e.scale(np.nan_to_num(expected)))


def kl(e: Evidence) -> Iterator[Finding]:
    with np.errstate(all="ignore"):
        x = e["old_log_probs"] - e["ref_log_probs"]
        known = tuple(kl_estimates(x, clamp=True).values())
    judged = e.mask & np.isfinite(x) & np.isfinite(e["kl"])
    if e.coarse or not judged.any() or str(e.settings.get("kl_estimator", "")) == "full":
        return
    grain = 2e-5 * (1 + np.abs(np.nan_to_num(e["old_log_probs"])))  # k2 and k3 are small differences of large numbers
    rooms = [1e-3 * np.abs(np.nan_to_num(one)) + grain for one in known]
    missed = [int((np.abs(one - e["kl"]) > room)[judged].sum()) for one, room in zip(known, rooms, strict=True)]
    nearest = int(np.argmin(missed))
    yield from _differing(e, KL, "kl", known[nearest], judged, rooms[nearest])


CHECKS = (
    Check("K6 td errors", ("存下的 TD 误差", "the stored TD errors"), ("deltas", "rewards", "values"), deltas),
    Check("K6 kl", ("存下的 KL", "the stored KL"), ("kl", "old_log_probs", "ref_log_probs"), kl),
    Check("K6 ratio", ("存下的比值", "the stored ratio"), ("ratio", "new_log_probs", "old_log_probs"), ratio),
)
