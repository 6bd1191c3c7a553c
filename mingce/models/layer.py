"""A Llama-shaped decoder layer in three steps with derivatives of their own: `read`, `mix`, `feed`.

    read   stream + what the layer below added, its norm, and queries, keys and values of that
    mix    the values of the places that a token attends to
    feed   what attention adds to the stream, its norm, and what gate, up and down make of that

Each step is one node of the gradient's graph. It keeps what its derivative cannot make anew cheaply, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from mingce.models import kernels
from mingce.models.layout import Layout

_LONG = 256
"""From this width on attention's own matrices are too large to keep, and torch's kernel makes them piece by piece."""

KeepRows = Callable[[slice, Tensor, Tensor], None]
"""Callback that receives a slice of the rows and their keys and values `[rows, kv_heads, width, D]`."""


def read(
    stream: Tensor, added: Tensor, norm: Tensor, epsilon: float, projections: Sequence[nn.Linear]
) -> tuple[Tensor, Tensor]:
    """stream + added `[S, H]`, and the projections of its norm side by side."""
    biases = [] if projections[0].bias is None else [one.bias for one in projections]
    weights = [one.weight for one in projections]
    return cast(tuple[Tensor, Tensor], _applied(_Read, stream, added, norm, epsilon, len(weights), *weights, *biases))


def mix(
    qkv: Tensor, turns: Sequence[Tensor], layout: Layout, heads: int, scale: float, keep: KeepRows | None = None
) -> Tensor:
    """Causal attention `[S, heads·D]` of states `[S, (heads + 2·kv_heads)·D]`; `turns`: cos and sin `[W, D]`."""
    return cast(Tensor, _applied(_Mix, qkv, *turns, layout, heads, scale, keep))


def feed(
    stream: Tensor, mixed: Tensor, out: nn.Linear, norm: Tensor, epsilon: float, mlp: Any
) -> tuple[Tensor, Tensor]:
    """The stream after attention `[S, H]`, and what the layer's second half adds to it."""
    weights = out.weight, norm, mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight
    return cast(tuple[Tensor, Tensor], _applied(_Feed, stream, mixed, epsilon, *weights))


def add_and_norm(stream: Tensor, added: Tensor, norm: Tensor, epsilon: float) -> Tensor:
    """The norm of stream + added `[S, H]`."""
    return cast(Tensor, _applied(_AddAndNorm, stream, added, norm, epsilon))


def _applied(function: type[torch.autograd.Function], *given: object) -> Any:
    return cast(Any, function).apply(*given)


