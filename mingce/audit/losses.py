"""K12: the logged policy loss against those that the columns give, in every way that trainers have averaged them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce

import numpy as np

from mingce.audit import kl_losses, logged, objectives, statistics, total_loss, value_losses
from mingce.audit.aggregation import SPREADS, Terms, Way, Words, clip_range, declared_mode, masks, number, ways
from mingce.audit.aggregation import rounding as rounding_of
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Check, Fault, Finding, Place
from mingce.audit.matching import EXACT, Match, Variant, both, far_off, fitting, judge, times_off
from mingce.audit.passes import same_pass
from mingce.base.texts import sentence_pair
from mingce.record.dump import LOSS

OTHER_TERMS = Fault.of("loss-other-terms", "bug", (), "L_t = −min(ρ·Â, clip(ρ, 1 − ε_low, 1 + ε_high)·Â)")
NOT_CLIPPED = Fault.of("loss-not-clipped", "suspicious", (), "L_t = −min(ρ·Â, clip(ρ, 1 − ε_low, 1 + ε_high)·Â)")
OTHER_OBJECTIVE = Fault.of("loss-other-objective", "suspicious", (), "pg_loss = the loss that the settings name")
OBJECTIVE = Fault.of("loss-objective", "convention", ())
SURE_LOSSES = ("gspo", "gpg", "cispo", "sapo", "dppo_tv", "dppo_kl")
"""Losses that a dump tells all about: others draw tokens, need a setting that no dump has, or go by micro-batch."""
MOST_WORDS = 3
FAR = 4.0  # times what rounding may do: nearer losses are told apart by chance only


def policy_loss(e: Evidence) -> Iterator[Finding]:
    """pg_loss against the losses that the columns give."""
    if not e.mask.any() or ((e.settings.entropy_share or 1.0) < 1 and not (objectives.exact(e) and e.has("entropy"))):
        return
    seen, found = masks(e), e.dump.scalars["pg_loss"]
    with np.errstate(all="ignore"):
        given = objectives.Inputs(e, seen)
        usual = list(objectives.usual(given))
        options = ways(e, seen)
        variants = [(one.words, one.terms) for one in usual]
        extra = _advantages_as_mask(e, variants[0])
        named = (e.settings.policy_loss or "").lower()
        named = "" if named in objectives.PPO else named
        own = _recognised(e, objectives.called(given, named), options) if named else None
        if own is not None:
            yield from _objective(e, own)
            return
        if named in objectives.EXACT and objectives.exact(e):
            declared = [(one.words, one.terms) for one in objectives.called(given, named)]
            yield from judge(e, "pg_loss", declared, options, True, of_the_pass=True)
            return
        fits = [*fitting(variants, options, found), *extra]
        if (without := _without_clip(e, given, named, fits, usual, options)) is not None:
            yield without
            return
        meant = any(_meant(e, way) and not way.doubtful for _, way in fits)
        told = None if meant else _otherwise(e, given, usual, options, fits)
        another = usual[0] if meant else told if isinstance(told, objectives.Objective) else None
        if named in SURE_LOSSES and another is not None and not given.coarse:
            yield Finding(OTHER_OBJECTIVE, "pg_loss", {"declared": named, **both(another.words)})
            return
        if isinstance(told, Finding):
            yield told
        elif told is not None:
            yield from _objective(e, told)
        if told is not None:
            return
    known = given.given if e.dump.source != "trl_grpo" else None not in clip_range(e)  # which has more kinds of clip
    yield from judge(e, "pg_loss", variants, options, known and not named, extra, objectives.exact(e))


def _otherwise(
    e: Evidence, given: objectives.Inputs, usual: list[objectives.Objective], options: list[Way], fits: list[Match]
) -> objectives.Objective | Finding | None:
    """What the logged number is when it is not PPO's loss averaged as it may be: another loss, or a wrong one."""
    bugs, found = any(way.classes for _, way in fits), e.dump.scalars["pg_loss"]
    named = (e.settings.policy_loss or "").lower() in objectives.PPO  # then no other loss is meant
    other = None if named else _recognised(e, objectives.others(given), options)
    if other is not None and (not bugs or given.coarse):
        return other
    variants = [(one.words, one.terms) for one in usual]
    if not fits and not given.coarse:
        far = far_off(e, variants, options, FAR) and not _nearly_unclipped(e, usual[-1].terms, options)
        far = far and not _of_other_passes(e)
        wrong = [
            one for one in _all_recognised(e, objectives.wrong(given), options) if far or _exactly(e, one, options)
        ]
        if words := _alternatives(wrong):
            expected = usual[0].terms.number(next(way for way in options if _meant(e, way)))
            values = {"scalar": "pg_loss", "found": found, "expected": expected, **both(words)}
            place = (Place(None, None, expected, found),)
            classes = tuple(sorted({number for one in wrong for number in one.classes}))
            return Finding(OTHER_TERMS, "pg_loss", values, place, classes=classes)
    if bugs or (not fits and times_off(e, variants, options, given.given) is not None):
        return None
    return _recognised(e, objectives.one_dropped(given), options)


def _of_other_passes(e: Evidence) -> bool:
    """Whether the logged loss may be a mean over several passes, of which the dump has the last."""
    epochs = number(e, "ppo_epochs")
    return epochs is not None and epochs > 1 and not (objectives.exact(e) or same_pass(e, "pg_loss"))


