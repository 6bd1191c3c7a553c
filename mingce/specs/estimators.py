"""The estimators of advantages: what each reads, its formula, and its definition in float64.

A new estimator is a function here with its entry, a tensor function of the same name in `mingce.algorithms.advantage`,
and a test. A definition takes its inputs and settings by name and gives a `Credit`, or advantages alone; results are 0
behind the mask, and recursions step over slots that the policy did not choose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from mingce.specs.estimator import CriticCredit, define
from mingce.specs.rows import FLOAT32_EPS, Column, MaskColumn, Matrix, Row, chosen, zeros

# ── with a critic ──────────────────────────────────────────────────────────────────────────────────────────────────

_STATES = ("rewards", "values", "response_mask")


def _with_critic(
    rewards: Column,
    values: Column,
    mask: MaskColumn,
    gamma: float,
    bootstrap: Row | None,
    advantage: Callable[[list[float], int], float],
) -> CriticCredit:
    """`advantage(δ of the row's chosen tokens, k)` gives the advantage of its k-th chosen token."""
    advantages, deltas, returns = zeros(mask), zeros(mask), zeros(mask)
    for b, row in enumerate(mask):
        slots = chosen(row)
        after = 0.0 if bootstrap is None else bootstrap[b]
        following = [values[b][t] for t in slots[1:]] + [after]
        errors = [rewards[b][t] + gamma * v - values[b][t] for t, v in zip(slots, following, strict=False)]
        for k, t in enumerate(slots):
            deltas[b][t] = errors[k]
            advantages[b][t] = advantage(errors, k)
            returns[b][t] = advantages[b][t] + values[b][t]
    return CriticCredit(advantages, deltas, returns)


@define(
    kind="recursion",
    zh="广义优势估计",
    en="generalised advantage estimation",
    formula="A_t = δ_t + γλ·A_{t+1}",
    numbers="A_{t} = {delta} + {gamma_lam}·{next_advantage} = {advantage}",
    inputs=_STATES,
    settings=("gamma", "lam"),
)
def gae(
    rewards: Column,
    values: Column,
    response_mask: MaskColumn,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: Row | None = None,
) -> CriticCredit:
    """A_t = Σ_k (γλ)^k δ_{t+k}, by the recursion from the end."""
    advantages, deltas, returns = zeros(response_mask), zeros(response_mask), zeros(response_mask)
    for b, row in enumerate(response_mask):
        value_after = 0.0 if bootstrap is None else bootstrap[b]
        advantage_after = 0.0
        for t in reversed(chosen(row)):
            deltas[b][t] = rewards[b][t] + gamma * value_after - values[b][t]
            advantages[b][t] = deltas[b][t] + gamma * lam * advantage_after
            returns[b][t] = advantages[b][t] + values[b][t]
            value_after, advantage_after = values[b][t], advantages[b][t]
    return CriticCredit(advantages, deltas, returns)


@define(
    kind="recursion",
    zh="蒙特卡洛：实际回报减去价值",
    en="Monte Carlo: what really came less the value",
    formula="A_t = G_t − V(s_t),  G_t = Σ_k γ^k·r_{t+k}",
    numbers="A_{t} = {return} − {value} = {advantage}",
    inputs=_STATES,
    settings=("gamma",),
    fixed_lambda=1.0,
)
def monte_carlo(
    rewards: Column, values: Column, response_mask: MaskColumn, gamma: float = 1.0, bootstrap: Row | None = None
) -> CriticCredit:
    """A_t = G_t − V(s_t), with G summed from the rewards and not from TD errors."""
    deltas = gae(rewards, values, response_mask, gamma, 0.0, bootstrap).deltas
    advantages, returns = zeros(response_mask), zeros(response_mask)
    for b, row in enumerate(response_mask):
        total = 0.0 if bootstrap is None else bootstrap[b]
        for t in reversed(chosen(row)):
            total = rewards[b][t] + gamma * total
            returns[b][t] = total
            advantages[b][t] = total - values[b][t]
    return CriticCredit(advantages, deltas, returns)


@define(
    kind="recursion",
    zh="TD(0)：优势就是 TD 误差",
    en="TD(0): the advantage is the TD error",
    formula="A_t = δ_t",
    numbers="A_{t} = {delta} = {advantage}",
    inputs=_STATES,
    settings=("gamma",),
    fixed_lambda=0.0,
)
def td0(
    rewards: Column, values: Column, response_mask: MaskColumn, gamma: float = 1.0, bootstrap: Row | None = None
) -> CriticCredit:
    """A_t = δ_t."""
    return _with_critic(rewards, values, response_mask, gamma, bootstrap, lambda errors, k: errors[k])


@define(
    kind="window",
    zh="n 步：先取 n 个奖励，再接上价值",
    en="n steps: n rewards, then the critic",
    formula="A_t = Σ_{l<n} γ^l·δ_{t+l}",
    numbers="A_{t} = Σ_(l<{n}) {gamma}^l·δ_({t}+l) = {advantage}",
    inputs=_STATES,
    settings=("gamma", "n"),
)
def n_step(
    rewards: Column,
    values: Column,
    response_mask: MaskColumn,
    gamma: float = 1.0,
    n: int = 5,
    bootstrap: Row | None = None,
) -> CriticCredit:
    """A_t = Σ_{k<n} γ^k δ_{t+k}."""

    def advantage(errors: list[float], k: int) -> float:
        return math.fsum(gamma**j * error for j, error in enumerate(errors[k : k + n]))

    return _with_critic(rewards, values, response_mask, gamma, bootstrap, advantage)


# ── a turn as one action ───────────────────────────────────────────────────────────────────────────────────────────


def turns_of(mask: Sequence[int | bool], turn: Row) -> list[list[int]]:
    """The chosen slots of a row, one list a turn; a new one begins where the turn's number changes."""
    slots = chosen(mask)
    starts = [k for k in range(len(slots)) if k == 0 or turn[slots[k]] != turn[slots[k - 1]]]
    ends = [starts[i + 1] if i + 1 < len(starts) else len(slots) for i in range(len(starts))]
    return [slots[start:end] for start, end in zip(starts, ends, strict=True)]


