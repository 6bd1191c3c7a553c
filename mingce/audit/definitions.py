"""What the logged numbers of an update are means of: token terms [B, T] as they are meant, and mistaken ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from mingce.audit.aggregation import number
from mingce.audit.aggregation import rounding as rounding_of
from mingce.audit.clips import clips
from mingce.audit.evidence import Evidence, Floats, either, shift
from mingce.audit.objectives import DUAL_CLIP, PPO
from mingce.record.dump import LOSS

LARGEST = 20.0
COUNTS_DECIDED = ("verl", "trl", "trl_grpo", "openrlhf", "mingce")
"""Trainers whose clip fraction is the share of tokens on which the clip decides, not of all ratios out of range."""
LOGS = {
    "old_log_probs": "log π_old",
    "new_log_probs": "log π",
    "ref_log_probs": "log π_ref",
    "rollout_log_probs": "log q",
}


@dataclass(frozen=True)
class Definition:
    """Token terms whose mean a logged number may be; `words` says what of one that nobody means."""

    matrix: Floats
    error: Floats
    key: str = ""
    of: str = ""


def definitions(e: Evidence, scalar: str) -> list[Definition]:
    """Those that are meant first; none where the dump lacks a column."""
    with np.errstate(all="ignore"):
        return list(_MAKERS[scalar](e)) if scalar in _MAKERS else []


def _error(e: Evidence, *names: str) -> Floats:
    total: Floats = np.zeros(e.mask.shape)
    for name in names:
        total = total + np.abs(e[name]) * rounding_of(e, name)
    return total


def _estimates(e: Evidence, one: str, other: str, key: str = "") -> Iterator[Definition]:
    """The kinds of KL of two columns: the difference, half its square, both k3, its magnitude."""
    if not e.has(one, other):
        return
    x, error = np.clip(e[one] - e[other], -LARGEST, LARGEST), _error(e, one, other)
    of = f"{LOGS[one]} − {LOGS[other]}"
    made = (
        (x, error), (0.5 * x**2, error * np.abs(x)), (np.expm1(-x) + x, error * np.abs(np.expm1(-x))),
        (np.expm1(x) - x, error * np.abs(np.expm1(x))), (np.abs(x), error),
    )  # fmt: skip
    yield from (Definition(matrix, slack, key, of) for matrix, slack in made)


def _others(e: Evidence, meant: tuple[str, str]) -> Iterator[Definition]:
    """The same of every other pair of log-probs."""
    names = [name for name in LOGS if e.has(name)]
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            if {one, other} != set(meant):
                yield from _estimates(e, one, other, "metric_of_pair")


def _approx_kl(e: Evidence) -> Iterator[Definition]:
    pair = ("old_log_probs", "new_log_probs")
    yield from _estimates(e, *pair)
    if e.has(*pair):
        yield from _others(e, pair)


def _kl_mean(e: Evidence) -> Iterator[Definition]:
    # TRL's GRPO logs that of the policy as it is being updated
    grpo = e.dump.source == "trl_grpo" and e.has("new_log_probs", "ref_log_probs")
    pair = ("new_log_probs" if grpo else "old_log_probs", "ref_log_probs")
    if e.has("kl"):
        yield Definition(e["kl"], _error(e, "kl"))
    made = list(_estimates(e, *pair))
    yield from made[2:] + made[:2] if grpo else made  # by k3
    if e.dump.source not in ("verl", "trl"):  # that of the policy as it is being updated (TRL's GRPO)
        now = list(_estimates(e, "new_log_probs", "ref_log_probs"))
        yield from now
        if now and e.has("old_log_probs"):  # which TRL weighs by the ratio
            ratio = np.exp(np.clip(e["new_log_probs"] - e["old_log_probs"], -LARGEST, LARGEST))
            yield Definition(now[2].matrix * ratio, now[2].error * ratio)
    if e.has(*pair):
        yield from _others(e, pair)


def _entropy(e: Evidence) -> Iterator[Definition]:
    if e.has("entropy"):
        yield Definition(e["entropy"], _error(e, "entropy"))
    if e.has("old_log_probs"):
        told = e.has("entropy") and e.dump.source in ("verl", "mingce", "trl_grpo")  # which log the entropy itself
        key, of = ("metric_surprise", LOGS["old_log_probs"]) if told else ("", "")
        yield Definition(-e["old_log_probs"], _error(e, "old_log_probs"), key, of)
    if e.has("entropy"):
        for unit, of in ((np.log(2.0), "2"), (np.log(10.0), "10")):
            yield Definition(e["entropy"] / unit, _error(e, "entropy") / unit, "metric_in_base", of)
        for name in ("new_log_probs", "ref_log_probs", "rollout_log_probs"):
            if e.has(name):
                yield Definition(-e[name], _error(e, name), "metric_surprise", LOGS[name])


def _near(e: Evidence, ratio: Floats, *bounds: float) -> Floats:
    """1 where rounding decides on which side of a bound a ratio lies."""
    step = 0.02 if e.grid("new_log_probs") or e.grid("old_log_probs") else 1e-5
    near: Floats = np.any([np.abs(ratio - bound) < step for bound in bounds], axis=0).astype(np.float64)
    return near


def clipped_share(e: Evidence, low: float, high: float) -> Iterator[Definition]:
    """1 where the policy's clip decides; then what was counted instead. A trainer of which nothing is known may count
    every ratio that is out of range."""
    ratio, a = np.exp(np.clip(e["new_log_probs"] - e["old_log_probs"], -LARGEST, LARGEST)), e[LOSS]
    if e.settings.ratio_cap:
        ratio = np.minimum(ratio, e.settings.ratio_cap)
    near = _near(e, ratio, 1 - low, 1 + high)
    above, below = ratio > 1 + high, ratio < 1 - low
    yield Definition((above & (a > 0) | below & (a < 0)).astype(np.float64), near)
    known = e.dump.source in COUNTS_DECIDED
    yield Definition((above | below).astype(np.float64), near, "metric_out_of_range" if known else "")
    wrong = {
        "metric_upper_only": above, "metric_lower_only": below, "metric_upper_good": above & (a > 0),
        "metric_lower_bad": below & (a < 0), "metric_wrong_sides": above & (a < 0) | below & (a > 0),
        "metric_not_clipped": ~(above & (a > 0) | below & (a < 0)), "metric_in_range": ~(above | below),
    }  # fmt: skip
    if low != high:
        turned = (ratio > 1 + low) & (a > 0) | (ratio < 1 - high) & (a < 0)
        near = _near(e, ratio, 1 - high, 1 + low)
        wrong["metric_bounds_swapped"] = turned
    for key, matrix in wrong.items():
        yield Definition(matrix.astype(np.float64), near, key)


def _pg_clipfrac(e: Evidence) -> Iterator[Definition]:
    if not _clips(e):
        return
    made = [one for low, high in clips(e) for one in clipped_share(e, low, high)]
    yield from sorted(made, key=lambda one: bool(one.key))


def _clips(e: Evidence) -> bool:
    """Whether the loss is PPO's, whose clip these shares count."""
    return e.has("new_log_probs", "old_log_probs", LOSS) and (e.settings.policy_loss or "ppo").lower() in PPO


