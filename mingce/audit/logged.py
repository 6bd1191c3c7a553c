"""K12, K9: logged metrics against the columns they are made of, and the value clip's share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.aggregation import Terms, Way, Words, declared_mode, masks, number
from mingce.audit.definitions import SCALARS, Definition, definitions, moved
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Check, Fault, Finding, Place, Severity, phrase
from mingce.audit.passes import every_way, plain_ways, seen_masks, witnesses
from mingce.audit.precision import LOG_PROBS
from mingce.audit.statistics import OTHER, OVER_PADS, UNEXPLAINED, about_these_rows
from mingce.base.texts import sentence_pair

EFFECT = 0.01
LEAST_TOKENS = 16
LEAST_CLIPPED = 3
MOST_TIMES = 64
MEANS = ("token-mean", "seq-mean-token-mean")
SUMMED = ("seq-mean-token-sum-norm", "seq-mean-token-sum")
SHARES = ("pg_clipfrac", "pg_clipfrac_lower", "vf_clipfrac")
CLIPS = ("pg_clipfrac", "pg_clipfrac_lower")
OF_THE_PASS = (*SHARES, "approx_kl", "ratio_mean")
"""Numbers that an update logs of what the dump holds of it; an entropy may be that of the policy after it."""

NEGATIVE = Fault.of("metric-sign", "suspicious", (47,), "metric = Σ m·x / Σ m", "")
CLIPFRAC = Fault.of("value-clipfrac-zero", "bug", (45,), "vf_clipfrac = mean_m [(clip(V', V ± ε) − R)² > (V' − R)²]")
SAME_VALUES = Fault.of("value-clip-same-values", "suspicious", (45,), "V' − V ≠ 0 after an update")
_OVER = {"all": "audit.over_all", "attended": "audit.over_attended", "chosen": "audit.over_chosen"}


def metrics(e: Evidence) -> Iterator[Finding]:
    """Each logged mean: over chosen tokens, as it should be, over more, or of something else."""
    if int(e.mask.sum()) < LEAST_TOKENS:
        return
    for scalar in (one for one in SCALARS if one in e.dump.scalars and np.isfinite(e.dump.scalars[one])):
        made = definitions(e, scalar)
        if made and not made[0].key:
            yield from _judged(e, scalar, made)


def _judged(e: Evidence, scalar: str, made: list[Definition]) -> Iterator[Finding]:
    found, seen = e.dump.scalars[scalar], seen_masks(e)
    if scalar == "vf_clipfrac" and not found:
        return  # judged by the value clip
    # TRL's PPO logs sums of a row's KL and entropy
    summed = scalar in ("kl_mean", "entropy_mean") and e.dump.source in ("trl", "generic")
    meant = [way for way in plain_ways(e) if summed or "sum" not in way.mode]
    terms = [Terms(one.matrix, one.error, seen) for one in made if not one.key]
    if any(t.fits(way, found) for t in terms for way in meant):
        return
    expected, size = terms[0].number(meant[0]), terms[0].size(meant[0])
    place = (Place(None, None, expected, found),)
    values = {"scalar": scalar, "found": found, "expected": expected}
    if any(t.fits(way, -found) for t in terms for way in meant):
        if (scalar == "entropy_mean" or e.dump.source == "verl") and abs(found) > 1e-3:
            yield Finding(NEGATIVE, scalar, values | {"expected": -found}, (Place(None, None, -found, found),))
        return
    over = _over_pads(e, found, terms, meant)
    if over is not None:
        level = _usual_over_pads(e, scalar, terms)
        yield Finding(OVER_PADS, scalar, values | phrase("over", _OVER[over.denominator]), place, severity=level)
        return
    if scalar == "entropy_mean" and _usual_over_pads(e, scalar, terms):
        return  # verl aggregates the entropy as it does the loss
    if min(abs(t.number(way) - found) for t in terms for way in meant) <= EFFECT * size:
        return
    others = witnesses(e, scalar)
    if scalar in CLIPS and "pg_loss" in e.dump.scalars and "pg_loss" not in others:
        return  # of another loss, or of another pass
    anchored = bool(others)
    wrong = _instead(e, scalar, made, meant, found, expected)
    times = _whole_times(terms[0], meant[0], found) if anchored and not wrong else None
    if times is not None:
        wrong = [
            sentence_pair("audit.too_small" if times > 1 else "audit.too_large", times=f"{max(times, 1 / times):.0f}")
        ]
    if wrong:
        zh, en = zip(*wrong, strict=True)
        yield Finding(OTHER, scalar, values | {"what": "; ".join(en), "what_zh": "；".join(zh)}, place)
    elif anchored and scalar in OF_THE_PASS and _far(terms, meant, found):
        yield Finding(UNEXPLAINED, scalar, values | {"count": len(others)}, place)
    elif _of_the_batch(e, scalar, found, expected) and _far(terms, meant, found):
        yield Finding(UNEXPLAINED, scalar, values | {"count": 3}, place)


def _of_the_batch(e: Evidence, scalar: str, found: float, expected: float) -> bool:
    """Whether it is logged of the batch as it was drawn, and the log is that of the dump's rows.

    An entropy that is not far off may be that after the update.
    """
    if scalar == "entropy_mean":
        own = e.has("entropy") and not (expected and 0.5 < found / expected < 2)
    else:
        own = scalar == "kl_mean" and e.settings.kl_estimator != "full"
    return own and e.dump.source in ("verl", "mingce") and about_these_rows(e)


def _far(terms: list[Terms], meant: list[Way], found: float) -> bool:
    """Whether it is farther off than a mean of the means of unequal parts, which no dump tells of, may be."""
    count = max(int(terms[0].masks["loss"].sum()), 1)
    return all(
        abs(t.number(way) - found)
        > 0.25 * abs(t.number(way)) + 0.05 * t.size(way) + 5 * (t.size(way) / count) ** 0.5 + 10 * t.room(way)
        for t in terms
        for way in meant
    )


def _over_pads(e: Evidence, found: float, terms: list[Terms], meant: list[Way]) -> Way | None:
    """The way over the padding that gives the number: one mask above and below, or a sum of what is 0 behind the mask
    over all slots. Where rounding leaves so much room that it may do so by chance, none."""
    wrong = [way for way in every_way(e) if way.denominator in ("all", "attended") and way.mode == "token-mean"]
    for one in terms:
        expected = one.number(meant[0])
        for way in wrong:
            far = abs(expected - found) > max(EFFECT * one.size(meant[0]), 100 * one.room(way))
            if far and one.fits(way, found):
                return way
    return None


def _usual_over_pads(e: Evidence, scalar: str, terms: list[Terms]) -> Severity | None:
    """TRL's PPO logs approx_kl over the padding; verl aggregates the entropy as it does the loss."""
    if e.dump.source == "trl":
        return "convention"
    told = abs(e.dump.scalars.get("pg_loss", 0.0)) > 1e-6  # a loss of 0 is that of every mode
    told = told and not any(e.grid(name) for name in LOG_PROBS if e.has(name))  # so may a rounded one be
    mode = declared_mode(e.settings if told else e.dump.settings)
    modes = (mode,) if mode else (*SUMMED, "token-sum")
    summed = [way for way in every_way(e) if way.mode in modes and not (mode and way.classes)]
    fits = scalar == "entropy_mean" and any(t.fits(way, e.dump.scalars[scalar]) for t in terms for way in summed)
    return "convention" if fits else None


