"""What a person should know about a plan beyond its tables: sentences in both languages, the gravest first."""

from __future__ import annotations

from dataclasses import dataclass

from mingce.base.lang import say
from mingce.base.numbers import show_bytes, show_seconds
from mingce.plan.plan import Plan
from mingce.plan.tables import word
from mingce.plan.units import ceiling


@dataclass(frozen=True)
class Note:
    """A sentence; `grave` when the run would not work."""

    text: str
    grave: bool = False


def verdict(plan: Plan, lang: str) -> Note:
    """Whether it fits, during a step and before the first."""
    fullest = max(plan.memory, key=lambda memory: memory.peak())
    peak, usable = show_bytes(fullest.peak()), show_bytes(plan.cluster.usable)
    start = show_bytes(max(memory.start for memory in plan.memory))
    if not plan.fit.step:
        zh = f"放不下：{word(fullest.worst, lang)}阶段需 {peak}，每卡可用 {usable}。"
        return Note(
            say(lang, zh, f"It does not fit: {fullest.worst} needs {peak} of {usable} usable a GPU."), grave=True
        )
    if not plan.fit.start:
        zh = f"一步放得下（每卡 {peak}，可用 {usable}），但启动不了：切分前每个 rank 有两份整模型，共 {start}。"
        en = (
            f"A step fits ({peak} of {usable} usable a GPU), but it cannot start: before its models are cut, a rank "
            f"of engine=ray holds two whole ones, {start}."
        )
        return Note(say(lang, zh, en), grave=True)
    return Note(
        say(lang, f"放得下：每卡最多 {peak}，可用 {usable}。", f"It fits: at most {peak} of {usable} usable a GPU.")
    )


def notes(plan: Plan, lang: str) -> list[Note]:
    """What follows from the numbers."""
    return [
        *_micro_batch(plan, lang),
        *_precision(plan, lang),
        *_padding(plan, lang),
        *_idle(plan, lang),
        *_reward(plan, lang),
        *_experts(plan, lang),
        *_time(plan, lang),
    ]


def _micro_batch(plan: Plan, lang: str) -> list[Note]:
    largest, asked = plan.fit.micro_batch_tokens, plan.job.micro_batch_tokens
    found = []
    if largest == 0:
        row = plan.job.longest.row
        found.append(
            Note(
                say(
                    lang,
                    f"连一行 {row} token 都放不下：加 GPU、开 ray.activation_checkpointing，或缩短长度。",
                    f"Not even one row of {row} tokens goes in: more GPUs, ray.activation_checkpointing=true or "
                    "shorter rows would help.",
                ),
                grave=True,
            )
        )
    elif largest < asked and not plan.fit.step:
        found.append(
            Note(
                say(
                    lang,
                    f"micro_batch_tokens 最大 {largest}（配方为 {asked}）；通信与时间按最大值计算。",
                    f"The largest micro_batch_tokens is {largest} (the recipe has {asked}); traffic and time are for "
                    "that one.",
                )
            )
        )
    elif largest > asked:
        found.append(
            Note(
                say(
                    lang,
                    f"micro_batch_tokens 可到 {largest}（配方为 {asked}）：次数少，通信也少。",
                    f"micro_batch_tokens may be up to {largest} (the recipe has {asked}): fewer passes, less traffic.",
                )
            )
        )
    rows, decoded = plan.fit.decoded_rows, plan.job.decoded_rows
    each = ceiling(plan.job.prompts, plan.cluster.ranks("actor")) * plan.job.samples
    if rows < min(decoded, each):
        found.append(
            Note(
                say(
                    lang,
                    f"一次最多解码 {rows} 行（sampling.max_rows 为 {decoded}）。",
                    f"At most {rows} rows can be decoded at a time (sampling.max_rows is {decoded}).",
                ),
                grave=rows == 0,
            )
        )
    return found


