"""verl 0.9.1's calls in its own names, argument order and results, for code that was written against its core_algos.

They differ from ours in what they return: (advantages, returns) with GAE's advantages already whitened, losses with
the fractions that verl logs. A prompt that was sampled once keeps its raw score. Two things differ from verl: what
stands behind the mask is never read, and is 0 in results, where verl's GAE leaves −μ/σ; and where no token is chosen
a mean is 0, where verl divides by 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol, Unpack

import torch
from torch import Tensor

from mingce.algorithms import kl, losses
from mingce.algorithms.advantage import Credit, dr_grpo, gae, grpo, opo, reinforce_plus_plus, remax, rloo
from mingce.algorithms.checks import as_mask
from mingce.algorithms.losses import BatchTotals, agg_loss, entropy_from_logits
from mingce.algorithms.masking import keep, masked_mean, masked_sum, masked_var, masked_whiten
from mingce.specs.kl import find_kl

__all__ = [
    "agg_loss", "compute_entropy_loss", "compute_gae_advantage_return", "compute_grpo_outcome_advantage",
    "compute_grpo_vectorized_outcome_advantage", "compute_opo_outcome_advantage", "compute_policy_loss",
    "compute_reinforce_plus_plus_baseline_outcome_advantage", "compute_reinforce_plus_plus_outcome_advantage",
    "compute_remax_outcome_advantage", "compute_rloo_outcome_advantage", "compute_rloo_vectorized_outcome_advantage",
    "compute_value_loss", "entropy_from_logits", "kl_penalty", "kl_penalty_forward", "masked_mean", "masked_sum",
    "masked_var", "masked_whiten",
]  # fmt: skip

Pair = tuple[Tensor, Tensor]


class Discounted(Protocol):
    """What is read of verl's algorithm settings."""

    @property
    def gamma(self) -> float: ...


# ── advantages ─────────────────────────────────────────────────────────────────────────────────────────────────────


def compute_gae_advantage_return(
    token_level_rewards: Tensor, values: Tensor, response_mask: Tensor, gamma: float, lam: float
) -> Pair:
    """(whitened advantages, returns = raw advantages + values)."""
    credit = gae(token_level_rewards, values, response_mask, gamma, lam)
    assert credit.returns is not None
    return masked_whiten(credit.advantages, response_mask), credit.returns


def compute_grpo_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Sequence[Any],
    epsilon: float = 1e-6,
    norm_adv_by_std_in_grpo: bool = True,
    config: object = None,
) -> Pair:
    """(advantages, the same again)."""
    if norm_adv_by_std_in_grpo:
        credit = grpo(token_level_rewards, response_mask, index, epsilon)
    else:
        credit = dr_grpo(token_level_rewards, response_mask, index)
    return _twice(sampled_once(credit, token_level_rewards, response_mask, index))


compute_grpo_vectorized_outcome_advantage = compute_grpo_outcome_advantage
"""verl has it twice, with the same numbers."""


def compute_rloo_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Sequence[Any],
    epsilon: float = 1e-6,
    config: object = None,
) -> Pair:
    """(advantages, the same again)."""
    credit = rloo(token_level_rewards, response_mask, index)
    return _twice(sampled_once(credit, token_level_rewards, response_mask, index))


def compute_rloo_vectorized_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Sequence[Any],
    epsilon: float = 1e-6,
    config: object = None,
) -> Pair:
    """As `compute_rloo_outcome_advantage`, but 0 for a prompt that was sampled once."""
    return _twice(rloo(token_level_rewards, response_mask, index).advantages)


def compute_opo_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Sequence[Any],
    epsilon: float = 1e-6,
    config: object = None,
) -> Pair:
    """(advantages, the same again)."""
    credit = opo(token_level_rewards, response_mask, index)
    return _twice(sampled_once(credit, token_level_rewards, response_mask, index))


def compute_reinforce_plus_plus_baseline_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Sequence[Any],
    epsilon: float = 1e-6,
    config: object = None,
) -> Pair:
    """(score minus the group's mean, whitened over all tokens, the same again)."""
    credit = dr_grpo(token_level_rewards, response_mask, index)
    centred = sampled_once(credit, token_level_rewards, response_mask, index)
    return _twice(masked_whiten(centred, response_mask))


