"""The log-probs of the updated policy: about the same tokens as the old ones, a policy's, and no other column's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.alignment import ENOUGH, align
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Check, Fault, Finding, phrase
from mingce.audit.identities import gap
from mingce.audit.updates import comparable, only

OTHER = Fault.of("new-log-probs-out-of-line", "suspicious", (18, 22, 40), "ρ_t = π_new(a_t)/π_old(a_t), E[ρ_t] = 1", "")
FAR, SURE = 0.2, 10.0


def updated(e: Evidence) -> Iterator[Finding]:
    """One slot off, the reference's or the sampler's numbers, or a ratio whose mean is far from 1."""
    use = comparable(e, "old_log_probs", "new_log_probs")
    if use.sum() < ENOUGH or e.blamed & {"old_log_probs", "new_log_probs", "ref_log_probs"}:
        return
    old, new = only(e, "old_log_probs", use), only(e, "new_log_probs", use)
    places = e.places(use & (np.abs(old - new) > 0.3), old, new)
    lie = align(new, old, use)
    if lie.kind == "shift":
        e.blamed.add("new_log_probs")
        said = phrase("what", "audit.new_shifted", by=lie.shift)
        yield Finding(OTHER, "new_log_probs", said, places, classes=(18,))
        return
    for name in ("ref_log_probs", "rollout_log_probs"):
        if e.has(name):
            theirs = only(e, name, use)
            if np.array_equal(new, theirs) and np.abs(old - theirs)[use].mean() > 1e-6:
                said = phrase("what", "audit.new_is_column", name=name)
                yield Finding(OTHER, "new_log_probs", said, places, classes=(22, 20))
                return
    seen = gap(new, old, use)
    if abs(seen.ratio.mean) > FAR and abs(seen.ratio.z) > SURE and lie.kind == "aligned":
        said = phrase("what", "audit.new_ratio", ratio=1 + seen.ratio.mean)
        yield Finding(OTHER, "new_log_probs", said, places)


CHECKS: tuple[Check, ...] = (Check.of("K10 updated", ("old_log_probs", "new_log_probs"), updated),)
