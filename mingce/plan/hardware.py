"""GPUs, the links between them, and the share of their data sheets that a run is assumed to reach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from mingce.base.errors import SettingError, UnknownNameError
from mingce.plan.units import ceiling


@dataclass(frozen=True)
class Gpu:
    """One GPU by its data sheet: dense FLOP/s, bytes, and bytes per second in one direction."""

    name: str
    memory: float
    flops: float  # in bfloat16
    flops32: float  # in float32, without TF32
    bandwidth: float  # of its own memory
    link: float  # to the GPUs of its node
    network: float  # its share of the node's network cards


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("a100", 80e9, 312e12, 19.5e12, 2.04e12, 300e9, 25e9),
        Gpu("h100", 80e9, 989e12, 67e12, 3.35e12, 450e9, 50e9),
        Gpu("h200", 141e9, 989e12, 67e12, 4.8e12, 450e9, 50e9),
        Gpu("b200", 192e9, 2250e12, 75e12, 8e12, 900e9, 50e9),
        Gpu("mi300x", 192e9, 1307e12, 163e12, 5.3e12, 448e9, 50e9),
        Gpu("rtx4090", 24e9, 165e12, 82e12, 1.01e12, 25e9, 3.1e9),
    )
}


@dataclass(frozen=True)
class Assumptions:
    """What no data sheet says. `--assume name=number` replaces one; `mingce plan` prints those it used with their
    meaning (`assume_…` in texts/sentences/plan).
    """

    train: float = 0.40
    forward: float = 0.45
    decode: float = 0.60
    wires: float = 0.75
    usable: float = 0.90
    hop: float = 5e-6
    launch: float = 5e-4
    store: float = 2e9
    pcie: float = 20e9
    host: float = 15e9
    host_flops: float = 5e11

    def replaced(self, words: Sequence[str]) -> Assumptions:
        """With `name=number` in place of defaults."""
        known = [known.name for known in fields(self)]
        changed: dict[str, float] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in known:
                raise UnknownNameError("assumption", name, known)
            try:
                changed[name] = float(value)
            except ValueError:
                raise SettingError(f"--assume {word} is not NAME=NUMBER; write train=0.45, for example.") from None
            share = name in ("train", "forward", "decode", "wires", "usable")
            if not 0 < changed[name] <= (1 if share else math.inf):
                wanted = "above 0 and at most 1" if share else "above 0"
                raise SettingError(f"--assume {word} is outside its range; {name} must be {wanted}.")
        return replace(self, **changed)


@dataclass(frozen=True)
class Cluster:
    """GPUs in nodes, one rank each. `role_ranks` are those of roles that run on GPUs of their own; the actor has the
    rest, samples there, and shares them with the other roles.
    """

    gpu: Gpu
    gpus: int
    gpus_per_node: int = 8
    role_ranks: tuple[tuple[str, int], ...] = ()
    assumptions: Assumptions = Assumptions()

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return ceiling(self.gpus, self.gpus_per_node)

    def ranks(self, role: str) -> int:
        """GPUs over which a role is spread."""
        return dict(self.role_ranks).get(role) or self.gpus - sum(ranks for _, ranks in self.role_ranks)

    def shares_actor(self, role: str) -> bool:
        """Whether a role shares the actor's ranks."""
        return role not in dict(self.role_ranks)

    @property
    def usable(self) -> float:
        """Bytes of a GPU for tensors."""
        return self.gpu.memory * self.assumptions.usable

    def ring_rate(self, ranks: int) -> float:
        """Bytes per second through each rank in a collective over `ranks`.

        Within a node the link decides. Across nodes rings go out through every card of a node, so a node's cards
        together stand against one GPU's link.
        """
        rate = self.gpu.link
        if ranks > self.gpus_per_node:
            rate = min(rate, self.gpus_per_node * self.gpu.network)
        return rate * self.assumptions.wires

    def grown(self, gpus: int) -> Cluster:
        """The same kind of cluster with another number of GPUs, every pool's share kept."""
        role_ranks = tuple((role, max(1, round(ranks * gpus / self.gpus))) for role, ranks in self.role_ranks)
        return replace(self, gpus=gpus, role_ranks=role_ranks)
