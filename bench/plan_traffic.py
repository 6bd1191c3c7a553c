"""What ranks of engine=ray really send, and hold for a moment: its own sharding over gloo processes, counted."""

from __future__ import annotations

import json
import tempfile
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import plan_memory
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.multiprocessing.spawn import spawn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig

from mingce.config import RayConfig
from mingce.models.value_head import ValueModel


@dataclass(frozen=True)
class Case:
    """One model on so many ranks."""

    config: dict[str, Any]
    ranks: int
    rows: int
    prompt: int
    response: int
    critic: bool = False
    lora: int = 0
    mixed_precision: str = "none"
    activation_checkpointing: bool = False
    reshard: bool = True


@dataclass(frozen=True)
class Counted:
    """Bytes of rank 0: of each kind a ring would send, and the most that were there beside what stays."""

    scoring: int
    update_gather: int
    update_sum: int
    refresh: int
    shard: int
    forward_peak: int
    update_peak: int


class Wires(TorchDispatchMode):
    """Counts what collectives gather and sum, whole."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.gathered = self.summed = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, result = str(func), func(*args, **(kwargs or {}))
        if "_allgather_base_" in name:
            self.gathered += args[0].nbytes
        elif "all_gather_into_tensor" in name and "wait" not in name:
            self.gathered += result.nbytes if isinstance(result, Tensor) else 0
        elif "_reduce_scatter_base_" in name:
            self.summed += args[1].nbytes
        return result


class LiveShards(TorchDispatchMode):
    """As plan_memory.Live, but looks at the size of every storage anew: FSDP2 empties storages that stay."""

    def __init__(self, known: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self.ignored = {tensor.untyped_storage()._cdata for tensor in known}
        self.there: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, result)):
            if isinstance(tensor, Tensor) and type(tensor) in (Tensor, torch.nn.Parameter):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.ignored:
                    self.there[storage._cdata] = weakref.ref(storage)
        alive = {key: there for key, ref in self.there.items() if (there := ref()) is not None}
        self.there = {key: self.there[key] for key in alive}
        self.peak = max(self.peak, sum(storage.nbytes() for storage in alive.values()))
        return result


def count(case: Case) -> Counted:
    """Runs the case on processes of its own."""
    with tempfile.TemporaryDirectory() as directory:
        spawn(_rank, (case, directory), nprocs=case.ranks)
        return Counted(**json.loads((Path(directory) / "counted.json").read_text(encoding="utf-8")))


def count_alone(case: Case) -> Counted:
    """The same for rank 0 in this process, with collectives that move nothing: sizes are right, numbers are not."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=case.ranks, store=FakeStore())
    try:
        return _counted(case)
    finally:
        dist.destroy_process_group()


def _rank(rank: int, case: Case, directory: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=case.ranks)
    try:
        counted = _counted(case)
        if rank == 0:
            (Path(directory) / "counted.json").write_text(json.dumps(asdict(counted)), encoding="utf-8")
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _counted(case: Case) -> Counted:
    from mingce.engine.sharding import copy_weights, shard

    config = dict(case.config)
    policy: Any = plan_memory.build(AutoConfig.for_model(config.pop("model_type"), **config), rank=case.lora)
    model: Any = ValueModel.from_causal_lm(policy) if case.critic else policy
    sampler = plan_memory.build(AutoConfig.for_model(case.config["model_type"], **config), rank=case.lora)
    settings = RayConfig(
        mixed_precision=case.mixed_precision,
        activation_checkpointing=case.activation_checkpointing,
        reshard="always" if case.reshard else "never",
    )
    shard(model, init_device_mesh("cpu", (case.ranks,)), settings)
    rows = plan_memory.Rows(case.rows, case.prompt, case.response)
    loss = plan_memory.loss_of(model)
    ledger = plan_memory.random_ledger(rows, case.config["vocab_size"])
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-4, foreach=True)

    def learn() -> None:
        loss(ledger).backward()

    learn()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with Wires() as scoring, torch.no_grad():
        loss(ledger)
    with Wires() as update:
        learn()
    with Wires() as refresh:
        if not case.critic:
            copy_weights(model, sampler)
    moments = [t for state in optimizer.state.values() for t in state.values()]
    local = [_local(t) for t in (*model.parameters(), *moments, *(p.grad for p in learning))]
    known = [*local, *model.buffers(), *sampler.parameters()]
    with LiveShards(known) as forward, torch.no_grad():
        loss(ledger)
    with LiveShards(known) as backward:
        learn()
    return Counted(
        scoring=scoring.gathered,
        update_gather=update.gathered,
        update_sum=update.summed,
        refresh=refresh.gathered,
        shard=sum(_local(p).numel() for p in model.parameters()),
        forward_peak=forward.peak,
        update_peak=backward.peak,
    )


def _local(tensor: Any) -> Tensor:
    local: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local
