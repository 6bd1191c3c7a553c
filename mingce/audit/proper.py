"""Two columns that lean one way: which of them is no probability of the drawn tokens, and why?

E[exp(log π_old − log q)] = 1 where both are distributions over the same tokens. A mean below 1 has three reasons that
look alike in the two columns: the sampler kept a part of the vocabulary, the trainer's softmax runs over more ids than
can be drawn, or its numbers were smoothed. Only the sampler's cut leaves the trainer's own numbers a distribution from
whose tail nothing was drawn, so that its entropy lies above the mean surprise. A mean above 1 says that either column
is at fault; where the trainer's surprise has the mean of its entropy, it is the sampler's.
"""

from __future__ import annotations

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats
from mingce.audit.finding import Fault, phrase
from mingce.audit.identities import SURE, Mean, surprise

LEANING = Fault.of("log-probs-lean-one-way", "bug", (14, 2), "E[exp(log π_old − log q)] = 1", "")
LIKELY = 3.0  # |z| from which an entropy takes sides
STRAIGHT = 0.9  # of d that one temperature explains: then both columns are distributions
SMALLEST = 0.2  # of the probability that a cut keeps
CAUSES = {False: "audit.lean_below", True: "audit.lean_above"}


def surprise_of(e: Evidence, p: Floats, use: Bools, known: bool) -> Mean | None:
    """The mean surprise less the mean entropy; None where there is no entropy."""
    return surprise(p, np.where(use, e["entropy"], 0.0), use) if known else None


def cut_by_sampler(e: Evidence, d: Floats, use: Bools, mine: Mean | None) -> bool:
    """Whether it is told that the sampler kept a part of the vocabulary: by the settings, or by the entropy."""
    s = e.settings
    if any((s.top_p is not None and 0 < float(s.top_p) < 1, s.top_k is not None and int(s.top_k) > 0)):
        return True
    if float(np.quantile(d[use], 0.005)) < np.log(SMALLEST):
        return False  # no cut leaves so little
    return mine is not None and mine.z < -LIKELY


def raw_by_sampler(mine: Mean | None, reverse: float, line: float) -> bool:
    """Whether the trainer's numbers are those of the drawn tokens, so that the sampler's are not.

    `reverse` is E[log q − log π_old]: the sampler's own surprise is so much smaller than the trainer's.
    """
    if mine is None:
        return line > 0.3
    nearer = line > STRAIGHT or abs(mine.mean) < abs(mine.mean - reverse)
    return abs(mine.z) <= SURE and nearer


def leaning(ratio: float, z: float) -> dict[str, object]:
    """The numbers and the sentence of a mean on that side of 1."""
    return {"ratio": ratio, "z": z, **phrase("causes", CAUSES[ratio > 1])}
