"""A rank's part in learning: the whole ledger's minibatches in the same order, its own share of the rows of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from mingce.algorithms.losses import batch_totals
from mingce.config import LearnerConfig
from mingce.engine.sharding import read_shards, sharded_parts, write_shards
from mingce.engine.shares import Place, Share
from mingce.ledger import Batcher, Ledger
from mingce.roles.learner import LocalLearner, PartLoss

Enough = Callable[[Ledger, Mapping[str, Tensor]], bool]


class ShardedLearner(LocalLearner):
    """Owns the optimizer of this rank's shards. `learn` is called on every rank with the same ledger."""

    def __init__(self, model: nn.Module, config: LearnerConfig, steps: int, place: Place, reshard: bool):
        super().__init__(model, config, steps)
        self.place, self.reshard = place, reshard
        self.mine = torch.zeros(0, dtype=torch.bool)
        """[B] the rows of the last ledger whose columns this rank computed."""

    def learn(
        self, ledger: Ledger, loss: PartLoss, *, enough: Enough | None = None, **options: Any
    ) -> tuple[dict[str, Tensor], dict[str, float]]:
        """As in one process. Columns are 0 on the rows whose last pass was another rank's."""

        def all_agree(minibatch: Ledger, columns: Mapping[str, Tensor]) -> bool:
            assert enough is not None
            whole = columns["new_log_probs"].clone()
            dist.all_reduce(whole)
            return enough(minibatch, {**columns, "new_log_probs": whole})

        self.mine = torch.zeros(len(ledger), dtype=torch.bool)
        columns, report = super().learn(ledger, loss, enough=None if enough is None else all_agree, **options)
        self.mine = columns.pop("mine").any(dim=1).cpu() if "mine" in columns else self.mine
        return columns, report

    def _gradient(
        self, minibatch: Ledger, loss: PartLoss, batcher: Batcher, loss_scale_factor: int | None
    ) -> dict[str, Tensor]:
        self.optimizer.zero_grad(set_to_none=True)
        totals = batch_totals(minibatch.loss_mask, loss_scale_factor)
        share = Share(minibatch, self.place)
        passes, last = 0, share.passes(batcher)

        def part(micro: Ledger) -> dict[str, Tensor]:
            nonlocal passes
            passes += 1
            self._expect(last=passes == last)
            term, used = loss(micro, totals)
            term.backward()
            return used

        used = share.by_micro_batch(batcher, part)
        columns = {name: values.new_zeros(minibatch.mask.shape) for name, values in used.items()}
        for name, values in used.items():
            columns[name][share.whole_rows] = values
        columns["mine"] = torch.zeros_like(minibatch.mask)
        columns["mine"][share.whole_rows] = True
        return columns

    def _expect(self, *, last: bool) -> None:
        """Between passes of one minibatch, weights stay gathered and gradients unreduced where memory allows it."""
        if not self.reshard:
            cast(FSDPModule, self.model).set_requires_gradient_sync(last)
            cast(FSDPModule, self.model).set_reshard_after_backward(last)

    def _clip(self) -> float:
        norm = nn.utils.clip_grad_norm_(self.parameters, self.config.grad_clip or math.inf)
        return float(cast(DTensor, norm).full_tensor())

    def write(self, directory: Path) -> None:
        """This rank's part of a checkpoint. All ranks together."""
        write_shards(directory, self.tensors())

    def read(self, paths: Sequence[Path], state: Mapping[str, Any]) -> None:
        """From the files of a checkpoint of any number of ranks. All ranks together."""
        learning = {name: cast(DTensor, p) for name, p in self.model.named_parameters() if p.requires_grad}
        tensors: dict[str, Tensor] = {}
        for path in paths:
            tensors |= read_shards(path, learning, cast(list[DTensor], self.parameters))
        self.restore(tensors, state)
        for part in sharded_parts(self.model):
            part.reshard()  # what was gathered before is of other weights
