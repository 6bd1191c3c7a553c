"""K12: a loss that was logged whole, as TRL's GRPO does: the policy's share and β times the KL's must give it."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from mingce.audit import objectives
from mingce.audit.aggregation import Terms, Way, declared_mode, masks, number, ways
from mingce.audit.aggregation import rounding as rounding_of
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Fault, Finding, NotJudged, Place
from mingce.audit.kl import kl_estimates, kl_slopes
from mingce.audit.kl_losses import KL_LOSS_SIGN
from mingce.audit.matching import both

KL_LOSS_ABSENT = Fault.of("kl-loss-absent", "bug", (25,), "loss = pg_loss + β·kl_loss with β > 0")
VISIBLE = 10.0  # times the room of rounding, which the KL's share must have to be missed


def kl_share(e: Evidence) -> Generator[Finding, None, float | None]:
    """What is wrong with the KL in the loss; where it is not to be found, what is left of the loss without it."""
    coef, found = number(e, "kl_loss_coef"), e.dump.scalars["loss"]
    usual = e.settings.policy_loss in (None, *objectives.PPO) and not number(e, "entropy_coef")
    options = [way for way in ways(e, masks(e)) if _meant(e, way)]
    named = e.settings.kl_estimator or "k3"
    if "pg_loss" in e.dump.scalars or not coef or not usual or not options or named not in kl_estimates(np.zeros(1)):
        raise NotJudged
    with np.errstate(all="ignore"):
        policies = [one.terms for one in objectives.usual(objectives.Inputs(e, masks(e)))]
        right, turned = (_price(e, coef, named, sign) for sign in (1.0, -1.0))
    pairs = [(way, policy) for way in options for policy in policies]
    first = [(way, policies[0]) for way in options]  # the loss that the settings name

    def fits(price: Terms, times: float, among: list[tuple[Way, Terms]]) -> bool:
        return any(
            abs(policy.number(way) + times * price.number(way) - found) <= policy.room(way) + price.room(way) + 1e-7
            for way, policy in among
        )

    if fits(right, 1.0, pairs):
        return None
    place = (Place(None, None, pairs[0][1].number(options[0]) + right.number(options[0]), found),)
    visible = abs(right.number(options[0])) > VISIBLE * (pairs[0][1].room(options[0]) + right.room(options[0]))
    for price, times, words in ((right, -1.0, "loss = pg_loss − β·kl_loss"), (turned, 1.0, f"{named}(ref − new)")):
        if visible and fits(price, times, first):
            yield Finding(KL_LOSS_SIGN, "loss", both((words, words)), place)
            return None
    if visible and fits(right, 0.0, first):
        yield Finding(KL_LOSS_ABSENT, "loss", {"beta": coef}, place)
        return None
    return found - right.number(options[0])


def _meant(e: Evidence, way: Way) -> bool:
    return way.mode == declared_mode(e.settings) and not way.classes and not way.doubtful


def _price(e: Evidence, coef: float, named: str, sign: float) -> Terms:
    """β times the KL of each token, or (−1) that of the reference from the policy."""
    x = sign * (e["new_log_probs"] - e["ref_log_probs"])
    rounding = (rounding_of(e, "new_log_probs") + rounding_of(e, "ref_log_probs")) * np.abs(e["new_log_probs"])
    return Terms(coef * kl_estimates(x)[named], coef * rounding * kl_slopes(x)[named], masks(e))
