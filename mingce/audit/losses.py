"""K12: the logged losses against those that the columns give, in every way in which trainers have averaged them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

import numpy as np

from mingce.audit import logged, objectives
from mingce.audit.aggregation import SPREADS, Terms, Way, Words, declared_mode, masks, number, ways
from mingce.audit.aggregation import rounding as rounding_of
from mingce.audit.evidence import Bools, Evidence, Floats, shift
from mingce.audit.finding import Check, Fault, Finding, Place, Severity
from mingce.audit.kl import kl_estimates, kl_slopes
from mingce.base.texts import sentence_pair
from mingce.record.dump import LOSS

EFFECT = 0.01  # of the mean magnitude: a logged loss that is nearer than this may be another precision

MICRO_BATCH = Fault.of("loss-micro-batch-mean", "bug", (4,), "pg_loss = Σ_b S_b / Σ_b n_b")
DENOMINATOR = Fault.of("loss-denominator", "bug", (26,), "pg_loss = Σ m·ℓ / Σ m")
NUMERATOR = Fault.of("loss-mask", "bug", (27,), "pg_loss = Σ m·ℓ / Σ m")
CONSTANT = Fault.of("loss-constant", "bug", (44,), "pg_loss = Σ m·ℓ / (rows · C)", "verl-project/verl/pull/5366")
OTHER_MODE = Fault.of("loss-other-mode", "suspicious", (), "pg_loss = agg(ℓ, m, loss_agg_mode)")
NO_FIT = Fault.of("loss-no-fit", "suspicious", (4, 26, 27, 44), "pg_loss = agg(ℓ, m, loss_agg_mode)", "")
OTHER_TERMS = Fault.of("loss-other-terms", "bug", (), "L_t = −min(ρ·Â, clip(ρ, 1 − ε_low, 1 + ε_high)·Â)")
OTHER_OBJECTIVE = Fault.of("loss-other-objective", "suspicious", (), "pg_loss = the loss that the settings name")
OBJECTIVE = Fault.of("loss-objective", "convention", ())
AGGREGATION = Fault.of("loss-aggregation", "convention", (), "pg_loss = agg(ℓ, m, loss_agg_mode)")
VALUE_CLIP = Fault.of("value-clip-idle", "bug", (45,), "vf_loss = ½·mean_m max((V' − R)², (clip(V', V ± ε) − R)²)")
VALUE_MASK = Fault.of("value-mask-shift", "bug", (19,), "vf_loss = mean over m_t of (V_t − R_t)²")
KL_LOSS_SIGN = Fault.of(
    "kl-loss-sign", "bug", (23,), "loss = pg_loss + β·kl_loss, kl_loss = mean_m k(log π − log π_ref)"
)
_FAULTS = {4: MICRO_BATCH, 26: DENOMINATOR, 27: NUMERATOR, 3: NUMERATOR, 44: CONSTANT}

KNOWN_LOSSES = (
    "vanilla", "ppo", "gspo", "gpg", "cispo", "sapo", "dppo_tv", "dppo_kl", "kl_cov", "geo_mean", "vespo", "cpi",
)  # fmt: skip
"""The names of losses that are recomputed."""

Variant = tuple[Words, Terms]
Match = tuple[Words, Way]
"""What was averaged, and how."""


def policy_loss(e: Evidence) -> Iterator[Finding]:
    """pg_loss against the losses that the columns give."""
    if not e.mask.any():
        return
    seen, found = masks(e), e.dump.scalars["pg_loss"]
    with np.errstate(all="ignore"):
        given = objectives.Inputs(e, seen)
        usual = list(objectives.usual(given))
        options = ways(e, seen)
        variants = [(one.words, one.terms) for one in usual]
        extra = _advantages_as_mask(e, variants[0])
        named = (e.settings.policy_loss or "").lower()
        fits = [*_fitting(variants, options, found), *extra]
        if not any(_meant(e, way) for _, way in fits):
            other = _recognised(e, objectives.others(given), options)
            if other is not None and (not fits or named == other.name):
                yield from _objective(e, other)
                return
            if not fits and (wrong := _recognised(e, objectives.wrong(given), options)) is not None:
                expected = usual[0].terms.number(next(way for way in options if _meant(e, way)))
                place = (Place(None, None, expected, found),)
                values = {"scalar": "pg_loss", "found": found, "expected": expected, **both(wrong.words)}
                yield Finding(OTHER_TERMS, "pg_loss", values, place, classes=wrong.classes)
                return
        elif named and named not in objectives.PPO and named in KNOWN_LOSSES:
            yield Finding(OTHER_OBJECTIVE, "pg_loss", {"declared": named, **both(usual[0].words)})
    known = given.given and named in ("", *objectives.PPO)
    yield from _judge(e, "pg_loss", variants, options, known, extra)


def _meant(e: Evidence, way: Way) -> bool:
    """Whether it is no bug, and of the aggregation that the settings name."""
    return not way.classes and not way.doubtful and declared_mode(e.settings) in (None, way.mode)


def _recognised(
    e: Evidence, candidates: Iterable[objectives.Objective], options: list[Way]
) -> objectives.Objective | None:  # fmt: skip
    """The first of the losses that gives the logged number, by an aggregation that may be meant."""
    found = e.dump.scalars["pg_loss"]
    for one in candidates:
        legal = [way for way in options if not way.classes and not way.doubtful]
        legal = [way for way in legal if (way.mode == one.mode if one.mode else _meant(e, way))]
        if any(one.terms.fits(way, found) for way in legal):
            return one
    return None


def _objective(e: Evidence, one: objectives.Objective) -> Iterator[Finding]:
    """A loss under its own name; one that is not what the settings say is suspicious."""
    declared = (e.settings.policy_loss or "").lower()
    if declared and declared != one.name and one.name != "ppo" and declared in KNOWN_LOSSES:
        yield Finding(OTHER_OBJECTIVE, "pg_loss", {"declared": declared, **both(one.words)})
        return
    if one.name != "ppo":
        e.infer("policy_loss", one.name)
    yield Finding(OBJECTIVE, "pg_loss", both(one.words))


def _advantages_as_mask(e: Evidence, variant: Variant) -> list[Match]:
    """masked_mean(ℓ, Â) = Σ ℓ·Â / Σ Â, where an argument stood in the wrong place.

    Σ Â of whitened advantages is nearly 0 and mostly rounding, so the number is only known to lie beyond every mean.
    """
    (label, terms), advantages, found = variant, e[LOSS], e.dump.scalars["pg_loss"]
    with np.errstate(all="ignore"):
        product, total = terms.matrix * advantages, float(advantages.sum())
        size, rounding = float(np.abs(advantages).sum()), rounding_of(e, LOSS)
        if not np.isfinite(product).all() or not size:
            return []
        loose = 3e-6 * size + SPREADS * rounding * float(np.sqrt((advantages**2).sum()))
        noise = SPREADS * float(np.sqrt(((terms.error * advantages) ** 2).sum()))
        gap = abs(float(product.sum()) - found * total)
        beyond = abs(found) > float(np.abs(terms.matrix[e.mask]).max())
        if gap > abs(found) * loose + 3e-6 * float(np.abs(product).sum()) + noise:
            return []
        if not beyond and abs(total) < 100 * loose:
            return []
    words = sentence_pair("audit.advantages_as_mask")
    return [(label, Way("token-mean", words, np.zeros(len(product)), "advantages", "advantages", (27,)))]


def value_loss(e: Evidence) -> Iterator[Finding]:
    """vf_loss against the squares of the columns, with and without the value clip."""
    new, old, target = e["new_values"], e["values"], e["returns"]
    if not e.mask.any():
        return
    seen, beside = masks(e), _beside(e)
    if "value_mask" in e.dump.columns:  # judged by value_mask
        kept = e.dump.columns["value_mask"].astype(bool)
        seen = {"loss": kept, **{name: mask for name, mask in seen.items() if name != "loss"}}
    clip = number(e, "value_clip")
    with np.errstate(all="ignore"):
        plain = (new - target) ** 2
        rounding = (
            2
            * np.sqrt(plain)
            * (rounding_of(e, "new_values") * np.abs(new) + rounding_of(e, "returns") * np.abs(target))
        )
        matrices = {"plain": (sentence_pair("audit.plain_square"), plain)}
        for range_ in (clip,) if clip is not None else (0.2, 0.5):
            limited = (np.clip(new, old - range_, old + range_) - target) ** 2
            matrices[f"larger {range_}"] = (sentence_pair("audit.larger_square"), np.maximum(plain, limited))
            matrices |= _wrong_squares(new, target, plain, limited, range_)
    right = [name for name in matrices if name.startswith("larger") or (clip is None and name == "plain")]
    variants = {
        name: [(label, Terms(factor * matrix, factor * rounding, seen)) for factor in (0.5, 1.0)]
        for name, (label, matrix) in matrices.items()
    }
    options, found = ways(e, seen), e.dump.scalars["vf_loss"]
    meant = [variant for name in right for variant in variants[name]]
    plainly = [way for way in options if not way.classes]
    if not _fitting(meant, plainly, found):
        idle = [v for name in matrices if name not in right for v in variants[name]]
        fits = _fitting(idle, plainly, found)
        if fits:
            label, way = fits[0]
            expected = meant[0][1].number(way)
            place = (Place(None, None, expected, found),)
            others = {c for _, way in _fitting(meant, options, found) for c in way.classes}
            yield Finding(VALUE_CLIP, "vf_loss", both(label), place, classes=tuple(sorted({45} | others)))
            return
    if "value_mask" not in e.dump.columns and not _fitting(meant, plainly, found):
        for words, mask in beside.items():
            moved = [(label, Terms(terms.matrix, terms.error, {"loss": mask})) for label, terms in meant]
            total = int(mask.sum())
            if total and _fitting(moved, [Way("token-mean", words, np.full(len(mask), 1.0 / total))], found):
                place = (Place(None, None, meant[0][1].number(plainly[0]), found),)
                yield Finding(VALUE_MASK, "vf_loss", both(words), place)
                return
    yield from _judge(e, "vf_loss", meant, options, clip is not None)


def _wrong_squares(
    new: Floats, target: Floats, plain: Floats, limited: Floats, clip: float
) -> dict[str, tuple[Words, Floats]]:  # fmt: skip
    """Squares of a value clip that went wrong, by what went wrong."""
    made = {f"clipped {clip}": (sentence_pair("audit.clipped_square"), limited)}
    made[f"smaller {clip}"] = (sentence_pair("audit.smaller_square"), np.minimum(plain, limited))
    around = {"zero": np.clip(new, -clip, clip), "returns": np.clip(new, target - clip, target + clip)}
    for name, near in around.items():
        words = sentence_pair(f"audit.square_around_{name}")
        made[f"{name} {clip}"] = (words, np.maximum(plain, (near - target) ** 2))
        made[f"only {name} {clip}"] = (words, (near - target) ** 2)
    return made


def value_mask(e: Evidence) -> Iterator[Finding]:
    """The critic's own mask: the policy's, or one slot beside it. TRL's keeps one slot more, which is not beside."""
    kept = e.dump.columns["value_mask"].astype(bool)
    for words, mask in _beside(e).items():
        if np.array_equal(kept, mask) and not np.array_equal(mask, e.mask):
            places = e.places(kept != e.mask, e.mask.astype(np.float64), kept.astype(np.float64))
            yield Finding(VALUE_MASK, "value_mask", both(words), places)


