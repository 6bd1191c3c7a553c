"""verl's own actor worker, whose process group is made before, as its own way of making one wants an accelerator.

What its loss saw is kept by hand beside it: each row's token ids, and the log-probs that the model gave.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.single_controller.base.decorator import Dispatch, register
from verl.workers.engine_workers import ActorRolloutRefWorker


class Worker(ActorRolloutRefWorker):  # type: ignore[misc]
    """The actor."""

    def __init__(self, *given: Any, **named: Any):
        super().__init__(*given, **named)
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
        torch.set_num_threads(1)
        self._seen: list[tuple[int, list[int], list[float]]] = []

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def init_model(self) -> None:
        super().init_model()
        loss_fn, calls = self.loss_fn, iter(range(10**9))

        def kept(*given: Any, **named: Any) -> Any:
            number = next(calls)
            rows = zip(named["data"]["input_ids"].unbind(), named["model_output"]["log_probs"].unbind(), strict=True)
            self._seen += [(number, ids.tolist(), said.detach().float().tolist()) for ids, said in rows]
            return loss_fn(*given, **named)

        self.actor.set_loss_fn(kept)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def seen(self) -> list[tuple[int, list[int], list[float]]]:
        found, self._seen = self._seen, []
        return found
