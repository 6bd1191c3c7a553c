"""Bytes on one rank: what stays there, and what each stage of a step adds.

Weights, gradients and AdamW's moments are cut over all ranks of a role. The actor's ranks also hold whole weights to
sample with. Only one stage runs at a time, so the peak is what stays plus the worst stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mingce.plan import activations
from mingce.plan.hardware import Cluster
from mingce.plan.job import Job
from mingce.plan.roles import SUMMED, Precision, RoleModel, count, shard
from mingce.plan.shape import Weight
from mingce.plan.units import ceiling

Parts = dict[str, float]
"""Bytes by kind: weights, gradients, optimizer, gathered, activations, workspace, cache, ledger."""

_LEDGER_SENT, _LEDGER_LEARNED, _COLUMN = 10, 6, 4
"""Bytes of ids and masks per slot; columns that are learned from (losses make as many again); bytes of a column."""


@dataclass(frozen=True)
class RankMemory:
    """The memory of one rank of a pool."""

    pool: str
    ranks: int
    resident: dict[str, Parts]  # by role, for the whole step; whole weights for sampling are the role `sampler`
    stages: dict[str, Parts]  # what each stage adds
    start: float
    """The most before the first step: the actor as it was loaded, and a second whole model, copied from it to be cut
    or to sample with.
    """
    host: float  # in the host's memory, per rank

    @property
    def stays(self) -> float:
        return sum(sum(parts.values()) for parts in self.resident.values())

    @property
    def worst(self) -> str:
        """The stage with the highest peak."""
        return max(self.stages, key=lambda stage: sum(self.stages[stage].values()))

    def peak(self, stage: str | None = None) -> float:
        """Of a stage, or of the step."""
        return self.stays + sum(self.stages[stage or self.worst].values())


def pools(job: Job, cluster: Cluster) -> list[RankMemory]:
    """One rank of each pool, the actor's first."""
    apart = [role for role in job.sharded if not cluster.shares_actor(role.name)]
    with_actor = [role for role in job.sharded if cluster.shares_actor(role.name)]
    return [_pool(job, cluster, "actor", with_actor), *(_pool(job, cluster, role.name, [role]) for role in apart)]


def _pool(job: Job, cluster: Cluster, name: str, members: Sequence[RoleModel]) -> RankMemory:
    ranks, stored = cluster.ranks(name), job.precision.stored
    held = {role.name: held_bytes(role, ranks, stored) for role in members}
    offloaded = job.offload and cluster.gpus > 1
    host = sum(sum(parts.values()) for parts in held.values()) if offloaded else 0.0
    resident = {} if offloaded else dict(held)
    stages: dict[str, Parts] = {}
    for role in members:
        stages |= role_stages(job, role, ranks)
    whole = float(job.actor.whole() * stored)
    if name == "actor":
        if cluster.gpus > 1:  # a single process samples from the weights it learns
            resident["sampler"] = {"weights": whole}
        stages["generate"] = sampling_parts(job, ranks)
        if job.reward is not None:
            host += job.reward.whole() * 4
    shards = 0.0 if offloaded else sum(parts["weights"] for parts in held.values())
    start = shards + (2 * whole if cluster.gpus > 1 else 0.0)
    return RankMemory(name, ranks, resident, stages, start, host)


def held_bytes(role: RoleModel, ranks: int, stored: int) -> Parts:
    """Weights, gradients and the two moments of AdamW, as shards of `ranks`."""
    learning = role.shard(ranks, learning=True) * stored
    parts: Parts = {"weights": float(role.shard(ranks) * stored)}
    return parts | ({"gradients": float(learning), "optimizer": float(2 * learning)} if learning else {})


def role_stages(job: Job, role: RoleModel, ranks: int) -> dict[str, Parts]:
    """What a role's scoring and updating add on a rank, each with the largest micro-batch it will see."""
    if role is job.actor:
        return {"log_probs": scoring_parts(job, role, ranks), "update_actor": update_parts(job, role, ranks)}
    if role is job.critic:
        return {"values": scoring_parts(job, role, ranks), "update_critic": update_parts(job, role, ranks)}
    return {"ref_log_probs": scoring_parts(job, role, ranks)}


