"""Overviews: the numbers of a token, what the modules put out, and the tutor itself."""

from __future__ import annotations

from mingce.record.rollout import Rollout
from mingce.explain.topic import Values, listed, register, topic

register("five_quantities")


@topic
def modules(rollout: Rollout, t: int) -> Values:
    return {"kl_list": listed(rollout.columns["kl"])}
