"""The float64 twin of every function: plain Python loops written from the definitions, for tests, auditor and terminal.

Nothing here calls the fast code, and nothing here needs torch. A column is a list of rows, a row a list of floats;
masks hold 0 and 1 (or False and True). Results are 0 behind the mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

Row = Sequence[float]
Column = Sequence[Row]
MaskColumn = Sequence[Sequence[int | bool]]
Matrix = list[list[float]]

FLOAT32_EPS = 2.0**-23


def _zeros(mask: MaskColumn) -> Matrix:
    return [[0.0] * len(row) for row in mask]


def chosen(row: Sequence[int | bool]) -> list[int]:
    """The slots of a row that the policy chose."""
    return [t for t, m in enumerate(row) if m]


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
    whitened = _zeros(mask)
    for b, row in enumerate(mask):
        for t in chosen(row):
            standard = (values[b][t] - mean) / math.sqrt(variance + 1e-8) if variance > 0 else 0.0
            whitened[b][t] = standard if shift_mean else standard + mean
    return whitened


# ── KL ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def kl_penalty(logprob: float, ref_logprob: float, kl_penalty: str = "k1", clamp: float | None = None) -> float:
    """The estimate for one token."""
    x = logprob - ref_logprob
    match kl_penalty.removesuffix("+"):
        case "k1" | "kl":
            value = x
        case "abs":
            value = abs(x)
        case "k2" | "mse":
            value = x * x / 2
        case "k3" | "low_var_kl":
            value = math.exp(-x) - 1 + x
        case name:
            raise ValueError(name)
    return value if clamp is None else min(max(value, -clamp), clamp)


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
    rewards = _zeros(mask)
    for b, row in enumerate(mask):
        for t in chosen(row):
            rewards[b][t] = scores[b][t] - beta * kl[b][t]
    return rewards


def adaptive_kl(value: float, current_kl: float, target_kl: float, horizon: int, n_steps: int) -> float:
    """The price after one update of the adaptive controller."""
    error = max(-0.2, min(0.2, current_kl / target_kl - 1))
    return value * (1 + error * n_steps / horizon)


# ── credit ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Credit(NamedTuple):
    advantages: Matrix
    deltas: Matrix
    returns: Matrix


def _with_critic(
    rewards: Column,
    values: Column,
    mask: MaskColumn,
    gamma: float,
    bootstrap: Row | None,
    advantage: Callable[[list[float], int], float],
) -> Credit:
    """`advantage(δ of the row's chosen tokens, k)` gives the advantage of its k-th chosen token."""
    advantages, deltas, returns = _zeros(mask), _zeros(mask), _zeros(mask)
    for b, row in enumerate(mask):
        slots = chosen(row)
        after = 0.0 if bootstrap is None else bootstrap[b]
        following = [values[b][t] for t in slots[1:]] + [after]
        errors = [rewards[b][t] + gamma * v - values[b][t] for t, v in zip(slots, following, strict=False)]
        for k, t in enumerate(slots):
            deltas[b][t] = errors[k]
            advantages[b][t] = advantage(errors, k)
            returns[b][t] = advantages[b][t] + values[b][t]
    return Credit(advantages, deltas, returns)


def gae(
    rewards: Column,
    values: Column,
    mask: MaskColumn,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: Row | None = None,
) -> Credit:
    """A_t = Σ_k (γλ)^k δ_{t+k}, by the recursion from the end."""
    advantages, deltas, returns = _zeros(mask), _zeros(mask), _zeros(mask)
    for b, row in enumerate(mask):
        value_after = 0.0 if bootstrap is None else bootstrap[b]
        advantage_after = 0.0
        for t in reversed(chosen(row)):
            deltas[b][t] = rewards[b][t] + gamma * value_after - values[b][t]
            advantages[b][t] = deltas[b][t] + gamma * lam * advantage_after
            returns[b][t] = advantages[b][t] + values[b][t]
            value_after, advantage_after = values[b][t], advantages[b][t]
    return Credit(advantages, deltas, returns)


def monte_carlo(
    rewards: Column, values: Column, mask: MaskColumn, gamma: float = 1.0, bootstrap: Row | None = None
) -> Credit:
    """A_t = G_t − V(s_t), with G summed from the rewards and not from TD errors."""
    deltas = gae(rewards, values, mask, gamma, 0.0, bootstrap).deltas
    advantages, returns = _zeros(mask), _zeros(mask)
    for b, row in enumerate(mask):
        total = 0.0 if bootstrap is None else bootstrap[b]
        for t in reversed(chosen(row)):
            total = rewards[b][t] + gamma * total
            returns[b][t] = total
            advantages[b][t] = total - values[b][t]
    return Credit(advantages, deltas, returns)


def td0(rewards: Column, values: Column, mask: MaskColumn, gamma: float = 1.0, bootstrap: Row | None = None) -> Credit:
    """A_t = δ_t."""
    return _with_critic(rewards, values, mask, gamma, bootstrap, lambda errors, k: errors[k])


def n_step(
    rewards: Column,
    values: Column,
    mask: MaskColumn,
    gamma: float = 1.0,
    n: int = 5,
    bootstrap: Row | None = None,
) -> Credit:
    """A_t = Σ_{k<n} γ^k δ_{t+k}."""

    def advantage(errors: list[float], k: int) -> float:
        return math.fsum(gamma**j * error for j, error in enumerate(errors[k : k + n]))

    return _with_critic(rewards, values, mask, gamma, bootstrap, advantage)


def discounted_sum(x: Row, decay: float) -> list[float]:
    """y_t = x_t + decay·y_{t+1} of one row."""
    sums, after = [0.0] * len(x), 0.0
    for t in reversed(range(len(x))):
        sums[t] = after = x[t] + decay * after
    return sums


def share(rewards: Column, mask: MaskColumn, weight: Callable[[int, int, int, int], float]) -> Matrix:
    """The row's total reward in proportion to weight(row, slot, k, n): the slot is the k-th of n chosen ones."""
    advantages = _zeros(mask)
    for b, row in enumerate(mask):
        slots = chosen(row)
        total = math.fsum(rewards[b][t] for t in slots)
        weights = [weight(b, t, k, len(slots)) for k, t in enumerate(slots)]
        if math.fsum(weights) <= 0:
            weights = [1.0] * len(slots)
        for t, w in zip(slots, weights, strict=True):
            advantages[b][t] = total * w / math.fsum(weights)
    return advantages


