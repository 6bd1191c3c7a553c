"""Which logged numbers follow from the columns of the update: where one does, the log is of the same pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.aggregation import Terms, Way, declared_mode, masks, number, ways
from mingce.audit.aggregation import rounding as rounding_of
from mingce.audit.definitions import definitions
from mingce.audit.evidence import Bools, Evidence, once
from mingce.audit.objectives import Inputs, usual
from mingce.record.dump import LOSS

CERTAIN = 0.05  # of the number: what rounding may leave of it before it says nothing


def same_pass(e: Evidence, besides: str) -> bool:
    """Whether another logged number of the same update, the policy's or the critic's, follows from its columns."""
    return bool(witnesses(e, besides))


def witnesses(e: Evidence, besides: str) -> frozenset[str]:
    """Which do."""
    critic = besides.startswith("vf_")
    return frozenset(one for one in followed(e) - {besides} if one.startswith("vf_") == critic)


@once
def seen_masks(e: Evidence) -> dict[str, Bools]:
    return masks(e)


@once
def every_way(e: Evidence) -> list[Way]:
    return ways(e, seen_masks(e))


@once
def plain_ways(e: Evidence) -> list[Way]:
    """The ways that may be meant for a mean over tokens, those of the parts averaged included."""
    found = [way for way in every_way(e) if way.numerator == way.denominator in ("loss", "chosen")]
    return [way for way in found if not way.mode.endswith("-norm")]


@once
def followed(e: Evidence) -> frozenset[str]:
    """The names of the logged numbers that the new log-probs or values give as they should."""
    return frozenset(scalar for scalar, terms in _made(e) if _follows(e, scalar, terms))


def _made(e: Evidence) -> Iterator[tuple[str, list[Terms]]]:
    scalars, seen = e.dump.scalars, seen_masks(e)
    for scalar in ("approx_kl", "pg_clipfrac", "vf_clipfrac"):
        if scalar in scalars:
            meant = (one for one in definitions(e, scalar) if not one.key)
            yield scalar, [Terms(one.matrix, one.error, seen) for one in meant]
    with np.errstate(all="ignore"):
        if "pg_loss" in scalars and e.has("new_log_probs", "old_log_probs", LOSS):
            yield "pg_loss", [one.terms for one in usual(Inputs(e, seen))]
        if "vf_loss" in scalars and e.has("new_values", "values", "returns"):
            yield "vf_loss", list(_squares(e))


def _squares(e: Evidence) -> Iterator[Terms]:
    new, old, target, clip = e["new_values"], e["values"], e["returns"], number(e, "value_clip")
    error = 2 * np.abs(new - target) * sum(rounding_of(e, one) * np.abs(e[one]) for one in ("new_values", "returns"))
    plain = (new - target) ** 2
    for matrix in (
        plain,
        *(np.maximum(plain, (np.clip(new, old - c, old + c) - target) ** 2) for c in (clip, 0.2, 0.5) if c),
    ):
        yield from (Terms(factor * matrix, factor * error, seen_masks(e)) for factor in (0.5, 1.0))


def _follows(e: Evidence, scalar: str, made: list[Terms]) -> bool:
    found, mode = e.dump.scalars[scalar], declared_mode(e.settings) if scalar == "pg_loss" else None
    if not np.isfinite(found) or abs(found) < 1e-7:
        return False
    options = [way for way in (every_way(e) if scalar == "pg_loss" else plain_ways(e)) if not way.classes]
    options = [way for way in options if mode in (None, way.mode)]
    return any(t.room(way) < CERTAIN * abs(found) and t.fits(way, found) for t in made for way in options)
