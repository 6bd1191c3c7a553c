"""Decoding with a Llama-shaped model on the CPU, with nothing in it that decoding does not need.

transformers' forward pass runs some forty small operations a layer, and its attention is made for long queries. With
one token a row they cost as much as the matrix products. Here a layer is four products, in weights laid side by side
and by input, which is how a product with few rows reads them fastest, and three compiled loops. Prompts run through
`mingce.models.trunk` once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mingce.models import kernels, trunk
from mingce.models.cache import grown, moves
from mingce.models.kernels import compiled, exp
from mingce.models.lora import base_causal_lm

_SHAPES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


def fits(model: nn.Module) -> bool:
    """Whether the model is one that `BareDecoder` computes."""
    if type(model).__name__ not in _SHAPES or base_causal_lm(model) is not model:
        return False
    inner: Any = model
    head = inner.lm_head.weight
    return trunk.fits(inner.model) and head.dtype == torch.float32 and head.device.type == "cpu"


class _Layer:
    """A layer's weights `[inputs, outputs]`, those that read the same numbers side by side."""

    def __init__(self, layer: Any):
        attention, mlp = layer.self_attn, layer.mlp
        reads = (attention.q_proj, attention.k_proj, attention.v_proj)
        self.qkv = torch.cat([one.weight for one in reads]).T.contiguous()
        self.bias = None if reads[0].bias is None else torch.cat([one.bias for one in reads])
        self.norms = tuple(getattr(attention, name, None) for name in ("q_norm", "k_norm"))
        self.out = attention.o_proj.weight.T.contiguous()
        self.gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).T.contiguous()
        self.down = mlp.down_proj.weight.T.contiguous()
        self.before, self.between = (
            norm.weight.detach().numpy() for norm in (layer.input_layernorm, layer.post_attention_layernorm)
        )
        self.scale = np.float32(attention.scaling)


class BareDecoder:
    """Rows that grow by a token at a time; the model as it is now: weights that change afterwards are not seen."""

    def __init__(self, model: nn.Module, positions: int):
        """`positions`: how many a row may come to have."""
        inner: Any = model
        config = inner.config
        self.trunk, self.heads, self.kv_heads = inner.model, config.num_attention_heads, config.num_key_value_heads
        self.embedding, self.head = inner.get_input_embeddings().weight, inner.lm_head.weight.T.contiguous()
        self.layers = [_Layer(layer) for layer in inner.model.layers]
        self.last_norm, self.epsilon = inner.model.norm.weight.detach().numpy(), np.float32(config.rms_norm_eps)
        angles = inner.model.rotary_emb(self.embedding[:1, None], torch.arange(positions)[None])
        self.cos, self.sin = (angle[0].contiguous() for angle in angles)

    def begin(self, prompts: Sequence[Sequence[int]], source: Tensor) -> Tensor:
        """Logits `[rows, V]` after the prompts, row i having prompt `source[i]`."""
        order = sorted(range(len(prompts)), key=lambda prompt: -len(prompts[prompt]))  # as the trunk wants them
        place = torch.tensor(order).argsort()[source]
        lengths = torch.tensor([len(prompts[prompt]) for prompt in order])
        column = torch.arange(int(lengths[0]))
        ids = torch.zeros(len(order), len(column), dtype=torch.long)
        ids[column < lengths[:, None]] = torch.tensor([token for prompt in order for token in prompts[prompt]])
        shape = len(order), len(column), self.kv_heads, self.cos.shape[1]
        kept = [(self.embedding.new_empty(shape), self.embedding.new_empty(shape)) for _ in self.layers]

        def keep(layer: int, rows: slice, key: Tensor, value: Tensor) -> None:
            for made, whole in zip((key, value), kept[layer], strict=True):
                whole[rows, : made.shape[2]] = made.transpose(1, 2)

        states = trunk.hidden_states(self.trunk, ids, column == lengths[:, None] - 1, keep)
        self.ends = lengths[place]
        self.caches = [[grown(room.flatten(2)[place], len(column)) for room in pair] for pair in kept]
        return torch.mm(states, self.head)[place]

    def step(self, tokens: Tensor) -> Tensor:
        """Logits `[rows, V]` after one token more in every row."""
        stream, mixed = functional.embedding(tokens, self.embedding), None
        total, normed = torch.empty_like(stream), torch.empty_like(stream)
        cos, sin, ends = self.cos[self.ends].numpy(), self.sin[self.ends].numpy(), self.ends.numpy()
        added, scales = torch.zeros_like(stream), np.empty(len(tokens), np.float32)
        if int(self.ends.max()) == self.caches[0][0].shape[1]:
            self.caches = [[grown(room, room.shape[1]) for room in pair] for pair in self.caches]

        def add_and_norm(norm: Any) -> None:
            nonlocal stream, total
            given, ready = (stream.numpy(), added.numpy(), norm, self.epsilon), (total.numpy(), normed.numpy(), scales)
            kernels.add_and_norm(*given, *ready)
            stream, total = total, stream

        for layer, (keys, values) in zip(self.layers, self.caches, strict=True):
            add_and_norm(layer.before)
            qkv = torch.mm(normed, layer.qkv) if layer.bias is None else torch.addmm(layer.bias, normed, layer.qkv)
            if layer.norms[0] is not None:
                self._norm_heads(qkv, layer)
            mixed = stream.new_empty(len(tokens), len(layer.out)) if mixed is None else mixed
            _attend(qkv.numpy(), cos, sin, keys.numpy(), values.numpy(), ends, layer.scale, mixed.numpy())
            added = torch.mm(mixed, layer.out)
            add_and_norm(layer.between)
            gated = stream.new_empty(len(tokens), len(layer.down))
            _gate(torch.mm(normed, layer.gate_up).numpy(), gated.numpy())
            added = torch.mm(gated, layer.down)
        add_and_norm(self.last_norm)
        self.ends = self.ends + 1
        return torch.mm(normed, self.head)

    def drop(self, ended: Tensor) -> Tensor:
        """Takes rows out; returns the former index of every row that is left."""
        kept, holes, movers = moves(ended)
        longest = int(self.ends.max())
        for pair in self.caches:
            for at, room in enumerate(pair):
                room[holes, :longest] = room[movers, :longest]
                pair[at] = room[: len(kept)]
        self.ends = self.ends[kept]
        return kept

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
def _gate(both, out):  # type: ignore[no-untyped-def]
    """out = silu(x) · up, of x and up side by side"""
    rows, width = out.shape
    for r in range(rows):
        x, up, y = both[r, :width], both[r, width:], out[r]
        for i in range(width):
            y[i] = x[i] * up[i] / (np.float32(1) + exp(-x[i]))


