"""A plan as tables of text in a person's language; the command draws them, the docs hold them as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from mingce.lang import say
from mingce.numbers import show_bytes, show_count, show_seconds, significant
from mingce.plan.growth import Point
from mingce.plan.memory import Parts, RankMemory
from mingce.plan.plan import Plan


@dataclass(frozen=True)
class Table:
    """Rows of text under a title. `shares` are the lengths of bars, and `names` say what each row is about."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    names: list[str]
    shares: list[float]


_STAY = ("weights", "gradients", "optimizer")
_ADD = ("gathered", "activations", "workspace", "cache", "ledger")
_WORDS = {
    "weights": ("权重", "weights"),
    "gradients": ("梯度", "gradients"),
    "optimizer": ("优化器", "optimizer"),
    "gathered": ("拼齐的权重与梯度", "gathered"),
    "activations": ("激活", "activations"),
    "workspace": ("临时", "workspace"),
    "cache": ("KV 缓存", "KV cache"),
    "ledger": ("账本", "ledger"),
    "actor": ("策略 actor", "actor"),
    "critic": ("价值 critic", "critic"),
    "reference": ("参考", "reference"),
    "sampler": ("采样用整份权重", "sampler, whole weights"),
    "generate": ("生成", "generate"),
    "score": ("打分", "score"),
    "log_probs": ("对数概率", "log_probs"),
    "ref_log_probs": ("参考对数概率", "ref_log_probs"),
    "values": ("价值", "values"),
    "update_critic": ("更新 critic", "update_critic"),
    "update_actor": ("更新 actor", "update_actor"),
    "refresh": ("刷新采样权重", "refresh"),
}
_ORDER = list(_WORDS)


def word(name: str, lang: str) -> str:
    """A role, stage or kind as a person calls it."""
    return say(lang, *_WORDS[name])


def heading(plan: Plan, lang: str) -> str:
    """Model, cluster and batch in one line."""
    job, cluster = plan.job, plan.cluster
    size = show_count(job.actor.shape.parameters)
    gpus = f"{cluster.gpus} × {cluster.gpu.name} ({show_bytes(cluster.gpu.memory)})"
    dtype = f"{8 * job.precision.stored}/{8 * job.precision.compute}"
    return say(
        lang,
        f"{job.actor.shape.name}（{size} 参数，{dtype} 位存储/计算）· {gpus}，{cluster.nodes} 个节点 · "
        f"每步 {job.rollouts} 条，提示 ≤ {job.longest.prompt}、回答 ≤ {job.longest.response} token",
        f"{job.actor.shape.name} ({size} parameters, {dtype} bits stored/computed) · {gpus} in {cluster.nodes} "
        f"node{'s' if cluster.nodes > 1 else ''} · {job.rollouts} rollouts a step, prompts ≤ {job.longest.prompt}, "
        f"responses ≤ {job.longest.response} tokens",
    )


def memory_tables(plan: Plan, lang: str) -> list[Table]:
    """Of each pool: what stays on a rank, and what each stage adds."""
    found = []
    for memory in plan.memory:
        where = "" if len(plan.memory) == 1 else f" · {memory.pool} × {memory.ranks}"
        found += [_resident(plan, memory, lang, where), _stages(plan, memory, lang, where)]
    return found


def _resident(plan: Plan, memory: RankMemory, lang: str, where: str) -> Table:
    columns = (
        say(lang, "每个 rank 常驻", "stays on a rank"),
        *(word(kind, lang) for kind in _STAY),
        say(lang, "合计", "sum"),
    )
    names = list(memory.resident)
    rows = [
        (word(name, lang), *_cells(memory.resident[name], _STAY), show_bytes(sum(memory.resident[name].values())))
        for name in names
    ]
    shares = [sum(memory.resident[name].values()) / plan.cluster.usable for name in names]
    return Table(say(lang, "内存", "Memory") + where, columns, rows, names, shares)


def _stages(plan: Plan, memory: RankMemory, lang: str, where: str) -> Table:
    kinds = [kind for kind in _ADD if any(parts.get(kind) for parts in memory.stages.values())]
    columns = (
        say(lang, "各阶段另加", "a stage adds"),
        *(word(kind, lang) for kind in kinds),
        say(lang, "峰值", "peak"),
    )
    names = sorted(memory.stages, key=_ORDER.index)
    rows = [(word(name, lang), *_cells(memory.stages[name], kinds), show_bytes(memory.peak(name))) for name in names]
    shares = [memory.peak(name) / plan.cluster.usable for name in names]
    return Table(say(lang, "内存，按阶段", "Memory by stage") + where, columns, rows, names, shares)


def _cells(parts: Parts, kinds: Sequence[str]) -> tuple[str, ...]:
    return tuple(show_bytes(parts[kind]) if parts.get(kind) else "" for kind in kinds)