def _beside(e: Evidence) -> dict[Words, Bools]:
    """The response mask one slot to the left and to the right."""
    return {
        sentence_pair("audit.mask_left"): shift(e.mask, 1),
        sentence_pair("audit.mask_right"): shift(e.mask, -1),
    }


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
        if not _fitting(variants, options, found):
            fits = [f for f in _fitting(variants, options, -found) if not f[1].classes]
            if fits and abs(found) > 1e-9:
                label, _ = fits[0]
                words = f"kl_loss = −mean {label[0]}(new − ref)"
                places = (Place(None, None, -found, found),)
                yield Finding(KL_LOSS_SIGN, "kl_loss", both((words, words)), places)
                return
    yield from _total_loss(e, found, coef)


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


def _judge(
    e: Evidence, scalar: str, variants: list[Variant], options: list[Way], known: bool,
    extra: Iterable[Match] = (),
) -> Iterator[Finding]:  # fmt: skip
    """Which ways give the logged number, and what follows."""
    found, epochs = e.dump.scalars[scalar], number(e, "ppo_epochs")
    if not np.isfinite(found) or not options:
        return
    declared = declared_mode(e.settings) if scalar == "pg_loss" else None
    fits = [*_fitting(variants, options, found), *extra]
    meant = [way for _, way in fits if not way.classes and not way.doubtful]
    if right := [way for way in meant if declared in (None, way.mode)]:
        modes = sorted({way.mode for way in right})
        if scalar == "pg_loss":
            if len(modes) == 1:
                e.infer("loss_agg_mode", modes[0])
            if declared is None:
                yield Finding(AGGREGATION, scalar, {"scalar": scalar, **_either(right)})
        return
    repeated = epochs is not None and epochs > 1
    coarse = any(rounding_of(e, name) > 1e-4 for name in ("new_log_probs", "new_values") if name in e.dump.columns)
    normal = next(way for way in options if not way.classes and declared in (None, way.mode))
    place = Place(None, None, variants[0][1].number(normal), found)
    bugs = [way for _, way in fits if way.classes and declared in (None, way.mode)]
    if bugs and not (repeated and coarse):
        doubtful = [way for _, way in fits if way.doubtful and declared is None]
        classes = sorted({c for way in bugs for c in way.classes} | ({44} if doubtful else set()))
        level: Severity | None = "suspicious" if doubtful else None
        if e.dump.source == "trl" and 4 in classes:
            level = "convention"  # TRL's PPO averages each micro-batch by itself
        values = {"scalar": scalar, **_either(bugs), "declared": declared}
        fault = _FAULTS[bugs[0].classes[-1]]
        yield Finding(fault, scalar, values, (place,), severity=level, classes=tuple(classes))
    elif meant and declared is not None and not coarse:
        values = {"scalar": scalar, **_either(meant), "declared": declared}
        level = "convention" if e.dump.source == "mingce" else None  # our log is the token-mean whatever the loss
        yield Finding(OTHER_MODE, scalar, values, (place,), severity=level)
    elif not fits and known and not repeated:
        legal = [way for way in options if not way.classes and declared in (None, way.mode)]
        far = all(
            abs(terms.number(way) - found) > EFFECT * terms.size(way) for _, terms in variants for way in legal
        )  # fmt: skip
        if far and np.isfinite(place.expected):
            numbers = {"scalar": scalar, "found": found, "expected": place.expected}
            yield Finding(NO_FIT, scalar, numbers, (place,))


