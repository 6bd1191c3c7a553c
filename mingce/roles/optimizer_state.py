"""An optimizer's state as tensors and plain values, and back to the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mingce.base.errors import RunError


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as (tensors for `save`, the rest for JSON).

    Tensors are named `<parameter number>.<what>`, as `3.exp_avg`, and `group.<number>.<option>`.
    """
    packed = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    groups: list[dict[str, Any]] = []
    for index, slots in packed["state"].items():
        numbers[str(index)] = {name: value for name, value in slots.items() if not isinstance(value, Tensor)}
        tensors |= {f"{index}.{name}": value for name, value in slots.items() if isinstance(value, Tensor)}
    for number, group in enumerate(packed["param_groups"]):
        groups.append({name: value for name, value in group.items() if not isinstance(value, Tensor)})
        tensors |= {f"group.{number}.{name}": value for name, value in group.items() if isinstance(value, Tensor)}
    return tensors, {"slots": numbers, "groups": groups}


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], state: Mapping[str, Any]
) -> None:
    """Put back what `flatten_optimizer` took, so that the next update is the same to the last bit."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    slots: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in state["slots"].items()}
    groups = [dict(group) for group in state["groups"]]
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in optimizer.param_groups]:
        raise RunError("the checkpoint's optimizer is for another model: it does not have as many parameters")
    for group, current in zip(groups, optimizer.param_groups, strict=True):
        group.update({name: tuple(group[name]) for name, value in current.items() if isinstance(value, tuple)})
    for key, tensor in tensors.items():
        owner, name = key.rsplit(".", 1)
        if owner.startswith("group."):
            groups[int(owner.removeprefix("group."))][name] = tensor.clone()
            continue
        parameter = parameters[int(owner)]
        if tensor.dim() and tensor.shape != parameter.shape:
            raise RunError(
                f"the checkpoint's optimizer is for another model: {key} is {list(tensor.shape)}, "
                f"the parameter {list(parameter.shape)}"
            )
        slots[int(owner)][name] = tensor.clone()
    optimizer.load_state_dict({"state": slots, "param_groups": groups})