def micro_batch(job: Job, ranks: int, rollouts: int) -> tuple[int, int]:
    """(tokens, tokens that are scored) of the largest micro-batch when `rollouts` are spread over the ranks."""
    rows = min(ceiling(rollouts, ranks), max(1, job.micro_batch_tokens // job.longest.row))
    return rows * job.longest.row, rows * job.longest.response


def scoring_parts(job: Job, role: RoleModel, ranks: int) -> Parts:
    """A pass without a gradient."""
    tokens, scored = micro_batch(job, ranks, job.rollouts)
    c = job.precision.compute
    return {
        "gathered": gathered_bytes(job, role, ranks),
        "workspace": float(activations.forward_bytes(role, tokens, scored, c)),
        "ledger": _ledger_on_rank(job, learning=False),
    }


def update_parts(job: Job, role: RoleModel, ranks: int) -> Parts:
    """A pass with its backward pass, when gradients of an earlier micro-batch are there already.

    The worst of four moments: the head's backward pass, when everything kept is there; the uppermost layer's, whose
    gradients wait to be summed; the end, when those of embedding and output layer do; AdamW, which copies a moment.
    """
    learning = job.actor_learning if role is job.actor else job.critic_learning
    tokens, scored = micro_batch(job, ranks, min(job.rollouts, learning.minibatch_rollouts))
    c, again = job.precision.compute, job.checkpointing
    saved = float(activations.kept_bytes(role, tokens, scored, c, checkpointing=again))
    gathered = gathered_bytes(job, role, ranks)
    if ranks > 1 and not job.reshard:
        gathered += SUMMED * role.whole(learning=True)  # gradients wait whole for the minibatch's last pass
    head: Parts = {
        "gathered": gathered,
        "activations": saved,
        "workspace": float(activations.head_bytes(role, scored, c, backward=True)),
    }
    layer: Parts = {
        "gathered": gathered + (gradient_bytes(role.layer, ranks, job.precision) if ranks > 1 else 0.0),
        "activations": saved,
        "workspace": float(activations.backward_bytes(role, tokens, c, checkpointing=again)),
    }
    end: Parts = {
        "gathered": gathered + gradient_bytes(role.ends, ranks, job.precision),
        "activations": float(activations.layer_bytes(role, c) * tokens),
    }
    moment: Parts = {"workspace": float(role.shard(ranks, learning=True) * job.precision.stored)}
    worst = max(head, layer, end, moment, key=lambda parts: sum(parts.values()))
    return worst | {"ledger": _ledger_on_rank(job, learning=True)}


def gathered_bytes(job: Job, role: RoleModel, ranks: int) -> float:
    """Whole weights on a rank during a pass: embedding and output layer, two layers (the next is fetched while one
    works), and the buffer that one of them arrives in. Without resharding, everything.
    """
    if ranks == 1:
        return 0.0
    c, arriving = job.precision.compute, ranks * shard(role.layer, ranks)
    if not job.reshard:
        return float(c * (role.whole() + arriving))
    return float(c * (count(role.ends) + 2 * count(role.layer) + arriving))


def gradient_bytes(group: Sequence[Weight], ranks: int, precision: Precision) -> float:
    """Whole gradients of a group, and the buffer in which the ranks sum them; on one rank the largest one, which is
    added to what an earlier micro-batch left.
    """
    if ranks == 1:
        return float(precision.stored * max((weight.count for weight in group if weight.learns), default=0))
    return float(precision.compute * count(group, True) + SUMMED * ranks * shard(group, ranks, True))


def sampling_parts(job: Job, ranks: int) -> Parts:
    """Keys and values of the rows decoded together, and the moment of drawing."""
    prompts = ceiling(job.prompts, ranks)  # a rank draws all samples of its prompts
    rows = min(job.decoded_rows, prompts * job.samples)
    read = min(job.decoded_rows, prompts) if job.greedy else ceiling(rows, job.samples)  # one greedy row a prompt
    lengths = job.longest
    cache, workspace = activations.sampling_bytes(
        job.actor.shape, rows, read, lengths.prompt, lengths.response, job.precision.stored
    )
    return {"cache": float(cache), "workspace": float(workspace)}


def ledger_bytes(job: Job, *, learning: bool) -> float:
    """A step's ledger as it is sent to the ranks."""
    return float(job.rollouts * job.longest.response * (_LEDGER_SENT + _COLUMN * _LEDGER_LEARNED * learning))


def _ledger_on_rank(job: Job, *, learning: bool) -> float:
    """The whole of it, and the columns that the losses make."""
    made = job.rollouts * job.longest.response * _COLUMN * _LEDGER_LEARNED if learning else 0
    return ledger_bytes(job, learning=learning) + made
