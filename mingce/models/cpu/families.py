"""The families of models that are computed here, and whether a model is one of them as it stands."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import nn

from mingce.models.cpu.projection import is_adapter

FAMILIES = ("Llama", "Mistral", "Phi3", "Qwen2", "Qwen3", "SmolLM3")
"""By the name that their classes in transformers begin with.

A layer of theirs is RMSNorm, queries, keys and values (as one matrix or three; biases and a norm of every head may be
there or not), RoPE (in some layers or all), causal attention, RMSNorm and a SwiGLU MLP. A new family is a name here,
and a configuration of it in the tests.
"""
_CLASSES = {f"{family}{suffix}": f"{family}DecoderLayer" for family in FAMILIES for suffix in ("Model", "ForCausalLM")}
_FULL, _SLIDING = "full_attention", "sliding_attention"
FIXED_ROPE = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose angles do not depend on how long a row becomes."""
_OUTPUT = "lm_head"
_WITHOUT_BIAS = ("o_proj", "gate_proj", "up_proj", "gate_up_proj", "down_proj", _OUTPUT)
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "qkv_proj", *_WITHOUT_BIAS)
_INACTIVE = "transformers.utils.output_capturing"
"""Hooks of this module stay once somebody has asked for attention maps, and do nothing until they are asked again."""
LAYERS_ARE_SET = "cpu_layers_are_set"
"""Marks a model whose layers call the functions of this folder themselves (`mingce.models.cpu.model.set_layers`)."""


def supports(model: nn.Module) -> bool:
    """Whether a causal language model, or its part without the output layer, is computed here.

    It is if its family is in the table, in float32 on the CPU, without hooks and dropout. Its layers may have adapters
    (LoRA), one each, its output layer none. Rows may be as long as `reach` says.
    """
    if hasattr(model, LAYERS_ARE_SET):
        return True
    layer = _CLASSES.get(type(model).__name__)
    return layer is not None and _has_supported_config(cast(Any, model).config) and _is_plain("", model, layer)


def _has_supported_config(config: Any) -> bool:
    return bool(
        config.hidden_act == "silu"
        and not getattr(config, "attention_dropout", 0)
        and config._attn_implementation == "sdpa"
        and config.rope_parameters.get("rope_type", "default") in FIXED_ROPE
        and config.rope_parameters.get("partial_rotary_factor", 1.0) == 1.0
        and set(getattr(config, "layer_types", None) or [_FULL]) <= {_FULL, _SLIDING}
    )


def reach(model: nn.Module) -> float:
    """How long rows may be: as long as the window of a layer that attends to the last places only."""
    config = cast(Any, model).config
    window, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    return math.inf if window is None or (kinds is not None and _SLIDING not in kinds) else float(window)


def turns(block: Any) -> bool:
    """Whether an attention block has RoPE (some of SmolLM3's have none)."""
    return bool(getattr(block, "use_rope", True))


def _is_plain(name: str, module: Any, layer: str) -> bool:
    """Of a module of that name and all modules in it. Checked in every pass: it takes some 30 µs a layer."""
    return (
        all(getattr(hook, "__module__", "") == _INACTIVE for hook in module._forward_hooks.values())
        and not module._forward_pre_hooks
        and not module.__dict__.get("gradient_checkpointing", False)
        and (name != "layers" or all(type(part).__name__ == layer for part in module))
        and (name not in _PROJECTIONS or type(module) is nn.Linear or (name != _OUTPUT and is_adapter(module)))
        and (name not in _WITHOUT_BIAS or getattr(module, "base_layer", module)._parameters["bias"] is None)
        and all(p is None or (p.dtype == torch.float32 and p.is_cpu) for p in module._parameters.values())
        and all(_is_plain(inner, part, layer) for inner, part in module._modules.items())
    )
