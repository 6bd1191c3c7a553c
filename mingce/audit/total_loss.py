"""K12: a loss that was logged whole, as TRL's GRPO does: the policy's share and β times the KL's must give it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import product

import numpy as np

from mingce.audit import objectives
from mingce.audit.aggregation import Terms, Way, declared_mode, masks, number, ways
from mingce.audit.aggregation import rounding as rounding_of
from mingce.audit.evidence import Evidence, Floats
from mingce.audit.finding import Check, Fault, Finding, NotJudged, Place, phrase
from mingce.audit.kl import kl_estimates, kl_slopes
from mingce.audit.kl_losses import KL_LOSS_SIGN
from mingce.audit.matching import MOST_TIMES, NO_FIT, SCALED, both, factor
from mingce.audit.statistics import OTHER

KL_LOSS_ABSENT = Fault.of("kl-loss-absent", "bug", (25,), "loss = pg_loss + β·kl_loss with β > 0")
VISIBLE = 10.0  # times the room of rounding, which the KL's share must have to be missed


def kl_share(e: Evidence) -> Generator[Finding, None, list[float]]:
    """What is wrong with the KL in the loss; where it is not to be found, what is left of the loss without it.

    The first is what is left by the settings; the others if the ratio that weighs the KL was a wrong one, too.
    """
    coef, found = number(e, "kl_loss_coef"), _without_bonus(e)
    name = (e.settings.policy_loss or "").lower()
    name = "" if name in objectives.PPO else name
    usual = (not name or (name in objectives.EXACT and objectives.exact(e))) and found is not None
    usual = usual and ((e.settings.entropy_share or 1.0) == 1.0 or (objectives.exact(e) and e.has("entropy")))
    options = [way for way in ways(e, masks(e)) if _meant(e, way)]
    named = e.settings.kl_estimator or "k3"
    if "pg_loss" in e.dump.scalars or not coef or not usual or not options or named not in kl_estimates(np.zeros(1)):
        raise NotJudged
    assert found is not None
    with np.errstate(all="ignore"):
        given = objectives.Inputs(e, masks(e))
        if np.abs(given.new - given.old)[given.mask].max(initial=0.0) > objectives.MAX_LOG_RATIO:
            raise NotJudged  # trainers differ in where they stop
        losses = objectives.called(given, name) if name else objectives.usual(given)
        policies = [one.terms for one in losses]
        whole = np.exp(given.row_mean(given.new - given.old)) * np.ones_like(given.ratio)
        weights = _weights(e, whole if name == "gspo" else given.ratio)
        prices = [(_price(e, coef, named, 1.0, one), _price(e, coef, named, -1.0, one)) for one in weights]
        inverted = _price(e, coef, named, 1.0, 1 / given.ratio)
    pairs = [(way, policy) for way in options for policy in policies]
    first = [(way, policies[0]) for way in options]  # the loss that the settings name

    def fits(price: Terms, times: float, among: list[tuple[Way, Terms]]) -> bool:
        return any(
            abs(policy.number(way) + times * price.number(way) - found)
            <= policy.room(way) + abs(times) * price.room(way) + 1e-7
            for way, policy in among
        )

    if any(fits(right, 1.0, pairs) for right, _ in prices):
        return []
    right, way = prices[0][0], options[0]
    place = (Place(None, None, policies[0].number(way) + right.number(way), found),)
    sure = declared_mode(e.settings) is not None or not given.coarse  # else rounding may make any average fit
    if sure and abs(right.number(way)) > VISIBLE * (policies[0].room(way) + right.room(way)):
        turned = [(price, -1.0, "loss = pg_loss − β·kl_loss") for price, _ in prices]
        turned += [(price, 1.0, f"{named}(ref − new)") for _, price in prices]
        for price, times, words in turned:
            if fits(price, times, first):
                yield Finding(KL_LOSS_SIGN, "loss", both((words, words)), place)
                return []
        if fits(right, 0.0, first):
            yield Finding(KL_LOSS_ABSENT, "loss", {"beta": coef}, place)
            return []
        old = [_price(e, coef, named, 1.0, one, "old_log_probs") for one in weights]
        if any(fits(price, 1.0, first) for price in old):
            said = {"scalar": "loss", "found": found, "expected": place[0].expected}
            yield Finding(OTHER, "loss", said | phrase("what", "audit.loss_kl_of_old"), place, classes=(22, 24))
            return []
    return [found - price.number(way) for price in (*(one for one, _ in prices), inverted)]


def _without_bonus(e: Evidence) -> float | None:
    """The logged loss without the entropy's bonus; None where that is not known."""
    bonus = number(e, "entropy_coef")
    if not bonus:
        return e.dump.scalars["loss"]
    entropy = e.dump.scalars.get("entropy_mean")
    known = entropy is not None and objectives.exact(e) and (e.settings.entropy_share or 1.0) == 1.0
    return e.dump.scalars["loss"] + bonus * entropy if known and entropy is not None else None


