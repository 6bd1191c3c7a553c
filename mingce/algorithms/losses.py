"""The losses. Each returns its scalar together with the per-token columns it was made of.

Denominators are global: pass the totals of the whole optimizer step (`batch_totals`) when a loss is computed on a part
of it, and the parts' losses and gradients add up to the whole's, however it was split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor

from mingce.algorithms.checks import as_mask, at_least, same_shape
from mingce.algorithms.kl import kl_penalty as token_kl
from mingce.algorithms.masking import keep
from mingce.base.errors import SettingError, UnknownNameError
from mingce.specs.losses import AGGREGATIONS, MAX_LOG_RATIO, MAX_SEQUENCE_LOG_RATIO, POLICY_LOSSES, PolicyLoss


class Loss(NamedTuple):
    """A scalar to differentiate, and the columns [B, T] it was made of, detached and 0 behind the mask."""

    loss: Tensor
    columns: dict[str, Tensor]


class Terms(NamedTuple):
    """The token losses [B, T] of a policy loss, the ratio they were made with, and further columns, all masked."""

    terms: Tensor
    ratio: Tensor
    columns: dict[str, Tensor] = {}  # noqa: RUF012  (a NamedTuple's default, never written to)


def function_of(spec: PolicyLoss) -> Callable[..., Terms]:
    """The function on tensors that training calls."""
    function: Callable[..., Terms] = spec.tensor_function or globals()[spec.name]
    return function


class BatchTotals(TypedDict, total=False):
    """What losses are divided by, in verl's names. Left out, a loss takes them from the mask it is given."""

    batch_num_tokens: int  # chosen tokens of the whole step, all ranks
    global_batch_size: int  # rows with at least one chosen token, likewise
    loss_scale_factor: int  # the constant of seq-mean-token-sum-norm
    dp_size: int  # ranks over which gradients are averaged afterwards: the loss is multiplied by it


def batch_totals(loss_mask: Tensor, loss_scale_factor: int | None = None) -> BatchTotals:
    """The totals of a whole batch; the norm's constant is its width unless one is given."""
    mask = as_mask(loss_mask)
    return BatchTotals(
        batch_num_tokens=int(mask.sum()),
        global_batch_size=int(mask.any(dim=1).sum()),
        loss_scale_factor=mask.shape[1] if loss_scale_factor is None else loss_scale_factor,
    )


def agg_loss(
    loss_mat: Tensor, loss_mask: Tensor, loss_agg_mode: str = "token-mean", **totals: Unpack[BatchTotals]
) -> Tensor:
    """One scalar of a matrix of token losses [B, T]; 0 when nothing is chosen.

    The modes are `mingce.specs.AGGREGATIONS`; rows without a chosen token do not count.
    """
    if loss_agg_mode not in AGGREGATIONS:
        raise UnknownNameError("loss_agg_mode", loss_agg_mode, AGGREGATIONS)
    mask = as_mask(loss_mask, "loss_mask")
    same_shape(mask, loss_mat=loss_mat)
    whole = _whole(mask, loss_agg_mode, totals)
    kept = keep(loss_mat, mask)
    if loss_agg_mode == "token-sum":
        return kept.sum() * whole["dp_size"]
    if loss_agg_mode == "token-mean":
        return torch.div(kept.sum(), max(whole["batch_num_tokens"], 1)) * whole["dp_size"]
    rows = kept.sum(dim=1)
    if loss_agg_mode == "seq-mean-token-mean":
        rows = rows / mask.sum(dim=1).clamp(min=1)
    rows_counted = max(whole["global_batch_size"], 1)
    constant = max(whole["loss_scale_factor"], 1) if loss_agg_mode == "seq-mean-token-sum-norm" else 1
    return torch.div(rows.sum(), rows_counted * constant) * whole["dp_size"]


