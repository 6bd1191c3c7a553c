"""A plan as plain numbers, for `--json`: bytes, seconds and counts, nothing rounded."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mingce.plan.growth import Point
from mingce.plan.plan import Plan
from mingce.plan.speed import Speed


def plan_values(plan: Plan) -> dict[str, Any]:
    """All numbers of a plan."""
    job, cluster = plan.job, plan.cluster
    return {
        "model": {
            "name": job.actor.shape.name,
            "family": job.actor.shape.family,
            "parameters": job.actor.shape.parameters,
            "learning": {role.name: role.whole(learning=True) for role in job.sharded if role.learns},
        },
        "job": {
            "rollouts": job.rollouts,
            "longest": asdict(job.longest),
            "expected": asdict(job.expected),
            "micro_batch_tokens": job.micro_batch_tokens,
            "micro_batch_tokens_used": plan.used.micro_batch_tokens,
            "bytes_stored": job.precision.stored,
            "bytes_computed": job.precision.compute,
            "activation_checkpointing": job.checkpointing,
            "cpu_offload": job.offload,
            "reshard": job.reshard,
        },
        "cluster": {
            "gpu": asdict(cluster.gpu),
            "gpus": cluster.gpus,
            "gpus_per_node": cluster.gpus_per_node,
            "nodes": cluster.nodes,
            "usable": cluster.usable,
        },
        "memory": [
            {
                "pool": memory.pool,
                "ranks": memory.ranks,
                "resident": memory.resident,
                "stages": {name: parts | {"peak": memory.peak(name)} for name, parts in memory.stages.items()},
                "peak": memory.peak(),
                "worst": memory.worst,
                "start": memory.start,
                "host": memory.host,
            }
            for memory in plan.memory
        ],
        "activations": {
            name: {"without_checkpointing": without, "with_checkpointing": with_}
            for name, (without, with_) in plan.activations.items()
        },
        "fit": asdict(plan.fit),
        "traffic": [asdict(flow) | {"seconds": flow.seconds(cluster)} for flow in plan.flows],
        "time": _speed(plan.speed),
        "growth": {
            "same_batch": [_point(point) for point in plan.same_batch],
            "growing_batch": [_point(point) for point in plan.growing_batch],
            "communication_dominates_from_gpus": plan.turning_point,
            "up_to_gpus": plan.most,
        },
        "assumptions": asdict(cluster.assumptions),
    }


def _speed(speed: Speed) -> dict[str, Any]:
    stages = {stage.name: asdict(stage) | {"seconds": stage.seconds} for stage in speed.stages}
    for stage in stages.values():
        del stage["name"]
    return {
        "seconds": speed.seconds,
        "tokens": speed.tokens,
        "generated_tokens": speed.generated,
        "tokens_per_second": speed.tokens_per_second,
        "stages": stages,
    }


def _point(point: Point) -> dict[str, Any]:
    figures = {name: value for name, value in vars(point).items() if name != "speed"}
    return figures | {
        "seconds": point.speed.seconds,
        "tokens_per_second": point.speed.tokens_per_second,
        "compute_seconds": point.speed.learning[0],
        "communication_seconds": point.speed.learning[1],
    }
