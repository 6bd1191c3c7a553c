"""A linear layer as the passes here compute it: its weight, and the low-rank adapter beside it if it has one (PEFT).

With an adapter y = x·(W + s·B·A)ᵀ. The sum is made anew in every pass: it costs rank/rows of the product itself, which
is then as fast as without an adapter. Gradients go to A and B by way of `[rows, rank]`, so that a frozen W needs
neither the product of its gradient nor room for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from torch import Tensor, nn

from mingce.models.cpu.products import linear, of_weight

FIELDS = 4
"""Tensors of a projection: what a node of the gradient's graph takes and gives gradients of."""


class Projection(NamedTuple):
    """Weight `[out, in]`, bias `[out]`, the adapter's A `[rank, in]` and B `[out, rank]`, and its scale s."""

    weight: Tensor
    bias: Tensor | None = None
    a: Tensor | None = None
    b: Tensor | None = None
    scale: float = 0.0

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.weight, self.bias, self.a, self.b

    def whole(self) -> Tensor:
        """W + s·B·A."""
        return self.weight if self.a is None or self.b is None else self.weight.addmm(self.b, self.a, alpha=self.scale)

    def gradients(self, x: Tensor, of_y: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
        """Those of `tensors` that are needed, from the inputs `[S, in]` and the gradient of the outputs `[S, out]`."""
        weight, bias, a, b = needed
        grads = [of_weight(of_y, x) if weight else None, of_y.sum(0) if bias else None, None, None]
        if self.a is not None and self.b is not None:
            size = self.weight.numel()
            if a:
                grads[2] = of_weight(linear(of_y, self.b.T, size=size), x, size).mul_(self.scale)
            if b:
                # the other way round, for oneDNN is many times slower with few columns than with few rows
                grads[3] = of_weight(linear(x, self.a, size=size), of_y, size).mul_(self.scale).T
        return grads


def projection(module: Any) -> Projection:
    """What a linear layer computes now: its adapter counts unless it is switched off."""
    if type(module) is nn.Linear:
        return Projection(module.weight, module.bias)
    base = module.base_layer
    if module.disable_adapters:
        return Projection(base.weight, base.bias)
    (name,) = module.active_adapters
    return Projection(
        base.weight, base.bias, module.lora_A[name].weight, module.lora_B[name].weight, module.scaling[name]
    )


def qkv_projections(block: Any) -> list[Projection]:
    """Queries, keys and values of an attention block, apart or as one."""
    if hasattr(block, "qkv_proj"):
        return [projection(block.qkv_proj)]
    return [projection(module) for module in (block.q_proj, block.k_proj, block.v_proj)]


def gate_and_up(mlp: Any) -> tuple[Projection, Projection]:
    """Of an MLP, apart or as one, whose first half is the gate."""
    if not hasattr(mlp, "gate_up_proj"):
        return projection(mlp.gate_proj), projection(mlp.up_proj)
    both = projection(mlp.gate_up_proj)
    weights, factors = both.weight.chunk(2), (None, None) if both.b is None else both.b.chunk(2)
    gate, up = (both._replace(weight=weight, b=b) for weight, b in zip(weights, factors, strict=True))
    return gate, up


def restored(scales: Sequence[float], tensors: Sequence[Tensor | None]) -> list[Projection]:
    """Projections from their scales and the tensors of all, one behind the other."""
    fields = [iter(tensors)] * FIELDS
    return [
        Projection(cast(Tensor, weight), bias, a, b, scale)
        for (weight, bias, a, b), scale in zip(zip(*fields, strict=True), scales, strict=True)
    ]


def is_adapter(module: Any) -> bool:
    """Whether it is PEFT's linear layer with one plain adapter beside a plain linear layer."""
    kind = type(module)
    if (kind.__module__, kind.__name__) != ("peft.tuners.lora.layer", "Linear") or module.merged:
        return False
    if type(module.base_layer) is not nn.Linear or module.fan_in_fan_out or len(module.active_adapters) != 1:
        return False
    (name,) = module.active_adapters
    if name not in module.lora_A or name in module.lora_variant or module.lora_B[name].bias is not None:
        return False
    dropout = module.lora_dropout[name]
    return isinstance(dropout, nn.Identity) or (isinstance(dropout, nn.Dropout) and dropout.p == 0)
