"""The models a step needs, as FSDP2 holds them: one group of weights a layer, and one for all that is outside.

Actor and critic learn; the reference only scores, and so does a reward model, whole and on the host. With adapters the
actor's own weights are frozen and it is its own reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mingce.base.errors import SettingError
from mingce.plan.shape import ModelShape, Weight


@dataclass(frozen=True)
class Precision:
    """Bytes of a number: as stored (weights, gradients, AdamW's moments, the sampler's copy), and in passes."""

    stored: int
    compute: int


DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
SUMMED = 4
"""Bytes of a gradient while ranks sum it: float32 always."""


@dataclass(frozen=True)
class RoleModel:
    """The model of one role."""

    name: str
    shape: ModelShape
    layer: tuple[Weight, ...]
    ends: tuple[Weight, ...]
    scores_tokens: bool  # whether an output layer over the vocabulary is on top; else one number per state

    def whole(self, *, learning: bool = False) -> int:
        """Its numbers, or those that learn."""
        return self._learning_numbers if learning else self._numbers

    @cached_property
    def _numbers(self) -> int:
        return self.shape.layers * count(self.layer) + count(self.ends)

    @cached_property
    def _learning_numbers(self) -> int:
        return self.shape.layers * count(self.layer, True) + count(self.ends, True)

    def shard(self, ranks: int, *, learning: bool = False) -> int:
        """The most of them that one rank holds."""
        return self.shape.layers * shard(self.layer, ranks, learning) + shard(self.ends, ranks, learning)

    @property
    def learns(self) -> bool:
        """Whether it has a gradient and an optimizer."""
        return self.whole(learning=True) > 0

    @property
    def has_adapters(self) -> bool:
        """Whether only a part of it learns."""
        return self.learns and self.whole(learning=True) < self.whole()


def count(weights: Iterable[Weight], learning: bool = False) -> int:
    """Numbers in weights, or in those that learn."""
    return sum(weight.count for weight in weights if weight.learns or not learning)


def shard(weights: Iterable[Weight], ranks: int, learning: bool = False) -> int:
    """The same for the largest shard; `ranks` times it is what a collective moves, padding included."""
    return sum(weight.shard(ranks) for weight in weights if weight.learns or not learning)


def actor(shape: ModelShape, rank: int = 0, targets: Sequence[str] = ()) -> RoleModel:
    """The policy, learning as a whole, or frozen with adapters of a rank on the named layers (none: all linear)."""
    if rank == 0:
        return RoleModel("actor", shape, shape.layer, shape.ends, scores_tokens=True)
    layer = _adapted(shape.layer, rank, targets)
    ends = _adapted(shape.ends, rank, targets) if targets else _frozen(shape.ends)
    if not count(layer, True) + count(ends, True):
        raise SettingError(f"model.lora.target_modules names no layer of {shape.name}: {', '.join(targets)}.")
    return RoleModel("actor", shape, layer, ends, scores_tokens=True)


def critic(shape: ModelShape, rank: int = 0, targets: Sequence[str] = ()) -> RoleModel:
    """A backbone with a value head, all of it learning, or the head and adapters of a rank."""
    head = Weight("head.weight", (1, shape.hidden), matrix=True), Weight("head.bias", (1,))
    layer = _adapted(shape.layer, rank, targets) if rank else shape.layer
    ends = _frozen(_backbone_ends(shape)) if rank else _backbone_ends(shape)
    return RoleModel("critic", shape, layer, (*ends, *head), scores_tokens=False)


def reference(shape: ModelShape) -> RoleModel:
    """The policy as it was, frozen."""
    return RoleModel("reference", shape, _frozen(shape.layer), _frozen(shape.ends), scores_tokens=True)


def reward_model(shape: ModelShape) -> RoleModel:
    """A sequence classifier with one output, frozen."""
    ends = (*_backbone_ends(shape), Weight("score.weight", (1, shape.hidden), matrix=True))
    return RoleModel("reward", shape, _frozen(shape.layer), _frozen(ends), scores_tokens=False)


def _backbone_ends(shape: ModelShape) -> tuple[Weight, ...]:
    return tuple(weight for weight in shape.ends if weight != shape.output)


def _frozen(weights: Iterable[Weight]) -> tuple[Weight, ...]:
    return tuple(replace(weight, learns=False) for weight in weights)


def _adapted(weights: Sequence[Weight], rank: int, targets: Sequence[str]) -> tuple[Weight, ...]:
    """Frozen weights, and two factors beside each linear layer that is adapted."""
    adapters = []
    for weight in weights:
        name = weight.name.removesuffix(".weight")
        meant = not targets or any(name == target or name.endswith("." + target) for target in targets)
        if weight.matrix and meant and len(weight.size) == 2:  # PEFT leaves experts out
            out, into = weight.size
            adapters.append(Weight(f"{name}.lora_A", (rank, into), matrix=True))
            adapters.append(Weight(f"{name}.lora_B", (out, rank), matrix=True))
    return (*_frozen(weights), *adapters)
