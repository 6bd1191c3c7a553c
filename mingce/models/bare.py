"""One token more for every row of a Llama-shaped model on the CPU, with nothing in it that decoding does not need.

transformers' forward pass runs some forty small operations a layer, and its attention is made for long queries. With
one token a row they cost as much as the matrix products. Here a layer is four products, in weights laid side by side,
and two compiled loops: rotation, cache and attention in one, residual and norm in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mingce.models.cache import RoomyLayer
from mingce.models.kernels import compiled, exp
from mingce.models.lora import base_causal_lm
from mingce.models.trunk import FIXED_ROTATIONS

_SHAPES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


def fits(model: nn.Module) -> bool:
    """Whether the model is one that `BareModel` computes: its shape, float32, on the CPU, no adapters, no windows."""
    if type(model).__name__ not in _SHAPES or base_causal_lm(model) is not model:
        return False
    config: Any = model.config
    first = next(model.parameters())
    return bool(
        first.device.type == "cpu"
        and all(p.dtype == torch.float32 for p in model.parameters())
        and config.hidden_act == "silu"
        and config.rope_parameters.get("rope_type", "default") in FIXED_ROTATIONS
        and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
    )


class _Layer:
    """A layer's weights, those that read the same numbers laid side by side."""

    def __init__(self, layer: Any):
        attention, mlp = layer.self_attn, layer.mlp
        reads = (attention.q_proj, attention.k_proj, attention.v_proj)
        self.qkv = torch.cat([one.weight for one in reads])
        self.qkv_bias = None if reads[0].bias is None else torch.cat([one.bias for one in reads])
        self.out, self.out_bias = attention.o_proj.weight, attention.o_proj.bias
        self.norms = tuple(getattr(attention, name, None) for name in ("q_norm", "k_norm"))
        self.gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
        self.gate_up_bias = None if mlp.gate_proj.bias is None else torch.cat([mlp.gate_proj.bias, mlp.up_proj.bias])
        self.down, self.down_bias = mlp.down_proj.weight, mlp.down_proj.bias
        self.before, self.between = (
            norm.weight.detach().numpy() for norm in (layer.input_layernorm, layer.post_attention_layernorm)
        )
        self.scale = np.float32(attention.scaling)


