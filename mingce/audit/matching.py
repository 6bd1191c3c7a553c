"""K12: which ways of averaging give a logged loss, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

import numpy as np

from mingce.audit.aggregation import Terms, Way, Words, declared_mode, number
from mingce.audit.aggregation import rounding as rounding_of
from mingce.audit.evidence import Evidence
from mingce.audit.finding import Fault, Finding, Place, Severity
from mingce.audit.passes import same_pass
from mingce.base.texts import sentence_pair

EXACT = 1e-7  # of the terms' size: what sums in single precision lose
MOST_TIMES = 64  # accumulation steps, ranks
EFFECT = 0.01  # of the mean magnitude: a logged loss that is nearer than this may be another precision
FINE = 2e-4  # and where the log is known to be of the same update
FAR = 4.0  # times what rounding may do
NOTHING = 1e-8  # a difference that moves no weight, whatever it is beside a loss that has collapsed

MICRO_BATCH = Fault.of("loss-micro-batch-mean", "bug", (4,), "pg_loss = Σ_b S_b / Σ_b n_b")
DENOMINATOR = Fault.of("loss-denominator", "bug", (26,), "pg_loss = Σ m·ℓ / Σ m")
NUMERATOR = Fault.of("loss-mask", "bug", (27,), "pg_loss = Σ m·ℓ / Σ m")
CONSTANT = Fault.of("loss-constant", "bug", (44,), "pg_loss = Σ m·ℓ / (rows · C)", "verl-project/verl/pull/5366")
OTHER_MODE = Fault.of("loss-other-mode", "suspicious", (4, 26, 44), "pg_loss = agg(ℓ, m, loss_agg_mode)")
SCALED = Fault.of("loss-scaled", "suspicious", (4, 26, 44), "pg_loss = agg(ℓ, m, loss_agg_mode)", "")
NO_FIT = Fault.of("loss-no-fit", "suspicious", (4, 26, 27), "pg_loss = agg(ℓ, m, loss_agg_mode)", "")
AGGREGATION = Fault.of("loss-aggregation", "convention", (), "pg_loss = agg(ℓ, m, loss_agg_mode)")
_FAULTS = {4: MICRO_BATCH, 26: DENOMINATOR, 27: NUMERATOR, 3: NUMERATOR, 44: CONSTANT}

Variant = tuple[Words, Terms]
Match = tuple[Words, Way]
"""What was averaged, and how."""


def judge(
    e: Evidence, scalar: str, variants: list[Variant], options: list[Way], known: bool,
    extra: Iterable[Match] = (), of_the_pass: bool = False,
) -> Iterator[Finding]:  # fmt: skip
    """Which ways give the logged number, and what follows. `of_the_pass`: it is known to be that of the columns."""
    found, epochs = e.dump.scalars[scalar], number(e, "ppo_epochs")
    if not np.isfinite(found) or not options:
        return
    declared = declared_mode(e.settings) if scalar == "pg_loss" else None
    fits = [*fitting(variants, options, found), *extra]
    # a wrong mask or denominator of another aggregation than the declared one explains nothing
    fits = [(label, way) for label, way in fits if not way.classes or _as_declared(way, declared)]
    meant = [way for _, way in fits if not way.classes and not way.doubtful]
    if right := [way for way in meant if declared in (None, way.mode)]:
        modes = sorted({way.mode for way in right})
        if scalar == "pg_loss":
            if len(modes) == 1:
                e.infer("loss_agg_mode", modes[0])
            if declared is None:
                yield Finding(AGGREGATION, scalar, {"scalar": scalar, **either_of(right)})
        return
    repeated = epochs is not None and epochs > 1 and not (of_the_pass or same_pass(e, scalar))
    coarse = any(rounding_of(e, name) > 1e-4 for name in ("new_log_probs", "new_values") if name in e.dump.columns)
    normal = next(way for way in options if not way.classes and declared in (None, way.mode))
    place = Place(None, None, variants[0][1].number(normal), found)
    bugs = [way for _, way in fits if way.classes]
    if coarse:  # rounding may leave room for any number
        terms, apart = variants[0][1], abs(place.expected - found)
        bugs = [way for way in bugs if way.numerator not in terms.masks or terms.room(way) < 0.1 * apart]
    doubtful = [way for _, way in fits if way.doubtful and declared is None]
    if doubtful and _constant_is_usual(e, variants, options):
        yield Finding(AGGREGATION, scalar, {"scalar": scalar, **either_of(doubtful)})
    elif bugs and not (repeated and coarse):
        classes = sorted({c for way in bugs for c in way.classes} | ({44} if doubtful else set()))
        level: Severity | None = "suspicious" if doubtful or coarse else None  # rounding leaves room for chance
        if 4 in classes and (e.dump.source == "trl" or e.settings.loss_agg_mode == "bnpo"):
            level = "convention"  # TRL's PPO averages each micro-batch by itself, and its GRPO with that loss type
        values = {"scalar": scalar, **either_of(bugs), "declared": declared}
        fault = _FAULTS[bugs[0].classes[-1]]
        yield Finding(fault, scalar, values, (place,), severity=level, classes=tuple(classes))
    elif meant and declared is not None and not coarse and far_off(e, variants, options, 20.0, scalar):
        values = {"scalar": scalar, **either_of(meant), "declared": declared}
        level = "convention" if e.dump.source == "mingce" else None  # our log is the token-mean whatever the loss
        yield Finding(OTHER_MODE, scalar, values, (place,), severity=level)
    elif not fits and str(declared).endswith("-norm") and (other := _constant(e, variants, options, found)) is not None:
        words = sentence_pair("audit.other_constant", constant=other)
        values = {"scalar": scalar, **both(words), "declared": declared}
        yield Finding(CONSTANT, scalar, values, (place,), severity=None if e.settings.loss_norm else "suspicious")
    elif not fits and (times := times_off(e, variants, options, known, scalar)) is not None:
        told = {"scalar": scalar, "found": found, "expected": place.expected, **factor(times)}
        yield Finding(SCALED, scalar, told, (place,))
    elif not fits and known and not repeated:
        legal = [way for way in options if not way.classes and declared in (None, way.mode)]
        # where another number of the same update follows to all its digits, so must this one
        effect = FINE if not coarse and (of_the_pass or same_pass(e, scalar)) else EFFECT
        far = all(
            abs(terms.number(way) - found) > max(effect * terms.size(way), FAR * terms.room(way), NOTHING)
            for _, terms in variants
            for way in legal
        )
        if far and np.isfinite(place.expected):
            numbers = {"scalar": scalar, "found": found, "expected": place.expected}
            yield Finding(NO_FIT, scalar, numbers, (place,))


def _as_declared(way: Way, declared: str | None) -> bool:
    """Whether it is of the declared aggregation; advantages in the place of the mask leave none."""
    return declared in (None, way.mode) or way.numerator == "advantages"


def _constant_is_usual(e: Evidence, variants: list[Variant], options: list[Way]) -> bool:
    """Whether a sum over the padded width is the trainer's own mode: it averages the entropy so, too, or says nothing.

    Dr. GRPO's constant is the padded width by default, and a forgotten mask gives the same number.
    """
    entropy = e.dump.scalars.get("entropy_mean")
    if (
        entropy is None or not e.has("entropy") or e.dump.source == "trl_grpo"
    ):  # whose entropy is a mean whatever the loss
        return True
    terms = Terms(e["entropy"], np.abs(e["entropy"]) * rounding_of(e, "entropy"), variants[0][1].masks)
    return any(terms.fits(way, entropy) for way in options if way.mode.endswith("-norm"))


def far_off(e: Evidence, variants: list[Variant], options: list[Way], times: float, scalar: str = "pg_loss") -> bool:
    """Whether the logged loss is that many times farther from every one that may be meant than rounding takes it."""
    found, declared = e.dump.scalars[scalar], declared_mode(e.settings) if scalar == "pg_loss" else None
    legal = [way for way in options if not way.classes and declared in (None, way.mode)]
    return all(abs(terms.number(way) - found) > times * terms.room(way) for _, terms in variants for way in legal)


def times_off(
    e: Evidence, variants: list[Variant], options: list[Way], known: bool, scalar: str = "pg_loss"
) -> float | None:  # fmt: skip
    """The whole number that the logged loss is too small by (or 1 over it, where it is too large), unless rounding
    leaves so much room that a whole number fits by chance."""
    found, chance = e.dump.scalars[scalar], 1e-3 if known else 3e-4
    declared = declared_mode(e.settings) if scalar == "pg_loss" else None
    legal = [way for way in options if not way.classes and not way.doubtful and declared in (None, way.mode)]
    if declared is None:  # a sum over a number is that of a mode with a constant of its own
        legal = [way for way in legal if "sum" not in way.mode]
    for _, terms in variants:
        for way in legal:
            expected, room = terms.number(way), EXACT * terms.size(way)
            if not np.isfinite([expected, found]).all() or not room or not found or not expected:
                continue
            if max(abs(expected / found), abs(found / expected)) > MOST_TIMES + 1:
                continue
            smaller, larger = round(expected / found), round(found / expected)
            if 2 <= smaller <= MOST_TIMES and room <= chance * abs(found) and abs(found * smaller - expected) <= room:
                return float(smaller)
            sure = room * larger <= chance * abs(expected)
            if 2 <= larger <= MOST_TIMES and sure and abs(found / larger - expected) <= room:
                return 1.0 / larger
    return None


def _constant(e: Evidence, variants: list[Variant], options: list[Way], found: float) -> float | None:
    """The whole number that the logged loss has for the constant of its aggregation."""
    legal = [way for way in options if way.mode.endswith("-norm") and not way.classes and not way.doubtful]
    given = number(e, "loss_norm") or number(e, "max_response_length") or float(e.mask.shape[1])
    for _, terms in variants:
        for way in legal:
            expected = terms.number(way)
            quotient = given * expected / found if found else 0.0
            whole = round(quotient) if np.isfinite(quotient) else 0
            sure = abs(expected) > 1e-2 * terms.size(way)
            if sure and 1 <= whole <= 4 * given and whole != given and terms.fits(way, found * whole / given):
                return float(whole)
    return None


def factor(times: float) -> dict[str, str]:
    """By how much a number is too small (above 1) or too large, for the texts."""
    key, whole = ("audit.too_small", times) if times > 1 else ("audit.too_large", 1 / times)
    zh, en = sentence_pair(key, times=f"{whole:.0f}")
    return {"how_zh": zh, "how": en}


def fitting(variants: Iterable[Variant], options: list[Way], found: float) -> list[Match]:
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


def either_of(found: list[Way]) -> dict[str, str]:
    """The different ways, each once, the first three."""
    unique = list(dict.fromkeys(way.words for way in found))[:3]
    return both(reduce(lambda one, other: sentence_pair("audit.either_way", one=one, other=other), unique))
