"""The reference: the policy as it was at the start, never updated."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn

from mingce.ledger import Ledger
from mingce.models.loading import clone_frozen
from mingce.models.log_probs import ledger_log_probs, log_probs_batcher
from mingce.models.lora import reference_mode


class Reference(Protocol):
    """The policy that the KL is measured to."""

    def log_probs(self, ledger: Ledger) -> dict[str, Tensor]:
        """ref_log_probs, at the temperature the tokens were drawn with."""
        ...


class LocalReference:
    """A frozen copy of the policy, or the policy with its adapters off when it has any."""

    def __init__(self, policy: nn.Module, pad_id: int, temperature: float, micro_batch_tokens: int):
        self.shares_weights = hasattr(policy, "disable_adapter")
        self.model = policy if self.shares_weights else clone_frozen(policy)
        self.pad_id, self.temperature, self.micro_batch_tokens = pad_id, temperature, micro_batch_tokens

    @torch.no_grad()
    def log_probs(self, ledger: Ledger) -> dict[str, Tensor]:
        def part(micro: Ledger) -> dict[str, Tensor]:
            return {"ref_log_probs": ledger_log_probs(self.model, micro, self.pad_id, self.temperature)[0]}

        with reference_mode(self.model) if self.shares_weights else nullcontext():
            return ledger.by_micro_batch(log_probs_batcher(self.model, self.micro_batch_tokens), part)