def _normed(stream: Tensor, added: Tensor, norm: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """stream + added, its norm, and the scale `[S]` in between."""
    total, normed, scale = torch.empty_like(stream), torch.empty_like(stream), stream.new_empty(len(stream))
    given = stream.contiguous(), added.contiguous(), norm.clone()  # memory that numpy sees may not be given back
    kernels.add_and_norm(
        *(tensor.detach().numpy() for tensor in given), np.float32(epsilon),
        total.numpy(), normed.numpy(), scale.numpy(),
    )  # fmt: skip
    return total, normed, scale


def _normed_backward(
    total: Tensor, norm: Tensor, scale: Tensor, of_total: Tensor, of_normed: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the sum and of the norm's weight."""
    grad, of_norm = torch.empty_like(total), torch.zeros_like(norm)
    given = total, norm.detach().clone(), scale, of_total.contiguous(), of_normed
    kernels.add_and_norm_backward(*(tensor.numpy() for tensor in given), grad.numpy(), of_norm.numpy())
    return grad, of_norm


class _AddAndNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, stream: Tensor, added: Tensor, norm: Tensor, epsilon: float) -> Tensor:
        total, normed, scale = _normed(stream, added, norm, epsilon)
        ctx.save_for_backward(total, norm, scale)
        return normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_normed: Tensor) -> tuple[Tensor | None, ...]:
        total, norm, scale = ctx.saved_tensors
        grad, of_norm = _normed_backward(total, norm, scale, torch.zeros_like(total), of_normed.contiguous())
        return grad, grad, of_norm, None


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, stream: Tensor, added: Tensor, norm: Tensor, epsilon: float, count: int, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        total, normed, scale = _normed(stream, added, norm, epsilon)
        ctx.save_for_backward(total, normed, norm, scale, *parameters[:count])
        ctx.biased = len(parameters) > count
        bias = torch.cat(parameters[count:]) if ctx.biased else None
        return total, functional.linear(normed, torch.cat(parameters[:count]), bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_total: Tensor, of_qkv: Tensor) -> tuple[Tensor | None, ...]:
        total, normed, norm, scale, *weights = ctx.saved_tensors
        parts = torch.split_with_sizes(of_qkv, [len(weight) for weight in weights], dim=1)
        of_weights = [part.T @ normed for part in parts]
        of_biases = [part.sum(0) for part in parts] if ctx.biased else []
        grad, of_norm = _normed_backward(total, norm, scale, of_total, of_qkv @ torch.cat(weights))
        return grad, grad, of_norm, None, None, *of_weights, *of_biases


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, layout: Layout, heads: int, scale: float, keep: KeepRows | None
    ) -> Tensor:
        size = cos.shape[1]
        kv_heads = (qkv.shape[1] // size - heads) // 2
        turns = [_halves(turn, size) for turn in (cos, sin)]
        given = [qkv.new_empty(layout.places * count, size) for count in (heads, kv_heads, kv_heads)]
        kernels.rotate(
            _halves(qkv.detach().contiguous(), size), *turns, layout.lengths, layout.widths, layout.states,
            *(_halves(tensor, size) for tensor in given),
        )  # fmt: skip
        mixed = torch.empty_like(given[0])
        attended: list[_Whole | _ByPieces] = []
        parts = (_by_group(tensor, layout) for tensor in (*given, mixed))
        for group, query, key, value, out in zip(layout.groups, *parts, strict=True):
            if keep is not None:
                keep(group, key, value)
            kind = _Whole if out.shape[2] < _LONG else _ByPieces
            attended.append(kind(query, key, value, scale, out))
        flat = qkv.new_empty(len(qkv), heads, size)
        kernels.flatten(mixed.numpy(), layout.lengths, layout.widths, layout.states, layout.first, flat.numpy())
        ctx.layout, ctx.turns, ctx.given, ctx.attended, ctx.shape = layout, turns, given, attended, qkv.shape
        return flat.view(len(qkv), -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layout, given = ctx.layout, ctx.given
        size, of_mixed = given[0].shape[1], torch.empty_like(given[0])
        flat = grad.reshape(len(grad), -1, size)
        kernels.unflatten(flat.numpy(), layout.lengths, layout.widths, layout.states, layout.first, of_mixed.numpy())
        grads = [torch.empty_like(tensor) for tensor in given]
        for attended, *parts in zip(ctx.attended, *(_by_group(t, layout) for t in (of_mixed, *grads)), strict=True):
            attended.backward(*parts)
        of_qkv = grad.new_empty(ctx.shape)
        kernels.rotate_backward(
            _halves(of_qkv, size), *ctx.turns, layout.lengths, layout.widths, layout.states, layout.first,
            *(_halves(tensor, size) for tensor in grads),
        )  # fmt: skip
        ctx.given, ctx.attended = [], []
        return of_qkv, None, None, None, None, None, None


def _by_group(tensor: Tensor, layout: Layout) -> list[Tensor]:
    """Rows that stand one behind the other, `[…, D]`, as groups `[rows, heads, width, D]`."""
    heads, size = len(tensor) // layout.places, tensor.shape[1]
    shapes = [(group.stop - group.start, heads, int(layout.widths[group.start]), size) for group in layout.groups]
    parts = torch.split_with_sizes(tensor, [rows * heads * width for rows, _, width, _ in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _halves(tensor: Tensor, size: int) -> Any:
    """`[…, heads·size]` or `[…, size]` as an array `[…, 2, size/2]`: a head's halves are turned together."""
    lead = tensor.shape[:-1] if tensor.shape[-1] == size else (*tensor.shape[:-1], tensor.shape[-1] // size)
    return tensor.view(*lead, 2, size // 2).numpy()


class _Whole:
    """Causal attention of `[B, heads, W, D]`, put into `mixed`, with its probabilities kept."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, scale: float, mixed: Tensor):
        self.scale = np.float32(scale)
        together = query.shape[0] * key.shape[1], -1, query.shape[3]  # query heads that share a key one below the other
        self.query, self.key, self.value = (tensor.view(together) for tensor in (query, key, value))
        self.probs = torch.bmm(self.query, self.key.transpose(1, 2))
        kernels.causal_softmax(self.probs.view(-1, key.shape[2]).numpy(), self.scale)
        torch.bmm(self.probs, self.value, out=mixed.view(together))

    def backward(self, of_mixed: Tensor, of_query: Tensor, of_key: Tensor, of_value: Tensor) -> None:
        """Puts the gradients into `of_query`, `of_key` and `of_value`."""
        grad, width = of_mixed.view(self.query.shape), self.probs.shape[-1]
        torch.bmm(self.probs.transpose(1, 2), grad, out=of_value.view(self.value.shape))
        of_scores = torch.bmm(grad, self.value.transpose(1, 2))
        kernels.causal_softmax_backward(
            self.probs.view(-1, width).numpy(), of_scores.view(-1, width).numpy(), self.scale
        )
        torch.bmm(of_scores, self.key, out=of_query.view(self.query.shape))
        torch.bmm(of_scores.transpose(1, 2), self.query, out=of_key.view(self.key.shape))


class _ByPieces:
    """The same by torch's kernel, which makes the probabilities twice and keeps none."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, scale: float, mixed: Tensor):
        shared = query.shape[1] != key.shape[1]
        with torch.enable_grad():
            self.rows = query, key, value = [tensor.detach().requires_grad_() for tensor in (query, key, value)]
            self.made = functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=scale, enable_gqa=shared
            )
        mixed.copy_(self.made.detach())

    def backward(self, of_mixed: Tensor, *grads: Tensor) -> None:
        for made, grad in zip(torch.autograd.grad(self.made, self.rows, of_mixed), grads, strict=True):
            grad.copy_(made)


class _Feed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, stream: Tensor, mixed: Tensor, epsilon: float, out: Tensor, norm: Tensor, *mlp: Tensor
    ) -> tuple[Tensor, Tensor]:
        gate, up, down = mlp
        total, normed, scale = _normed(stream, mixed @ out.T, norm, epsilon)
        x, y = normed @ gate.T, normed @ up.T
        gated = torch.empty_like(x)
        kernels.gate(x.numpy(), y.numpy(), gated.numpy())
        ctx.save_for_backward(mixed, total, normed, scale, x, y, out, norm, *mlp)
        return total, gated @ down.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_total: Tensor, of_added: Tensor) -> tuple[Tensor | None, ...]:
        mixed, total, normed, scale, x, y, out, norm, gate, up, down = ctx.saved_tensors
        of_x = of_added @ down
        of_y, gated = torch.empty_like(y), torch.empty_like(x)
        kernels.gate_backward(x.numpy(), y.numpy(), of_x.numpy(), of_y.numpy(), gated.numpy())
        of_normed = (of_x @ gate).addmm_(of_y, up)
        grad, of_norm = _normed_backward(total, norm, scale, of_total, of_normed)
        of_mlp = of_x.T @ normed, of_y.T @ normed, of_added.T @ gated
        return grad, grad @ out, None, grad.T @ mixed, of_norm, *of_mlp
