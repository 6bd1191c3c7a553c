"""K10: a column that holds no log-probs, and few rows whose log-probs are out of line with those of the rest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit import updates
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Check, Fault, Finding, Place, Severity, phrase
from mingce.audit.strays import Stray

TRANSFORMED = Fault.of("not-log-probs", "bug", (), "log π(a_t) in nats, of the drawn token", "")
FEW_ROWS = Fault.of(
    "few-rows-out-of-line", "bug", (12, 18, 37), "log π_old(a_t) and log q(a_t) are about the same token"
)
FEW_POLICIES = Fault.of("few-rows-of-another-policy", "suspicious", (2, 5, 6), "log π_old(a_t) ≈ log q(a_t)", "")

# ── other numbers than log-probs ───────────────────────────────────────────────────────────────────────────────────


def kinds(e: Evidence) -> Iterator[Finding]:
    """A column that holds something else than log-probs."""
    found = updates.transformed(e)
    if found is None:
        return
    column, other, how = found
    e.blamed.add(column)
    use = updates.comparable(e, column, other)
    values = {"column": column, "other": other, **phrase("how", how.key, **how.values)}
    places = e.places(use & (np.abs(e[column] - e[other]) > 0.05), e[other], e[column])
    yield Finding(TRANSFORMED, column, values, places)


# ── a few rows ─────────────────────────────────────────────────────────────────────────────────────────────────────

_KINDS: dict[str, tuple[str, tuple[int, ...]]] = {
    "shift": ("audit.stray_shift", (18,)),
    "drift": ("audit.stray_drift", (12,)),
    "row": ("audit.stray_row", (37, 40)),
    "order": ("audit.stray_order", (40,)),
    "policy": ("audit.stray_policy", (2, 5, 6)),
    "unknown": ("audit.stray_unknown", FEW_ROWS.classes),
}


def few_rows(e: Evidence) -> Iterator[Finding]:
    """Rows, or turns of them, whose log-probs are of other tokens while the rest of the batch is in line."""
    found = updates.stray_rows(e)
    if not found:
        return
    rows = {other: {stray.row for stray in few} for other, few in found.items()}
    other = max(found, key=lambda one: len(rows[one]))
    columns = ("old_log_probs", other)
    if other != "rollout_log_probs" and len(found) == 1:  # the old ones agree with another column
        columns = (other, "old_log_probs")
    first = found[other][0]
    key, classes = _KINDS[first.kind]
    if first.kind == "shift" and not first.whole:  # a slice of this part, or its text encoded again
        key, classes = "audit.stray_shift_part", (18, 12)
    how = phrase("how", key, shift=-first.shift, other=first.other, token=first.start)
    where = phrase("where", "audit.stray_turn", turn=first.turn) if first.turn else {"where": "", "where_zh": ""}
    values = {
        "column": columns[0], "other": columns[1], "count": len(rows[other]), "rows": len(e.mask),
        "row": first.row, "start": first.start, "end": first.end, **how, **where,
    }  # fmt: skip
    share = len(rows[other]) / max(int(e.mask.any(axis=1).sum()), 1)
    fault = FEW_POLICIES if first.kind == "policy" else FEW_ROWS
    part = first.end + 1 - first.start < 0.5 * int(e.mask[first.row].sum())
    # a policy that has learned may leave its reference for a stretch of a row
    level: Severity | None = "suspicious" if other == "ref_log_probs" and part and len(rows[other]) == 1 else None
    yield Finding(fault, columns[0], values, _strayed(e, columns, found[other]), share, level, classes)


def _strayed(e: Evidence, columns: tuple[str, str], found: list[Stray]) -> tuple[Place, ...]:
    """The token of each stray row that is farthest off."""
    places = []
    for stray in found[:5]:
        here = slice(stray.start, stray.end + 1)
        one, two = (np.where(e.mask[stray.row, here], e[name][stray.row, here], 0.0) for name in columns)
        at = int(np.abs(one - two).argmax())
        places.append(Place(stray.row, stray.start + at, float(two[at]), float(one[at])))
    return tuple(places)


CHECKS: tuple[Check, ...] = (
    Check.of("K10 log-probs", ("old_log_probs", "rollout_log_probs|ref_log_probs|new_log_probs"), kinds),
    Check.of("K10 few rows", ("old_log_probs", "rollout_log_probs|ref_log_probs|new_log_probs"), few_rows),
)
