"""A Llama-shaped decoder layer in three steps with derivatives of their own.

    qkv_projection   stream + what the layer below added, its RMSNorm, and queries, keys and values of that
    attention        RoPE, and the values of the places that a token attends to
    mlp              the output projection, stream + that, its RMSNorm, and gate, up and down of that

Where what attention adds has a norm (Gemma), the output projection (`product`) and the norm are steps of their own.

Each step is one node of the gradient's graph. It keeps what its derivative cannot recompute cheaply, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from mingce.models.cpu import kernels
from mingce.models.cpu.families import norm_epsilon, norm_weight
from mingce.models.cpu.layout import Layout
from mingce.models.cpu.products import linear
from mingce.models.cpu.projection import FIELDS, Projection, gate_and_up, projection, restored

_LONG = 256
"""From this width on attention's own matrices are too large to keep, and torch's kernel makes them piece by piece."""

OnKeys = Callable[[slice, Tensor, Tensor], None]
"""Receives a slice of the rows and their keys and values `[rows, kv_heads, width, D]`."""


def rms_norm(stream: Tensor, added: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """The RMSNorm of stream + added `[S, H]`."""
    return cast(Tensor, _apply(_RMSNorm, stream, added, weight, epsilon))


def norm_of(added: Tensor, norm: Any) -> Tensor:
    """The RMSNorm of what is added to the stream `[S, H]`."""
    return rms_norm(added, torch.zeros_like(added), norm_weight(norm), norm_epsilon(norm))


def qkv_projection(stream: Tensor, added: Tensor, norm: Any, parts: Sequence[Projection]) -> tuple[Tensor, Tensor]:
    """stream + added `[S, H]`, and queries, keys and values of its norm side by side."""
    scales, tensors = _flat(parts)
    result = _apply(_QKVProjection, stream, added, norm_weight(norm), norm_epsilon(norm), scales, *tensors)
    return cast(tuple[Tensor, Tensor], result)


def head_norms(qkv: Tensor, block: Any, heads: int) -> Tensor:
    """The RMSNorms of every query and key head, where the attention block has them (Qwen3)."""
    if not hasattr(block, "q_norm"):
        return qkv
    parts = qkv.view(len(qkv), -1, block.head_dim)
    kv_heads = (parts.shape[1] - heads) // 2
    query, key, value = torch.split_with_sizes(parts, [heads, kv_heads, kv_heads], dim=1)
    return torch.cat([block.q_norm(query), block.k_norm(key), value], dim=1).view(qkv.shape)


def attention(
    qkv: Tensor, rope: tuple[Tensor, Tensor], layout: Layout, heads: int, scale: float, on_keys: OnKeys | None = None
) -> Tensor:
    """Causal attention `[S, heads·D]` of states `[S, (heads + 2·kv_heads)·D]`; `rope`: cos and sin `[W, D]`."""
    return cast(Tensor, _apply(_Attention, qkv, *rope, layout, heads, scale, on_keys))


def product(x: Tensor, part: Projection) -> Tensor:
    """A projection `[S, out]` of `[S, in]` by itself."""
    return cast(Tensor, _apply(_Product, x, part.scale, *part.tensors))


def mlp(
    stream: Tensor,
    attended: Tensor,
    out: Projection | None,
    norm: Any,
    block: Any,
    activation: tuple[np.float32, np.float32],
) -> tuple[Tensor, Tensor]:
    """The stream after attention `[S, H]`, and what the MLP adds to it; without `out`, `attended` is what is added."""
    before = () if out is None else (out,)
    scales, tensors = _flat((*before, *gate_and_up(block), projection(block.down_proj)))
    result = _apply(_MLP, stream, attended, norm_weight(norm), norm_epsilon(norm), activation, scales, *tensors)
    return cast(tuple[Tensor, Tensor], result)


def _flat(parts: Sequence[Projection]) -> tuple[tuple[float, ...], list[Tensor | None]]:
    """The projections' scales, and their tensors one behind the other."""
    return tuple(part.scale for part in parts), [tensor for part in parts for tensor in part.tensors]


def _gradients(
    ctx: Any, parts: Sequence[Projection], inputs: Sequence[Tensor], of_outputs: Sequence[Tensor]
) -> list[Tensor | None]:
    """Of all tensors of the projections, which are the last that the node was given."""
    needed = ctx.needs_input_grad[-FIELDS * len(parts) :]
    grads: list[Tensor | None] = []
    for i, (part, x, of_y) in enumerate(zip(parts, inputs, of_outputs, strict=True)):
        grads += part.gradients(x, of_y, needed[FIELDS * i : FIELDS * (i + 1)])
    return grads


def _apply(function: type[torch.autograd.Function], *arguments: object) -> Any:
    return cast(Any, function).apply(*arguments)


