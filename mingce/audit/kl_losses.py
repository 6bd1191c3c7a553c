"""K12: the KL in the loss: its sign, and how it is averaged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.aggregation import Terms, Way, declared_mode, masks, number, ways
from mingce.audit.aggregation import rounding as rounding_of
from mingce.audit.definitions import LOGS
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Check, Fault, Finding, Place
from mingce.audit.kl import kl_estimates, kl_slopes
from mingce.audit.matching import Match, Variant, both, either_of, fitting
from mingce.audit.objectives import PPO
from mingce.audit.passes import same_pass, witnesses
from mingce.audit.statistics import OTHER, UNEXPLAINED
from mingce.base.texts import sentence_pair

KL_LOSS_SIGN = Fault.of(
    "kl-loss-sign", "bug", (23,), "loss = pg_loss + β·kl_loss, kl_loss = mean_m k(log π − log π_ref)"
)
KL_LOSS_MODE = Fault.of("kl-loss-mode", "suspicious", (4, 26), "kl_loss = agg(k, m, loss_agg_mode)", "")


def kl_loss(e: Evidence) -> Iterator[Finding]:
    """The sign of kl_loss, from its own columns and from the total loss where it was logged."""
    found, coef = e.dump.scalars["kl_loss"], number(e, "kl_loss_coef")
    seen, policy = masks(e), "new_log_probs" if "new_log_probs" in e.dump.columns else "old_log_probs"
    if coef is not None and coef < 0:
        words = f"kl_loss_coef = {coef:g}"
        yield Finding(KL_LOSS_SIGN, "kl_loss", both((words, words)))
        return
    if e.mask.any() and e.has(policy, "ref_log_probs"):
        with np.errstate(all="ignore"):
            x = e[policy] - e["ref_log_probs"]
            rounding = rounding_of(e, policy) * np.abs(e[policy]) + rounding_of(e, "ref_log_probs") * np.abs(e[policy])
            scaled = [1.0] if not coef else [1.0, coef]
            estimates, slopes = kl_estimates(x), kl_slopes(x)
        options = [way for way in ways(e, seen) if way.numerator == way.denominator == "loss"]
        variants = [
            ((name, name), Terms(factor * k, factor * rounding * slopes[name], seen))
            for name, k in estimates.items()
            for factor in scaled
        ]
        matches = fitting(variants, options, found)
        yield from _averaged(e, matches, variants, options)
        if not matches and (other := _of_another_pair(e, variants, options, policy)) is not None:
            yield other
            return
        if not matches:
            fits = [f for f in fitting(variants, options, -found) if not f[1].classes]
            if fits and abs(found) > 1e-9:
                label, _ = fits[0]
                words = f"kl_loss = −mean {label[0]}(new − ref)"
                places = (Place(None, None, -found, found),)
                yield Finding(KL_LOSS_SIGN, "kl_loss", both((words, words)), places)
                return
    yield from _total_loss(e, found, coef)


def _of_another_pair(e: Evidence, variants: list[Variant], options: list[Way], policy: str) -> Finding | None:
    """A KL of other log-probs than the policy's and the reference's; or of nothing known, where other numbers of the
    same pass follow from the columns."""
    found, mode, seen = e.dump.scalars["kl_loss"], declared_mode(e.settings), masks(e)
    legal = [way for way in options if not way.classes and not way.doubtful and mode in (None, way.mode)]
    expected = variants[0][1].number(legal[0])
    numbers = {"scalar": "kl_loss", "found": found, "expected": expected}
    place = (Place(None, None, expected, found),)
    names = [name for name in LOGS if e.has(name)]
    words: list[tuple[str, str]] = []
    for one in names:
        for other in (name for name in names if name != one and (one, name) != (policy, "ref_log_probs")):
            with np.errstate(all="ignore"):
                x = e[one] - e[other]
                estimates, slopes = kl_estimates(x), kl_slopes(x)
            error = rounding_of(e, one) * np.abs(e[one]) + rounding_of(e, other) * np.abs(e[other])
            for name, k in estimates.items():
                terms = Terms(k, error * slopes[name], seen)
                if any(terms.fits(way, found) and terms.room(way) < 0.02 * abs(found) for way in legal):
                    words.append(sentence_pair("audit.metric_of_pair", of=f"{name}({LOGS[one]} − {LOGS[other]})"))
    if words:
        zh, en = zip(*list(dict.fromkeys(words))[:3], strict=True)
        said = numbers | {"what": "; ".join(en), "what_zh": "；".join(zh)}
        return Finding(OTHER, "kl_loss", said, place, classes=(22, 24))
    negative = fitting(variants, options, -found)
    far = all(abs(t.number(way) - found) > 0.25 * t.size(way) + 10 * t.room(way) for _, t in variants for way in legal)
    if negative or not far or not same_pass(e, "kl_loss") or e.settings.kl_estimator == "full":
        return None
    return Finding(
        UNEXPLAINED, "kl_loss", numbers | {"count": len(witnesses(e, "kl_loss"))}, place, classes=(24, 22, 47)
    )


def _averaged(e: Evidence, matches: list[Match], variants: list[Variant], options: list[Way]) -> Iterator[Finding]:
    """A KL that is summed where the policy loss is averaged."""
    mode, found = declared_mode(e.settings), e.dump.scalars["kl_loss"]
    legal = [way for _, way in matches if not way.classes and not way.doubtful]
    coarse = rounding_of(e, "ref_log_probs") > 1e-4
    if mode is None or e.settings.policy_loss not in (None, *PPO):
        return  # how the policy loss is averaged is not known
    if coarse or not legal or any(way.mode == mode or "sum" not in way.mode for way in legal):
        return
    means = [way for way in options if not way.classes and way.mode == mode]
    expected = variants[0][1].number(means[0])
    values = {"found": found, "expected": expected, **either_of(legal)}
    yield Finding(KL_LOSS_MODE, "kl_loss", values, (Place(None, None, expected, found),))


def _total_loss(e: Evidence, kl: float, coef: float | None) -> Iterator[Finding]:
    scalars = e.dump.scalars
    if not coef or "loss" not in scalars or "pg_loss" not in scalars:
        return
    bonus = (number(e, "entropy_coef") or 0.0) * scalars.get("entropy_loss", scalars.get("entropy_mean", 0.0))
    rest, term = scalars["loss"] - scalars["pg_loss"] + bonus, coef * kl
    room = 1e-5 * (abs(scalars["loss"]) + abs(scalars["pg_loss"]) + abs(bonus)) + 1e-4 * abs(term)
    if abs(rest + term) <= room and abs(rest - term) > 3 * room:
        way = "loss = pg_loss − β·kl_loss"
        places = (Place(None, None, scalars["loss"] + 2 * term, scalars["loss"]),)
        yield Finding(KL_LOSS_SIGN, "loss", both((way, way)), places)


CHECKS: tuple[Check, ...] = (Check.of("K12 KL loss", ("kl_loss",), kl_loss),)
