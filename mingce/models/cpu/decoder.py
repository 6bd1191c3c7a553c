"""Decoding a token at a time, with nothing in it that decoding does not need.

transformers' forward pass runs some forty small operations a layer, and its attention is made for long queries. With
one token a row they cost as much as the matrix products. Here a layer is four products, in weights laid side by side
and by input, which is how a product with few rows reads them fastest, and three compiled loops. Prompts run through
`mingce.models.cpu.model` once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mingce.models.cache import grown, moves
from mingce.models.cpu import families, kernels
from mingce.models.cpu.kernels import act_times, compiled, prefetch, softmax
from mingce.models.cpu.layer import head_norms
from mingce.models.cpu.model import hidden_states
from mingce.models.cpu.products import linear
from mingce.models.cpu.projection import gate_and_up, projection, qkv_projections

_SMALL = 100_000_000
"""Multiplications of a step up to which a second thread costs more than it wins: with 64 rows of a 1 M model it takes
1.7 times the CPU time for 1.1 times the speed."""


class _Layer:
    """A layer's weights `[inputs, outputs]`, adapters merged, those that read the same numbers side by side."""

    def __init__(self, layer: Any):
        block, mlp = layer.self_attn, layer.mlp
        projections = qkv_projections(block)
        biases = [one.bias for one in projections if one.bias is not None]
        self.qkv = torch.cat([one.whole() for one in projections]).T.contiguous()
        self.bias = torch.cat(biases) if biases else None
        self.out, self.down = (projection(one).whole().T.contiguous() for one in (block.o_proj, mlp.down_proj))
        self.gate_up = torch.cat([one.whole() for one in gate_and_up(mlp)]).T.contiguous()
        self.norm, self.mlp_norm = _weight(layer.input_layernorm), _weight(families.mlp_norm(layer))
        self.norms_of_added = [families.norm_weight(norm) for norm in families.norms_of_added(layer) or ()]
        self.block, self.scale, self.activation = block, np.float32(block.scaling), families.activation(block)
        self.turns, self.kind = families.turns(block), families.rope_kind(block)


def _weight(norm: Any) -> Any:
    return families.norm_weight(norm).detach().numpy()