@define(
    kind="turns",
    zh="按轮的广义优势估计：一轮是一个动作，整轮共用一个优势",
    en="generalised advantage estimation over turns: a turn is one action, and its tokens share its advantage",
    formula="A_k = δ_k + γλ·A_{k+1},  δ_k = Σ_{t∈k} r_t + γ·V_{k+1} − V_k,  V_k = V(s_t) of the turn's first token",
    numbers="A_{t} = {return} − {turn_value} = {advantage}",
    inputs=(*_STATES, "turn"),
    settings=("gamma", "lam"),
)
def turn_gae(
    rewards: Column,
    values: Column,
    response_mask: MaskColumn,
    turn: Column,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: Row | None = None,
) -> CriticCredit:
    """γ and λ count turns. Every token of a turn has the turn's advantage, and its λ-return as the critic's target."""
    advantages, returns = zeros(response_mask), zeros(response_mask)
    for b, row in enumerate(response_mask):
        value_after = 0.0 if bootstrap is None else bootstrap[b]
        advantage_after = 0.0
        for slots in reversed(turns_of(row, turn[b])):
            value = values[b][slots[0]]
            delta = math.fsum(rewards[b][t] for t in slots) + gamma * value_after - value
            advantage_after = delta + gamma * lam * advantage_after
            value_after = value
            for t in slots:
                advantages[b][t] = advantage_after
                returns[b][t] = advantage_after + value
    return CriticCredit(advantages, gae(rewards, values, response_mask, gamma, 0.0, bootstrap).deltas, returns)


GAE, MONTE_CARLO = gae.__name__, monte_carlo.__name__
"""The default, and what it is compared with."""


# ── sharing out the response's reward ──────────────────────────────────────────────────────────────────────────────

_SHARE = {
    "kind": "share",
    "formula": "A_t = w_t·Σ_j r_j,  Σ_t w_t = 1",
    "numbers": "A_{t} = {share}·{own} = {advantage}",
}


