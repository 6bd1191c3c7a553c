"""The float64 twin of every function: plain Python loops written from the definitions, for tests, auditor and terminal.

Nothing here calls the fast code, and nothing here needs torch. A column is a list of rows, a row a list of floats;
masks hold 0 and 1 (or False and True). Results are 0 behind the mask. What can be chosen by name is defined in
`mingce.specs`; its twins are gathered here with the others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from mingce.specs.estimator import CriticCredit
from mingce.specs.estimators import attention as attention
from mingce.specs.estimators import discounted_sum as discounted_sum
from mingce.specs.estimators import dr_grpo as dr_grpo
from mingce.specs.estimators import gae as gae
from mingce.specs.estimators import grpo as grpo
from mingce.specs.estimators import last_k as last_k
from mingce.specs.estimators import monte_carlo as monte_carlo
from mingce.specs.estimators import n_step as n_step
from mingce.specs.estimators import reinforce_plus_plus as reinforce_plus_plus
from mingce.specs.estimators import rloo as rloo
from mingce.specs.estimators import share as share
from mingce.specs.estimators import td0 as td0
from mingce.specs.estimators import uniform as uniform
from mingce.specs.kl import kl_penalty as kl_penalty
from mingce.specs.losses import PolicyTerm as PolicyTerm
from mingce.specs.losses import agg_loss as agg_loss
from mingce.specs.losses import cpi_term as cpi_term
from mingce.specs.losses import policy_term as policy_term
from mingce.specs.rows import FLOAT32_EPS, zeros
from mingce.specs.rows import Column as Column
from mingce.specs.rows import MaskColumn as MaskColumn
from mingce.specs.rows import Matrix as Matrix
from mingce.specs.rows import Row as Row
from mingce.specs.rows import chosen as chosen

Credit = CriticCredit


def _chosen_values(values: Column, mask: MaskColumn) -> list[float]:
    return [values[b][t] for b, row in enumerate(mask) for t in chosen(row)]


# ── masking ────────────────────────────────────────────────────────────────────────────────────────────────────────


def masked_sum(values: Column, mask: MaskColumn) -> float:
    return math.fsum(_chosen_values(values, mask))


def masked_mean(values: Column, mask: MaskColumn) -> float:
    numbers = _chosen_values(values, mask)
    return math.fsum(numbers) / len(numbers) if numbers else 0.0


def masked_var(values: Column, mask: MaskColumn, unbiased: bool = True) -> float:
    numbers = _chosen_values(values, mask)
    if len(numbers) < 2:
        return 0.0
    mean = math.fsum(numbers) / len(numbers)
    variance = math.fsum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1 if unbiased else len(numbers))
    return variance if variance > (FLOAT32_EPS * abs(mean)) ** 2 else 0.0


def masked_whiten(values: Column, mask: MaskColumn, shift_mean: bool = True) -> Matrix:
    mean, variance = masked_mean(values, mask), masked_var(values, mask)
    return standardise(values, mask, mean, variance, 0.0 if shift_mean else mean)


def standardise(values: Column, mask: MaskColumn, mean: float, variance: float, shift: float = 0.0) -> Matrix:
    """(A − μ)/√(σ² + 10⁻⁸) with the given moments; 0 where there is no variance."""
    whitened = zeros(mask)
    for b, row in enumerate(mask):
        for t in chosen(row):
            standard = (values[b][t] - mean) / math.sqrt(variance + 1e-8) if variance > 0 else 0.0
            whitened[b][t] = standard + shift
    return whitened


# ── KL ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def log_softmax(logits: Row) -> list[float]:
    top = max(logits)
    log_total = top + math.log(math.fsum(math.exp(x - top) for x in logits))
    return [x - log_total for x in logits]


def full_kl(logits: Row, ref_logits: Row) -> float:
    """Σ_a π(a)(log π(a) − log π_ref(a)) for one token."""
    pairs = zip(log_softmax(logits), log_softmax(ref_logits), strict=True)
    return math.fsum(math.exp(p) * (p - q) for p, q in pairs if p > -math.inf)


def entropy(logits: Row) -> float:
    return -math.fsum(math.exp(p) * p for p in log_softmax(logits) if p > -math.inf)


def kl_rewards(scores: Column, kl: Column, mask: MaskColumn, beta: float) -> Matrix:
    rewards = zeros(mask)
    for b, row in enumerate(mask):
        for t in chosen(row):
            rewards[b][t] = scores[b][t] - beta * kl[b][t]
    return rewards


def adaptive_kl(value: float, current_kl: float, target_kl: float, horizon: int, n_steps: int) -> float:
    """The price after one update of the adaptive controller."""
    error = max(-0.2, min(0.2, current_kl / target_kl - 1))
    return value * (1 + error * n_steps / horizon)


# ── the critic's loss ──────────────────────────────────────────────────────────────────────────────────────────────


class ValueTerm(NamedTuple):
    """One token's value loss and whether the clip decided it."""

    loss: float
    clipped: bool


def value_term(vpred: float, return_: float, value: float, cliprange_value: float | None = 0.5) -> ValueTerm:
    """½·max of the squared errors with and without the clip."""
    plain = (vpred - return_) ** 2
    if cliprange_value is None:
        return ValueTerm(plain / 2, False)
    near = max(value - cliprange_value, min(value + cliprange_value, vpred))
    limited = (near - return_) ** 2
    return ValueTerm(max(plain, limited) / 2, limited > plain)