def uniform(rewards: Column, mask: MaskColumn) -> Matrix:
    return share(rewards, mask, lambda b, t, k, n: 1.0)


def last_k(rewards: Column, mask: MaskColumn, k: int = 3) -> Matrix:
    return share(rewards, mask, lambda b, t, position, n: 1.0 if position >= n - k else 0.0)


def attention(rewards: Column, mask: MaskColumn, attention_weights: Column) -> Matrix:
    return share(rewards, mask, lambda b, t, k, n: attention_weights[b][t])


def _against_group(
    rewards: Column,
    mask: MaskColumn,
    group: Sequence[Hashable],
    advantage: Callable[[float, list[float], float], float],
) -> Matrix:
    """advantage(own total, the group's totals, their std) on every chosen token of a row."""
    advantages = _zeros(mask)
    totals = [math.fsum(rewards[b][t] for t in chosen(row)) for b, row in enumerate(mask)]
    for b, row in enumerate(mask):
        members = [totals[i] for i in range(len(mask)) if group[i] == group[b] and any(mask[i])]
        if len(members) < 2:
            continue
        mean = math.fsum(members) / len(members)
        variance = math.fsum((x - mean) ** 2 for x in members) / (len(members) - 1)
        noise = FLOAT32_EPS * math.fsum(abs(x) for x in members) / len(members)
        for t in chosen(row):
            advantages[b][t] = advantage(totals[b], members, math.sqrt(variance)) if variance > noise**2 else 0.0
    return advantages


def grpo(rewards: Column, mask: MaskColumn, group: Sequence[Hashable], epsilon: float = 1e-6) -> Matrix:
    return _against_group(rewards, mask, group, lambda own, all_, std: (own - sum(all_) / len(all_)) / (std + epsilon))


def dr_grpo(rewards: Column, mask: MaskColumn, group: Sequence[Hashable]) -> Matrix:
    return _against_group(rewards, mask, group, lambda own, all_, std: own - sum(all_) / len(all_))


def rloo(rewards: Column, mask: MaskColumn, group: Sequence[Hashable]) -> Matrix:
    return _against_group(rewards, mask, group, lambda own, all_, std: own - (sum(all_) - own) / (len(all_) - 1))


def reinforce_plus_plus(rewards: Column, mask: MaskColumn, gamma: float = 1.0) -> Matrix:
    advantages = _zeros(mask)
    for b, row in enumerate(mask):
        slots = chosen(row)
        for t, total in zip(slots, discounted_sum([rewards[b][t] for t in slots], gamma), strict=True):
            advantages[b][t] = total
    return advantages


# ── losses ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def agg_loss(
    loss_mat: Column,
    mask: MaskColumn,
    loss_agg_mode: str = "token-mean",
    batch_num_tokens: int | None = None,
    global_batch_size: int | None = None,
    loss_scale_factor: int | None = None,
) -> float:
    rows = [[loss_mat[b][t] for t in chosen(row)] for b, row in enumerate(mask)]
    tokens = sum(map(len, rows)) if batch_num_tokens is None else batch_num_tokens
    sequences = sum(bool(row) for row in rows) if global_batch_size is None else global_batch_size
    if loss_agg_mode == "token-mean":
        return math.fsum(x for row in rows for x in row) / tokens if tokens else 0.0
    if not sequences:
        return 0.0
    if loss_agg_mode == "seq-mean-token-mean":
        return math.fsum(math.fsum(row) / len(row) for row in rows if row) / sequences
    mean_of_sums = math.fsum(math.fsum(row) for row in rows) / sequences
    if loss_agg_mode == "seq-mean-token-sum":
        return mean_of_sums
    assert loss_agg_mode == "seq-mean-token-sum-norm", loss_agg_mode
    return mean_of_sums / (len(mask[0]) if loss_scale_factor is None else loss_scale_factor)


class PolicyTerm(NamedTuple):
    """One token's policy loss and what decided it."""

    ratio: float
    loss: float
    clipped: bool
    dual_clipped: bool


def policy_term(
    old_log_prob: float,
    log_prob: float,
    advantage: float,
    low: float = 0.2,
    high: float = 0.2,
    dual_clip: float | None = 3.0,
) -> PolicyTerm:
    """−min(ρÂ, clip(ρ)Â), at most −cÂ for a bad token."""
    ratio = math.exp(max(-20.0, min(20.0, log_prob - old_log_prob)))
    plain = ratio * advantage
    limited = max(1 - low, min(1 + high, ratio)) * advantage
    objective, clipped, capped = min(plain, limited), limited < plain, False
    if dual_clip is not None and advantage < 0 and objective < dual_clip * advantage:
        objective, capped = dual_clip * advantage, True
    return PolicyTerm(ratio, -objective, clipped or capped, capped)


def cpi_term(old_log_prob: float, log_prob: float, advantage: float) -> float:
    """−ρÂ, TRPO's surrogate."""
    return -math.exp(max(-20.0, min(20.0, log_prob - old_log_prob))) * advantage


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
