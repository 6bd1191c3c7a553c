"""The arithmetic of typed rows, by the definitions of mingce.specs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mingce.algorithms import reference
from mingce.base.numbers import number as shown
from mingce.specs.kl import FULL, KL_KINDS
from mingce.specs.losses import AGGREGATIONS, agg_loss, policy_ratio, sequence_ratio

BETA, CLIP, CAP = 0.1, 0.2, 2.0
LONGEST_ROW = 100_000
SHOWN, EXPONENT = 64, 700.0


def listed(row: Sequence[float]) -> str:
    """`[0.1, −0.2]`."""
    return f"[{', '.join(shown(x) for x in row[:SHOWN])}{', …' if len(row) > SHOWN else ''}]"


def fine(x: float) -> str:
    """With four significant digits where four decimals would show fewer."""
    return f"{x:.4g}" if 0.001 <= abs(x) < 0.1 else shown(x)


def bracketed(x: float) -> str:
    return f"({shown(x)})" if x < 0 else shown(x)


def clean(x: float) -> float:
    """Without the rounding noise of a difference."""
    return 0.0 if abs(x) < 1e-12 else x


def whitened(row: Sequence[float]) -> tuple[list[float], float, float, float]:
    """The whitened row, its mean, std, and the std over n instead of n − 1."""
    mask = [[1] * len(row)]
    std = math.sqrt(reference.masked_var([row], mask))
    biased = math.sqrt(reference.masked_var([row], mask, unbiased=False))
    return reference.masked_whiten([row], mask)[0], reference.masked_mean([row], mask), std, biased


def explained(returns: Sequence[float], values: Sequence[float]) -> tuple[float, float, float]:
    """Var(R), Var(R − V) and 1 − their ratio (0 where the returns do not vary)."""
    mask = [[1] * len(returns)]
    total = reference.masked_var([returns], mask)
    rest = reference.masked_var([[a - b for a, b in zip(returns, values, strict=True)]], mask)
    return total, rest, 1.0 - rest / total if total > 0 else 0.0


def kl_rows(policy: Sequence[float], ref: Sequence[float]) -> dict[str, list[float]]:
    """x = log π − log π_ref, and every estimate of one sample's KL."""
    found = {"x": [clean(a - b) for a, b in zip(policy, ref, strict=True)]}
    for name in KL_KINDS:
        if name != FULL:
            found[name] = [clean(reference.kl_penalty(a, b, name, None)) for a, b in zip(policy, ref, strict=True)]
    return found


def cost_lines(beta: float, kl: Sequence[float], rewards: Sequence[float]) -> list[str]:
    """What the KL costs in all, and what is left of the rewards."""
    total = clean(math.fsum(kl))
    left = shown(clean(math.fsum(rewards)))
    return [f"β·Σk = {shown(beta)}·{bracketed(total)} = {shown(clean(beta * total))};  Σr = {left}"]


def ratios(old: Sequence[float], new: Sequence[float]) -> tuple[list[float], float, float]:
    """Every token's ratio, the answer's (the geometric mean), and the mean of log π_old − log π."""
    each = [policy_ratio(a, b) for a, b in zip(old, new, strict=True)]
    drift = math.fsum(a - b for a, b in zip(old, new, strict=True)) / len(old)
    return each, sequence_ratio(old, new, [1.0] * len(old)), clean(drift)


def approx_kls(old: Sequence[float], new: Sequence[float]) -> tuple[float, float, float]:
    """The three estimates of the KL to the old policy: verl's, TRL's, and the third."""
    moved = [b - a for a, b in zip(old, new, strict=True)]
    n = len(moved)
    first = clean(-math.fsum(moved) / n)
    second = math.fsum(x * x for x in moved) / n / 2
    third = clean(math.fsum(policy_ratio(a, b) - 1 - x for a, b, x in zip(old, new, moved, strict=True)) / n)
    return first, second, third


def truncated_weights(rollout: Sequence[float], old: Sequence[float], cap: float) -> tuple[list[float], list[str]]:
    """min(π_old/π_rollout, C) of every token, and how each came about."""
    weights, lines = [], []
    for t, (a, b) in enumerate(zip(rollout, old, strict=True)):
        ratio = policy_ratio(a, b)
        weights.append(min(ratio, cap))
        cut = f"min({shown(ratio)}, {shown(cap)}) = {shown(weights[-1])}"
        lines.append(f"exp({shown(clean(b - a))}) = {shown(ratio)};  w_{t} = {cut}")
    return weights, lines


def clipped_lines(
    ratios: Sequence[float], advantages: Sequence[float], bounds: tuple[float, float]
) -> tuple[list[str], list[int]]:
    """PPO's loss of each token and their mean; and which tokens the clip stops."""
    lines, losses, stopped = [], [], []
    for t, (ratio, advantage) in enumerate(zip(ratios, advantages, strict=True)):
        held = min(max(ratio, bounds[0]), bounds[1])
        free, limited = -ratio * advantage, -held * advantage
        losses.append(max(free, limited))
        stopped += [t] if limited > free else []
        lines.append(f"L_{t} = max({shown(free)}, {shown(limited)}) = {shown(losses[-1])}")
    share = f"clipfrac = {len(stopped)}/{len(losses)} = {shown(len(stopped) / len(losses))}"
    return [*lines, f"mean(L) = {shown(math.fsum(losses) / len(losses))};  {share}"], stopped


def aggregated(answers: Sequence[Sequence[float]]) -> dict[str, float]:
    """One number in each way, of the losses of each answer's tokens."""
    width = max(map(len, answers))
    matrix = [[*row, *[0.0] * (width - len(row))] for row in answers]
    mask = [[t < len(row) for t in range(width)] for row in answers]
    return {name: agg_loss(matrix, mask, name) for name in AGGREGATIONS}


def aggregation_lines(answers: Sequence[Sequence[float]], found: dict[str, float]) -> list[str]:
    """How the averages over tokens and over answers come about."""
    sums = [math.fsum(row) for row in answers]
    added, count = " + ".join(map(bracketed, sums)), len(answers)
    means = " + ".join(bracketed(total / len(row)) for total, row in zip(sums, answers, strict=True))
    token_mean, token_sum, row_mean, *_ = found
    return [
        f"Σ = {listed(sums)}",
        f"{token_mean}: ({added})/{sum(map(len, answers))} = {shown(found[token_mean])}",
        f"{row_mean}: ({means})/{count} = {shown(found[row_mean])}",
        f"{token_sum}: ({added})/{count} = {shown(found[token_sum])}",
    ]
