"""Columns that only say again what others say: TD errors, KL, ratio. They must agree with them, token by token."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.credit import last_rows_cut
from mingce.audit.evidence import Bools, Evidence, Floats, finite, share_of_rows
from mingce.audit.finding import Check, Fault, Finding
from mingce.audit.kl import LARGEST, kl_estimates
from mingce.audit.recursion import Columns, following, one_step
from mingce.audit.steps_of_credit import SURE

DELTAS = Fault.of("td-error-disagrees", "bug", (), "δ_t = r_t + γV(s_{t+1}) − V(s_t)")
RATIO = Fault.of("ratio-disagrees", "bug", (), "ρ_t = exp(log π_new − log π_old)")
KL = Fault.of("kl-disagrees", "bug", (), "k_t = k(log π_old − log π_ref)")


def _differing(e: Evidence, fault: Fault, name: str, expected: Floats, where: Bools, room: Floats) -> Iterator[Finding]:
    """Tokens at which a stored column is further than `room` and its own rounding from what it should be."""
    found = e[name]
    where = where & np.isfinite(expected) & np.isfinite(found)
    off = where & (np.abs(found - expected) > room + SURE * e.error(name))
    if off.any():
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
    ahead = e.error("values") + following(e.error("values"), e.mask)
    if "gamma" in e.inferred:  # known to a few digits only
        ahead = ahead + 1e-3 * np.abs(following(values, e.mask))
    room = SURE * (e.error("rewards") + ahead) + 1e-5 * e.scale(rewards, values)
    yield from _differing(e, DELTAS, "deltas", expected, e.mask & ~cut, room)


def ratio(e: Evidence) -> Iterator[Finding]:
    """ρ_t from the log-probs; an error of them is one of its logarithm, which trainers hold within limits."""
    with np.errstate(all="ignore"):
        x = e["new_log_probs"] - e["old_log_probs"]
        expected = np.exp(x)
        error = np.expm1(SURE * (e.error("new_log_probs") + e.error("old_log_probs")) + 1e-5)
    yield from _differing(
        e, RATIO, "ratio", expected, e.mask & e.loss_mask & (np.abs(x) < LARGEST), finite(expected) * error
    )


def kl(e: Evidence) -> Iterator[Finding]:
    """k_t from the log-probs, by the kind that fits best; rounding moves it as it moves their difference."""
    if e.settings.kl_estimator == "full":
        return
    x = finite(e["old_log_probs"] - e["ref_log_probs"])
    judged = e.mask & np.isfinite(e["old_log_probs"] + e["ref_log_probs"]) & np.isfinite(e["kl"])
    if not judged.any():
        return
    error = SURE * (e.error("old_log_probs") + e.error("ref_log_probs"))
    grain = 2e-5 * (1 + np.abs(finite(e["old_log_probs"]))) + SURE * e.error("kl")
    best: tuple[int, Floats, Floats] | None = None
    for clamp in (False, True):
        known, above, below = (kl_estimates(one, clamp=clamp) for one in (x, x + error, x - error))
        for name, one in known.items():
            moved = np.maximum(np.abs(above[name] - one), np.abs(below[name] - one))
            room = finite(moved) + 1e-3 * np.abs(finite(one)) + grain  # small differences of large numbers
            missed = int((np.abs(one - e["kl"]) > room)[judged].sum())
            if best is None or missed < best[0]:
                best = missed, one, room
    if best is not None and best[0]:
        yield from _differing(e, KL, "kl", best[1], judged, best[2])


CHECKS = (
    Check.of("K6 td errors", ("deltas", "rewards", "values"), deltas),
    Check.of("K6 kl", ("kl", "old_log_probs", "ref_log_probs"), kl),
    Check.of("K6 ratio", ("ratio", "new_log_probs", "old_log_probs"), ratio),
)