def share(rewards: Column, mask: MaskColumn, weight: Callable[[int, int, int, int], float]) -> Matrix:
    """The row's total reward in proportion to weight(row, slot, k, n): the slot is the k-th of n chosen ones."""
    advantages = zeros(mask)
    for b, row in enumerate(mask):
        slots = chosen(row)
        total = math.fsum(rewards[b][t] for t in slots)
        weights = [weight(b, t, k, len(slots)) for k, t in enumerate(slots)]
        if math.fsum(weights) <= 0:
            weights = [1.0] * len(slots)
        for t, w in zip(slots, weights, strict=True):
            advantages[b][t] = total * w / math.fsum(weights)
    return advantages


@define(zh="总奖励平均分", en="equal shares of the total reward", inputs=("rewards", "response_mask"), **_SHARE)
def uniform(rewards: Column, response_mask: MaskColumn) -> Matrix:
    return share(rewards, response_mask, lambda b, t, k, n: 1.0)


@define(
    zh="最后 k 个 token 平分总奖励",
    en="the last k tokens share the total reward",
    inputs=("rewards", "response_mask"),
    settings=("k",),
    **_SHARE,
)
def last_k(rewards: Column, response_mask: MaskColumn, k: int = 3) -> Matrix:
    return share(rewards, response_mask, lambda b, t, position, n: 1.0 if position >= n - k else 0.0)


@define(
    zh="按末 token 的注意力分总奖励",
    en="the total reward by what the last token attends to",
    inputs=("rewards", "response_mask", "attention_weights"),
    **_SHARE,
)
def attention(rewards: Column, response_mask: MaskColumn, attention_weights: Column) -> Matrix:
    return share(rewards, response_mask, lambda b, t, k, n: attention_weights[b][t])


# ── against the other samples of the same prompt ───────────────────────────────────────────────────────────────────

_GROUP = ("rewards", "response_mask", "group")


class Members(NamedTuple):
    """The total rewards and lengths of a prompt's samples; the totals' mean, and their std with Bessel's n − 1."""

    totals: list[float]
    lengths: list[int]
    mean: float
    std: float


def members_of(rewards: Column, mask: MaskColumn, rows: Sequence[int]) -> Members:
    """Of the rows that chose a token; a spread of mere rounding noise counts as none."""
    slots = [chosen(mask[b]) for b in rows if any(mask[b])]
    totals = [math.fsum(rewards[b][t] for t in chosen(mask[b])) for b in rows if any(mask[b])]
    lengths = [len(row) for row in slots]
    if len(totals) < 2:
        return Members(totals, lengths, math.fsum(totals), 0.0)
    mean = math.fsum(totals) / len(totals)
    variance = math.fsum((x - mean) ** 2 for x in totals) / (len(totals) - 1)
    noise = FLOAT32_EPS * math.fsum(abs(x) for x in totals) / len(totals)
    return Members(totals, lengths, mean, math.sqrt(variance) if variance > noise**2 else 0.0)


def _against_group(
    rewards: Column, mask: MaskColumn, group: Sequence[Hashable], advantage: Callable[[float, Members], float]
) -> Matrix:
    """advantage(own total, its group) on every chosen token; 0 in a group of one and where all got the same."""
    advantages = zeros(mask)
    for b, row in enumerate(mask):
        if b == 0 or group[b] != group[b - 1]:
            members = members_of(rewards, mask, [i for i in range(len(mask)) if group[i] == group[b]])
        if members.std > 0:
            own = math.fsum(rewards[b][t] for t in chosen(row))
            for t in chosen(row):
                advantages[b][t] = advantage(own, members)
    return advantages


@define(
    kind="group",
    zh="组内标准化：减组均值，除以组标准差",
    en="against its group: less the mean, over the standard deviation",
    formula="A_t = (R − mean)/(std + 10⁻⁶)",
    numbers="A_{t} = ({own} − {group_mean})/({group_std} + 10⁻⁶) = {advantage}",
    inputs=_GROUP,
    whitens=False,
)
def grpo(rewards: Column, response_mask: MaskColumn, group: Sequence[Hashable], epsilon: float = 1e-6) -> Matrix:
    return _against_group(rewards, response_mask, group, lambda own, all_: (own - all_.mean) / (all_.std + epsilon))


