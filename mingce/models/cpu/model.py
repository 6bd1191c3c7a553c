"""The hidden states of whole rows, with gradients.

Between its matrix products transformers' decoder layer runs some sixty operations forward and backward, each of which
goes through memory once more; on a CPU they take as long as a third of the products. Here a layer is three nodes of the
gradient's graph (`mingce.models.cpu.layer`), and states stand one below the other (`mingce.models.cpu.layout`), so that
only attention has some padding, and what rows have in common at their beginning is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from mingce.models.cpu import families
from mingce.models.cpu.families import LAYERS_ARE_SET, supports
from mingce.models.cpu.layer import OnKeys, attention, head_norms, mlp, norm_of, product, qkv_projection, rms_norm
from mingce.models.cpu.layout import Layout, layout_of
from mingce.models.cpu.projection import projection, qkv_projections

OnLayerKeys = Callable[[int, slice, Tensor, Tensor], None]
"""Receives a layer's index, a slice of the rows, and their keys and values `[rows, kv_heads, width, D]`."""


def hidden_states(model: nn.Module, input_ids: Tensor, wanted: Tensor, on_keys: OnLayerKeys | None = None) -> Tensor:
    """The last hidden states `[wanted, H]` at the marked places of `[B, W]`, row by row.

    Rows have no padding before or between their tokens. What comes behind a row's last marked place is not computed.
    """
    trunk = cast(Any, model)
    column = torch.arange(input_ids.shape[1])
    lengths = (wanted * (column + 1)).amax(1)
    layout = layout_of(input_ids, lengths)
    present = column < lengths[:, None]
    asked_states = torch.from_numpy(layout.states)[wanted[present]]
    chosen, index = torch.unique(asked_states, return_inverse=True)
    tokens, token_of_state = torch.unique(input_ids[present][torch.from_numpy(layout.first)], return_inverse=True)
    scale = families.embedding_scale(trunk)
    stream = functional.embedding(tokens, trunk.embed_tokens.weight)
    stream = stream if scale == 1 else stream * scale
    ropes = families.angles(trunk, stream[:1, None], column[: int(lengths.max())])
    added = torch.zeros_like(stream)
    for number, layer in enumerate(trunk.layers):
        forward = layer if hasattr(trunk, LAYERS_ARE_SET) else partial(_layer_states, layer)
        only = chosen if layer is trunk.layers[-1] and len(chosen) < len(token_of_state) else None
        stream, added = forward(
            stream, added, ropes, layout, token_of_state if number == 0 else None, only,
            on_keys and partial(on_keys, number),
        )  # fmt: skip
    states = rms_norm(stream, added, families.norm_weight(trunk.norm), families.norm_epsilon(trunk.norm))
    return states if torch.equal(asked_states, chosen) else states.index_select(0, index)


def set_layers(model: nn.Module) -> None:
    """Makes the layers' own calls compute what is computed here, so that hooks around them (sharding's) run."""
    assert supports(model)
    for layer in cast(Any, model).layers:
        layer.forward = partial(_layer_states, layer)
    setattr(model, LAYERS_ARE_SET, True)


def _layer_states(
    layer: Any,
    stream: Tensor,
    added: Tensor,
    ropes: dict[str | None, tuple[Tensor, Tensor]],
    layout: Layout,
    token_of_state: Tensor | None,
    only: Tensor | None,
    on_keys: OnKeys | None,
) -> tuple[Tensor, Tensor]:
    """The residual stream `[S, H]` after a layer's attention, and what its MLP adds.

    Before the first attention a state depends on its token only, so the first layer gets one row per distinct token;
    `token_of_state [S]` says which of them each state is. The last layer computes `only` the states that are asked for.
    """
    block = layer.self_attn
    stream, qkv = qkv_projection(stream, added, layer.input_layernorm, qkv_projections(block))
    heads = block.config.num_attention_heads
    qkv = head_norms(qkv, block, heads)
    if token_of_state is not None:
        stream, qkv = stream.index_select(0, token_of_state), qkv.index_select(0, token_of_state)
    rope = ropes[families.rope_kind(block)]
    if not families.turns(block):
        rope = torch.ones_like(rope[0]), torch.zeros_like(rope[1])
    attended = attention(qkv, rope, layout, heads, block.scaling, on_keys)
    if only is not None:  # nobody looks at the other places above
        stream, attended = stream.index_select(0, only), attended.index_select(0, only)
    out, norms, activation = projection(block.o_proj), families.norms_of_added(layer), families.activation(block)
    if norms is None:
        return mlp(stream, attended, out, families.mlp_norm(layer), layer.mlp, activation)
    after_attention, after_mlp = norms
    attended = norm_of(product(attended, out), after_attention)
    stream, added = mlp(stream, attended, None, families.mlp_norm(layer), layer.mlp, activation)
    return stream, norm_of(added, after_mlp)