class BareModel:
    """The model as it is now: weights that change afterwards are not seen."""

    def __init__(self, model: nn.Module, positions: int):
        """`positions`: how many there will be at most."""
        inner: Any = model
        config = inner.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.embedding, self.head = inner.get_input_embeddings().weight, inner.lm_head.weight
        self.layers = [_Layer(layer) for layer in inner.model.layers]
        self.last_norm, self.epsilon = inner.model.norm.weight.detach().numpy(), np.float32(config.rms_norm_eps)
        angles = inner.model.rotary_emb(self.embedding[:1, None], torch.arange(positions)[None])
        self.cos, self.sin = (angle[0].contiguous() for angle in angles)

    def __call__(self, tokens: Tensor, positions: Tensor, starts: Tensor, caches: Sequence[RoomyLayer]) -> Tensor:
        """Logits `[rows, V]` after `tokens` at `positions`; row b has cache from `starts[b]` on; all `[rows]`."""
        stream = functional.embedding(tokens, self.embedding)
        cos, sin, first = self.cos[positions].numpy(), self.sin[positions].numpy(), starts.numpy()
        normed, mixed = torch.empty_like(stream), None
        flow, ready = stream.numpy(), normed.numpy()
        _norm(flow, self.layers[0].before, self.epsilon, ready)
        for place, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            qkv = functional.linear(normed, layer.qkv, layer.qkv_bias)
            if layer.norms[0] is not None:
                self._norm_heads(qkv, layer)
            length = cache.reserve(1)
            mixed = stream.new_empty((len(tokens), layer.out.shape[1])) if mixed is None else mixed
            _attend(
                qkv.numpy(), cos, sin, cache.key_room.numpy(), cache.value_room.numpy(),
                first, length, layer.scale, self.heads, mixed.numpy(),
            )  # fmt: skip
            added = functional.linear(mixed, layer.out, layer.out_bias)
            _add_and_norm(flow, added.numpy(), layer.between, self.epsilon, ready)
            gate, up = functional.linear(normed, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
            added = functional.linear(functional.silu(gate).mul_(up), layer.down, layer.down_bias)
            following = self.layers[place + 1].before if place + 1 < len(self.layers) else self.last_norm
            _add_and_norm(flow, added.numpy(), following, self.epsilon, ready)
        return functional.linear(normed, self.head)

    def _norm_heads(self, qkv: Tensor, layer: _Layer) -> None:
        """Qwen3 norms every query and key by itself."""
        heads = qkv.view(len(qkv), self.heads + 2 * self.kv_heads, -1)
        for norm, begin, end in (
            (layer.norms[0], 0, self.heads),
            (layer.norms[1], self.heads, self.heads + self.kv_heads),
        ):
            assert norm is not None
            heads[:, begin:end] = norm(heads[:, begin:end])


@compiled
def _norm(stream, weight, epsilon, out):  # type: ignore[no-untyped-def]
    """out = weight · stream / √(mean of its squares + ε)"""
    rows, width = stream.shape
    for r in range(rows):
        x, y = stream[r], out[r]
        squares = np.float32(0)
        for i in range(width):
            squares += x[i] * x[i]
        scale = np.float32(1) / np.sqrt(squares / np.float32(width) + epsilon)
        for i in range(width):
            y[i] = weight[i] * (x[i] * scale)


@compiled
def _add_and_norm(stream, added, weight, epsilon, out):  # type: ignore[no-untyped-def]
    """stream += added, and its norm."""
    rows, width = stream.shape
    for r in range(rows):
        x, more = stream[r], added[r]
        for i in range(width):
            x[i] += more[i]
    _norm(stream, weight, epsilon, out)


@compiled
def _attend(qkv, cos, sin, keys, values, starts, length, scale, heads, out):  # type: ignore[no-untyped-def]
    """Turns queries and keys, writes the new key and value into the cache at `length`; out [rows, heads·D]."""
    rows, kv_heads, width = qkv.shape[0], keys.shape[1], keys.shape[3]
    half, shared = width // 2, heads // kv_heads
    query = np.empty(width, np.float32)
    scores = np.empty(length + 1, np.float32)
    for r in range(rows):
        c, s, line, result, start = cos[r], sin[r], qkv[r], out[r], starts[r]
        for g in range(kv_heads):
            k, v = (heads + g) * width, (heads + kv_heads + g) * width
            new_key, new_value = keys[r, g, length], values[r, g, length]
            for i in range(half):
                low, high = line[k + i], line[k + half + i]
                new_key[i] = low * c[i] - high * s[i]
                new_key[half + i] = high * c[half + i] + low * s[half + i]
            for i in range(width):
                new_value[i] = line[v + i]
        for h in range(heads):
            q, own_keys, own_values = h * width, keys[r, h // shared], values[r, h // shared]
            for i in range(half):
                low, high = line[q + i], line[q + half + i]
                query[i] = (low * c[i] - high * s[i]) * scale
                query[half + i] = (high * c[half + i] + low * s[half + i]) * scale
            top = np.float32(-np.inf)
            for t in range(start, length + 1):
                key, product = own_keys[t], np.float32(0)
                for i in range(width):
                    product += query[i] * key[i]
                scores[t] = product
                top = max(top, product)
            total = np.float32(0)
            for t in range(start, length + 1):
                scores[t] = exp(scores[t] - top)
                total += scores[t]
            mix = result[q : q + width]
            for i in range(width):
                mix[i] = 0
            for t in range(start, length + 1):
                weight, value = scores[t], own_values[t]
                for i in range(width):
                    mix[i] += weight * value[i]
            for i in range(width):
                mix[i] /= total