def compute_reinforce_plus_plus_outcome_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    config: Discounted | None = None,
    *,
    gamma: float | None = None,
) -> Pair:
    """(whitened discounted rewards from each token on, the same unwhitened); γ from `config.gamma` or by name."""
    if gamma is None:
        if config is None:
            raise TypeError("compute_reinforce_plus_plus_outcome_advantage needs config, of which it reads gamma.")
        gamma = config.gamma
    returns = reinforce_plus_plus(token_level_rewards, response_mask, gamma).advantages
    return masked_whiten(returns, response_mask), returns


def compute_remax_outcome_advantage(
    token_level_rewards: Tensor, reward_baselines: Tensor, response_mask: Tensor, config: object = None
) -> Pair:
    """(rewards from each token on minus the greedy answer's, without that baseline)."""
    credit = remax(token_level_rewards, response_mask, reward_baselines.tolist())
    mask = as_mask(response_mask)
    return credit.advantages, keep(credit.advantages + reward_baselines[:, None].to(credit.advantages), mask)


def sampled_once(credit: Credit, rewards: Tensor, response_mask: Tensor, index: Sequence[Any]) -> Tensor:
    """The advantages as verl has them: the raw score on the rows whose prompt was sampled once."""
    mask = as_mask(response_mask)
    sizes = Counter(index)
    alone = torch.tensor([sizes[name] == 1 for name in index], dtype=torch.bool, device=mask.device)
    raw = keep(masked_sum(rewards, mask, axis=1)[:, None].expand(mask.shape), mask)
    return torch.where(alone[:, None], raw, credit.advantages)


def _twice(advantages: Tensor) -> Pair:
    return advantages, advantages


# ── losses and the KL ──────────────────────────────────────────────────────────────────────────────────────────────


def compute_policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    cliprange: float | None = None,
    cliprange_low: float | None = None,
    cliprange_high: float | None = None,
    clip_ratio_c: float = 3.0,
    loss_agg_mode: str = "token-mean",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(loss, share of tokens clipped by ε, mean of old − new log-probs, share clipped by the dual clip)."""
    low = cliprange if cliprange_low is None else cliprange_low
    high = cliprange if cliprange_high is None else cliprange_high
    if low is None or high is None:
        raise TypeError("compute_policy_loss needs cliprange, or both cliprange_low and cliprange_high.")
    arguments = old_log_prob, log_prob, advantages, response_mask
    made = losses.ppo_loss(*arguments, 0.0, low, high, clip_ratio_c, loss_agg_mode)
    by_epsilon = losses.ppo(*arguments, low, high, None).columns["clipped"]
    mask = as_mask(response_mask)
    kl_so_far = masked_mean(-losses.policy_ratio(old_log_prob, log_prob, mask).log(), mask)
    return (
        made.loss,
        masked_mean(by_epsilon.float(), mask),
        kl_so_far,
        masked_mean(made.columns["dual_clipped"].float(), mask),
    )


def compute_value_loss(
    vpreds: Tensor,
    returns: Tensor,
    values: Tensor,
    response_mask: Tensor,
    cliprange_value: float,
    loss_agg_mode: str = "token-mean",
    **totals: Unpack[BatchTotals],
) -> Pair:
    """(loss, share of tokens whose clipped loss counts)."""
    made = losses.value_loss(vpreds, returns, values, response_mask, cliprange_value, loss_agg_mode, **totals)
    return made.loss, masked_mean(made.columns["value_clipped"].float(), response_mask)


def compute_entropy_loss(logits: Tensor, response_mask: Tensor, loss_agg_mode: str = "token-mean") -> Tensor:
    """The entropy of the logits [B, T, V], aggregated."""
    return agg_loss(entropy_from_logits(logits), response_mask, loss_agg_mode)


def kl_penalty(logprob: Tensor, ref_logprob: Tensor, kl_penalty: str) -> Tensor:
    """The named estimate for each token, k3 limited to ±10; a name with + has k2's gradient."""
    return kl.kl_penalty(logprob, ref_logprob, kl_penalty, clamp=find_kl(kl_penalty).verl_clamp)


def kl_penalty_forward(logprob: Tensor, ref_logprob: Tensor, kl_penalty: str) -> Tensor:
    """The same with its own gradient."""
    return kl.kl_penalty(logprob, ref_logprob, kl_penalty.removesuffix("+"), clamp=find_kl(kl_penalty).verl_clamp)
