"""A model as the list of its weights: what there is to store, to send and to multiply."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from mingce.plan.units import ceiling


@dataclass(frozen=True)
class Weight:
    """One parameter tensor. `matrix` marks those that tokens are multiplied with: linear layers, not embeddings."""

    name: str
    size: tuple[int, ...]
    matrix: bool = False
    learns: bool = True

    @cached_property
    def count(self) -> int:
        return math.prod(self.size)

    def shard(self, ranks: int) -> int:
        """The most of its numbers a rank holds: FSDP2 cuts the first dimension into equal parts, the last padded."""
        return ceiling(self.size[0], ranks) * math.prod(self.size[1:])


@dataclass(frozen=True)
class ModelShape:
    """A decoder-only transformer: `layers` equal blocks between an embedding and an output layer."""

    name: str
    family: str
    dtype: str  # what its weights come in
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int  # width of the feed-forward part
    layer: tuple[Weight, ...]  # weights of one block
    ends: tuple[Weight, ...]
    """Weights outside the blocks: embeddings, the last norm, and the output layer unless it is the embedding."""
    output: Weight  # the output layer `[V, D]`, in `ends` or tied to the embedding
    activation: str
    gated: bool
    norms: int  # how many times a layer normalises its states
    rms_norm: bool
    qk_norm: bool
    parallel: bool  # attention and feed-forward read the same input (GPT-NeoX)
    keeps_qkv: bool
    """Values are a part of one product with queries and keys, whose rotated copies are kept beside it (GPT-NeoX)."""
    experts: int = 1  # feed-forward parts of a layer, of which a token goes through some; all of them count as its work

    @property
    def parameters(self) -> int:
        """All of its numbers, a tied output layer counted once."""
        return self.layers * sum(w.count for w in self.layer) + sum(w.count for w in self.ends)

    @property
    def tied(self) -> bool:
        """Whether the output layer is the embedding."""
        return self.output not in self.ends

    @property
    def attention_width(self) -> int:
        """Numbers of all queries of a token."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Numbers of all keys of a token; its values are as many."""
        return self.kv_heads * self.head_dim


def shape_values(shape: ModelShape) -> dict[str, Any]:
    """A shape as JSON keeps it: a weight is its name, its size and whether it is a matrix."""
    values = asdict(shape)
    for part in ("layer", "ends"):
        values[part] = [[w["name"], w["size"], w["matrix"]] for w in values[part]]
    return values | {"output": [shape.output.name, shape.output.size, shape.output.matrix]}


def shape_of_values(values: Mapping[str, Any]) -> ModelShape:
    """The shape that `shape_values` wrote."""
    layer, ends, (output,) = (
        tuple(Weight(name, tuple(size), matrix) for name, size, matrix in part)
        for part in (values["layer"], values["ends"], [values["output"]])
    )
    return ModelShape(**{**values, "layer": layer, "ends": ends, "output": output})