def _precision(plan: Plan, lang: str) -> list[Note]:
    if plan.job.precision.stored == 4:
        return []
    return [
        Note(
            say(
                lang,
                "权重与动量以 16 位存放，小于 0.2%–0.4% 的更新会丢失；要 float32 权重请设 model.dtype=float32 "
                "ray.mixed_precision=bfloat16（内存加倍）。",
                "Weights and moments are kept in 16 bits, where updates below 0.2–0.4 % of a weight are lost; for "
                "float32 set model.dtype=float32 ray.mixed_precision=bfloat16, at twice the memory.",
            )
        )
    ]


def _padding(plan: Plan, lang: str) -> list[Note]:
    ranks = plan.cluster.ranks("actor")
    extra = ranks * plan.job.actor.shard(ranks) / plan.job.actor.whole() - 1
    if extra < 0.02:
        return []
    even = 1 << (ranks - 1).bit_length()
    return [
        Note(
            say(
                lang,
                f"权重的行数不能被 {ranks} 整除，FSDP2 的填充使内存与通信多 {extra:.0%}；{even} 个 rank 更合算。",
                f"Rows of the weights do not divide by {ranks}, so FSDP2's padding adds {extra:.0%} to shards and "
                f"traffic; {even} ranks would be better.",
            )
        )
    ]


def _idle(plan: Plan, lang: str) -> list[Note]:
    ranks, rollouts = plan.cluster.ranks("actor"), min(plan.job.rollouts, plan.job.actor_learning.minibatch_rollouts)
    if rollouts >= ranks:
        return []
    return [
        Note(
            say(
                lang,
                f"一个 minibatch 只有 {rollouts} 行，{ranks} 个 rank 中有 {ranks - rollouts} 个空转；请加大 batch。",
                f"A minibatch has {rollouts} rollouts for {ranks} ranks, {ranks - rollouts} of which have nothing to "
                "do; raise minibatch_rollouts.",
            )
        )
    ]


def _reward(plan: Plan, lang: str) -> list[Note]:
    if plan.job.reward is None:
        return []
    size = show_bytes(plan.job.reward.whole() * 4)
    return [
        Note(
            say(
                lang,
                f"奖励模型以 float32 整份在每个 rank 的 CPU 上运行（{size}）。",
                f"The reward model runs whole and in float32 on the cores of every rank ({size}).",
            )
        )
    ]


def _experts(plan: Plan, lang: str) -> list[Note]:
    experts = plan.job.actor.shape.experts
    if experts == 1:
        return []
    return [
        Note(
            say(
                lang,
                f"混合专家模型（每层 {experts} 个专家）：没有考虑每个 token 只激活一部分专家，"
                "全部计入运算，因此时间是上限。",
                f"A mixture of experts ({experts} a layer): which of them are active for a token is not modelled; all "
                "count as work, so times are upper bounds.",
            )
        )
    ]


def _time(plan: Plan, lang: str) -> list[Note]:
    found = []
    longest = max(plan.speed.stages, key=lambda stage: stage.seconds)
    share = longest.seconds / plan.speed.seconds
    if longest.name == "generate" and share > 0.5:
        tokens = plan.job.longest.response
        floor = show_seconds(plan.job.actor.shape.layers * plan.cluster.assumptions.launch * tokens)
        found.append(
            Note(
                say(
                    lang,
                    f"生成占 {share:.0%}；解码 {tokens} 个 token 至少 {floor}，加 GPU 不会更快。",
                    f"Generating takes {share:.0%} of a step; {tokens} tokens take at least {floor} however many GPUs "
                    "there are.",
                )
            )
        )
    if plan.turning_point is not None:
        found.append(
            Note(
                say(
                    lang,
                    f"batch 不变时，从 {plan.turning_point} 张 GPU 起，训练等通信的时间超过计算。",
                    f"With the recipe's batch, scoring and updating wait for the wires longer than they compute from "
                    f"{plan.turning_point} GPUs on.",
                )
            )
        )
    else:
        found.append(
            Note(
                say(
                    lang,
                    f"batch 不变时，直到 {plan.most} 张 GPU，训练的通信都少于计算。",
                    f"With the recipe's batch, scoring and updating compute longer than they communicate up to "
                    f"{plan.most} GPUs.",
                )
            )
        )
    return found
