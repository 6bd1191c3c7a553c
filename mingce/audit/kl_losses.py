"""K12: the KL in the loss: its sign, and how it is averaged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.aggregation import Terms, Way, declared_mode, masks, number, ways
from mingce.audit.aggregation import rounding as rounding_of
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Check, Fault, Finding, Place
from mingce.audit.kl import kl_estimates, kl_slopes
from mingce.audit.matching import Match, Variant, both, either_of, fitting

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
        if not matches:
            fits = [f for f in fitting(variants, options, -found) if not f[1].classes]
            if fits and abs(found) > 1e-9:
                label, _ = fits[0]
                words = f"kl_loss = −mean {label[0]}(new − ref)"
                places = (Place(None, None, -found, found),)
                yield Finding(KL_LOSS_SIGN, "kl_loss", both((words, words)), places)
                return
    yield from _total_loss(e, found, coef)


def _averaged(e: Evidence, matches: list[Match], variants: list[Variant], options: list[Way]) -> Iterator[Finding]:
    """A KL that is summed where the policy loss is averaged."""
    mode, found = declared_mode(e.settings), e.dump.scalars["kl_loss"]
    legal = [way for _, way in matches if not way.classes and not way.doubtful]
    coarse = rounding_of(e, "ref_log_probs") > 1e-4
    if coarse or not legal or any(way.mode == mode or "sum" not in way.mode for way in legal):
        return
    means = [way for way in options if not way.classes and way.mode == (mode or "token-mean")]
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