@define(
    kind="group",
    zh="只减组均值，不除标准差",
    en="less the group's mean, without the division",
    formula="A_t = R − mean",
    numbers="A_{t} = {own} − {group_mean} = {advantage}",
    inputs=_GROUP,
    whitens=False,
    aggregation="seq-mean-token-sum-norm",
)
def dr_grpo(rewards: Column, response_mask: MaskColumn, group: Sequence[Hashable]) -> Matrix:
    return _against_group(rewards, response_mask, group, lambda own, all_: own - all_.mean)


@define(
    kind="group",
    zh="留一法：减同组其余回答的均值",
    en="leave one out: less the mean of the group's other samples",
    formula="A_t = R_i − mean_{j≠i} R_j",
    numbers="A_{t} = {own} − {others_mean} = {advantage}",
    inputs=_GROUP,
    whitens=False,
)
def rloo(rewards: Column, response_mask: MaskColumn, group: Sequence[Hashable]) -> Matrix:
    def advantage(own: float, all_: Members) -> float:
        return own - (math.fsum(all_.totals) - own) / (len(all_.totals) - 1)

    return _against_group(rewards, response_mask, group, advantage)


@define(
    kind="group",
    zh="最优基线：减组内按长度加权的均值",
    en="the optimal baseline: less the group's mean, weighted by length",
    formula="A_t = R − Σ_j n_j·R_j / Σ_j n_j",
    numbers="A_{t} = {own} − {baseline} = {advantage}",
    inputs=_GROUP,
    whitens=False,
)
def opo(rewards: Column, response_mask: MaskColumn, group: Sequence[Hashable]) -> Matrix:
    def advantage(own: float, all_: Members) -> float:
        weighted = math.fsum(n * total for n, total in zip(all_.lengths, all_.totals, strict=True))
        return own - weighted / sum(all_.lengths)

    return _against_group(rewards, response_mask, group, advantage)


# ── what is still to come ──────────────────────────────────────────────────────────────────────────────────────────


def discounted_sum(x: Row, decay: float) -> list[float]:
    """y_t = x_t + decay·y_{t+1} of one row."""
    sums, after = [0.0] * len(x), 0.0
    for t in reversed(range(len(x))):
        sums[t] = after = x[t] + decay * after
    return sums


@define(
    kind="recursion",
    zh="从 t 起的折扣奖励，整批白化作基线",
    en="the discounted reward from t on; the batch's whitening is the baseline",
    formula="A_t = G_t = Σ_k γ^k·r_{t+k}",
    numbers="A_{t} = Σ_k {gamma}^k·r_({t}+k) = {advantage}",
    inputs=("rewards", "response_mask"),
    settings=("gamma",),
)
def reinforce_plus_plus(rewards: Column, response_mask: MaskColumn, gamma: float = 1.0) -> Matrix:
    advantages = zeros(response_mask)
    for b, row in enumerate(response_mask):
        slots = chosen(row)
        for t, total in zip(slots, discounted_sum([rewards[b][t] for t in slots], gamma), strict=True):
            advantages[b][t] = total
    return advantages


@define(
    kind="recursion",
    zh="从 t 起的奖励，减去贪心回答的得分作基线",
    en="the reward from t on, less what the greedy answer to the prompt earned",
    formula="A_t = Σ_k r_{t+k} − b,  b = score of the greedy answer",
    numbers="A_{t} = Σ_k r_({t}+k) − {greedy_score} = {advantage}",
    inputs=("rewards", "response_mask", "greedy_score"),
    whitens=False,
)
def remax(rewards: Column, response_mask: MaskColumn, greedy_score: Row) -> Matrix:
    advantages = reinforce_plus_plus(rewards, response_mask)
    for b, row in enumerate(response_mask):
        for t in chosen(row):
            advantages[b][t] = advantages[b][t] - greedy_score[b]
    return advantages
