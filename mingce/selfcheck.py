"""What must be true before the first update; if it is not, everything after it would be wrong."""

from __future__ import annotations

import torch

from mingce.config import Config
from mingce.errors import ModelError
from mingce.lang import display_lang, say
from mingce.ledger import Ledger
from mingce.roles.actor import Actor

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}  # of one token's log-prob


def self_check(ledger: Ledger, actor: Actor, config: Config) -> str:
    """KL to the reference is 0, old = rollout log-probs, ratio is 1; one line that says so, or an error."""
    limit = TOLERANCE.get(actor.dtype, 1e-3)
    mask, old = ledger.mask, ledger["old_log_probs"]
    said, lang = [], display_lang()

    def largest(gap: torch.Tensor) -> float:
        return float(gap[mask].abs().max()) if bool(mask.any()) else 0.0

    if "ref_log_probs" in ledger:
        gap = largest(old - ledger["ref_log_probs"])
        if gap > limit:
            raise ModelError(
                f"self-check: the reference differs from the policy before the first update (a log-prob by {gap:.2g}); "
                "they must start from the same weights."
            )
        said.append(say(lang, f"与参考模型的 KL 为 0（最大 {gap:.0e}）", f"KL to the reference 0 (largest {gap:.0e})"))
    s = config.sampling
    if s.top_k == 0 and s.top_p == 1.0 and s.min_p == 0.0:
        gap = largest(old - ledger["rollout_log_probs"])
        if gap > limit:
            raise ModelError(
                f"self-check: sampler and trainer disagree about the same weights (a log-prob by {gap:.2g}); "
                "use model.dtype=float32 and report this model."
            )
        said.append(say(lang, f"采样端 = 训练端（最大 {gap:.0e}）", f"sampler = trainer (largest {gap:.0e})"))
    first = ledger.select(ledger.micro_batches(config.micro_batch_tokens)[0]).trim()
    gap = float((actor.ratios(first)[first.loss_mask] - 1).abs().max()) if bool(first.loss_mask.any()) else 0.0
    if gap > limit:
        raise ModelError(
            f"self-check: two forward passes of the same weights disagree (ratio off 1 by {gap:.2g}); "
            "the model is not deterministic, so PPO's ratio would mean nothing."
        )
    said.append(say(lang, f"比值为 1（最大 {gap:.0e}）", f"ratio 1 (largest {gap:.0e})"))
    return say(lang, "自检：" + "，".join(said), "self-check: " + ", ".join(said))