def _pg_clipfrac_lower(e: Evidence) -> Iterator[Definition]:
    """1 where the second clip decides: −c·Â is smaller than the clipped loss of a bad token."""
    if not _clips(e):
        return
    limit, a = either(e.settings.dual_clip, DUAL_CLIP), e[LOSS]
    ratio = np.exp(np.clip(e["new_log_probs"] - e["old_log_probs"], -LARGEST, LARGEST))
    for low, high in clips(e)[:1]:  # beyond −c·Â the bounds do not matter
        held = np.maximum(-a * ratio, -a * np.clip(ratio, 1 - low, 1 + high))
        yield Definition(((held > -limit * a) & (a < 0)).astype(np.float64), _near(e, ratio, limit))


def _vf_clipfrac(e: Evidence) -> Iterator[Definition]:
    """1 where the clipped square is the larger one, or where the value left its range."""
    clip = number(e, "value_clip")
    if not clip or clip <= 0 or not e.has("new_values", "values", "returns"):
        return
    new, old, target = e["new_values"], e["values"], e["returns"]
    grain = (0.02 if e.grid("values") or e.grid("new_values") else 1e-5) * (np.abs(old) + np.abs(new)) + 1e-6
    near = (np.abs(np.abs(new - old) - clip) < grain).astype(np.float64)
    held, plain = (np.clip(new, old - clip, old + clip) - target) ** 2, (new - target) ** 2
    outside = np.abs(new - old) > clip
    yield Definition((held > plain).astype(np.float64), near)
    yield Definition(outside.astype(np.float64), near)
    yield Definition((held < plain).astype(np.float64), near, "metric_value_smaller")
    yield Definition((~outside).astype(np.float64), near, "metric_value_inside")


def _ratio_mean(e: Evidence) -> Iterator[Definition]:
    if not e.has("new_log_probs", "old_log_probs"):
        return
    x, error = e["new_log_probs"] - e["old_log_probs"], _error(e, "new_log_probs", "old_log_probs")
    yield Definition(np.exp(np.clip(x, -LARGEST, LARGEST)), error * np.exp(np.clip(x, -LARGEST, LARGEST)))
    yield Definition(np.exp(np.clip(-x, -LARGEST, LARGEST)), error, "metric_upside_down")
    for name in ("ref_log_probs", "rollout_log_probs"):
        if e.has(name):
            away = np.exp(np.clip(e["new_log_probs"] - e[name], -LARGEST, LARGEST))
            yield Definition(away, error * away, "metric_of_pair", f"log π − {LOGS[name]}")


_MAKERS: dict[str, Callable[[Evidence], Iterator[Definition]]] = {
    "entropy_mean": _entropy, "kl_mean": _kl_mean, "approx_kl": _approx_kl, "pg_clipfrac": _pg_clipfrac,
    "pg_clipfrac_lower": _pg_clipfrac_lower, "vf_clipfrac": _vf_clipfrac, "ratio_mean": _ratio_mean,
}  # fmt: skip
SCALARS = tuple(_MAKERS)


def moved(one: Definition) -> Iterator[Definition]:
    """The same terms of the neighbouring token."""
    for by, key in ((1, "metric_of_next"), (-1, "metric_of_previous")):
        yield Definition(shift(one.matrix, by), shift(np.asarray(one.error), by), key, one.of)
