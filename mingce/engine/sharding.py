"""One model over many ranks: torch's fully_shard (FSDP2) layer by layer, a full copy for drawing, and checkpoints.

Gradients are summed over the ranks, not averaged: every rank divides its losses by the whole minibatch's totals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from inspect import signature
from pathlib import Path
from types import MethodType
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.checkpoint import checkpoint

from mingce.base.errors import RunError
from mingce.config import RayConfig
from mingce.models import cpu
from mingce.models.cpu.model import set_layers
from mingce.models.loading import backbone, usable
from mingce.models.log_probs import SHARDED_METHOD, gathered_log_probs, has_plain_head
from mingce.models.lora import base_causal_lm
from mingce.models.value_head import ValueModel


def reshards(model: nn.Module, config: RayConfig) -> bool:
    """Whether gathered weights are given back after every use."""
    return config.reshards(sum(p.numel() for p in model.parameters()))


def shard(model: nn.Module, mesh: DeviceMesh, config: RayConfig) -> nn.Module:
    """The same model, its weights spread over the mesh: every decoder layer by itself, and what is left together."""
    plain = True
    if not isinstance(model, ValueModel):
        plain = has_plain_head(model)  # found by trying, which needs weights that are whole
        setattr(model, SHARDED_METHOD, MethodType(gathered_log_probs, model))
    dtype = None
    if config.mixed_precision != "none":
        dtype = usable(getattr(torch, config.mixed_precision), torch.device(mesh.device_type))
    trunk = model.backbone if isinstance(model, ValueModel) else backbone(model)
    here = cpu.supports(trunk) and math.isinf(cpu.reach(trunk))
    if plain and dtype is None and not config.activation_checkpointing and here:
        set_layers(trunk)
    shard_part = partial(
        fully_shard,
        mesh=mesh,
        reshard_after_forward=reshards(model, config),
        mp_policy=MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32),
        offload_policy=CPUOffloadPolicy() if config.cpu_offload else OffloadPolicy(),
    )
    for layer in decoder_layers(model):
        if config.activation_checkpointing:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        shard_part(layer)
    if isinstance(model, ValueModel) and dtype is not None:  # the head computes in float32 whatever the trunk does
        shard_part(model.head, mp_policy=MixedPrecisionPolicy())
    shard_part(model)
    if not isinstance(model, ValueModel):
        register_fsdp_forward_method(model, SHARDED_METHOD)
    for part in sharded_parts(model):
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    return model


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The modules that transformers says must not be split."""
    inner = model.backbone if isinstance(model, ValueModel) else base_causal_lm(model)
    names = set(cast(Any, inner)._no_split_modules or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def sharded_parts(model: nn.Module) -> list[FSDPModule]:
    """The modules whose weights are gathered together."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


@torch.no_grad()
def copy_weights(model: nn.Module, to: nn.Module) -> None:
    """Makes the full model `to` what the sharded one is, as far as it learns. All ranks together."""
    for source, target in zip(model.parameters(), to.parameters(), strict=True):
        if source.requires_grad:
            target.copy_(cast(DTensor, source).full_tensor())


_SHARDED = next(name for name in signature(HuggingFaceStorageWriter).parameters if name.startswith("save_"))
"""save_distributed; save_sharded in torch 2.8."""


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────────


def write_shards(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Every rank writes its part as safetensors, with its place in the whole. All ranks together."""
    sharded: dict[str, Any] = {_SHARDED: True}
    save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(directory), **sharded))


def read_shards(path: Path, parameters: Mapping[str, DTensor], numbers: list[DTensor]) -> dict[str, Tensor]:
    """What any number of ranks wrote into a directory, or a single process into a file, spread as `parameters` are.

    `parameters` are those that learn by name; `numbers` the same by number, as an optimizer's moments name them.
    """
    if path.is_file():
        full = load_file(path)
        return {name: _spread(tensor, _like(name, parameters, numbers)) for name, tensor in full.items()}
    reader = HuggingFaceStorageReader(str(path))
    stored = cast(Mapping[str, Any], reader.read_metadata().state_dict_metadata)
    tensors: dict[str, Tensor] = {}
    for name, entry in stored.items():
        like = _like(name, parameters, numbers)
        alone = torch.zeros(entry.size, dtype=entry.properties.dtype) if like is None or not len(entry.size) else None
        tensors[name] = torch.zeros_like(cast(DTensor, like)) if alone is None else alone
    load(tensors, storage_reader=reader)
    return tensors


def _like(name: str, parameters: Mapping[str, DTensor], numbers: list[DTensor]) -> DTensor | None:
    """The parameter that a stored tensor is shaped as: itself, or the one whose moment it is."""
    kind, _, rest = name.partition(".")
    if kind == "model":
        if rest not in parameters:
            raise RunError(f"the checkpoint is of another model than the one its run names: it has {rest}")
        return parameters[rest]
    number = rest.split(".")[0]
    return numbers[int(number)] if number.isdigit() else None


def _spread(tensor: Tensor, like: DTensor | None) -> Tensor:
    if like is None or not tensor.dim():
        return tensor
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
