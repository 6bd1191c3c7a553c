"""Low-rank adapters (PEFT): train a few small matrices, and have the untouched model as the reference for nothing."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from mingce.base.errors import ModelError
from mingce.models.library_errors import library_errors


@dataclass(frozen=True)
class LoraSettings:
    """Which adapters to add."""

    rank: int = 16
    alpha: float = 32.0
    target_modules: tuple[str, ...] = ()
    """Names of the layers that get one; none named means every linear layer but the output layer."""


def add_adapters(model: PreTrainedModel, settings: LoraSettings) -> nn.Module:
    """The model in a PEFT wrapper; only its adapters learn, and they start as the identity.

    Their first factors are drawn from torch's global generator.
    """
    try:
        import peft
    except ImportError:
        raise ModelError("LoRA needs the package peft; install it with pip install 'mingce[peft]'.") from None
    with library_errors("LoRA adapters cannot be added to this model", "name layers it has in target_modules"):
        config = peft.LoraConfig(
            r=settings.rank,
            lora_alpha=cast(int, settings.alpha),  # PEFT only divides it by the rank
            target_modules=list(settings.target_modules) or "all-linear",
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        )
        return cast(nn.Module, peft.get_peft_model(model, config))


def base_causal_lm(model: nn.Module) -> PreTrainedModel:
    """The transformers model itself, out of its PEFT wrapper if it has one; adapters inside stay as they are."""
    return cast(PreTrainedModel, cast(Any, model).get_base_model() if hasattr(model, "get_base_model") else model)


def has_adapters(model: nn.Module) -> bool:
    """Whether adapters are in it, so that its other weights are frozen."""
    return any(hasattr(layer, "lora_A") for layer in model.modules())


def reference_mode(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, a model with adapters is the model it started from."""
    assert hasattr(model, "disable_adapter"), "a model without adapters needs clone_frozen for its reference"
    return cast(AbstractContextManager[None], cast(Any, model).disable_adapter())


def twin(model: nn.Module, *, share: bool) -> nn.Module:
    """A copy whose adapters learn by themselves; with `share` both have the very same frozen weights."""
    shared = {id(p): p for p in model.parameters() if not p.requires_grad} if share else {}
    return copy.deepcopy(model, cast(dict[int, Any], shared))


@torch.no_grad()
def without_adapters(model: nn.Module) -> nn.Module:
    """A copy with plain linear layers, into whose weights the adapters are merged."""
    plain = copy.deepcopy(model)
    for parent in list(plain.modules()):
        for name, layer in parent.named_children():
            if hasattr(layer, "lora_A") and hasattr(layer, "base_layer"):
                cast(Any, layer).merge()
                setattr(parent, name, layer.base_layer)
    return plain


def merged(model: nn.Module) -> PreTrainedModel:
    """A copy with the adapters added into the weights; the model itself where there are none."""
    if not hasattr(model, "merge_and_unload"):
        return base_causal_lm(model)
    return cast(PreTrainedModel, cast(Any, copy.deepcopy(model)).merge_and_unload())


def merged_size(model: nn.Module) -> int:
    """The number of parameters once adapters are merged."""
    return sum(p.numel() for name, p in model.named_parameters() if ".lora_" not in name)
