"""Stage 2 of a step: from scores and log-probs to rewards, advantages and returns."""

from __future__ import annotations

import torch

from mingce.algorithms.advantage import advantages, needs_critic, truncation_rule
from mingce.algorithms.kl import kl_penalty, kl_rewards
from mingce.algorithms.masking import masked_whiten
from mingce.config import Config
from mingce.ledger import Ledger

UNWHITENED = ("grpo", "dr_grpo", "rloo")  # they have a baseline and a scale of their own


def assign_credit(ledger: Ledger, config: Config, beta: float) -> None:
    """Fills kl, rewards, loss_mask, the estimator's columns and whitened_advantages; `beta` is the price of the KL."""
    mask, kl = ledger.mask, config.kl
    if "ref_log_probs" in ledger:
        ledger.fill({"kl": kl_penalty(ledger["old_log_probs"], ledger["ref_log_probs"], kl.estimator, mask, kl.clamp)})
        ledger.fill({"rewards": kl_rewards(ledger["scores"], ledger["kl"], mask, beta)})
    else:
        ledger.fill({"rewards": ledger["scores"]})
    critic = needs_critic(config.estimator)
    cut = torch.tensor([reason == "length" for reason in ledger.row("finish_reason")], device=mask.device)
    after = torch.tensor(ledger.row("bootstrap_value"), device=mask.device) if critic else None
    bootstrap, loss_mask = truncation_rule(config.credit.truncation, cut.bool(), mask, after)
    ledger.fill({"loss_mask": loss_mask})
    settings = {name: getattr(config.credit, name) for name in ("gamma", "lam", "n", "k")}
    ledger.fill(advantages(ledger, config.estimator, bootstrap=bootstrap, **settings))
    if whitens(config):
        ledger.fill({"whitened_advantages": masked_whiten(ledger["advantages"], ledger.loss_mask)})


def whitens(config: Config) -> bool:
    """Whether this configuration whitens advantages."""
    return config.credit.whiten == "always" or (config.credit.whiten == "auto" and config.estimator not in UNWHITENED)