def activations_table(plan: Plan, lang: str) -> Table:
    """Activations with and without checkpointing."""
    names = list(plan.activations)
    columns = (
        say(lang, "一个 micro-batch 的激活", "activations of a micro-batch"),
        say(lang, "全部保留", "all kept"),
        say(lang, "重算（checkpointing）", "with checkpointing"),
    )
    rows = [(word(name, lang), *(show_bytes(kept) for kept in plan.activations[name])) for name in names]
    shares = [plan.activations[name][plan.job.checkpointing] / plan.cluster.usable for name in names]
    return Table(say(lang, "激活", "Activations"), columns, rows, names, shares)


def time_table(plan: Plan, lang: str) -> Table:
    """Traffic and time by stage."""
    sent = {stage.name: 0.0 for stage in plan.speed.stages}
    for flow in plan.flows:
        sent[flow.stage] += flow.bytes
    columns = (
        say(lang, "阶段", "stage"),
        say(lang, "每 rank 发送", "sent by a rank"),
        say(lang, "计算", "computing"),
        say(lang, "通信", "communicating"),
        say(lang, "用时", "takes"),
    )
    rows, names, shares = [], [], []
    for stage in plan.speed.stages:
        parts = (stage.compute, stage.communication)
        cells = tuple(show_seconds(seconds) if seconds else "" for seconds in parts)
        there = show_bytes(sent[stage.name]) if sent[stage.name] else ""
        rows.append((word(stage.name, lang), there, *cells, show_seconds(stage.seconds)))
        names.append(stage.name)
        shares.append(stage.seconds / plan.speed.seconds)
    total = show_seconds(plan.speed.seconds)
    speed = f"{show_count(plan.speed.tokens_per_second)} token/s"
    return Table(say(lang, f"一步 {total}，{speed}", f"A step: {total}, {speed}"), columns, rows, names, shares)


def growth_tables(plan: Plan, lang: str) -> list[Table]:
    """How speed grows with the cluster: with the recipe's batch, and with one that grows along."""
    gpus = plan.cluster.gpus
    same = say(lang, "GPU 增减，batch 不变", "More GPUs, the same batch")
    growing = say(
        lang,
        f"GPU 增减，batch 同比（{gpus} 张时为配方的）",
        f"More GPUs, a batch in proportion (the recipe's at {gpus})",
    )
    return [_growth(plan.same_batch, same, lang), _growth(plan.growing_batch, growing, lang)]


def _growth(points: Sequence[Point], title: str, lang: str) -> Table:
    columns = (
        "GPU",
        say(lang, "每卡需要", "a GPU needs"),
        say(lang, "每步条数", "rollouts"),
        say(lang, "每步", "a step"),
        "token/s",
        say(lang, "每卡效率", "speed a GPU"),
        say(lang, "其中生成", "generating"),
        say(lang, "训练通信/计算", "comm./comp."),
    )
    first = points[0].speed.tokens_per_second / points[0].gpus
    fastest = max(point.speed.tokens_per_second for point in points)
    rows: list[tuple[str, ...]] = []
    for point in points:
        speed = point.speed
        compute, communication = speed.learning
        rows.append(
            (
                str(point.gpus),
                show_bytes(point.peak) + ("" if point.fits else say(lang, " 放不下", " too much")),
                str(point.rollouts),
                show_seconds(speed.seconds),
                show_count(speed.tokens_per_second),
                f"{speed.tokens_per_second / point.gpus / first:.0%}",
                f"{speed.stages[0].seconds / speed.seconds:.0%}",
                f"{communication / compute:.2f}",
            )
        )
    names = ["fits" if point.fits else "full" for point in points]
    return Table(title, columns, rows, names, [point.speed.tokens_per_second / fastest for point in points])


def assumptions_table(plan: Plan, lang: str) -> Table:
    """What was taken for granted."""
    gpu, assumed = plan.cluster.gpu, plan.cluster.assumptions
    flops = gpu.flops32 if plan.job.precision.compute == 4 else gpu.flops
    rows: list[tuple[str, ...]] = [
        ("FLOP/s", significant(flops / 1e12) + " T", gpu.name),
        ("bandwidth", show_bytes(gpu.bandwidth) + "/s", say(lang, "显存带宽", "of its own memory")),
        ("link", show_bytes(gpu.link) + "/s", say(lang, "节点内每卡单向", "to the GPUs of its node, one direction")),
        (
            "network",
            show_bytes(gpu.network) + "/s",
            say(lang, "节点间每卡单向", "to other nodes, a GPU, one direction"),
        ),
    ]
    rows += [
        (f.name, f"{getattr(assumed, f.name):g}", say(lang, f.metadata["zh"], f.metadata["en"]))
        for f in fields(assumed)
    ]
    names = [name for name, *_ in rows]
    columns = (say(lang, "假设", "assumption"), say(lang, "值", "value"), say(lang, "含义", "meaning"))
    return Table(say(lang, "假设（--assume 可改）", "Assumptions (--assume changes them)"), columns, rows, names, [])


def markdown(table: Table) -> str:
    """A table as Markdown."""
    lines = [f"| {' | '.join(table.columns)} |", "|---|" + "---:|" * (len(table.columns) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in table.rows)])