@compiled
def _attend(qkv, cos, sin, keys, values, ends, scale, out):  # type: ignore[no-untyped-def]
    """Turns queries and keys, writes the new key and value into the caches `[rows, room, kv_heads·D]` at `ends`.

    out `[rows, heads·D]`. What takes the time is to read the caches, so it is done in the order in which they lie, four
    places together.
    """
    rows, room, size = keys.shape
    width = cos.shape[1]
    half, heads, kv_heads = width // 2, out.shape[1] // width, size // width
    shared = heads // kv_heads
    query, scores = np.empty((heads, width), np.float32), np.empty((heads, room), np.float32)
    for r in range(rows):
        c, s, line, end, result = cos[r], sin[r], qkv[r], ends[r], out[r]
        own_keys, own_values = keys[r], values[r]
        new_key, new_value = own_keys[end], own_values[end]
        for h in range(heads):
            turned = query[h]
            for i in range(half):
                low, high = line[h * width + i], line[h * width + half + i]
                turned[i] = (low * c[i] - high * s[i]) * scale
                turned[half + i] = (high * c[half + i] + low * s[half + i]) * scale
        for g in range(kv_heads):
            k, turned = (heads + g) * width, new_key[g * width : (g + 1) * width]
            for i in range(half):
                low, high = line[k + i], line[k + half + i]
                turned[i] = low * c[i] - high * s[i]
                turned[half + i] = high * c[half + i] + low * s[half + i]
        for i in range(size):
            new_value[i] = line[(heads + kv_heads) * width + i]
        seen = end + 1
        fours = seen // 4 * 4
        for t in range(0, fours, 4):
            for h in range(heads):
                g, q = h // shared * width, query[h]
                k0, k1 = own_keys[t, g : g + width], own_keys[t + 1, g : g + width]
                k2, k3 = own_keys[t + 2, g : g + width], own_keys[t + 3, g : g + width]
                p0 = p1 = p2 = p3 = np.float32(0)
                for i in range(width):
                    p0 += q[i] * k0[i]
                    p1 += q[i] * k1[i]
                    p2 += q[i] * k2[i]
                    p3 += q[i] * k3[i]
                scores[h, t], scores[h, t + 1], scores[h, t + 2], scores[h, t + 3] = p0, p1, p2, p3
        for t in range(fours, seen):
            for h in range(heads):
                k0, p0 = own_keys[t, h // shared * width : (h // shared + 1) * width], np.float32(0)
                for i in range(width):
                    p0 += query[h, i] * k0[i]
                scores[h, t] = p0
        for h in range(heads):
            x = scores[h]
            top = x[0]
            for t in range(seen):
                top = max(top, x[t])
            for t in range(seen):
                x[t] = exp(x[t] - top)
            total = np.float32(0)
            for t in range(seen):
                total += x[t]
            share = np.float32(1) / total
            for t in range(seen):
                x[t] *= share
        for i in range(heads * width):
            result[i] = 0
        for t in range(0, fours, 4):
            for h in range(heads):
                g, x, mix = h // shared * width, scores[h], result[h * width : (h + 1) * width]
                w0, w1, w2, w3 = x[t], x[t + 1], x[t + 2], x[t + 3]
                v0, v1 = own_values[t, g : g + width], own_values[t + 1, g : g + width]
                v2, v3 = own_values[t + 2, g : g + width], own_values[t + 3, g : g + width]
                for i in range(width):
                    mix[i] += w0 * v0[i] + w1 * v1[i] + w2 * v2[i] + w3 * v3[i]
        for t in range(fours, seen):
            for h in range(heads):
                w0, v0 = scores[h, t], own_values[t, h // shared * width : (h // shared + 1) * width]
                mix = result[h * width : (h + 1) * width]
                for i in range(width):
                    mix[i] += w0 * v0[i]
