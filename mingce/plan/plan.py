"""The request that `mingce plan` gets, and the plan it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mingce.base.errors import SettingError, UnknownNameError
from mingce.plan import activations
from mingce.plan.fit import Fit, fit
from mingce.plan.growth import Point, growth, turning_point
from mingce.plan.hardware import GPUS, Assumptions, Cluster, Gpu
from mingce.plan.job import Job, read_job
from mingce.plan.memory import RankMemory, micro_batch, pools
from mingce.plan.speed import Speed, step_speed
from mingce.plan.traffic import Flow, flows
from mingce.plan.units import parse_bytes, parse_rate


@dataclass(frozen=True)
class Request:
    """The words of the command line."""

    settings: Sequence[str] = ()  # a recipe and settings as key=value
    model_config: str | None = None
    gpus: int = 8
    gpus_per_node: int = 8
    gpu: str = "h100"
    gpu_memory: str | None = None
    tflops: float | None = None
    bandwidth: str | None = None
    link: str | None = None
    network: str | None = None
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    up_to: int | None = None
    assume: Sequence[str] = ()


@dataclass(frozen=True)
class Plan:
    """A job on a cluster, on paper."""

    job: Job
    cluster: Cluster
    memory: list[RankMemory]
    fit: Fit
    used: Job  # the job with a micro-batch that goes in, where the recipe's does not; speed and traffic are of this one
    flows: list[Flow]
    speed: Speed
    activations: dict[str, tuple[float, float]]
    """Kept by a micro-batch of each model that learns: (without, with activation checkpointing)."""
    same_batch: list[Point]
    growing_batch: list[Point]
    turning_point: int | None
    most: int  # GPUs up to which growth was looked at


def make_plan(request: Request) -> Plan:
    """Everything that can be said before the run."""
    recipes = [word for word in request.settings if "=" not in word]
    if len(recipes) > 1:
        raise SettingError(f"'{recipes[1]}' is neither a setting (key=value) nor the one recipe.")
    job = read_job(
        Path(recipes[0]) if recipes else None,
        [word for word in request.settings if "=" in word],
        model=request.model_config,
        prompt_tokens=request.prompt_tokens,
        response_tokens=request.response_tokens,
    )
    cluster = _cluster(request, job)
    most = max(cluster.gpus, 8 * cluster.gpus_per_node) if request.up_to is None else request.up_to
    if most < cluster.gpus:
        raise SettingError(f"--up-to is {most}, fewer than the {cluster.gpus} GPUs of --gpus; raise it.")
    fits = fit(job, cluster)
    used = job
    if 0 < fits.micro_batch_tokens < job.micro_batch_tokens and not fits.step:
        used = replace(job, micro_batch_tokens=fits.micro_batch_tokens)
    return Plan(
        job=job,
        cluster=cluster,
        memory=pools(job, cluster),
        fit=fits,
        used=used,
        flows=flows(used, cluster),
        speed=step_speed(used, cluster),
        activations=_activations(job, cluster),
        same_batch=growth(used, cluster, most, batch_grows=False),
        growing_batch=growth(used, cluster, most, batch_grows=True),
        turning_point=turning_point(used, cluster, most),
        most=most,
    )


def _cluster(request: Request, job: Job) -> Cluster:
    for option, value in (("--gpus", request.gpus), ("--gpus-per-node", request.gpus_per_node)):
        if value < 1:
            raise SettingError(f"{option} is {value}, but must be at least 1.")
    gpu = _gpu(request)
    apart = sum(ranks for _, ranks in job.role_ranks)
    if apart >= request.gpus:
        raise SettingError(
            f"ray.critic_ranks and ray.reference_ranks take {apart} ranks, which leaves none of {request.gpus} GPUs to "
            "the actor; raise --gpus."
        )
    return Cluster(gpu, request.gpus, request.gpus_per_node, job.role_ranks, Assumptions().replaced(request.assume))


def _gpu(request: Request) -> Gpu:
    if request.gpu not in GPUS:
        raise UnknownNameError("GPU", request.gpu, GPUS)
    gpu = GPUS[request.gpu]
    if request.gpu_memory is not None:
        gpu = replace(gpu, memory=parse_bytes("--gpu-memory", request.gpu_memory))
    rates = {"bandwidth": request.bandwidth, "link": request.link, "network": request.network}
    changes: dict[str, Any] = {name: parse_rate(f"--{name}", text) for name, text in rates.items() if text is not None}
    gpu = replace(gpu, **changes)
    if request.tflops is not None:
        if not request.tflops > 0:
            raise SettingError(f"--tflops is {request.tflops:g}, but must be above 0.")
        gpu = replace(gpu, flops=request.tflops * 1e12, flops32=request.tflops * 1e12)
    return gpu


def _activations(job: Job, cluster: Cluster) -> dict[str, tuple[float, float]]:
    sizes = {}
    for role, learning in ((job.actor, job.actor_learning), (job.critic, job.critic_learning)):
        if role is not None:
            rollouts = min(job.rollouts, learning.minibatch_rollouts)
            tokens, scored = micro_batch(job, cluster.ranks(role.name), rollouts)
            without, with_ = (
                float(activations.kept_bytes(role, tokens, scored, job.precision.compute, checkpointing=checkpointing))
                for checkpointing in (False, True)
            )
            sizes[role.name] = without, with_
    return sizes