def _fitting(variants: Iterable[Variant], options: list[Way], found: float) -> list[Match]:
    """What gives the logged number, the nearest first."""
    fits = [
        (abs(terms.number(way) - found), label, way)
        for label, terms in variants
        for way in options
        if terms.fits(way, found)
    ]
    return [(label, way) for _, label, way in sorted(fits, key=lambda fit: round(fit[0], 9))]


def both(label: Words) -> dict[str, str]:
    """Words for the texts of a fault in each language."""
    return {"way_zh": label[0], "way_en": label[1]}


def _either(found: list[Way]) -> dict[str, str]:
    """The different ways, each once, the first three."""
    unique = list(dict.fromkeys(way.words for way in found))[:3]
    return both(reduce(lambda one, other: sentence_pair("audit.either_way", one=one, other=other), unique))


CHECKS: tuple[Check, ...] = (
    Check.of(
        "K12 policy loss", ("pg_loss", "new_log_probs", "old_log_probs", LOSS), policy_loss,
    ),
    Check.of(
        "K12 value loss", ("vf_loss", "new_values", "values", "returns"), value_loss
    ),
    Check.of("K12 value mask", ("value_mask",), value_mask),
    Check.of("K12 KL loss", ("kl_loss",), kl_loss),
    *logged.CHECKS,
)  # fmt: skip
