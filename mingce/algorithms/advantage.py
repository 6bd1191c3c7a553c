"""Credit: how much each token contributed. One small function per estimator of `mingce.specs.estimators`.

Every estimator takes columns [B, T] and returns a `Credit`. Those that read `values` need a critic and return its
targets as well; the others return advantages only. Advantages are raw: whitening is a step of its own (masking.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mingce.algorithms import scan
from mingce.algorithms.checks import as_mask, at_least, one_per_row, same_shape, unit_interval
from mingce.algorithms.masking import keep, masked_sum
from mingce.base.errors import ColumnError, SettingError, UnknownNameError
from mingce.specs.estimator import TRUNCATIONS, Estimator


class Credit(NamedTuple):
    """What an estimator says of each token; both [B, T] and 0 behind the mask."""

    advantages: Tensor
    returns: Tensor | None = None

    def columns(self) -> dict[str, Tensor]:
        """As columns for `Ledger.fill`."""
        return {name: column for name, column in self._asdict().items() if column is not None}


def function_of(spec: Estimator) -> Callable[..., Credit]:
    """The function on tensors that training calls."""
    function: Callable[..., Credit] = spec.tensor_function or globals()[spec.name]
    return function


# ── with a critic ──────────────────────────────────────────────────────────────────────────────────────────────────


class _States(NamedTuple):
    """What the recursions over states read, checked and of one dtype."""

    rewards: Tensor
    values: Tensor
    mask: Tensor
    after: Tensor  # [B] the value of the state after the last chosen token


def _states(rewards: Tensor, values: Tensor, response_mask: Tensor, bootstrap: Tensor | None) -> _States:
    mask = as_mask(response_mask)
    same_shape(mask, rewards=rewards, values=values)
    if bootstrap is None:
        bootstrap = values.new_zeros(len(values))
    one_per_row(mask, "bootstrap_value", bootstrap)
    return _States(rewards.detach().to(values.dtype), values.detach(), mask, bootstrap.detach().to(values.dtype))


def td_errors(
    rewards: Tensor, values: Tensor, response_mask: Tensor, gamma: float = 1.0, bootstrap: Tensor | None = None
) -> Tensor:
    """δ_t = r_t + γV(s_{t+1}) − V(s_t), with `bootstrap` [B] (0 if None) as the value after the last chosen token."""
    unit_interval(gamma=gamma)
    return scan.td_errors(*_states(rewards, values, response_mask, bootstrap), gamma)


def gae(
    rewards: Tensor,
    values: Tensor,
    response_mask: Tensor,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: Tensor | None = None,
) -> Credit:
    """Generalised advantage estimation: δ_t = r_t + γV(s_{t+1}) − V(s_t), A_t = δ_t + γλA_{t+1}, R_t = A_t + V(s_t).

    `bootstrap` [B] is the value after the last chosen token: 0 (or None) for a response that ended, V(s_T) for one
    that was cut. Slots behind the mask are stepped over.
    """
    unit_interval(gamma=gamma, lam=lam)
    return Credit(*scan.generalised_advantages(*_states(rewards, values, response_mask, bootstrap), gamma, lam))


def monte_carlo(
    rewards: Tensor, values: Tensor, response_mask: Tensor, gamma: float = 1.0, bootstrap: Tensor | None = None
) -> Credit:
    """GAE with λ = 1: A_t = G_t − V(s_t), the returns are the discounted sums G_t of what came."""
    return gae(rewards, values, response_mask, gamma, 1.0, bootstrap)


def td0(
    rewards: Tensor, values: Tensor, response_mask: Tensor, gamma: float = 1.0, bootstrap: Tensor | None = None
) -> Credit:
    """GAE with λ = 0: A_t = δ_t, the returns are the one-step targets r_t + γV(s_{t+1})."""
    return gae(rewards, values, response_mask, gamma, 0.0, bootstrap)


def n_step(
    rewards: Tensor,
    values: Tensor,
    response_mask: Tensor,
    gamma: float = 1.0,
    n: int = 5,
    bootstrap: Tensor | None = None,
) -> Credit:
    """A_t = r_t + … + γ^{n−1}r_{t+n−1} + γ^n V(s_{t+n}) − V(s_t): n rewards, then the critic."""
    unit_interval(gamma=gamma)
    at_least(1, n=n)
    states = _states(rewards, values, response_mask, bootstrap)
    advantages = scan.windowed_sum(scan.td_errors(*states, gamma), states.mask, gamma, n)
    return Credit(advantages, advantages + keep(values, states.mask))


def turn_gae(
    rewards: Tensor,
    values: Tensor,
    response_mask: Tensor,
    turn: Tensor,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: Tensor | None = None,
) -> Credit:
    """GAE with a turn as one action: its reward is the sum of its tokens', its value that of its first token.

    Every token of a turn has the turn's advantage A_k, and A_k + V_k as the critic's target. γ and λ count turns.
    """
    unit_interval(gamma=gamma, lam=lam)
    states = _states(rewards, values, response_mask, bootstrap)
    same_shape(states.mask, turn=turn)
    place, first = _places_of_turns(states.mask, turn)
    count = int(place.max()) + 1 if place.numel() else 0
    shape = len(place), count
    paid = states.rewards.new_zeros(shape).scatter_add_(1, place, keep(states.rewards, states.mask))
    begun = states.values.new_zeros(shape).scatter_add_(1, place, keep(states.values, first))
    there = torch.zeros(shape, device=place.device).scatter_add_(1, place, first.float()) > 0
    advantages, returns = scan.generalised_advantages(paid, begun, there, states.after, gamma, lam)
    return Credit(*(keep(column.gather(1, place), states.mask) for column in (advantages, returns)))


def _places_of_turns(mask: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """[B, T]: in which turn of its row, counted from 0, a chosen slot is, and whether it is the first one of it."""
    slots = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    latest = torch.where(mask, slots, -1).cummax(dim=1).values  # the last chosen slot up to here
    before = torch.cat([latest.new_full((len(mask), 1), -1), latest], dim=1)[:, :-1]
    changed = turn != turn.gather(1, before.clamp(min=0))
    first = mask & (changed | (before < 0))
    return (first.long().cumsum(dim=1) - 1).clamp(min=0), first


# ── sharing out the response's reward ──────────────────────────────────────────────────────────────────────────────


def _share(rewards: Tensor, mask: Tensor, weights: Tensor) -> Credit:
    """A_t = w_t·Σr with w summing to 1 in each row, equal shares where all weights are 0."""
    weights = keep(weights, mask)
    total = weights.sum(dim=1, keepdim=True)
    weights = torch.where(total > 0, weights, mask.to(weights.dtype))
    shares = weights / weights.sum(dim=1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    return Credit(shares * masked_sum(rewards, mask, axis=1)[:, None])


@torch.no_grad()
def uniform(rewards: Tensor, response_mask: Tensor) -> Credit:
    """Every chosen token gets an equal share of the response's total reward."""
    mask = as_mask(response_mask)
    same_shape(mask, rewards=rewards)
    return _share(rewards, mask, torch.ones_like(rewards))


