"""What the numbers of the entropy column cannot be: negative, 0 in a whole row, or of other tokens than the log-probs.

Where a token was drawn from the policy, its surprise −log π has the mean H given the context, so the line of the
surprises over the entropies has the slope 1 whatever the policy is.
"""

from __future__ import annotations

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats
from mingce.audit.finding import Fault, Finding, phrase

NEGATIVE = Fault.of("entropy-negative", "bug", (), "H_t = −Σ π·log π ≥ 0")
ELSEWHERE = Fault.of("entropy-elsewhere", "suspicious", (), "H_t > 0 where log π(a_t) < 0", "")
OUT_OF_LINE = Fault.of("entropy-out-of-line", "suspicious", (), "E[−log π(a_t) | s_t] = H_t", "")
PROXY = Fault.of("entropy-is-surprise", "suspicious", (), "H_t = −Σ_a π(a)·log π(a), not −log π(a_t)")
LEAST, SURE = -1e-3, 8.0
ROW = 4  # tokens


def proxy(e: Evidence, use: Bools) -> Finding | None:
    """−log π of the drawn token in the place of the entropy, by a trainer that stores the entropy itself."""
    if e.dump.source not in ("verl", "mingce", "trl_grpo"):
        return None
    h, old = e["entropy"][use], e["old_log_probs"][use]
    if not np.isfinite(h).all() or not h.any() or np.abs(h + old).max() > 1e-5 * (1 + np.abs(old).max()):
        return None
    places = e.places(use, np.full(use.shape, np.nan), e["entropy"])
    return Finding(PROXY, "entropy", {}, places)


def impossible(e: Evidence, old: Floats, h: Floats, use: Bools) -> Finding | None:
    """Entropies below 0, or exactly 0 where the drawn token was no certainty."""
    below = use & (h < LEAST)
    if below.any():
        rows, judged = below.any(axis=1), use.any(axis=1)
        values = {"count": int(below.sum()), "rows": int(rows.sum()), "row": int(np.flatnonzero(rows)[0])}
        same = float(np.median((old * h)[below])) > 0 and below.sum() > 0.9 * use[rows].sum()
        what = phrase("what", "audit.entropy_sign" if same else "audit.entropy_no_entropy")
        places = e.places(below, np.abs(h), h)
        return Finding(NEGATIVE, "entropy", values | what, places, float(rows.sum() / max(judged.sum(), 1)))
    empty = use & (h == 0) & (old < -0.5)
    count = use.sum(axis=1)
    whole = (empty.sum(axis=1) >= ROW) & ((use & (h == 0)).sum(axis=1) == count)
    if empty.sum() > max(8, 0.02 * use.sum()) or whole.any():
        places, share = e.places(empty, -old, h), float(empty.any(axis=1).mean())
        return Finding(ELSEWHERE, "entropy", {"count": int(empty.sum())}, places, share)
    return None


def out_of_line(e: Evidence, old: Floats, h: Floats, use: Bools) -> Finding | None:
    """Entropies that say nothing of the surprises, or a row of them that is far off."""
    x, y = h[use], -old[use]
    spread = float(((x - x.mean()) ** 2).sum())
    if spread <= 1e-3 * len(x):
        return None
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread
    left = y - y.mean() - slope * (x - x.mean())
    error = float(np.sqrt(np.mean(left**2) / spread))
    if slope < 0.5 and (1 - slope) > SURE * error:
        return Finding(OUT_OF_LINE, "entropy", {"slope": slope, **phrase("where", "audit.entropy_everywhere")})
    count = use.sum(axis=1)
    gap = np.where(use, -old - h, 0.0)
    usual = float(np.sqrt(np.mean((y - x) ** 2)))
    size = np.abs(gap.sum(axis=1)) / np.maximum(np.sqrt(count) * usual, 1e-12)
    mean = np.abs(gap.sum(axis=1)) / np.maximum(count, 1)
    rows = (count >= 8) & (size > SURE) & (mean > 2 * float(x.mean()))
    if not rows.any() or rows.sum() > 0.1 * (count > 0).sum():
        return None
    row = int(np.flatnonzero(rows)[0])
    where = phrase("where", "audit.entropy_of_row", row=row, count=int(rows.sum()))
    places = e.places(use & rows[:, None], -old, h)
    return Finding(OUT_OF_LINE, "entropy", {"slope": slope, **where}, places, float(rows.mean()))
