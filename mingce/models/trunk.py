"""The hidden states of whole rows, with gradients: by transformers' forward pass, or with less around its products.

Between its matrix products transformers' decoder layer runs some sixty operations forward and backward, each of which
goes through memory once more; on a CPU they take as long as a third of the products. Here a layer is three nodes of the
gradient's graph (`mingce.models.layer`), and states stand one below the other (`mingce.models.layout`), so that only
attention has some padding, and what rows have in common at their beginning is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from mingce.models.layer import KeepRows, add_and_norm, feed, mix, read
from mingce.models.layout import Layout, laid_out

FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose angles do not depend on how long a row becomes."""
_SHAPES = {
    "LlamaModel": "LlamaDecoderLayer",
    "Qwen2Model": "Qwen2DecoderLayer",
    "Qwen3Model": "Qwen3DecoderLayer",
}
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_WITHOUT_BIAS = _PROJECTIONS[3:]
_INACTIVE = "transformers.utils.output_capturing"
"""Hooks of this module stay once somebody has asked for attention maps, and do nothing until they are asked again."""
_PACKED = "layers_are_packed"

Keep = Callable[[int, slice, Tensor, Tensor], None]
"""Told a layer's index, some of the rows, and their keys and values `[rows, kv_heads, width, D]`."""


def hidden_states(trunk: nn.Module, input_ids: Tensor, wanted: Tensor, keep: Keep | None = None) -> Tensor:
    """The last hidden states `[wanted, H]` at the marked places of `[B, W]`, row by row.

    Rows have no padding before or between their tokens. What comes behind a row's last marked place is not computed.
    With `keep`, which a decoder gives, the trunk is one that `fits`.
    """
    if packs(trunk):
        return _hidden_states(cast(Any, trunk), input_ids, wanted, keep)
    assert keep is None
    states: Tensor = trunk(input_ids=input_ids, use_cache=False).last_hidden_state
    return states[wanted]


def packs(trunk: nn.Module) -> bool:
    """Whether rows are laid out without padding, and their common beginnings computed once."""
    return hasattr(trunk, _PACKED) or fits(trunk)


def pack_layers(trunk: nn.Module) -> None:
    """Makes the layers' own calls compute what is computed here, so that hooks around them (sharding's) run."""
    assert fits(trunk)
    for layer in cast(Any, trunk).layers:
        layer.forward = partial(_layer_states, layer)
    setattr(trunk, _PACKED, True)


def fits(trunk: nn.Module) -> bool:
    """Whether it is a shape that is computed here: float32 on the CPU, no adapters, no hooks, no shards, no windows."""
    layer = _SHAPES.get(type(trunk).__name__)
    if layer is None:
        return False
    config: Any = trunk.config
    return bool(
        config.hidden_act == "silu"
        and not getattr(config, "attention_dropout", 0)
        and config._attn_implementation == "sdpa"
        and config.rope_parameters.get("rope_type", "default") in FIXED_ROTATIONS
        and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
        and all(type(one).__name__ == layer for one in cast(Any, trunk).layers)
        and _is_plain("", trunk)
    )


def _is_plain(name: str, module: Any) -> bool:
    """Of a module called so, and all that are in it. Asked for in every pass: it takes some 30 µs a layer."""
    return (
        all(getattr(hook, "__module__", "") == _INACTIVE for hook in module._forward_hooks.values())
        and not module._forward_pre_hooks
        and not module.__dict__.get("gradient_checkpointing", False)
        and (name not in _PROJECTIONS or type(module) is nn.Linear)
        and (name not in _WITHOUT_BIAS or module._parameters["bias"] is None)
        and all(p is None or (p.dtype == torch.float32 and p.is_cpu) for p in module._parameters.values())
        and all(_is_plain(inner, one) for inner, one in module._modules.items())
    )


def _hidden_states(trunk: Any, input_ids: Tensor, wanted: Tensor, keep: Keep | None) -> Tensor:
    column = torch.arange(input_ids.shape[1])
    lengths = (wanted * (column + 1)).amax(1)
    layout = laid_out(input_ids, lengths)
    present = column < lengths[:, None]
    asked = torch.from_numpy(layout.states)[wanted[present]]
    chosen, places = torch.unique(asked, return_inverse=True)
    kinds, kind = torch.unique(input_ids[present][torch.from_numpy(layout.first)], return_inverse=True)
    stream = functional.embedding(kinds, trunk.embed_tokens.weight)
    angles = trunk.rotary_emb(stream[:1, None], column[None, : int(lengths.max())])
    turns = tuple(angle[0].contiguous() for angle in angles)
    added = torch.zeros_like(stream)
    for place, layer in enumerate(trunk.layers):
        spread = kind if place == 0 else None
        last = layer is trunk.layers[-1] and len(chosen) < len(kind)
        step = layer if hasattr(trunk, _PACKED) else partial(_layer_states, layer)
        told = keep and partial(keep, place)
        stream, added = step(stream, added, turns, layout, spread, chosen if last else None, told)
    states = add_and_norm(stream, added, trunk.norm.weight, trunk.norm.variance_epsilon)
    return states if torch.equal(asked, chosen) else states.index_select(0, places)


def _layer_states(
    layer: Any,
    stream: Tensor,
    added: Tensor,
    turns: Sequence[Tensor],
    layout: Layout,
    spread: Tensor | None,
    chosen: Tensor | None,
    keep: KeepRows | None,
) -> tuple[Tensor, Tensor]:
    """The stream `[S, H]` after a layer's attention, and what its second half adds.

    Before the first attention a state depends on its token only, so the first layer gets one row per distinct token;
    `spread [S]` says which of them each state is. The last layer computes the `chosen` states only.
    """
    attention, norms = layer.self_attn, (layer.input_layernorm, layer.post_attention_layernorm)
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    stream, qkv = read(stream, added, norms[0].weight, norms[0].variance_epsilon, projections)
    heads = attention.q_proj.out_features // attention.head_dim
    if hasattr(attention, "q_norm"):
        qkv = norm_heads(qkv, attention, heads)
    if spread is not None:
        stream, qkv = stream.index_select(0, spread), qkv.index_select(0, spread)
    mixed = mix(qkv, turns, layout, heads, attention.scaling, keep)
    if chosen is not None:  # nobody looks at the other places above
        stream, mixed = stream.index_select(0, chosen), mixed.index_select(0, chosen)
    return feed(stream, mixed, attention.o_proj, norms[1].weight, norms[1].variance_epsilon, layer.mlp)


def norm_heads(qkv: Tensor, attention: Any, heads: int) -> Tensor:
    """Qwen3 norms every query and key by itself."""
    parts = qkv.view(len(qkv), -1, attention.head_dim)
    kv_heads = (parts.shape[1] - heads) // 2
    query, key, value = torch.split_with_sizes(parts, [heads, kv_heads, kv_heads], dim=1)
    return torch.cat([attention.q_norm(query), attention.k_norm(key), value], dim=1).view(qkv.shape)
