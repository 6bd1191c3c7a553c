"""A plan as tables of text in a person's language; the command draws them, the docs hold them as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from mingce.base.numbers import show_bytes, show_count, show_seconds, significant
from mingce.base.texts import sentence
from mingce.plan.growth import Point
from mingce.plan.memory import Parts, RankMemory
from mingce.plan.notes import sentences
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
_STAGES = (
    "generate", "score", "log_probs", "ref_log_probs", "values", "update_critic", "update_actor", "refresh",
)  # fmt: skip


def _words(lang: str, *names: str) -> tuple[str, ...]:
    """Roles, stages, kinds and headings as a person calls them."""
    return tuple(sentence(f"plan.{name}", lang) for name in names)


def heading(plan: Plan, lang: str) -> str:
    """Model, cluster and batch in one line."""
    job, cluster = plan.job, plan.cluster
    return sentence(
        "plan.heading",
        lang,
        name=job.actor.shape.name,
        size=show_count(job.actor.shape.parameters),
        bits=f"{8 * job.precision.stored}/{8 * job.precision.compute}",
        gpus=f"{cluster.gpus} × {cluster.gpu.name} ({show_bytes(cluster.gpu.memory)})",
        nodes=sentence("plan.nodes" if cluster.nodes > 1 else "plan.one_node", lang, count=cluster.nodes),
        rollouts=job.rollouts,
        prompt=job.longest.prompt,
        response=job.longest.response,
    )


def memory_tables(plan: Plan, lang: str) -> list[Table]:
    """For each pool: what stays on a rank, and what each stage adds."""
    tables = []
    for memory in plan.memory:
        where = "" if len(plan.memory) == 1 else f" · {memory.pool} × {memory.ranks}"
        tables += [_resident(plan, memory, lang, where), _stages(plan, memory, lang, where)]
    return tables


def _resident(plan: Plan, memory: RankMemory, lang: str, where: str) -> Table:
    names = list(memory.resident)
    sums = [sum(parts.values()) for parts in memory.resident.values()]
    rows = [
        (*_words(lang, name), *_cells(parts, _STAY), show_bytes(total))
        for (name, parts), total in zip(memory.resident.items(), sums, strict=True)
    ]
    shares = [total / plan.cluster.usable for total in sums]
    return Table(sentence("plan.memory", lang) + where, _words(lang, "stays", *_STAY, "sum"), rows, names, shares)


def _stages(plan: Plan, memory: RankMemory, lang: str, where: str) -> Table:
    kinds = [kind for kind in _ADD if any(parts.get(kind) for parts in memory.stages.values())]
    names = sorted(memory.stages, key=_STAGES.index)
    rows = [(*_words(lang, name), *_cells(memory.stages[name], kinds), show_bytes(memory.peak(name))) for name in names]
    shares = [memory.peak(name) / plan.cluster.usable for name in names]
    columns = _words(lang, "adds", *kinds, "peak")
    return Table(sentence("plan.memory_by_stage", lang) + where, columns, rows, names, shares)


def _cells(parts: Parts, kinds: Sequence[str]) -> tuple[str, ...]:
    return tuple(show_bytes(parts[kind]) if parts.get(kind) else "" for kind in kinds)


def activations_table(plan: Plan, lang: str) -> Table:
    """Activations with and without checkpointing."""
    names = list(plan.activations)
    rows = [(*_words(lang, name), *map(show_bytes, plan.activations[name])) for name in names]
    shares = [plan.activations[name][plan.job.checkpointing] / plan.cluster.usable for name in names]
    columns = _words(lang, "micro_batch", "all_kept", "checkpointing")
    return Table(sentence("plan.activations_title", lang), columns, rows, names, shares)


def time_table(plan: Plan, lang: str) -> Table:
    """Traffic and time by stage."""
    stages = plan.speed.stages
    rows: list[tuple[str, ...]] = []
    for stage in stages:
        sent = sum(flow.bytes for flow in plan.flows if flow.stage == stage.name)
        parts = (show_seconds(seconds) if seconds else "" for seconds in (stage.compute, stage.communication))
        rows.append((*_words(lang, stage.name), show_bytes(sent) if sent else "", *parts, show_seconds(stage.seconds)))
    speed = f"{show_count(plan.speed.tokens_per_second)} token/s"
    title = sentence("plan.step_time", lang, seconds=show_seconds(plan.speed.seconds), speed=speed)
    columns = _words(lang, "stage", "sent", "computing", "communicating", "takes")
    shares = [stage.seconds / plan.speed.seconds for stage in stages]
    return Table(title, columns, rows, [stage.name for stage in stages], shares)


def growth_tables(plan: Plan, lang: str) -> list[Table]:
    """How speed grows with the cluster: with the recipe's batch, and with one that grows along."""
    growing = sentence("plan.growing_batch", lang, gpus=plan.cluster.gpus)
    return [
        _growth(plan.same_batch, sentence("plan.same_batch", lang), lang),
        _growth(plan.growing_batch, growing, lang),
    ]


def _growth(points: Sequence[Point], title: str, lang: str) -> Table:
    columns = _words(lang, "gpu", "needs", "rollouts", "step", "token_rate", "efficiency", "generating", "ratio")
    first = points[0].speed.tokens_per_second / points[0].gpus
    fastest = max(point.speed.tokens_per_second for point in points)
    rows: list[tuple[str, ...]] = []
    for point in points:
        speed, peak = point.speed, show_bytes(point.peak)
        compute, communication = speed.learning
        row = (
            str(point.gpus),
            peak if point.fits else sentence("plan.too_much", lang, size=peak),
            str(point.rollouts),
            show_seconds(speed.seconds),
            show_count(speed.tokens_per_second),
            f"{speed.tokens_per_second / point.gpus / first:.0%}",
            f"{speed.stages[0].seconds / speed.seconds:.0%}",
            f"{communication / compute:.2f}",
        )
        rows.append(row)
    names = ["fits" if point.fits else "full" for point in points]
    return Table(title, columns, rows, names, [point.speed.tokens_per_second / fastest for point in points])


def assumptions_table(plan: Plan, lang: str) -> Table:
    """What was taken for granted."""
    gpu, assumed = plan.cluster.gpu, plan.cluster.assumptions
    flops = gpu.flops32 if plan.job.precision.compute == 4 else gpu.flops
    rows: list[tuple[str, ...]] = [("FLOP/s", significant(flops / 1e12) + " T", gpu.name)]
    for name in ("bandwidth", "link", "network"):
        rows.append((name, show_bytes(getattr(gpu, name)) + "/s", *_words(lang, name)))
    for name in (field.name for field in fields(assumed)):
        rows.append((name, f"{getattr(assumed, name):g}", *_words(lang, f"assume_{name}")))
    columns = _words(lang, "assumption", "value", "meaning")
    return Table(sentence("plan.assumptions", lang), columns, rows, [name for name, *_ in rows], [])


def markdown(table: Table) -> str:
    """A table as Markdown."""
    lines = [f"| {' | '.join(table.columns)} |", "|---|" + "---:|" * (len(table.columns) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in table.rows)])


def page(plan: Plan, lang: str) -> str:
    """The plan as Markdown."""
    tables = [*memory_tables(plan, lang), activations_table(plan, lang), time_table(plan, lang)]
    tables += growth_tables(plan, lang)
    listed = "\n".join(f"- {note}" for note in sentences(plan, lang))
    return "\n\n".join([heading(plan, lang), listed, *(f"**{table.title}**\n\n{markdown(table)}" for table in tables)])