def _without_clip(
    e: Evidence, given: objectives.Inputs, named: str, fits: list[Match], usual: list[objectives.Objective],
    options: list[Way],
) -> Finding | None:  # fmt: skip
    """A loss that is not clipped, of a trainer that says how it clips and counts what it has clipped."""
    plain, counted = usual[-1], e.dump.scalars.get("pg_clipfrac", 0.0)
    if named or given.coarse or not given.given or not counted > 0:
        return None
    meant = {label for label, way in fits if _meant(e, way)}
    if meant and meant != {plain.words}:
        return None
    if not meant and _recognised(e, [objectives.dual_clip_alone(given)], options) is None:
        return None
    expected = usual[0].terms.number(next(way for way in options if _meant(e, way)))
    values = {"scalar": "pg_loss", "found": e.dump.scalars["pg_loss"], "expected": expected, "share": counted}
    return Finding(NOT_CLIPPED, "pg_loss", values, (Place(None, None, expected, e.dump.scalars["pg_loss"]),))


def _exactly(e: Evidence, one: objectives.Objective, options: list[Way]) -> bool:
    """Whether it gives the logged number to all its digits."""
    found = e.dump.scalars["pg_loss"]
    legal = [way for way in options if _meant(e, way)]
    return any(abs(one.terms.number(way) - found) <= EXACT * one.terms.size(way) for way in legal)


def _nearly_unclipped(e: Evidence, terms: Terms, options: list[Way]) -> bool:
    """Whether the logged loss is the one without a clip but for a token or two, as KL-Cov's is."""
    found = e.dump.scalars["pg_loss"]
    legal = [way for way in options if _meant(e, way)]
    return any(abs(terms.number(way) - found) < 1e-3 * terms.size(way) for way in legal)


def _meant(e: Evidence, way: Way) -> bool:
    """Whether it is no bug, and of the aggregation that the settings name."""
    return not way.classes and declared_mode(e.settings) in (None, way.mode)


def _recognised(
    e: Evidence, candidates: Iterable[objectives.Objective], options: list[Way]
) -> objectives.Objective | None:  # fmt: skip
    """The first of the losses that gives the logged number, by an aggregation that may be meant."""
    return next(_all_recognised(e, candidates, options), None)


def _all_recognised(
    e: Evidence, candidates: Iterable[objectives.Objective], options: list[Way]
) -> Iterator[objectives.Objective]:
    """All of them."""
    found = e.dump.scalars["pg_loss"]
    for one in candidates:
        legal = [way for way in options if not way.classes]
        legal = [way for way in legal if (way.mode == one.mode if one.mode else _meant(e, way))]
        if any(one.terms.fits(way, found) for way in legal):
            yield one


def _alternatives(found: list[objectives.Objective]) -> Words | None:
    """The different losses in one sentence; None where there are none, or too many to say anything."""
    words = list(dict.fromkeys(one.words for one in found))
    if not 0 < len(words) <= MOST_WORDS:
        return None
    return reduce(lambda one, other: sentence_pair("audit.either_way", one=one, other=other), words)


def _objective(e: Evidence, one: objectives.Objective) -> Iterator[Finding]:
    """A loss under its own name."""
    if one.name != "ppo":
        e.infer("policy_loss", one.name)
    yield Finding(OBJECTIVE, "pg_loss", both(one.words))


def _advantages_as_mask(e: Evidence, variant: Variant) -> list[Match]:
    """masked_mean(ℓ, Â) = Σ ℓ·Â / Σ Â, or of |Â|, where an argument stood in the wrong place.

    Σ Â of whitened advantages is nearly 0 and mostly rounding, so the number is only known to lie beyond every mean.
    """
    (label, terms), advantages, found = variant, e[LOSS], e.dump.scalars["pg_loss"]
    words = sentence_pair("audit.advantages_as_mask")
    match = (label, Way("token-mean", words, np.zeros(len(advantages)), "advantages", "advantages", (27,)))
    with np.errstate(all="ignore"):
        size = np.abs(advantages)
        mean = float((terms.matrix * size).sum() / size.sum()) if size.any() else np.nan
        if abs(mean - found) <= 1e-5 * float((np.abs(terms.matrix) * size).sum() / max(size.sum(), 1e-30)):
            return [match]
        product, total, rounding = terms.matrix * advantages, float(advantages.sum()), rounding_of(e, LOSS)
        if not np.isfinite(product).all() or not size.any():
            return []
        loose = 3e-6 * float(size.sum()) + SPREADS * rounding * float(np.sqrt((advantages**2).sum()))
        noise = SPREADS * float(np.sqrt(((terms.error * advantages) ** 2).sum()))
        gap = abs(float(product.sum()) - found * total)
        beyond = abs(found) > float(np.abs(terms.matrix[e.mask]).max())
        if gap > abs(found) * loose + 3e-6 * float(np.abs(product).sum()) + noise:
            return []
        if not beyond and abs(total) < 100 * loose:
            return []
    return [match]


def whole_loss(e: Evidence) -> Iterator[Finding]:
    """The logged loss of policy and KL together; what is wrong with the policy's share is told of it alone."""
    rests = yield from total_loss.kl_share(e)
    if declared_mode(e.settings) is None:
        return  # what is left may be averaged in any way
    told = [list(policy_loss(Evidence(replace(e.dump, scalars=e.dump.scalars | {"pg_loss": rest})))) for rest in rests]
    named = (found for found in told if any(one.fault is OTHER_TERMS for one in found))
    yield from next(named, told[0] if told else [])


CHECKS: tuple[Check, ...] = (
    Check.of("K12 policy loss", ("pg_loss", "new_log_probs", "old_log_probs", LOSS), policy_loss),
    Check.of("K12 total loss", ("loss", "new_log_probs", "old_log_probs", "ref_log_probs", LOSS), whole_loss),
    *total_loss.CHECKS,
    *value_losses.CHECKS,
    *kl_losses.CHECKS,
    *logged.CHECKS,
    *statistics.CHECKS,
)