def _instead(
    e: Evidence, scalar: str, made: list[Definition], meant: list[Way], found: float, expected: float
) -> list[Words]:
    """What the number is a mean of instead; three at most."""
    means = [way for way in meant if not way.classes and way.mode in MEANS]
    others = [one for one in made if one.key]
    if scalar in ("approx_kl", "kl_mean") and not any(e.grid(name) for name in LOG_PROBS if e.has(name)):
        others += [other for one in made[:1] if not one.key for other in moved(one)]
    words: list[Words] = []
    for one in others:
        terms = Terms(one.matrix, one.error, seen_masks(e))
        fits = (way for way in means if terms.fits(way, found))
        if any(terms.room(way) < 0.02 * min(abs(expected - found), abs(found)) for way in fits):
            words.append(sentence_pair(f"audit.{one.key}", of=one.of))
    sums = [way for way in plain_ways(e) if "sum" in way.mode and way.mode != "token-sum" and not way.classes]
    for one in [] if words else made:
        terms = Terms(one.matrix, one.error, seen_masks(e))
        if any(terms.fits(way, found) and terms.room(way) < 0.02 * abs(found) for way in sums):
            what = sentence_pair(f"audit.{one.key}", of=one.of) if one.key else sentence_pair("audit.metric_itself")
            words.append(sentence_pair("audit.metric_row_sum", what=what))
    return list(dict.fromkeys(words))[:3]


def _whole_times(terms: Terms, way: Way, found: float) -> float | None:
    """The whole number that the logged one is too small by, or 1 over it where it is too large."""
    expected, room = terms.number(way), terms.room(way)
    if (
        not np.isfinite([expected, found]).all()
        or not expected
        or not found
        or room > 1e-3 * min(abs(expected), abs(found))
    ):
        return None
    for ratio, exact in ((expected / found, abs(found)), (found / expected, abs(expected))):
        whole = round(ratio)
        if 2 <= whole <= MOST_TIMES and abs(ratio - whole) * exact <= room + 1e-6 * exact * whole:
            return float(whole) if exact == abs(found) else 1.0 / whole
    return None


def value_clip(e: Evidence) -> Iterator[Finding]:
    """The share of tokens that the value clip decides, and values that never differ."""
    new, old, mask = e["new_values"], e["values"], masks(e)["loss"]
    if int(mask.sum()) < LEAST_TOKENS:
        return
    with np.errstate(all="ignore"):
        clip, share = number(e, "value_clip"), e.dump.scalars.get("vf_clipfrac")
        if clip is not None and clip > 0 and share == 0 and "returns" in e.dump.columns:
            near, target = np.clip(new, old - clip, old + clip), e["returns"]
            room = (0.02 if e.grid("values") or e.grid("new_values") else 1e-4) * (np.abs(old) + np.abs(new)) + 1e-6
            decides = mask & (np.abs(new - old) > clip + room)
            decides &= (near - target) ** 2 > (new - target) ** 2 * (1 + 1e-3)
            count = int(decides.sum())
            if count >= LEAST_CLIPPED and count > 1e-3 * mask.sum():
                expected = count / int(mask.sum())
                places = (Place(None, None, expected, 0.0), *e.places(decides, old, new))
                hit = float(decides.any(axis=1).sum() / max(mask.any(axis=1).sum(), 1))
                yield Finding(CLIPFRAC, "vf_clipfrac", {"count": count, "clip": clip}, places, hit)
        if not e.has("new_log_probs", "old_log_probs") or np.ptp(old[mask]) == 0 or not np.array_equal(new, old):
            return
        if number(e, "critic_updates") == 1:  # new_values are those of the last update, made before it: the first ones
            return
        moved = np.abs(e["new_log_probs"] - e["old_log_probs"])[mask]
        if float(np.median(moved)) > 1e-3:
            yield Finding(SAME_VALUES, "new_values")


CHECKS: tuple[Check, ...] = (
    Check.of("K12 logged metrics", ("|".join(SCALARS),), metrics),
    Check.of("K12 value clip", ("new_values", "values"), value_clip),
)
