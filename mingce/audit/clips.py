"""The bounds of the policy's clip where no setting tells them: those with which the columns give the logged loss."""

from __future__ import annotations

import numpy as np

from mingce.audit.aggregation import clip_range, masks, ways
from mingce.audit.evidence import Evidence, once
from mingce.audit.objectives import CLIPS, DUAL_CLIP, Inputs
from mingce.record.dump import LOSS


@once
def clips(e: Evidence) -> tuple[tuple[float, float], ...]:
    """(ε below, ε above): the settings', or the usual ones that the logged loss follows from; none where none does."""
    low, high = clip_range(e)
    if low is not None and high is not None:
        return ((low, high),)
    name = "pg_loss" if "pg_loss" in e.dump.scalars else "loss"
    found = e.dump.scalars.get(name)
    alone = name == "pg_loss" or not (e.settings.kl_loss_coef or "kl_mean" in e.dump.scalars)
    if found is None or not alone or low is not None or high is not None:
        return ()
    if not e.has("new_log_probs", "old_log_probs", LOSS):
        return ()
    seen = masks(e)
    options = [way for way in ways(e, seen) if not way.classes]
    fitting = []
    with np.errstate(all="ignore"):
        given = Inputs(e, seen)
        if given.coarse:  # rounding may make any of them fit
            return ()
        for bounds in CLIPS:
            plain = given.clipped(given.ratio, *bounds)
            held = np.where(given.advantages < 0, np.minimum(plain, -DUAL_CLIP * given.advantages), plain)
            terms = [given.terms(plain), given.terms(held)]
            if any(one.fits(way, found) for one in terms for way in options):
                fitting.append(bounds)
    return tuple(fitting)
