"""Seconds of a step by stage, from FLOPs, bytes and the share of the hardware's speed that is reached.

Gathers of the next layer run beside the work on this one, so a stage takes the longer of computing and communicating.
"""

from __future__ import annotations

from dataclasses import dataclass

from mingce.plan.hardware import Cluster
from mingce.plan.job import Job, Learning
from mingce.plan.roles import RoleModel
from mingce.plan.traffic import flows, passes
from mingce.plan.units import ceiling


@dataclass(frozen=True)
class Stage:
    """Seconds of one stage."""

    name: str
    compute: float
    communication: float
    beside: float = 0.0  # what follows both: the optimizer, sending the ledger, copies from the host

    @property
    def seconds(self) -> float:
        return max(self.compute, self.communication) + self.beside


@dataclass(frozen=True)
class Speed:
    """A step's time."""

    stages: tuple[Stage, ...]
    tokens: int  # response tokens of a step
    generated: int  # the same with those of greedy answers, which are scored and not learned from

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    @property
    def tokens_per_second(self) -> float:
        """Response tokens, as `perf/tokens_per_second` counts them."""
        return self.tokens / self.seconds

    @property
    def learning(self) -> tuple[float, float]:
        """(computing, communicating) seconds of scoring and updating."""
        stages = [stage for stage in self.stages if stage.name not in ("generate", "score", "refresh")]
        return sum(stage.compute for stage in stages), sum(stage.communication for stage in stages)


def step_speed(job: Job, cluster: Cluster) -> Speed:
    """How long a step takes."""
    wires: dict[str, float] = {}
    ways: dict[str, float] = {}
    for flow in flows(job, cluster):
        into = ways if flow.kind == "ledger" else wires
        into[flow.stage] = into.get(flow.stage, 0.0) + flow.seconds(cluster)
    stages = [Stage("generate", generate_seconds(job, cluster), 0.0)]
    if job.reward is not None:
        flops = ceiling(job.answers, cluster.ranks("actor")) * forward_flops(job.reward, job)
        stages.append(Stage("score", flops / cluster.assumptions.host_flops, 0.0))
    scored = {"log_probs": job.actor, "ref_log_probs": job.actor if job.shares_reference else job.reference}
    scored["values"] = job.critic
    for name, role in scored.items():
        if role is not None:
            stages.append(Stage(name, _scoring(job, cluster, role), wires.get(name, 0.0), ways.get(name, 0.0)))
    for name, role, learning in (
        ("update_critic", job.critic, job.critic_learning),
        ("update_actor", job.actor, job.actor_learning),
    ):
        if role is not None:
            after = ways.get(name, 0.0) + _optimizer(job, cluster, role, learning)
            stages.append(Stage(name, _update(job, cluster, role, learning), wires.get(name, 0.0), after))
    if "refresh" in wires:
        stages.append(Stage("refresh", 0.0, wires["refresh"]))
    return Speed(tuple(stages), job.rollouts * job.expected.response, job.answers * job.expected.response)


def forward_flops(role: RoleModel, job: Job) -> float:
    """A pass over one row: two for every weight a token meets, and attention to the tokens before it."""
    return _layers_flops(role, job) + _head_flops(role, job)


def _layers_flops(role: RoleModel, job: Job) -> float:
    shape, length = role.shape, job.expected.row
    matrices = sum(weight.count for weight in role.layer if weight.matrix)
    return shape.layers * (2.0 * matrices * length + 2.0 * shape.attention_width * length**2)


def _head_flops(role: RoleModel, job: Job) -> float:
    """The output layer, on tokens that are scored only."""
    if role.scores_tokens:
        return 2.0 * role.shape.output.count * job.expected.response
    return 2.0 * role.shape.hidden * job.expected.row


def update_flops(role: RoleModel, job: Job) -> float:
    """Forward and backward over one row: backward costs twice a forward pass, once where weights are frozen; logits,
    and with checkpointing all layers, are computed once more.
    """
    back = 1.0 if role.has_adapters else 2.0
    again = 1.0 if job.checkpointing else 0.0
    head = 1.0 if role.scores_tokens else 0.0
    return _layers_flops(role, job) * (1 + back + again) + _head_flops(role, job) * (1 + back + head)


def _rate(job: Job, cluster: Cluster) -> float:
    return cluster.gpu.flops32 if job.precision.compute == 4 else cluster.gpu.flops


def _scoring(job: Job, cluster: Cluster, role: RoleModel) -> float:
    rows = ceiling(job.rollouts, cluster.ranks(role.name))
    return rows * forward_flops(role, job) / (_rate(job, cluster) * cluster.assumptions.forward)


def _update(job: Job, cluster: Cluster, role: RoleModel, learning: Learning) -> float:
    rows = ceiling(min(job.rollouts, learning.minibatch_rollouts), cluster.ranks(role.name))
    flops = job.minibatches(learning) * rows * update_flops(role, job)
    return flops / (_rate(job, cluster) * cluster.assumptions.train)


def _optimizer(job: Job, cluster: Cluster, role: RoleModel, learning: Learning) -> float:
    """AdamW reads weights, gradients and moments and writes all but gradients; on the host with offload, whose shards
    also travel to the GPU for every pass.
    """
    ranks, times = cluster.ranks(role.name), job.minibatches(learning)
    touched = 7.0 * role.shard(ranks, learning=True) * job.precision.stored
    if not job.offload or cluster.gpus == 1:
        return times * touched / (cluster.gpu.bandwidth * cluster.assumptions.decode)
    rounds = times * passes(job, ranks, min(job.rollouts, learning.minibatch_rollouts))
    moved = rounds * (2 * role.shard(ranks) + role.shard(ranks, learning=True)) * job.precision.stored
    return times * touched / cluster.assumptions.host + moved / cluster.assumptions.pcie


def generate_seconds(job: Job, cluster: Cluster) -> float:
    """Drawing all samples of the prompts and then, for estimators that read it, the greedy answer to each."""
    return sum(_draw_seconds(job, cluster, samples) for samples in (job.samples, *([1] if job.greedy else [])))


def _draw_seconds(job: Job, cluster: Cluster, samples: int) -> float:
    """So many responses to each prompt: it is read, then every token of the longest is one more pass over all weights.

    A decoding step takes the longest of three: reading weights and cache from memory, the arithmetic, and Python, which
    issues it layer by layer. Where several queries share a key, the cache is repeated for them at every step.
    """
    assumed, gpu, shape = cluster.assumptions, cluster.gpu, job.actor.shape
    prompts = ceiling(job.prompts, cluster.ranks("actor"))
    rows, size = prompts * samples, job.precision.stored
    rate = gpu.flops32 if size == 4 else gpu.flops
    matrices = shape.layers * sum(weight.count for weight in shape.layer if weight.matrix)
    reading = 2.0 * matrices * prompts * job.expected.prompt / (rate * assumed.forward)
    rounds = ceiling(rows, job.decoded_rows)
    steps = job.longest.response  # the longest row decides; rows that have ended cost nothing more
    alive = rows / rounds * job.expected.response / steps
    attended = job.expected.prompt + job.expected.response / 2
    cache = 2.0 * shape.layers * alive * attended * shape.kv_width * size
    repeated = 2.0 * cache * shape.heads / shape.kv_heads if shape.heads > shape.kv_heads else 0.0
    weights = (matrices + shape.output.count) * size
    step = max(
        (weights + cache + repeated) / (gpu.bandwidth * assumed.decode),
        2.0 * (matrices + shape.output.count) * alive / (rate * assumed.forward),
        shape.layers * assumed.launch,
    )
    return reading + rounds * steps * step