class Decoder:
    """Rows that grow, each as it goes; the model as it is now: weights that change afterwards are not seen."""

    def __init__(self, model: nn.Module, positions: int):
        """`positions`: how many a row may come to have."""
        inner: Any = model
        config = inner.config
        self.model, self.heads, self.kv_heads = inner.model, config.num_attention_heads, config.num_key_value_heads
        self.embedding, self.head = inner.get_input_embeddings().weight, inner.lm_head.weight  # large: no copy
        self.layers = [_Layer(layer) for layer in inner.model.layers]
        self.last_norm, self.epsilon = _weight(inner.model.norm), np.float32(config.rms_norm_eps)
        self.ropes = families.angles(inner.model, self.embedding[:1, None], torch.arange(positions))
        self.scale, self.head_size = families.embedding_scale(inner.model), next(iter(self.ropes.values()))[0].shape[1]
        self.weights = sum(part.numel() for one in self.layers for part in (one.qkv, one.out, one.gate_up, one.down))

    def begin(self, prompts: Sequence[Sequence[int]], source: Tensor) -> Tensor:
        """Logits `[rows, V]` after the prompts, row i having prompt `source[i]`. A prompt's rows share its cache."""
        order = sorted(range(len(prompts)), key=lambda prompt: -len(prompts[prompt]))  # long rows first
        self.source = torch.tensor(order).argsort()[source]
        lengths = torch.tensor([len(prompts[prompt]) for prompt in order])
        self.lengths = functional.pad(lengths, (0, 1))  # the last one is no prompt at all, for rows that begin again
        column = torch.arange(int(lengths[0]))
        ids = torch.zeros(len(order), len(column), dtype=torch.long)
        ids[column < lengths[:, None]] = torch.tensor([token for prompt in order for token in prompts[prompt]])
        size = self.kv_heads * self.head_size
        self.prompts = [[self.embedding.new_empty(*ids.shape, size) for _ in range(2)] for _ in self.layers]
        self.rows = [[self.embedding.new_empty(len(source), 0, size) for _ in range(2)] for _ in self.layers]
        self.slots = torch.zeros(len(source), dtype=torch.long)

        def store(layer: int, rows: slice, key: Tensor, value: Tensor) -> None:
            for states, cache in zip((key, value), self.prompts[layer], strict=True):
                cache[rows, : states.shape[2]] = states.transpose(1, 2).flatten(2)

        states = hidden_states(self.model, ids, column == lengths[:, None] - 1, store)
        return linear(states, self.head)[self.source]

    def step(self, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
        """Logits `[rows, V]` after one token more in every row, or in these `rows`."""
        rows = torch.arange(len(self.source)) if rows is None else rows
        with _threads_for(len(tokens) * self.weights):
            logits = linear(self._states(tokens, rows, self.slots[rows]), self.head)
        self.slots[rows] += 1
        return logits

    def extend(self, rows: Tensor, added: Sequence[Sequence[int]]) -> Tensor:
        """Logits `[rows, V]` after several tokens more in each of these rows, which go through the model together."""
        counts = torch.tensor([len(ids) for ids in added])
        tokens, ends = torch.tensor([token for ids in added for token in ids]), counts.cumsum(0)
        of_row = torch.arange(len(counts)).repeat_interleave(counts)
        slots = torch.arange(len(tokens)) - (ends - counts)[of_row] + self.slots[rows][of_row]
        with _threads_for(len(tokens) * self.weights):
            logits = linear(self._states(tokens, rows[of_row], slots)[ends - 1], self.head)
        self.slots[rows] += counts
        return logits

    def begin_again(self, row: int) -> None:
        """Empties a row, prompt and all; `extend` gives it a new one."""
        self.source[row], self.slots[row] = len(self.lengths) - 1, 0

    def _states(self, tokens: Tensor, rows: Tensor, slots: Tensor) -> Tensor:
        """Last hidden states `[N, H]` of tokens `[N]` at `slots` of `rows`; of one row in order, one behind another."""
        longest = int(slots.max()) + 1
        if longest > self.rows[0][0].shape[1]:
            self.rows = [[grown(room, longest) for room in pair] for pair in self.rows]
        stream, attended = functional.embedding(tokens, self.embedding), None
        stream = stream if self.scale == 1 else stream.mul_(self.scale)
        total, normed = torch.empty_like(stream), torch.empty_like(stream)
        added, scales = torch.zeros_like(stream), np.empty(len(tokens), np.float32)
        source = self.source[rows]
        position = self.lengths[source] + slots
        ropes = {kind: (cos[position].numpy(), sin[position].numpy()) for kind, (cos, sin) in self.ropes.items()}
        still = np.ones((len(tokens), self.head_size), np.float32), np.zeros((len(tokens), self.head_size), np.float32)
        places = rows.numpy(), source.numpy(), self.lengths.numpy()

        def rms_norm(weight: Any) -> None:
            """normed = the norm of stream + added, which becomes the stream; the old one is written over next time."""
            nonlocal stream, total
            kernels.rms_norm(stream.numpy(), added.numpy(), weight, self.epsilon, total.numpy(), normed.numpy(), scales)
            stream, total = total, stream

        def norm_of(added: Tensor, weight: Tensor) -> Tensor:
            return functional.rms_norm(added, weight.shape, weight, float(self.epsilon))

        for layer, prompts, own in zip(self.layers, self.prompts, self.rows, strict=True):
            rms_norm(layer.norm)
            qkv = head_norms(linear(normed, layer.qkv.T, layer.bias), layer.block, self.heads)
            attended = stream.new_empty(len(tokens), len(layer.out)) if attended is None else attended
            caches = (cache.numpy() for cache in (*prompts, *own))
            angles = ropes[layer.kind] if layer.turns else still
            _attention(qkv.numpy(), *angles, *places, *caches, slots.numpy(), layer.scale, attended.numpy())
            added = linear(attended, layer.out.T)
            if layer.norms_of_added:
                added = norm_of(added, layer.norms_of_added[0])
            rms_norm(layer.mlp_norm)
            gated = stream.new_empty(len(tokens), len(layer.down))
            _glu(linear(normed, layer.gate_up.T).numpy(), *layer.activation, gated.numpy())
            added = linear(gated, layer.down.T)
            if layer.norms_of_added:
                added = norm_of(added, layer.norms_of_added[1])
        rms_norm(self.last_norm)
        return normed

    def drop(self, ended: Tensor) -> Tensor:
        """Takes rows out; returns the former index of every row that is left."""
        left, holes, movers = moves(ended)
        used = int(self.slots.max())
        for pair in self.rows:
            for at, room in enumerate(pair):
                room[holes, :used] = room[movers, :used]
                pair[at] = room[: len(left)]
        self.source, self.slots = self.source[left], self.slots[left]
        return left


@contextmanager
def _threads_for(multiplications: int) -> Iterator[None]:
    """One thread for what is too small to be worth sharing out; as many as before afterwards."""
    threads = torch.get_num_threads()
    if threads == 1 or multiplications > _SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@compiled
def _glu(both, linear, cubic, out):  # type: ignore[no-untyped-def]
    """out = x·σ(z) · up as in `kernels.glu`, of x and up side by side"""
    rows, width = out.shape
    for r in range(rows):
        x, up, y = both[r, :width], both[r, width:], out[r]
        for i in range(width):
            y[i] = act_times(x[i], up[i], linear, cubic)


@compiled
def _attention(  # type: ignore[no-untyped-def]
    qkv, cos, sin, rows, source, lengths, prompt_keys, prompt_values, keys, values, slots, scale, out
):
    """Every token's attention out `[N, heads·D]`; writes its key and value into the caches of its row, at its slot.

    Caches are `[prompts, width, kv_heads·D]` of `lengths`, and `[rows, room, kv_heads·D]`; token n is of row `rows[n]`,
    which has prompt `source[n]`. What takes the time is to read them, so it is done in the order in which they lie.
    """
    room, size = keys.shape[1:]
    width = cos.shape[1]
    heads, kv_heads = out.shape[1] // width, size // width
    query = np.empty((heads, width), np.float32)
    scores = np.empty((heads, prompt_keys.shape[1] + room + 3), np.float32)
    for n in range(len(rows)):
        r, slot, line, length = rows[n], slots[n], qkv[n], lengths[source[n]]
        prompt, later_row = min(source[n], len(prompt_keys) - 1), rows[min(n + 1, len(rows) - 1)]
        later_prompt = min(source[min(n + 1, len(rows) - 1)], len(prompt_keys) - 1)
        for h in range(heads + kv_heads):
            g = (h - heads) * width
            rotated = query[h] if h < heads else keys[r, slot, g : g + width]
            _rope(line[h * width : (h + 1) * width], cos[n], sin[n], rotated)
        for i in range(size):  # a loop, for an assignment of arrays takes seconds to compile
            values[r, slot, i] = line[(heads + kv_heads) * width + i]
        seen = length + slot + 1
        for part in range(2):  # in the prompt, and behind it
            cache, later = (prompt_keys[prompt], prompt_values[prompt]) if part == 0 else (keys[r], values[r])
            _score(query, cache, later, scores, part * length, length if part == 0 else seen)
        for h in range(heads):
            softmax(scores[h], seen, scale)
        for i in range(heads * width):
            out[n, i] = 0
        for part in range(2):
            cache = prompt_values[prompt] if part == 0 else values[r]
            later = prompt_keys[later_prompt] if part == 0 else keys[later_row]
            _add_values(scores, part * length, length if part == 0 else seen, cache, later, out[n])


@compiled
def _rope(line, cos, sin, out):  # type: ignore[no-untyped-def]
    """RoPE of one head's vector."""
    half = len(out) // 2
    for i in range(half):
        low, high = line[i], line[half + i]
        out[i] = low * cos[i] - high * sin[i]
        out[half + i] = high * cos[half + i] + low * sin[half + i]


@compiled
def _score(query, keys, later, scores, begin, end):  # type: ignore[no-untyped-def]
    """scores `[heads, begin:end]` of queries `[heads, D]` with keys `[…, kv_heads·D]`; `later` is read after them.

    Four at a time; up to three scores behind `end` mean nothing.
    """
    heads, width = query.shape
    size, count = keys.shape[1], end - begin
    shared = heads * width // size
    for t in range(0, count, 4):
        prefetch(later, t * size, 4 * size)
        t1, t2, t3 = min(t + 1, count - 1), min(t + 2, count - 1), min(t + 3, count - 1)
        for h in range(heads):
            q, x, g = query[h], scores[h], h // shared * width
            k0, k1, k2, k3 = keys[t, g:], keys[t1, g:], keys[t2, g:], keys[t3, g:]
            p0 = p1 = p2 = p3 = np.float32(0)
            for i in range(width):
                p0 += q[i] * k0[i]
                p1 += q[i] * k1[i]
                p2 += q[i] * k2[i]
                p3 += q[i] * k3[i]
            at = begin + t
            x[at], x[at + 1], x[at + 2], x[at + 3] = p0, p1, p2, p3


@compiled
def _add_values(weights, begin, end, values, later, out):  # type: ignore[no-untyped-def]
    """out `[heads·D]` += the values `[…, kv_heads·D]` by the weights `[heads, begin:end]`, four at a time."""
    heads, size, count = len(weights), values.shape[1], end - begin
    width, none = len(out) // heads, np.float32(0)
    shared = heads * width // size
    for t in range(0, count, 4):
        prefetch(later, t * size, 4 * size)
        t1, t2, t3 = min(t + 1, count - 1), min(t + 2, count - 1), min(t + 3, count - 1)
        for h in range(heads):
            x, y, g = weights[h, begin:end], out[h * width : (h + 1) * width], h // shared * width
            w0, w1 = x[t], x[t1] if t1 > t else none
            w2, w3 = x[t2] if t2 > t1 else none, x[t3] if t3 > t2 else none
            v0, v1, v2, v3 = values[t, g:], values[t1, g:], values[t2, g:], values[t3, g:]
            for i in range(width):
                y[i] += w0 * v0[i] + w1 * v1[i] + w2 * v2[i] + w3 * v3[i]
