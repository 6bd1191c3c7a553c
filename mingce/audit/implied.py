"""The rewards of a dump that stores none: what returns and values leave for each token.

R_t = r_t + γ(1−λ)V_{t+1} + γλR_{t+1} holds with a critic, R_t = r_t + γR_{t+1} without one. γ and λ are the settings',
or those with which what is left is a KL of some kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, finite, last_slot, once, shift
from mingce.audit.fitting import Sample, fit_beta
from mingce.audit.kl import Penalty, other_penalties, usual_penalties

LEAST_PAIRS = 16
ENOUGH = 0.97  # of the tokens that say something must follow


@dataclass(frozen=True)
class Rewards:
    """Token rewards [B, T] and how far each may be off; `known` where they can be told."""

    column: Floats
    error: Floats
    known: Bools
    stored: bool = True
    gamma: float | None = None
    lam: float | None = None


@once
def token_rewards(e: Evidence) -> Rewards | None:
    """The rewards of the dump, stored or implied; None where neither says them."""
    if "rewards" in e.dump.columns:
        return Rewards(finite(e["rewards"]), e.error("rewards"), np.isfinite(e["rewards"]))
    return _implied(e) if "returns" in e.dump.columns else None


def _implied(e: Evidence) -> Rewards | None:
    returns = finite(e["returns"])
    values = finite(e["values"]) if "values" in e.dump.columns else np.zeros_like(returns)
    values = np.where(e.mask, values, 0.0)
    follows = shift(e.mask, 1)
    ends = np.arange(e.mask.shape[1])[None, :] == last_slot(e.mask)[:, None]
    pairs, known = e.mask & follows, e.mask & (follows | ends) & np.isfinite(e["returns"])
    if pairs.sum() < LEAST_PAIRS or not returns.any() or _constant(returns, pairs):
        return None
    ahead = np.where(follows, shift(returns, 1), 0.0), np.where(follows, shift(values, 1), 0.0)
    error = e.error("returns") + shift(e.error("returns"), 1)
    if "values" in e.dump.columns:
        error = error + shift(np.where(e.mask, e.error("values"), 0.0), 1)
    best: tuple[float, Rewards] | None = None
    tried: list[Rewards] = []
    for gamma, lam in _discounts(e, returns, ahead, pairs):
        column = returns - gamma * (1 - lam) * ahead[1] - gamma * lam * ahead[0]
        made = Rewards(np.where(known, column, 0.0), error, known, False, gamma, lam)
        share = _explained(e, made, pairs)
        tried.append(made)
        if best is None or share > best[0]:
            best = share, made
        if share >= ENOUGH:
            break
    if best is None or best[0] >= 0.5:
        return None if best is None else best[1]
    return next(iter(tried), None) if e.settings.gamma is not None and tried else None


def _constant(returns: Floats, pairs: Bools) -> bool:
    """Whether a row's returns are one number: then no recursion has made them."""
    return bool((np.abs(returns - shift(returns, 1))[pairs] <= 1e-6 * np.abs(returns).max()).all())


def _explained(e: Evidence, made: Rewards, pairs: Bools) -> float:
    """How many of the tokens before the last one of a row hold a KL, or nothing, by these rewards."""
    nothing = float((np.abs(made.column) <= 4 * made.error)[pairs].mean())
    if nothing >= ENOUGH:
        return nothing
    usual = [fit_beta(Sample.of(-made.column, one, pairs, made.error)) for one in usual_penalties(e)]
    most = max([nothing, *(fit.explained for fit in usual)])
    if most >= 0.5:
        return most
    odd = (fit_beta(Sample.of(-made.column, one, pairs, made.error)) for one in other_penalties(e))
    return max([most, *(fit.explained for fit in odd if not fit.weak and fit.beta > 0)])


def _discounts(
    e: Evidence, returns: Floats, ahead: tuple[Floats, Floats], pairs: Bools
) -> Iterator[tuple[float, float]]:
    """γ and λ that may have made the returns: the settings', then what each kind of KL would need."""
    critic = "values" in e.dump.columns and bool(ahead[1][pairs].any())
    gamma, lam = e.settings.gamma, e.settings.lam if critic else 1.0
    if gamma is not None and lam is not None:
        yield float(gamma), float(lam)
    tried: set[tuple[float, float]] = set()
    none = Penalty("", "", np.zeros_like(returns), np.zeros_like(returns))
    for source in ([none, *usual_penalties(e)], other_penalties(e)):
        for one in source:
            found = _least_squares(returns, ahead, one.column, pairs, critic)
            if found is not None and found not in tried:
                tried.add(found)
                yield found


def _least_squares(
    returns: Floats, ahead: tuple[Floats, Floats], k: Floats, pairs: Bools, critic: bool
) -> tuple[float, float] | None:
    """γ and λ by which later returns, values and this KL give the returns, rounded as a person writes them."""
    at = np.flatnonzero(pairs)
    at = at[:: max(1, len(at) // 20000)]
    y, later, values, paid = returns.flat[at], ahead[0].flat[at], ahead[1].flat[at], k.flat[at]
    design = np.stack([later, *([values] if critic else []), *([paid] if paid.any() else [])], axis=1)
    kept = np.ones(len(y), dtype=bool)
    for _ in range(4):  # a few tokens may hold a score
        solved = np.linalg.lstsq(design[kept], y[kept], rcond=None)[0]
        left = np.abs(y - design @ solved)
        kept = left <= max(4 * float(np.median(left)), 1e-12)
        if kept.sum() < LEAST_PAIRS:
            return None
    decay = float(solved[0])
    gamma = decay + float(solved[1]) if critic else decay
    if not (0.05 < gamma <= 1.01 and -0.01 <= decay <= gamma + 0.01):
        return None
    gamma = min(round(gamma, 3), 1.0)
    return gamma, min(max(round(decay / gamma, 3), 0.0), 1.0)