def _normed(stream: Tensor, added: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """stream + added, its norm, and the scale `[S]` in between."""
    total, normed, scale = torch.empty_like(stream), torch.empty_like(stream), stream.new_empty(len(stream))
    inputs = stream.contiguous(), added.contiguous(), weight.clone()  # memory that numpy sees may not be given back
    kernels.rms_norm(
        *(tensor.detach().numpy() for tensor in inputs), np.float32(epsilon),
        total.numpy(), normed.numpy(), scale.numpy(),
    )  # fmt: skip
    return total, normed, scale


def _normed_again(total: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """The norm that `_normed` made, which is not kept: two products a number are cheaper than its memory."""
    return (total * scale[:, None]).mul_(weight)


def _normed_backward(
    total: Tensor, weight: Tensor, scale: Tensor, of_total: Tensor, of_normed: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the sum and of the norm's weight."""
    grad, of_weight = torch.empty_like(total), torch.zeros_like(weight)
    inputs = total, weight.detach().clone(), scale, of_total.contiguous(), of_normed
    kernels.rms_norm_backward(*(tensor.numpy() for tensor in inputs), grad.numpy(), of_weight.numpy())
    return grad, of_weight


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, stream: Tensor, added: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        total, normed, scale = _normed(stream, added, weight, epsilon)
        ctx.save_for_backward(total, weight, scale)
        return normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_normed: Tensor) -> tuple[Tensor | None, ...]:
        total, weight, scale = ctx.saved_tensors
        grad, of_weight = _normed_backward(total, weight, scale, torch.zeros_like(total), of_normed.contiguous())
        return grad, grad, of_weight, None


class _QKVProjection(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        stream: Tensor,
        added: Tensor,
        norm: Tensor,
        epsilon: float,
        scales: Sequence[float],
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        total, normed, scale = _normed(stream, added, norm, epsilon)
        ctx.save_for_backward(total, norm, scale, *tensors)
        ctx.scales = scales
        parts = restored(scales, tensors)
        biases = [part.bias for part in parts if part.bias is not None]
        weight = torch.cat([part.whole() for part in parts])
        return total, linear(normed, weight, torch.cat(biases) if biases else None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_total: Tensor, of_qkv: Tensor) -> tuple[Tensor | None, ...]:
        total, norm, scale, *tensors = ctx.saved_tensors
        parts, normed = restored(ctx.scales, tensors), _normed_again(total, norm, scale)
        of_outputs = torch.split_with_sizes(of_qkv, [len(part.weight) for part in parts], dim=1)
        of_tensors = _gradients(ctx, parts, [normed] * len(parts), of_outputs)
        weight = torch.cat([part.whole() for part in parts])
        grad, of_norm = _normed_backward(total, norm, scale, of_total, linear(of_qkv, weight.T))
        return grad, grad, of_norm, None, None, *of_tensors


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        cos: Tensor,
        sin: Tensor,
        layout: Layout,
        heads: int,
        scale: float,
        on_keys: OnKeys | None,
    ) -> Tensor:
        size = cos.shape[1]
        kv_heads = (qkv.shape[1] // size - heads) // 2
        rope = [_halves(angle, size) for angle in (cos, sin)]
        inputs = [qkv.new_empty(layout.places * count, size) for count in (heads, kv_heads, kv_heads)]
        kernels.rope(
            _halves(qkv.detach().contiguous(), size), *rope, *layout.indices[:3],
            *(_halves(tensor, size) for tensor in inputs),
        )  # fmt: skip
        attended = torch.empty_like(inputs[0])
        parts: list[_Whole | _ByPieces] = []
        by_group = (_by_group(tensor, layout) for tensor in (*inputs, attended))
        for group, query, key, value, out in zip(layout.groups, *by_group, strict=True):
            if on_keys is not None:
                on_keys(group, key, value)
            kind = _Whole if out.shape[2] < _LONG else _ByPieces
            parts.append(kind(query, key, value, scale, out))
        flat = qkv.new_empty(len(qkv), heads, size)
        kernels.rows_to_states(
            attended.numpy(), layout.lengths, layout.widths, layout.states, layout.first, flat.numpy()
        )
        ctx.layout, ctx.rope, ctx.inputs, ctx.parts, ctx.shape = layout, rope, inputs, parts, qkv.shape
        return flat.view(len(qkv), -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layout, inputs = ctx.layout, ctx.inputs
        size, of_attended = inputs[0].shape[1], torch.empty_like(inputs[0])
        flat = grad.reshape(len(grad), -1, size)
        kernels.states_to_rows(
            flat.numpy(), layout.lengths, layout.widths, layout.states, layout.first, of_attended.numpy()
        )
        grads = [torch.empty_like(tensor) for tensor in inputs]
        for part, *tensors in zip(ctx.parts, *(_by_group(t, layout) for t in (of_attended, *grads)), strict=True):
            part.backward(*tensors)
        of_qkv = grad.new_empty(ctx.shape)
        kernels.rope_backward(
            _halves(of_qkv, size), *ctx.rope, *layout.indices, *(_halves(tensor, size) for tensor in grads)
        )
        ctx.inputs, ctx.parts = [], []
        return of_qkv, None, None, None, None, None, None


def _by_group(tensor: Tensor, layout: Layout) -> list[Tensor]:
    """Rows that stand one behind the other, `[…, D]`, as groups `[rows, heads, width, D]`."""
    heads, size = len(tensor) // layout.places, tensor.shape[1]
    shapes = [(group.stop - group.start, heads, int(layout.widths[group.start]), size) for group in layout.groups]
    parts = torch.split_with_sizes(tensor, [rows * heads * width for rows, _, width, _ in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _halves(tensor: Tensor, size: int) -> Any:
    """`[…, heads·size]` or `[…, size]` as an array `[…, 2, size/2]`: RoPE turns a head's halves together."""
    lead = tensor.shape[:-1] if tensor.shape[-1] == size else (*tensor.shape[:-1], tensor.shape[-1] // size)
    return tensor.view(*lead, 2, size // 2).numpy()


class _Whole:
    """Causal attention of `[B, heads, W, D]`, written to `out`, with its probabilities kept."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, scale: float, out: Tensor):
        self.scale = np.float32(scale)
        together = query.shape[0] * key.shape[1], -1, query.shape[3]  # query heads that share a key one below the other
        self.query, self.key, self.value = (tensor.view(together) for tensor in (query, key, value))
        self.probs = torch.bmm(self.query, self.key.transpose(1, 2))
        kernels.causal_softmax(self.probs.view(-1, key.shape[2]).numpy(), self.scale)
        torch.bmm(self.probs, self.value, out=out.view(together))

    def backward(self, of_out: Tensor, of_query: Tensor, of_key: Tensor, of_value: Tensor) -> None:
        """Puts the gradients into `of_query`, `of_key` and `of_value`."""
        grad, width = of_out.view(self.query.shape), self.probs.shape[-1]
        torch.bmm(self.probs.transpose(1, 2), grad, out=of_value.view(self.value.shape))
        of_scores = torch.bmm(grad, self.value.transpose(1, 2))
        kernels.causal_softmax_backward(
            self.probs.view(-1, width).numpy(), of_scores.view(-1, width).numpy(), self.scale
        )
        torch.bmm(of_scores, self.key, out=of_query.view(self.query.shape))
        torch.bmm(of_scores.transpose(1, 2), self.query, out=of_key.view(self.key.shape))


class _ByPieces:
    """The same by torch's kernel, which makes the probabilities twice and keeps none."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, scale: float, out: Tensor):
        shared = query.shape[1] != key.shape[1]
        with torch.enable_grad():
            self.rows = query, key, value = [tensor.detach().requires_grad_() for tensor in (query, key, value)]
            self.result = functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=scale, enable_gqa=shared
            )
        out.copy_(self.result.detach())

    def backward(self, of_out: Tensor, *grads: Tensor) -> None:
        for result, grad in zip(torch.autograd.grad(self.result, self.rows, of_out), grads, strict=True):
            grad.copy_(result)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float, *tensors: Tensor | None) -> Tensor:
        (part,) = restored([scale], tensors)
        ctx.save_for_backward(x, *tensors)
        ctx.scale = scale
        return linear(x, part.whole(), part.bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, ...]:
        x, *tensors = ctx.saved_tensors
        (part,) = restored([ctx.scale], tensors)
        return linear(of_y, part.whole().T), None, *_gradients(ctx, [part], [x], [of_y])


class _MLP(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        stream: Tensor,
        attended: Tensor,
        norm: Tensor,
        epsilon: float,
        activation: tuple[np.float32, np.float32],
        scales: Sequence[float],
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        *before, gate, up, down = restored(scales, tensors)
        total, normed, scale = _normed(
            stream, linear(attended, before[0].whole()) if before else attended, norm, epsilon
        )
        x, y = linear(normed, gate.whole()), linear(normed, up.whole())
        gated = torch.empty_like(x)
        kernels.glu(x.numpy(), y.numpy(), *activation, gated.numpy())
        ctx.save_for_backward(attended if before else None, total, scale, x, y, norm, *tensors)
        ctx.scales, ctx.activation = scales, activation
        return total, linear(gated, down.whole())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_total: Tensor, of_added: Tensor) -> tuple[Tensor | None, ...]:
        attended, total, scale, x, y, norm, *tensors = ctx.saved_tensors
        parts, normed = restored(ctx.scales, tensors), _normed_again(total, norm, scale)
        *before, gate, up, down = parts
        of_x = linear(of_added, down.whole().T)
        of_y, gated = torch.empty_like(y), torch.empty_like(x)
        kernels.glu_backward(x.numpy(), y.numpy(), *ctx.activation, of_x.numpy(), of_y.numpy(), gated.numpy())
        of_normed = linear(of_x, gate.whole().T).add_(linear(of_y, up.whole().T))
        grad, of_norm = _normed_backward(total, norm, scale, of_total, of_normed)
        inputs, of_outputs = [normed, normed, gated], [of_x, of_y, of_added]
        if before:
            inputs, of_outputs = [attended, *inputs], [grad, *of_outputs]
        of_tensors = _gradients(ctx, parts, inputs, of_outputs)
        return grad, linear(grad, before[0].whole().T) if before else grad, of_norm, None, None, None, *of_tensors