def _meant(e: Evidence, way: Way) -> bool:
    return declared_mode(e.settings) in (None, way.mode) and not way.classes and not way.doubtful


def _weights(e: Evidence, ratio: Floats) -> list[Floats]:
    """What a token's KL may be multiplied by: the ratio, 1, or either where no setting tells."""
    one, weighted = np.ones_like(ratio), e.settings.kl_loss_weighted
    return [one, ratio] if weighted is None else [ratio if weighted else one]


def _price(
    e: Evidence, coef: float, named: str, sign: float, weight: Floats, policy: str = "new_log_probs"
) -> Terms:  # fmt: skip
    """β times the KL of each token, or (−1) that of the reference from the policy."""
    x = sign * (e[policy] - e["ref_log_probs"])
    rounding = (rounding_of(e, policy) + rounding_of(e, "ref_log_probs")) * np.abs(e[policy])
    k, slope = kl_estimates(x)[named], kl_slopes(x)[named]
    return Terms(coef * weight * k, coef * weight * rounding * (slope + np.abs(k)), masks(e))


# ── the parts that were logged beside it ───────────────────────────────────────────────────────────────────────────

VALUE_COEFFICIENTS = (0.1, 0.5, 1.0)  # usual ones


def parts(e: Evidence) -> Iterator[Finding]:
    """loss = pg_loss + β·kl_loss − c·entropy + c_v·vf_loss, of the parts that were logged with it."""
    scalars, found = e.dump.scalars, e.dump.scalars["loss"]
    price, bonus = number(e, "kl_loss_coef"), number(e, "entropy_coef")
    kl = scalars.get("kl_loss", scalars.get("kl_mean"))
    entropy = scalars.get("entropy_loss", scalars.get("entropy_mean"))
    terms: list[tuple[float, ...]] = [(scalars["pg_loss"],)]
    terms.append((0.0, price * kl) if price and kl is not None else (0.0,))
    terms.append((0.0, -bonus * entropy) if bonus and entropy is not None else (0.0,))
    value = scalars.get("vf_loss")
    terms.append((0.0,) if value is None else (0.0, *(c * value for c in VALUE_COEFFICIENTS)))
    sums = [sum(one) for one in product(*terms)]
    room = 2e-5 * max(abs(one) for one in (found, *sums)) + 1e-8
    numbers = [found, *sums]
    if not np.isfinite(numbers).all() or any(abs(one - found) <= room for one in sums):
        return
    place = (Place(None, None, sums[-1], found),)
    said = {"scalar": "loss", "found": found, "expected": sums[-1]}
    exact = 1e-5
    for total in sums:
        for times in range(2, MOST_TIMES + 1):
            for one, other, whole in ((total, found, float(times)), (found, total, 1.0 / times)):
                if abs(other) > 1e-6 and abs(one / other / times - 1) <= exact:
                    yield Finding(SCALED, "loss", said | factor(whole), place)
                    return
    # a KL or an entropy whose coefficient is not known may be in it
    priced = price is None and (e.has("ref_log_probs") or kl is not None)
    unknown = priced or (bonus is None and entropy is not None)
    if not unknown and value is None and abs(sums[-1] - found) > 0.05 * abs(sums[-1]):
        yield Finding(NO_FIT, "loss", said, place)


CHECKS: tuple[Check, ...] = (Check.of("K12 loss parts", ("loss", "pg_loss"), parts),)
