"""Whether a job goes into its GPUs, and the largest batches that do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mingce.plan.hardware import Cluster
from mingce.plan.job import Job
from mingce.plan.memory import pools
from mingce.plan.units import ceiling

_PASSES = ("log_probs", "ref_log_probs", "values", "update_critic", "update_actor")


@dataclass(frozen=True)
class Fit:
    """What fits into the GPUs."""

    step: bool  # whether a step fits
    start: bool  # whether the whole models fit, before they are cut into shards
    micro_batch_tokens: int
    """The most tokens of a pass that go in, as whole rows of full length; 0 when not one row does. No more than a rank
    has in a step.
    """
    decoded_rows: int  # the most rows decoded together; 0 when none, and no more than a rank has
    least_memory: float  # bytes a GPU must have for the job as it is


def fit(job: Job, cluster: Cluster) -> Fit:
    """The job on the cluster."""
    ranks = pools(job, cluster)
    needed, start = max(rank.peak() for rank in ranks), max(rank.start for rank in ranks)
    return Fit(
        step=needed <= cluster.usable,
        start=start <= cluster.usable,
        micro_batch_tokens=largest_micro_batch(job, cluster),
        decoded_rows=largest_decoded_rows(job, cluster),
        least_memory=max(needed, start) / cluster.assumptions.usable,
    )


def largest_micro_batch(job: Job, cluster: Cluster) -> int:
    """Tokens of the largest pass that goes in."""
    most = ceiling(job.rollouts, min(cluster.ranks(role.name) for role in job.sharded))

    def needed(rows: int) -> float:
        return _peak(replace(job, micro_batch_tokens=rows * job.longest.row), cluster, _PASSES)

    return _largest(needed, most, cluster.usable) * job.longest.row


def largest_decoded_rows(job: Job, cluster: Cluster) -> int:
    """Rows of the largest batch that can be decoded."""
    most = ceiling(job.prompts, cluster.ranks("actor")) * job.samples
    return _largest(lambda rows: _peak(replace(job, decoded_rows=rows), cluster, ("generate",)), most, cluster.usable)


def _peak(job: Job, cluster: Cluster, stages: tuple[str, ...]) -> float:
    return max(memory.peak(stage) for memory in pools(job, cluster) for stage in stages if stage in memory.stages)


def _largest(needed: Callable[[int], float], most: int, usable: float) -> int:
    """The largest number up to `most` whose need is usable; the need grows with the number."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needed(middle) <= usable else (low, middle)
    return low
