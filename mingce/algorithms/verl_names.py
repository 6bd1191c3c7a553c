"""Four calls in verl's own names, argument order and result, for code that was written against its core_algos.

They differ from our estimators in what they return: verl gives (advantages, returns) with GAE's advantages already
whitened, and a prompt that was sampled once keeps its raw score. Pads are 0 here, where verl leaves −μ/σ on them. The
other names that verl and mingce share (kl_penalty, agg_loss, masked_mean, masked_var, masked_whiten,
compute_policy_loss, compute_value_loss) are in kl, masking and losses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mingce.algorithms.advantage import Credit, dr_grpo, gae, grpo, reinforce_plus_plus, rloo
from mingce.algorithms.checks import as_mask
from mingce.algorithms.masking import keep, masked_sum, masked_whiten


def compute_gae_advantage_return(
    token_level_rewards: Tensor, values: Tensor, response_mask: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
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
) -> tuple[Tensor, Tensor]:
    """(advantages, the same again)."""
    if norm_adv_by_std_in_grpo:
        credit = grpo(token_level_rewards, response_mask, index, epsilon)
    else:
        credit = dr_grpo(token_level_rewards, response_mask, index)
    return _twice(credit, token_level_rewards, response_mask, index)


def compute_rloo_outcome_advantage(
    token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[Any]
) -> tuple[Tensor, Tensor]:
    """(advantages, the same again)."""
    return _twice(rloo(token_level_rewards, response_mask, index), token_level_rewards, response_mask, index)


def compute_reinforce_plus_plus_outcome_advantage(
    token_level_rewards: Tensor, response_mask: Tensor, gamma: float
) -> tuple[Tensor, Tensor]:
    """(whitened discounted rewards from each token on, the same unwhitened)."""
    returns = reinforce_plus_plus(token_level_rewards, response_mask, gamma).advantages
    return masked_whiten(returns, response_mask), returns


def sampled_once(credit: Credit, rewards: Tensor, response_mask: Tensor, index: Sequence[Any]) -> Tensor:
    """The advantages as verl has them: the raw score on the rows whose prompt was sampled once."""
    mask = as_mask(response_mask)
    sizes = Counter(index)
    alone = torch.tensor([sizes[name] == 1 for name in index], dtype=torch.bool, device=mask.device)
    raw = keep(masked_sum(rewards, mask, axis=1)[:, None].expand(mask.shape), mask)
    return torch.where(alone[:, None], raw, credit.advantages)


def _twice(credit: Credit, rewards: Tensor, response_mask: Tensor, index: Sequence[Any]) -> tuple[Tensor, Tensor]:
    advantages = sampled_once(credit, rewards, response_mask, index)
    return advantages, advantages
