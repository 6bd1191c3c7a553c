"""Columns that only say again what others say: TD errors, KL, ratio. They must agree with them, token by token."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.credit import last_rows_cut
from mingce.audit.evidence import Bools, Evidence, Floats, finite, share_of_rows
from mingce.audit.finding import Check, Fault, Finding
from mingce.audit.kl import kl_estimates
from mingce.audit.recursion import Columns, one_step

DELTAS = Fault.of("td-error-disagrees", "bug", (), "δ_t = r_t + γV(s_{t+1}) − V(s_t)")
RATIO = Fault.of("ratio-disagrees", "bug", (), "ρ_t = exp(log π_new − log π_old)")
KL = Fault.of("kl-disagrees", "bug", (), "k_t = k(log π_old − log π_ref)")


def _differing(e: Evidence, fault: Fault, name: str, expected: Floats, where: Bools, room: Floats) -> Iterator[Finding]:
    """Tokens at which a stored column is further than `room` from what it should be; in rounded dumps if many are."""
    found = e[name]
    where = where & np.isfinite(expected) & np.isfinite(found)
    off = where & (np.abs(found - expected) > room)
    if off.any() and (not e.coarse or off.sum() > 0.1 * where.sum()):
        yield Finding(fault, name, {}, e.places(off, expected, found), share_of_rows(off, where))


def deltas(e: Evidence) -> Iterator[Finding]:
    """δ_t from the stored rewards and values, with the γ that the advantages gave away."""
    if e.settings.gamma is None or "returns" in e.broken:
        return
    rewards, values = finite(e["rewards"]), finite(e["values"])
    columns = Columns(rewards, values, np.zeros_like(rewards))
    expected = one_step(columns, e.mask, e.settings.gamma, 0.0, "skip", "end")
    cut = np.zeros_like(e.mask)  # what follows a row that was cut is a setting of its own
    rows = np.flatnonzero(last_rows_cut(e) & (e.last >= 0))
    cut[rows, e.last[rows]] = True
    yield from _differing(e, DELTAS, "deltas", expected, e.mask & ~cut, 5 * e.tolerance * e.scale(rewards, values))


def ratio(e: Evidence) -> Iterator[Finding]:
    with np.errstate(all="ignore"):
        expected = np.exp(e["new_log_probs"] - e["old_log_probs"])
    yield from _differing(
        e, RATIO, "ratio", expected, e.mask & e.loss_mask, 5 * e.tolerance * e.scale(np.nan_to_num(expected))
    )


def kl(e: Evidence) -> Iterator[Finding]:
    with np.errstate(all="ignore"):
        x = e["old_log_probs"] - e["ref_log_probs"]
        known = tuple(kl_estimates(x, clamp=True).values())
    judged = e.mask & np.isfinite(x) & np.isfinite(e["kl"])
    if e.coarse or not judged.any() or e.settings.kl_estimator == "full":
        return
    grain = 2e-5 * (1 + np.abs(np.nan_to_num(e["old_log_probs"])))  # k2 and k3 are small differences of large numbers
    rooms = [1e-3 * np.abs(np.nan_to_num(one)) + grain for one in known]
    missed = [int((np.abs(one - e["kl"]) > room)[judged].sum()) for one, room in zip(known, rooms, strict=True)]
    nearest = int(np.argmin(missed))
    yield from _differing(e, KL, "kl", known[nearest], judged, rooms[nearest])


CHECKS = (
    Check.of("K6 td errors", ("deltas", "rewards", "values"), deltas),
    Check.of("K6 kl", ("kl", "old_log_probs", "ref_log_probs"), kl),
    Check.of("K6 ratio", ("ratio", "new_log_probs", "old_log_probs"), ratio),
)
