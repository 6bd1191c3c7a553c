"""How a model learns from a ledger: epochs, minibatches, micro-batches, one optimizer.

A minibatch is one optimizer step. It is worked off in micro-batches of bounded size, whose losses are divided by the
whole minibatch's totals, so that their number changes speed and memory and not the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from mingce.algorithms.losses import BatchTotals, batch_totals
from mingce.base.errors import ModelError, RunError
from mingce.base.texts import sentence
from mingce.config import LearnerConfig
from mingce.ledger import Batcher, Ledger
from mingce.record.checkpoints import ShardWriter
from mingce.roles.optimizer_state import flatten_optimizer, restore_optimizer

PartLoss = Callable[[Ledger, BatchTotals], tuple[Tensor, dict[str, Tensor]]]
"""The loss of a micro-batch given the minibatch's totals, and the columns it used."""


OnProgress = Callable[[int, int], None]
"""Receives what is done and what there is to do."""


class Learner(Protocol):
    """What a checkpoint needs of a model that learns."""

    updates: int
    """Optimizer steps so far."""

    def tensors(self) -> Mapping[str, Tensor] | ShardWriter:
        """Weights that learn and the optimizer's moments, or a function that writes them into a directory."""
        ...

    def state(self) -> dict[str, Any]:
        """What of the optimizer is no tensor."""
        ...

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Exactly as it was when `tensors` and `state` were taken; where moments were dropped, with a new optimizer."""
        ...


class LocalLearner:
    """A model's optimizer and learning-rate schedule in this process."""

    def __init__(self, model: nn.Module, config: LearnerConfig, steps: int):
        self.model, self.config, self.steps = model, config, steps
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.updates = 0

    def learn(
        self,
        ledger: Ledger,
        loss: PartLoss,
        *,
        step: int,
        seed: int,
        minibatch_rollouts: int,
        batcher: Batcher,
        loss_scale_factor: int | None = None,
        enough: Callable[[Ledger, Mapping[str, Tensor]], bool] | None = None,
        on_progress: OnProgress = lambda done, total: None,
    ) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Passes over the ledger; returns the columns as the loss last used them, and grad_norm, lr and updates.

        `enough(minibatch, columns)` ends the step's updates early. Rows that
        no update reached keep 0 in the columns.
        """
        generator = torch.Generator().manual_seed(seed)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        columns: dict[str, Tensor] = {}
        norms: list[float] = []
        for _ in range(self.config.epochs):
            parts = ledger.minibatches(minibatch_rollouts, generator)
            for rows in parts:
                on_progress(len(norms), len(parts) * self.config.epochs)
                minibatch = ledger.select(rows)
                used = self._gradient(minibatch, loss, batcher, loss_scale_factor)
                for name, values in used.items():
                    columns.setdefault(name, values.new_zeros(ledger.mask.shape))[rows] = values
                if enough is not None and enough(minibatch, used):
                    self.optimizer.zero_grad(set_to_none=True)
                    return columns, self._report(norms, step)
                norms.append(self._apply())
        return columns, self._report(norms, step)

    def _gradient(
        self, minibatch: Ledger, loss: PartLoss, batcher: Batcher, loss_scale_factor: int | None
    ) -> dict[str, Tensor]:
        """Accumulates the minibatch's gradient; returns its columns."""
        self.optimizer.zero_grad(set_to_none=True)
        totals = batch_totals(minibatch.loss_mask, loss_scale_factor)

        def part(micro: Ledger) -> dict[str, Tensor]:
            term, used = loss(micro, totals)
            term.backward()
            return used

        return minibatch.by_micro_batch(batcher, part)

    def _apply(self) -> float:
        """One optimizer step with the gradient at hand; returns its norm before clipping."""
        norm = self._clip()
        if not math.isfinite(norm):
            raise ModelError(f"the gradient is {norm}; lower the learning rate or look for a reward that is too large.")
        self.optimizer.step()
        self.updates += 1
        return norm

    def _clip(self) -> float:
        """Scales the gradient down to grad_clip; returns its norm before."""
        return float(nn.utils.clip_grad_norm_(self.parameters, self.config.grad_clip or math.inf))

    def _report(self, norms: list[float], step: int) -> dict[str, float]:
        return {
            "grad_norm": sum(norms) / len(norms) if norms else 0.0,
            "lr": self.learning_rate(step),
            "updates": float(len(norms)),
        }

    def learning_rate(self, step: int) -> float:
        """The rate of a step (from 1): a rise over warmup_steps, then constant, or a fall to 0 at the end."""
        rise = min(1.0, step / (self.config.warmup_steps + 1))
        left = 1.0 - (step - 1) / max(self.steps, 1)
        fall = {"constant": 1.0, "linear": left, "cosine": 0.5 * (1 - math.cos(math.pi * left))}[self.config.schedule]
        return self.config.lr * rise * fall

    def tensors(self) -> Mapping[str, Tensor]:
        moments, _ = flatten_optimizer(self.optimizer)
        weights = {f"model.{name}": p.detach() for name, p in self.model.named_parameters() if p.requires_grad}
        return weights | {f"optimizer.{name}": tensor for name, tensor in moments.items()}

    def state(self) -> dict[str, Any]:
        return {"optimizer": flatten_optimizer(self.optimizer)[1], "updates": self.updates}

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        take_weights(self.model, tensors)
        moments = {n.removeprefix("optimizer."): t for n, t in tensors.items() if n.startswith("optimizer.")}
        if moments or not state["optimizer"]["slots"]:
            restore_optimizer(self.optimizer, moments, state["optimizer"])
        self.updates = int(state["updates"])


@torch.no_grad()
def take_weights(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Sets every weight that learns to what a checkpoint holds, all or none."""
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name, parameter in learning.items():
        tensor = saved.get(f"model.{name}")
        if tensor is None or tensor.shape != parameter.shape:
            raise RunError(sentence("engine.another_model", name=name))
    extra = {name for name in saved if name.startswith("model.") and name.removeprefix("model.") not in learning}
    if extra:
        raise RunError(sentence("engine.another_model", name=min(extra).removeprefix("model.")))
    for name, parameter in learning.items():
        parameter.copy_(saved[f"model.{name}"])
