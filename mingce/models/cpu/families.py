"""The families of models that are computed here, and whether a model is one of them as it stands."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from mingce.models.cache import has_stray_window
from mingce.models.cpu.projection import is_adapter

FAMILIES = ("Gemma3", "Llama", "Mistral", "Phi3", "Qwen2", "Qwen3", "SmolLM3")
"""By the name that their classes in transformers begin with.

A layer of theirs is RMSNorm, queries, keys and values (as one matrix or three; biases and a norm of every head may be
there or not), RoPE (in some layers or all, of one kind or one for each kind of layer), causal attention, RMSNorm and a
gated MLP; what attention and the MLP add may have norms of its own. A new family is a name here, and a configuration
of it in the tests.
"""
_SUFFIXES = ("Model", "TextModel", "ForCausalLM")
_CLASSES = {f"{family}{suffix}": f"{family}DecoderLayer" for family in FAMILIES for suffix in _SUFFIXES}
_GELU = math.sqrt(8 / math.pi)
ACTIVATIONS = {"silu": (1.0, 0.0), "gelu_pytorch_tanh": (_GELU, 0.044715 * _GELU)}
"""x·σ(z) with z = linear·x + cubic·x³, by its two numbers: ½·(1 + tanh u) is σ(2u)."""
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
    kinds = set(getattr(config, "layer_types", None) or [_FULL])
    ropes = [config.rope_parameters[kind] for kind in kinds] if _ropes_differ(config) else [config.rope_parameters]
    unusual = ("attention_dropout", "attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention")
    return bool(
        _activation(config) in ACTIVATIONS
        and not any(getattr(config, name, None) for name in unusual)
        and config._attn_implementation == "sdpa"
        and all(rope.get("rope_type", "default") in FIXED_ROPE for rope in ropes)
        and all(rope.get("partial_rotary_factor", 1.0) == 1.0 for rope in ropes)
        and kinds <= {_FULL, _SLIDING}
    )


def _activation(config: Any) -> str:
    return str(config.hidden_activation if hasattr(config, "hidden_activation") else config.hidden_act)


def activation(block: Any) -> tuple[np.float32, np.float32]:
    """The two numbers of an MLP's activation, by the configuration of the block beside it."""
    linear, cubic = ACTIVATIONS[_activation(block.config)]
    return np.float32(linear), np.float32(cubic)


def _ropes_differ(config: Any) -> bool:
    """Whether layers that attend to the last places only are turned otherwise."""
    return bool(set(config.rope_parameters) & {_FULL, _SLIDING})


def angles(trunk: Any, like: Tensor, positions: Tensor) -> dict[str | None, tuple[Tensor, Tensor]]:
    """RoPE's cos and sin `[W, D]` at positions `[W]`, by the kind of layer (`rope_kind`)."""
    kinds = sorted(set(trunk.config.layer_types)) if _ropes_differ(trunk.config) else []
    made = {kind: trunk.rotary_emb(like, positions[None], kind) for kind in kinds} or {
        None: trunk.rotary_emb(like, positions[None])
    }
    return {kind: (cos[0].contiguous(), sin[0].contiguous()) for kind, (cos, sin) in made.items()}


def rope_kind(block: Any) -> str | None:
    """Which of `angles` an attention block turns by."""
    return block.layer_type if _ropes_differ(block.config) else None


def norm_weight(norm: Any) -> Tensor:
    """What an RMSNorm multiplies with (Gemma's add 1 to their weight)."""
    weight: Tensor = norm.weight
    return 1 + weight if type(norm).__name__.startswith("Gemma") else weight


def norm_epsilon(norm: Any) -> float:
    return float(norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps)


def mlp_norm(layer: Any) -> Any:
    """The norm before the MLP. Where what attention and the MLP add has norms, `post_attention_layernorm` is one."""
    return getattr(layer, "pre_feedforward_layernorm", layer.post_attention_layernorm)


def norms_of_added(layer: Any) -> tuple[Any, Any] | None:
    """The norms of what attention and the MLP add to the stream, where there are any (Gemma)."""
    after = getattr(layer, "post_feedforward_layernorm", None)
    return None if after is None else (layer.post_attention_layernorm, after)


def embedding_scale(trunk: Any) -> float:
    """What the embeddings of tokens are multiplied by."""
    return float(getattr(trunk.embed_tokens, "embed_scale", 1.0))


def reach(model: nn.Module) -> float:
    """How long rows may be: as long as the window of a layer that attends to the last places only."""
    config = cast(Any, model).config
    window, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    if window is None or has_stray_window(config) or (kinds is not None and _SLIDING not in kinds):
        return math.inf
    return float(window)


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
