"""Bytes that every rank sends in a step, by stage: FSDP2's gathers and sums, the sampler's refresh, the ledger.

In a ring over N ranks each one sends (N − 1)/N of what is gathered or summed, padding included.
"""

from __future__ import annotations

from dataclasses import dataclass

from mingce.plan.hardware import Cluster
from mingce.plan.job import Job, Learning
from mingce.plan.memory import ledger_bytes
from mingce.plan.roles import SUMMED, RoleModel, shard
from mingce.plan.units import ceiling


@dataclass(frozen=True)
class Flow:
    """What a rank sends in a stage."""

    stage: str
    kind: str  # gather, sum, refresh or ledger
    bytes: float
    collectives: int
    ranks: int

    def seconds(self, cluster: Cluster) -> float:
        """Time on the wires: bytes over the bandwidth, and a pause for every rank that is passed."""
        if self.kind == "ledger":
            return self.bytes / cluster.assumptions.store
        pauses = self.collectives * (self.ranks - 1) * cluster.assumptions.hop
        return self.bytes / cluster.ring_rate(self.ranks) + pauses


def flows(job: Job, cluster: Cluster) -> list[Flow]:
    """All of a step."""
    parts = _scoring(job, cluster, job.actor, "log_probs")
    if job.shares_reference:
        parts += _scoring(job, cluster, job.actor, "ref_log_probs")
    if job.reference is not None:
        parts += _scoring(job, cluster, job.reference, "ref_log_probs")
    if job.critic is not None:
        parts += _scoring(job, cluster, job.critic, "values")
        parts += _update(job, cluster, job.critic, "update_critic", job.critic_learning)
    parts += _update(job, cluster, job.actor, "update_actor", job.actor_learning)
    ranks = cluster.ranks("actor")
    if ranks > 1:
        layer, ends = (sum(weight.learns for weight in group) for group in (job.actor.layer, job.actor.ends))
        tensors = job.actor.shape.layers * layer + ends
        whole = ranks * job.actor.shard(ranks, learning=True) * job.precision.stored
        parts.append(Flow("refresh", "refresh", whole * (ranks - 1) / ranks, tensors, ranks))
    return [flow for flow in parts if flow.bytes]


def passes(job: Job, ranks: int, rollouts: int) -> int:
    """Forward passes of every rank when `rollouts` rows are shared out; a rank without rows takes part in them."""
    rows = max(1, job.micro_batch_tokens // job.expected.row)
    return ceiling(ceiling(rollouts, ranks), rows)


def gather_bytes(job: Job, role: RoleModel, ranks: int) -> float:
    """One gather of all weights, as a rank sends it."""
    return role.shard(ranks) * job.precision.compute * (ranks - 1)


def sum_bytes(role: RoleModel, ranks: int) -> float:
    """One sum of all gradients."""
    return role.shard(ranks, learning=True) * SUMMED * (ranks - 1)


def groups(role: RoleModel, *, learning: bool = False) -> int:
    """Collectives that one gather of a whole model takes: one per layer, one for the rest."""
    return role.shape.layers * (shard(role.layer, 1, learning) > 0) + (shard(role.ends, 1, learning) > 0)


def _scoring(job: Job, cluster: Cluster, role: RoleModel, stage: str) -> list[Flow]:
    ranks = cluster.ranks(role.name)
    times = passes(job, ranks, job.rollouts) if job.reshard else 1
    if not job.reshard and not role.learns:
        times = 0  # gathered once for the whole run
    return [
        Flow(stage, "gather", times * gather_bytes(job, role, ranks), times * groups(role), ranks),
        _ledger(job, cluster, stage, learning=False),
    ]


def _update(job: Job, cluster: Cluster, role: RoleModel, stage: str, learning: Learning) -> list[Flow]:
    """With resharding, weights are gathered for a pass and again for its way back, and gradients summed every time;
    without, once an optimizer step, of which the first finds the weights that scoring left.
    """
    ranks, minibatches = cluster.ranks(role.name), job.minibatches(learning)
    rounds = minibatches * passes(job, ranks, min(job.rollouts, learning.minibatch_rollouts))
    gathers, sums = (2 * rounds, rounds) if job.reshard else (minibatches - 1, minibatches)
    return [
        Flow(stage, "gather", gathers * gather_bytes(job, role, ranks), gathers * groups(role), ranks),
        Flow(stage, "sum", sums * sum_bytes(role, ranks), sums * groups(role, learning=True), ranks),
        _ledger(job, cluster, stage, learning=True),
    ]


def _ledger(job: Job, cluster: Cluster, stage: str, *, learning: bool) -> Flow:
    """The whole ledger comes to every node, through Ray's object store."""
    there = ledger_bytes(job, learning=learning) * job.expected.response / job.longest.response
    return Flow(stage, "ledger", there if cluster.gpus > 1 else 0.0, 1, cluster.nodes)