@torch.no_grad()
def last_k(rewards: Tensor, response_mask: Tensor, k: int = 3) -> Credit:
    """The last k chosen tokens share the total equally; the others get nothing."""
    at_least(1, k=k)
    mask = as_mask(response_mask)
    same_shape(mask, rewards=rewards)
    from_the_end = mask.flip(1).cumsum(dim=1).flip(1)  # 1 on the last chosen token
    return _share(rewards, mask, (from_the_end <= k).to(rewards.dtype))


@torch.no_grad()
def attention(rewards: Tensor, response_mask: Tensor, attention_weights: Tensor) -> Credit:
    """The total is shared in proportion to the attention that the last token pays to each."""
    mask = as_mask(response_mask)
    same_shape(mask, rewards=rewards, attention_weights=attention_weights)
    negative = mask & (attention_weights < 0)
    if negative.any():
        row, token = (int(i) for i in negative.nonzero()[0])
        raise ColumnError(
            f"attention_weights must not be negative, but row {row}, token {token} is "
            f"{attention_weights[row, token].item():g}.",
            column="attention_weights",
            row=row,
            token=token,
        )
    return _share(rewards, mask, attention_weights)


# ── against the other samples of the same prompt ───────────────────────────────────────────────────────────────────


class _Groups(NamedTuple):
    """Each row's total reward and the statistics of its group. Rows without a chosen token are in no group."""

    total: Tensor  # [B] float64
    size: Tensor  # [B] rows in the group
    mean: Tensor  # [B]
    std: Tensor  # [B] with Bessel's correction; 0 for a group of one and for mere rounding noise
    weighted_mean: Tensor  # [B] weighted by the rows' lengths


def _groups(rewards: Tensor, mask: Tensor, group: Tensor | Sequence[Any]) -> _Groups:
    total = masked_sum(rewards, mask, axis=1).double()
    if len(group) != len(total):
        raise ColumnError(f"group has {len(group)} entries for {len(total)} rows.", column="group")
    names: list[Any] = group.tolist() if isinstance(group, Tensor) else list(group)
    numbers: dict[Any, int] = {}
    index = torch.tensor(
        [numbers.setdefault(name, len(numbers)) for name in names], dtype=torch.long, device=total.device
    )
    weight = mask.any(dim=1).double()

    def per_group(x: Tensor) -> Tensor:
        return total.new_zeros(len(numbers)).index_add_(0, index, x)[index]

    size = per_group(weight)
    mean = per_group(total * weight) / size.clamp(min=1)
    variance = per_group((total - mean).square() * weight) / (size - 1).clamp(min=1)
    noise = (torch.finfo(torch.float32).eps * per_group(total.abs() * weight) / size.clamp(min=1)).square()
    length = mask.sum(dim=1).double()
    weighted = per_group(total * length) / per_group(length).clamp(min=1)
    return _Groups(total, size, mean, torch.where(variance > noise, variance, 0.0).sqrt(), weighted)


