"""The same job on more and more nodes: with the recipe's batch, and with a batch that grows along."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mingce.plan.fit import largest_micro_batch
from mingce.plan.hardware import Cluster
from mingce.plan.job import Job
from mingce.plan.memory import pools
from mingce.plan.speed import Speed, step_speed


@dataclass(frozen=True)
class Point:
    """One size of the cluster."""

    gpus: int
    nodes: int
    rollouts: int
    peak: float  # bytes on the fullest rank
    start: float  # bytes there before the first step
    fits: bool
    micro_batch_tokens: int
    speed: Speed


def growth(job: Job, cluster: Cluster, most: int, *, batch_grows: bool) -> list[Point]:
    """One node, two, four … up to `most` GPUs, and the cluster itself.

    With `batch_grows` the recipe's batch is that of the cluster itself, and other sizes have theirs in proportion.
    """
    return [
        point(job.times(gpus / cluster.gpus) if batch_grows else job, cluster.grown(gpus))
        for gpus in sizes_up_to(cluster, most)
    ]


def sizes_up_to(cluster: Cluster, most: int) -> list[int]:
    """GPUs of one node (or fewer, if there are fewer), two, four …, of `most`, and of the cluster."""
    first = min(cluster.gpus, cluster.gpus_per_node)
    first = max(first, 1 + len(cluster.role_ranks))
    sizes = {first, cluster.gpus, most}
    while first < most:
        sizes.add(first)
        first *= 2
    return sorted(sizes)


def point(job: Job, cluster: Cluster) -> Point:
    """The job on one size; where its micro-batch does not go in, with the largest that does."""
    ranks = pools(job, cluster)
    peak, start = max(rank.peak() for rank in ranks), max(rank.start for rank in ranks)
    if peak > cluster.usable:
        smaller = largest_micro_batch(job, cluster)
        if 0 < smaller < job.micro_batch_tokens:
            job = replace(job, micro_batch_tokens=smaller)
            peak = max(memory.peak() for memory in pools(job, cluster))
    return Point(
        gpus=cluster.gpus,
        nodes=cluster.nodes,
        rollouts=job.rollouts,
        peak=peak,
        start=start,
        fits=peak <= cluster.usable,
        micro_batch_tokens=job.micro_batch_tokens,
        speed=step_speed(job, cluster),
    )


def turning_point(job: Job, cluster: Cluster, most: int) -> int | None:
    """The fewest GPUs, in whole nodes, on which scoring and updating wait for the wires longer than they compute."""
    step = cluster.gpus_per_node
    least = max(step if cluster.gpus >= step else cluster.gpus, 1 + len(cluster.role_ranks))
    for gpus in range(least, most + 1, step):
        compute, communication = step_speed(job, cluster.grown(gpus)).learning
        if communication > compute:
            return gpus
    return None
