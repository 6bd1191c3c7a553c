"""K12, K9: logged metrics against the columns they are made of, and the value clip's share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.aggregation import Terms, clip_range, declared_mode, masks, number, ways
from mingce.audit.aggregation import rounding as rounding_of
from mingce.audit.evidence import Evidence, Floats
from mingce.audit.finding import Check, Fault, Finding, Place, Severity, phrase
from mingce.record.dump import LOSS, RAW

EFFECT = 0.01
LEAST_TOKENS = 16
LEAST_CLIPPED = 3

OVER_PADS = Fault.of("metric-over-pads", "bug", (47,), "metric = Σ m·x / Σ m")
NEGATIVE = Fault.of("metric-sign", "suspicious", (47,), "metric = Σ m·x / Σ m", "")
CLIPFRAC = Fault.of("value-clipfrac-zero", "bug", (45,), "vf_clipfrac = mean_m [(clip(V', V ± ε) − R)² > (V' − R)²]")
SAME_VALUES = Fault.of("value-clip-same-values", "suspicious", (45,), "V' − V ≠ 0 after an update")
_SUMMED = ("seq-mean-token-sum-norm", "seq-mean-token-sum")
_OVER = {"all": "audit.over_all", "attended": "audit.over_attended", "chosen": "audit.over_chosen"}


def metrics(e: Evidence) -> Iterator[Finding]:
    """Each logged mean: over chosen tokens, as it should be, or over more."""
    if int(e.mask.sum()) < LEAST_TOKENS:
        return
    seen = masks(e)
    options = ways(e, seen)
    # rows that the loss leaves out may be in a metric; and a mean of the parts' means is no fault in a log
    meant = [way for way in options if way.numerator == way.denominator in ("loss", "chosen")]
    meant = [way for way in meant if not way.mode.endswith("-norm")]
    told = abs(e.dump.scalars.get("pg_loss", 0.0)) > 1e-6  # a loss of 0 is that of every mode
    mode = declared_mode(e.settings if told else e.dump.settings)
    summed = [way for way in options if way.mode in ((mode,) if mode else _SUMMED) and not (mode and way.classes)]
    # over the padding: the same mask above and below, or a sum of what is 0 behind the mask over all slots
    wrong = [way for way in options if way.denominator in ("all", "attended") and way.mode == "token-mean"]
    for scalar, matrices in _definitions(e).items():
        found = e.dump.scalars[scalar]
        if not np.isfinite(found):
            continue
        terms = [Terms(matrix, error, seen) for matrix, error in matrices]
        if any(t.fits(way, found) for t in terms for way in meant):
            continue
        if any(t.fits(way, -found) for t in terms for way in meant):
            if scalar == "entropy_mean" and abs(found) > 1e-3:
                place = Place(None, None, -found, found)
                yield Finding(NEGATIVE, scalar, {"scalar": scalar, "found": found}, (place,))
            continue
        aggregated = scalar == "entropy_mean" and any(t.fits(way, found) for t in terms for way in summed)
        for one in terms:
            fits = [way for way in wrong if one.fits(way, found)]
            expected, size = one.number(meant[0]), one.size(meant[0])
            if fits and abs(expected - found) > EFFECT * size:
                over = phrase("over", _OVER[fits[0].denominator])
                values = {"scalar": scalar, "found": found, "expected": expected, **over}
                # TRL's PPO logs approx_kl so; verl aggregates the entropy as it does the loss
                level: Severity = "convention" if e.dump.source == "trl" or aggregated else "bug"
                yield Finding(OVER_PADS, scalar, values, (Place(None, None, expected, found),), severity=level)
                break


def _definitions(e: Evidence) -> dict[str, list[tuple[Floats, Floats | float]]]:
    """For each scalar the token terms whose mean it may be, with their errors from rounding."""
    columns, scalars = e.dump.columns, e.dump.scalars
    found: dict[str, list[tuple[Floats, Floats | float]]] = {}

    def offer(scalar: str, matrix: Floats, error: Floats | float) -> None:
        if scalar in scalars:
            found.setdefault(scalar, []).append((matrix, error))

    def rounding(*names: str) -> Floats:
        total: Floats = np.zeros(e.mask.shape)
        for name in names:
            total = total + np.abs(e[name]) * rounding_of(e, name)
        return total

    with np.errstate(all="ignore"):
        for scalar, name in (
            ("entropy_mean", "entropy"), ("kl_mean", "kl"), ("advantages_mean", LOSS),
            ("advantages_mean", RAW),
        ):  # fmt: skip
            if scalar in scalars and e.dump.holds(name):
                offer(scalar, e[name], rounding(name))
        if "old_log_probs" in columns:
            if "entropy_mean" in scalars:
                offer("entropy_mean", -e["old_log_probs"], rounding("old_log_probs"))
            for scalar, names in (
                ("kl_mean", ("old_log_probs", "ref_log_probs")),
                ("approx_kl", ("old_log_probs", "new_log_probs")),
            ):
                if scalar in scalars and names[1] in columns:
                    x, error = e[names[0]] - e[names[1]], rounding(*names)
                    offer(scalar, x, error)
                    offer(scalar, 0.5 * x**2, error * np.abs(x))
                    offer(scalar, np.expm1(-x) + x, error * np.abs(np.expm1(-x)))
                    offer(scalar, np.expm1(x) - x, error * np.abs(np.expm1(x)))
                    offer(scalar, np.abs(x), error)
        if "pg_clipfrac" in scalars and e.has("new_log_probs", "old_log_probs", LOSS):
            for share in _clipped(e):
                offer("pg_clipfrac", *share)
    return found


def _clipped(e: Evidence) -> Iterator[tuple[Floats, Floats]]:
    """1 where the policy's clip decides, or where the ratio is out of range; 1 as error where rounding decides."""
    low, high = clip_range(e)
    if low is None or high is None:
        return
    ratio, advantages = np.exp(np.clip(e["new_log_probs"] - e["old_log_probs"], -20, 20)), e[LOSS]
    step = 0.02 if e.grid("new_log_probs") or e.grid("old_log_probs") else 1e-5
    near = ((np.abs(ratio - 1 + low) < step) | (np.abs(ratio - 1 - high) < step)).astype(np.float64)
    yield ((ratio > 1 + high) & (advantages > 0) | (ratio < 1 - low) & (advantages < 0)).astype(np.float64), near
    yield ((ratio > 1 + high) | (ratio < 1 - low)).astype(np.float64), near


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
    Check.of(
        "K12 logged metrics", ("approx_kl|entropy_mean|kl_mean|advantages_mean|pg_clipfrac",), metrics,
    ),
    Check.of("K12 value clip", ("new_values", "values"), value_clip),
)  # fmt: skip