def _against_group(
    rewards: Tensor, response_mask: Tensor, group: Tensor | Sequence[Any], advantage: Callable[[_Groups], Tensor]
) -> Credit:
    """A row's advantage [B] on each of its chosen tokens; 0 in a group of one, and where all got the same."""
    mask = as_mask(response_mask)
    same_shape(mask, rewards=rewards)
    groups = _groups(rewards, mask, group)
    rows = torch.where(groups.std > 0, advantage(groups), 0.0).to(rewards.dtype)
    return Credit(keep(rows[:, None].expand(mask.shape), mask))


@torch.no_grad()
def grpo(rewards: Tensor, response_mask: Tensor, group: Tensor | Sequence[Any], epsilon: float = 1e-6) -> Credit:
    """(total − group mean) / (group std + ε). A group of one, or one where all got the same, learns nothing: 0."""
    return _against_group(rewards, response_mask, group, lambda g: (g.total - g.mean) / (g.std + epsilon))


@torch.no_grad()
def dr_grpo(rewards: Tensor, response_mask: Tensor, group: Tensor | Sequence[Any]) -> Credit:
    """total − group mean, without the division; goes with loss_agg_mode = seq-mean-token-sum-norm."""
    return _against_group(rewards, response_mask, group, lambda g: g.total - g.mean)


@torch.no_grad()
def rloo(rewards: Tensor, response_mask: Tensor, group: Tensor | Sequence[Any]) -> Credit:
    """total − mean of the group's other samples (leave one out); a group of one gets 0."""
    return _against_group(
        rewards, response_mask, group, lambda g: (g.total - g.mean) * g.size / (g.size - 1).clamp(min=1)
    )


@torch.no_grad()
def opo(rewards: Tensor, response_mask: Tensor, group: Tensor | Sequence[Any]) -> Credit:
    """total − the group's mean weighted by length, the baseline of least variance; a group of one gets 0."""
    return _against_group(rewards, response_mask, group, lambda g: g.total - g.weighted_mean)


@torch.no_grad()
def reinforce_plus_plus(rewards: Tensor, response_mask: Tensor, gamma: float = 1.0) -> Credit:
    """A_t = G_t, the discounted reward from token t on; the whitening that follows takes the baseline off."""
    unit_interval(gamma=gamma)
    mask = as_mask(response_mask)
    same_shape(mask, rewards=rewards)
    nothing = torch.zeros_like(rewards)  # without values δ is the reward, and GAE with λ = 1 sums what is to come
    return Credit(scan.generalised_advantages(rewards, nothing, mask, nothing.new_zeros(len(mask)), gamma, 1.0)[0])


@torch.no_grad()
def remax(rewards: Tensor, response_mask: Tensor, greedy_score: Tensor | Sequence[float]) -> Credit:
    """A_t = the reward from token t on less the score of the greedy answer to the same prompt."""
    mask = as_mask(response_mask)
    baseline = torch.as_tensor(greedy_score, dtype=rewards.dtype, device=rewards.device)
    one_per_row(mask, "greedy_score", baseline)
    return Credit(keep(reinforce_plus_plus(rewards, mask).advantages - baseline[:, None], mask))


# ── after a cut response ────────────────────────────────────────────────────────────────────────────────────────────


def truncation_rule(
    rule: str, truncated: Tensor, response_mask: Tensor, final_values: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What follows the last token of a response that the length limit cut: (bootstrap [B], loss_mask [B, T]).

    zero: nothing follows, as if it had ended (what verl does). bootstrap: the critic's value of the state after it.
    mask: as zero, but the row stays out of the losses and the whitening.
    """
    if rule not in TRUNCATIONS:
        raise UnknownNameError("truncation rule", rule, TRUNCATIONS)
    mask = as_mask(response_mask)
    truncated = as_mask(truncated, "truncated")
    one_per_row(mask, "truncated", truncated)
    bootstrap = torch.zeros(truncated.shape, dtype=torch.float32, device=mask.device)
    if rule == "bootstrap":
        if final_values is None:
            raise SettingError(
                "truncation=bootstrap needs a critic; choose an estimator that has one, or truncation=zero."
            )
        one_per_row(mask, "bootstrap_value", final_values)
        bootstrap = keep(final_values.float(), truncated)
    return bootstrap, mask & ~truncated[:, None] if rule == "mask" else mask