def _whole(mask: Tensor, mode: str, totals: BatchTotals) -> BatchTotals:
    """The totals to divide by: those given, else the mask's own; on several ranks the divisor must be given."""
    unknown = set(totals) - set(BatchTotals.__annotations__)
    if unknown:
        raise TypeError(
            f"agg_loss has no argument {sorted(unknown)[0]!r}; it takes {', '.join(BatchTotals.__annotations__)}."
        )
    told = {name: value for name, value in totals.items() if value is not None}
    ranks = told.get("dp_size", 1)
    divisor = {"token-sum": "", "token-mean": "batch_num_tokens"}.get(mode, "global_batch_size")
    if ranks != 1 and divisor and divisor not in told:
        raise SettingError(f"{mode} on {ranks} ranks needs {divisor}, the total of all ranks.")
    return {**batch_totals(mask), "dp_size": 1, **told}  # type: ignore[typeddict-item]


def policy_ratio(old_log_prob: Tensor, log_prob: Tensor, response_mask: Tensor) -> Tensor:
    """ρ_t = π(a_t)/π_old(a_t) [B, T], 1 behind the mask; the exponent is held within ±20."""
    mask = as_mask(response_mask)
    same_shape(mask, old_log_probs=old_log_prob, new_log_probs=log_prob)
    return (keep(log_prob, mask) - keep(old_log_prob, mask)).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def ppo(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
) -> Terms:
    """−min(ρÂ, clip(ρ, 1−ε_low, 1+ε_high)Â), at most −cÂ where Â < 0 (dual clip, None = off)."""
    at_least(0.0, clip_low=clip_low, clip_high=clip_high)
    if clip_low > 1.0:
        raise SettingError(f"clip_low must lie between 0 and 1, but is {clip_low}.")
    if dual_clip is not None and not dual_clip > 1.0:
        raise SettingError(f"the dual clip must be greater than 1, but is {dual_clip}; None turns it off.")
    mask = as_mask(response_mask)
    same_shape(mask, advantages=advantages)
    ratio = policy_ratio(old_log_prob, log_prob, mask)
    advantages = keep(advantages, mask)
    plain = -advantages * ratio
    limited = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    clipped = limited > plain
    terms = torch.maximum(plain, limited)
    dual_clipped = torch.zeros_like(mask)
    if dual_clip is not None:
        cap = -advantages * dual_clip
        dual_clipped = (advantages < 0) & (terms > cap)
        terms = torch.where(dual_clipped, cap, terms)
    return Terms(terms, ratio, {"clipped": clipped | dual_clipped, "dual_clipped": dual_clipped})


def cpi(old_log_prob: Tensor, log_prob: Tensor, advantages: Tensor, response_mask: Tensor) -> Terms:
    """TRPO's surrogate −ρÂ, without a clip."""
    mask = as_mask(response_mask)
    same_shape(mask, advantages=advantages)
    ratio = policy_ratio(old_log_prob, log_prob, mask)
    return Terms(-keep(advantages, mask) * ratio, ratio)


def gspo(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    clip_low: float,
    clip_high: float,
) -> Terms:
    """PPO's clip on the ratio of the whole response, exp of the mean log-ratio; each token's gradient is its own."""
    mask = as_mask(response_mask)
    same_shape(mask, advantages=advantages)
    new, old = keep(log_prob, mask), keep(old_log_prob, mask)
    mean = (new - old).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    ratio = (new - new.detach() + mean.detach()).clamp(max=MAX_SEQUENCE_LOG_RATIO).exp()
    advantages = keep(advantages, mask)
    plain, limited = -advantages * ratio, -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    tokens = policy_ratio(old_log_prob.detach(), log_prob.detach(), mask)
    return Terms(torch.maximum(plain, limited), tokens, {"clipped": (limited > plain) & mask})


def cispo(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    clip_low: float,
    clip_high: float,
) -> Terms:
    """−sg[clip(ρ)]·Â·log π: a clipped token keeps its gradient, with a limited weight."""
    mask = as_mask(response_mask)
    same_shape(mask, advantages=advantages)
    ratio = policy_ratio(old_log_prob.detach(), log_prob.detach(), mask)
    weight = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return Terms(-weight * keep(advantages, mask) * keep(log_prob, mask), ratio, {"clipped": (weight != ratio) & mask})


