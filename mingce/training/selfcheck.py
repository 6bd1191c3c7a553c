"""What must be true before the first update; if it is not, everything after it would be wrong."""

from __future__ import annotations

import math

import torch

from mingce.base.errors import ModelError
from mingce.base.texts import sentence
from mingce.config import Config
from mingce.ledger import Ledger
from mingce.models.conversations import ASSISTANT
from mingce.models.micro_batches import padded_batches
from mingce.roles.actor import Actor

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}  # of one token's log-prob
USUAL = {torch.float32: 64, torch.bfloat16: 4, torch.float16: 4}
"""Mean gap of two passes in units of the dtype's eps that is nothing but rounding. The embedded model has 6 in float32,
0.9 in bfloat16 and 1.3 in float16 (the largest gaps: 300, 33 and 65 eps); larger models have somewhat more."""
WRONG = 8
"""So many times the usual mean gap is no rounding any more."""


def self_check(ledger: Ledger, actor: Actor, config: Config) -> str:
    """KL to the reference is 0, old = rollout log-probs, ratio is 1; one line that says so, or an error."""
    limit = TOLERANCE.get(actor.dtype, 1e-3)
    mask, old = ledger.mask, ledger["old_log_probs"]
    said = []

    def largest(gap: torch.Tensor) -> float:
        return float(gap[mask].abs().max()) if bool(mask.any()) else 0.0

    if "ref_log_probs" in ledger:
        gap = largest(old - ledger["ref_log_probs"])
        if gap > limit:
            raise ModelError(
                f"self-check: the reference differs from the policy before the first update (a log-prob by {gap:.2g}); "
                "they must start from the same weights."
            )
        said.append(sentence("training.check_kl", gap=gap))
    s = config.sampling
    if s.top_k == 0 and s.top_p == 1.0 and s.min_p == 0.0:
        drawn = mask & (ledger["role"] == ASSISTANT) if "role" in ledger else mask  # mask_observations may be false
        gaps = (old - ledger["rollout_log_probs"])[drawn].abs()
        gap, mean = (float(gaps.max()), float(gaps.float().mean())) if len(gaps) else (0.0, 0.0)
        usual = USUAL.get(actor.dtype, 64) * torch.finfo(actor.dtype).eps
        if gap > limit or mean > WRONG * usual:
            raise ModelError(
                f"self-check: sampler and trainer disagree about the same weights (a log-prob by {gap:.2g}, "
                f"{mean:.1g} on average); use model.dtype=float32 and report this model."
            )
        said.append(sentence("training.check_sampler", gap=gap, mean=mean))
        said += _comment(actor.dtype, gap, mean, usual)
    first = ledger.select(padded_batches(ledger, config.micro_batch_tokens)[0]).trim()
    gap = float((actor.ratios(first)["ratio"][first.loss_mask] - 1).abs().max()) if bool(first.loss_mask.any()) else 0.0
    if gap > limit:
        raise ModelError(
            f"self-check: two forward passes of the same weights disagree (ratio off 1 by {gap:.2g}); "
            "the model is not deterministic, so PPO's ratio would mean nothing."
        )
    said.append(sentence("training.check_ratio", gap=gap))
    return sentence("training.check", parts=" · ".join(said))


def _comment(dtype: torch.dtype, gap: float, mean: float, usual: float) -> list[str]:
    """What a gap between sampler and trainer means, where it is more than float32's rounding."""
    name = str(dtype).removeprefix("torch.")
    if mean > usual or gap > TOLERANCE.get(dtype, 1e-3) * 0.75:
        return [sentence("training.check_too_far", dtype=name, usual=usual)]
    if dtype in (torch.bfloat16, torch.float16):
        return [sentence("training.check_rounding", dtype=name, gap=math.expm1(gap), mean=math.expm1(mean))]
    return []
