"""The critic: says what each state is worth, and learns from what came of it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from mingce.algorithms.losses import BatchTotals, value_loss
from mingce.config import Config
from mingce.ledger import Ledger
from mingce.models.value_head import ValueModel
from mingce.roles.actor import row_seed
from mingce.roles.learner import Learner, LocalLearner, OnProgress


class Critic(Protocol):
    """Whoever values states."""

    @property
    def learner(self) -> Learner: ...

    def values(self, ledger: Ledger) -> dict[str, Tensor]:
        """V(s_t) before each token; the value after the last one goes to the row column bootstrap_value."""
        ...

    def update(self, ledger: Ledger, step: int, on_progress: OnProgress = ...) -> dict[str, float]:
        """Fits the returns; the ledger keeps the columns the loss used."""
        ...


def fill_bootstrap(ledger: Ledger, columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """Moves bootstrap_value into the ledger's rows; returns the token columns."""
    ledger.fill_rows(bootstrap_value=columns["bootstrap_value"].tolist())
    return {"values": columns["values"]}


class LocalCritic:
    """The value model and its optimizer in this process."""

    def __init__(self, model: ValueModel, pad_id: int, config: Config):
        self.model, self.pad_id, self.config = model, pad_id, config
        self.learner = LocalLearner(model, config.critic, config.steps)

    def values(self, ledger: Ledger) -> dict[str, Tensor]:
        return fill_bootstrap(ledger, self.all_values(ledger))

    @torch.no_grad()
    def all_values(self, ledger: Ledger) -> dict[str, Tensor]:
        """values, and bootstrap_value [B]."""

        def part(micro: Ledger) -> dict[str, Tensor]:
            values, after = self._forward(micro, final=True)
            return {"values": values, "bootstrap_value": after}

        return ledger.by_micro_batch(self.model.batcher(self.config.micro_batch_tokens), part)

    def _forward(self, ledger: Ledger, final: bool) -> tuple[Tensor, Tensor]:
        rows = ledger.row("prompt_ids"), ledger["token_ids"], ledger["attention_mask"]
        return self.model.values(*rows, self.pad_id, final=final)

    def update(self, ledger: Ledger, step: int, on_progress: OnProgress = lambda done, total: None) -> dict[str, float]:
        columns, report = self.learner.learn(
            ledger,
            self.loss,
            step=step,
            seed=row_seed(self.config.seed, step, -2),
            minibatch_rollouts=self.config.critic.minibatch_rollouts,
            batcher=self.model.batcher(self.config.micro_batch_tokens),
            on_progress=on_progress,
        )
        ledger.fill(columns)
        return {f"critic/{name}": value for name, value in report.items()}

    def loss(self, micro: Ledger, totals: BatchTotals) -> tuple[Tensor, dict[str, Tensor]]:
        """The value loss of a part."""
        values, _ = self._forward(micro, final=False)
        return value_loss(
            values, micro["returns"], micro["values"], micro.loss_mask, self.config.critic.value_clip, **totals
        )