def policy_loss(
    spec: PolicyLoss,
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    settings: Mapping[str, Any],
    loss_agg_mode: str = "token-mean",
    **totals: Unpack[BatchTotals],
) -> Loss:
    """The named policy loss. Columns: new_log_probs, ratio, policy_loss, and what the loss itself tells (clipped …)."""
    mask = as_mask(response_mask)
    terms = function_of(spec)(old_log_prob, log_prob, advantages, mask, **spec.arguments(settings))
    columns = {
        "new_log_probs": keep(log_prob.detach(), mask),
        "ratio": keep(terms.ratio.detach(), mask),
        **terms.columns,
        "policy_loss": keep(terms.terms.detach(), mask),
    }
    return Loss(agg_loss(terms.terms, mask, loss_agg_mode, **totals), columns)


def ppo_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    cliprange: float = 0.2,
    cliprange_low: float | None = None,
    cliprange_high: float | None = None,
    clip_ratio_c: float | None = 3.0,
    loss_agg_mode: str = "token-mean",
    **totals: Unpack[BatchTotals],
) -> Loss:
    """PPO's clipped loss by verl's name and arguments."""
    settings = {
        "clip_low": cliprange if cliprange_low is None else cliprange_low,
        "clip_high": cliprange if cliprange_high is None else cliprange_high,
        "dual_clip": clip_ratio_c,
    }
    spec = POLICY_LOSSES["ppo"]
    return policy_loss(spec, old_log_prob, log_prob, advantages, response_mask, settings, loss_agg_mode, **totals)


def value_loss(
    vpreds: Tensor,
    returns: Tensor,
    values: Tensor,
    response_mask: Tensor,
    cliprange_value: float | None = 0.5,
    loss_agg_mode: str = "token-mean",
    **totals: Unpack[BatchTotals],
) -> Loss:
    """½·max((V' − R)², (clip(V', V ± ε_V) − R)²); `cliprange_value=None` does not clip.

    Columns: new_values, value_clipped, value_loss.
    """
    mask = as_mask(response_mask)
    same_shape(mask, new_values=vpreds, returns=returns, values=values)
    new, target, old = keep(vpreds, mask), keep(returns, mask), keep(values, mask)
    squares = (new - target).square()
    clipped = torch.zeros_like(mask)
    if cliprange_value is not None:
        at_least(0.0, cliprange_value=cliprange_value)
        near = torch.minimum(torch.maximum(new, old - cliprange_value), old + cliprange_value)
        limited = (near - target).square()
        clipped = limited > squares
        squares = torch.maximum(squares, limited)
    terms = 0.5 * squares
    columns = {"new_values": new.detach(), "value_clipped": clipped, "value_loss": terms.detach()}
    return Loss(agg_loss(terms, mask, loss_agg_mode, **totals), columns)


def entropy_from_logits(logits: Tensor) -> Tensor:
    """H = −Σ_a π(a)·log π(a) over the last axis; a logit of −inf is a probability of 0."""
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    return -(p * torch.where(p > 0, log_p, 0.0)).sum(-1)


def entropy_loss(
    entropy: Tensor, response_mask: Tensor, loss_agg_mode: str = "token-mean", **totals: Unpack[BatchTotals]
) -> Loss:
    """The entropy [B, T] aggregated like the other losses; a bonus subtracts it. Column: new_entropy."""
    mask = as_mask(response_mask)
    same_shape(mask, new_entropy=entropy)
    return Loss(agg_loss(entropy, mask, loss_agg_mode, **totals), {"new_entropy": keep(entropy.detach(), mask)})


def kl_loss(
    log_prob: Tensor,
    ref_log_prob: Tensor,
    response_mask: Tensor,
    kl_penalty: str = "k3+",
    clamp: float | None = None,
    loss_agg_mode: str = "token-mean",
    **totals: Unpack[BatchTotals],
) -> Loss:
    """The KL to the reference as a loss. Column: kl_loss.

    The default takes k3's value and k2's gradient; the gradient of k1 as a loss does not depend on the reference.
    """
    terms = token_kl(log_prob, ref_log_prob, kl_penalty, response_mask, clamp)
    return Loss(agg_loss(terms, response_mask, loss_agg_mode, **totals), {"kl_loss": terms.detach()})
