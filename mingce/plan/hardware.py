"""GPUs, the links between them, and what share of their promises is taken to be kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from mingce.base.errors import SettingError, UnknownNameError
from mingce.plan.units import ceiling


@dataclass(frozen=True)
class Gpu:
    """One GPU by its data sheet: dense FLOP/s, bytes, and bytes a second in one direction."""

    name: str
    memory: float
    flops: float
    """In bfloat16."""
    flops32: float
    """In float32, without TF32."""
    bandwidth: float
    """Of its own memory."""
    link: float
    """To the GPUs of its node."""
    network: float
    """Its share of the node's network cards."""


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


def _assumed(default: float, en: str, zh: str) -> float:
    return field(default=default, metadata={"en": en, "zh": zh})


@dataclass(frozen=True)
class Assumptions:
    """What no data sheet says. `--assume name=number` replaces one; `mingce plan` prints those it used."""

    train: float = _assumed(0.40, "share of the FLOP/s that an update reaches", "更新时达到的算力比例")
    forward: float = _assumed(0.45, "share of the FLOP/s in passes without a gradient", "无梯度前向时达到的算力比例")
    decode: float = _assumed(0.60, "share of the memory bandwidth in decoding", "解码时达到的显存带宽比例")
    wires: float = _assumed(0.75, "share of the link and network bandwidth in collectives", "集合通信达到的带宽比例")
    usable: float = _assumed(
        0.90,
        "share of the memory for tensors; the rest is the driver's, NCCL's and lost to fragments",
        "张量可用的显存比例；其余归驱动、NCCL 与碎片",
    )
    hop: float = _assumed(5e-6, "seconds a collective takes for each rank it passes", "集合通信每经过一个 rank 的秒数")
    launch: float = _assumed(
        5e-4, "seconds Python takes to issue one layer of one decoding step", "解码一步中 Python 发出一层所需的秒数"
    )
    store: float = _assumed(
        2e9,
        "bytes a second at which a node gets the ledger from Ray's object store",
        "节点从 Ray 对象存储取账本的每秒字节",
    )
    pcie: float = _assumed(
        20e9, "bytes a second between GPU and host, with CPU offload", "GPU 与主机间每秒字节（CPU offload）"
    )
    host: float = _assumed(
        15e9,
        "bytes a second of AdamW on the host, a rank, with CPU offload",
        "主机上 AdamW 每个 rank 每秒字节（CPU offload）",
    )
    host_flops: float = _assumed(
        5e11, "FLOP/s of a rank's cores, on which a reward model runs", "每个 rank 的 CPU 算力（奖励模型在其上运行）"
    )

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
    """GPUs in nodes, one rank each. Roles named in `own` have so many of them to themselves; the actor has the rest,
    samples there, and houses whoever has none.
    """

    gpu: Gpu
    gpus: int
    gpus_per_node: int = 8
    own: tuple[tuple[str, int], ...] = ()
    assumptions: Assumptions = Assumptions()

    @property
    def nodes(self) -> int:
        """Nodes that it takes."""
        return ceiling(self.gpus, self.gpus_per_node)

    def ranks(self, role: str) -> int:
        """GPUs over which a role is spread."""
        return dict(self.own).get(role) or self.gpus - sum(ranks for _, ranks in self.own)

    def together(self, role: str) -> bool:
        """Whether a role is housed with the actor."""
        return role not in dict(self.own)

    @property
    def usable(self) -> float:
        """Bytes of a GPU for tensors."""
        return self.gpu.memory * self.assumptions.usable

    def ring_rate(self, ranks: int) -> float:
        """Bytes a second through each rank in a collective over `ranks`.

        Within a node the link decides. Across nodes rings go out through every card of a node, so a node's cards
        together stand against one GPU's link.
        """
        rate = self.gpu.link
        if ranks > self.gpus_per_node:
            rate = min(rate, self.gpus_per_node * self.gpu.network)
        return rate * self.assumptions.wires

    def grown(self, gpus: int) -> Cluster:
        """The same kind of cluster with another number of GPUs, every pool's share kept."""
        own = tuple((role, max(1, round(ranks * gpus / self.gpus))) for role, ranks in self.own)
        return replace(self, gpus=gpus, own=own)
