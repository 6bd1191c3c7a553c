"""The distance to the reference model, what it costs, and the controllers of its price.

The kinds of KL are those of `mingce.specs.kl`, and `full`: Σ_a π(a)·(log π(a) − log π_ref(a)) over the whole
vocabulary. A name ending in + (k1+, k3+) has its own value and k2's gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mingce.algorithms.checks import as_mask, at_least, same_shape
from mingce.algorithms.masking import keep
from mingce.base.errors import ColumnError, SettingError
from mingce.specs.kl import FULL, find_kl

_SAMPLED: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda x: x,
    "abs": torch.abs,
    "k2": lambda x: 0.5 * x.square(),
    "k3": lambda x: torch.expm1(-x) + x,
}


def kl_penalty(
    logprob: Tensor,
    ref_logprob: Tensor,
    kl_penalty: str = "k1",
    response_mask: Tensor | None = None,
    clamp: float | None = None,
) -> Tensor:
    """The named estimate for each token [B, T]; 0 behind the mask if one is given.

    `clamp` limits the result to ±clamp; verl does so for k3, with 10. For `full` both inputs are log-probabilities (or
    logits) over the vocabulary, [B, T, V].
    """
    if kl_penalty == FULL:
        return _full_kl(logprob, ref_logprob, response_mask, clamp)
    estimate = _SAMPLED[find_kl(kl_penalty).name]
    if response_mask is not None:
        mask = as_mask(response_mask)
        same_shape(mask, logprob=logprob, ref_logprob=ref_logprob)
        logprob, ref_logprob = keep(logprob, mask), keep(ref_logprob, mask)
    elif logprob.shape != ref_logprob.shape:
        raise ColumnError(
            f"logprob has shape {list(logprob.shape)} but ref_logprob has {list(ref_logprob.shape)}.",
            column="ref_log_probs",
        )
    x = logprob - ref_logprob
    value = _limited(estimate(x), clamp)
    if not kl_penalty.endswith("+"):
        return value
    gradient = 0.5 * x.square()
    return value.detach() + gradient - gradient.detach()


def _full_kl(logits: Tensor, ref_logits: Tensor, response_mask: Tensor | None, clamp: float | None) -> Tensor:
    if logits.dim() != 3 or logits.shape != ref_logits.shape:
        raise ColumnError(
            "kl_penalty=full needs the log-probabilities of the whole vocabulary, [B, T, V], of both models, "
            f"but got {list(logits.shape)} and {list(ref_logits.shape)}.",
            column="kl",
        )
    if response_mask is not None:
        mask = as_mask(response_mask)
        logits, ref_logits = keep(logits, mask[..., None]), keep(ref_logits, mask[..., None])
    log_p, log_q = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    p = log_p.exp()
    return _limited((p * torch.where(p > 0, log_p - log_q, 0.0)).sum(-1), clamp)


def _limited(value: Tensor, clamp: float | None) -> Tensor:
    return value if clamp is None else value.clamp(-clamp, clamp)


def kl_rewards(scores: Tensor, kl: Tensor, response_mask: Tensor, beta: float) -> Tensor:
    """r_t = score_t − β·k_t [B, T], 0 behind the mask."""
    mask = as_mask(response_mask)
    same_shape(mask, scores=scores, kl=kl)
    at_least(0.0, kl_coef=beta)
    return keep(scores - beta * kl, mask)


class FixedKLController:
    """A price that stays."""

    def __init__(self, kl_coef: float):
        at_least(0.0, kl_coef=kl_coef)
        self.value = kl_coef

    def update(self, current_kl: float, n_steps: int) -> None:
        """Nothing changes."""


class AdaptiveKLController:
    """A price that follows the KL: up to 20 % error, spread over `horizon` samples (Ziegler et al. 2019)."""

    def __init__(self, init_kl_coef: float, target_kl: float, horizon: int):
        at_least(0.0, kl_coef=init_kl_coef)
        if not (target_kl > 0 and horizon > 0):
            raise SettingError(
                f"adaptive KL needs target_kl and horizon above 0, but they are {target_kl} and {horizon}."
            )
        self.value, self.target, self.horizon = init_kl_coef, target_kl, horizon

    def update(self, current_kl: float, n_steps: int) -> None:
        """Moves the price after `n_steps` rollouts whose mean KL was `current_kl`."""
        if not math.isfinite(current_kl):
            raise ColumnError(
                f"the KL to steer by is {current_kl}; look for a non-finite log-probability.", column="kl"
            )
        error = min(max(current_kl / self.target - 1.0, -0.2), 0.2)
        self.value *= 1.0 + error * n_steps / self.horizon
