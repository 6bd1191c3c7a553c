"""What a person should know about a plan beyond its tables: sentences, the gravest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mingce.base.numbers import show_bytes, show_seconds
from mingce.base.texts import sentence
from mingce.plan.plan import Plan
from mingce.plan.units import ceiling


@dataclass(frozen=True)
class Note:
    """A sentence; `grave` when the run would not work."""

    text: str
    grave: bool = False


def verdict(plan: Plan, lang: str) -> Note:
    """Whether it fits, during a step and before the first."""
    fullest = max(plan.memory, key=lambda memory: memory.peak())
    sizes = {"peak": show_bytes(fullest.peak()), "usable": show_bytes(plan.cluster.usable)}
    if not plan.fit.step:
        stage = sentence(f"plan.{fullest.worst}", lang)
        return Note(sentence("plan.too_large", lang, stage=stage, **sizes), grave=True)
    if not plan.fit.start:
        start = show_bytes(max(memory.start for memory in plan.memory))
        return Note(sentence("plan.no_start", lang, start=start, **sizes), grave=True)
    return Note(sentence("plan.fits", lang, **sizes))


def notes(plan: Plan, lang: str) -> list[Note]:
    """What follows from the numbers."""
    return [*_micro_batch(plan, lang), *_models(plan, lang), *_time(plan, lang)]


def _micro_batch(plan: Plan, lang: str) -> Iterator[Note]:
    largest, asked = plan.fit.micro_batch_tokens, plan.job.micro_batch_tokens
    if largest == 0:
        yield Note(sentence("plan.no_row", lang, row=plan.job.longest.row), grave=True)
    elif largest < asked and not plan.fit.step:
        yield Note(sentence("plan.largest_batch", lang, largest=largest, asked=asked))
    elif largest > asked:
        yield Note(sentence("plan.larger_batch", lang, largest=largest, asked=asked))
    rows, decoded = plan.fit.decoded_rows, plan.job.decoded_rows
    each = ceiling(plan.job.prompts, plan.cluster.ranks("actor")) * plan.job.samples
    if rows < min(decoded, each):
        yield Note(sentence("plan.decoded_rows", lang, rows=rows, asked=decoded), grave=rows == 0)


def _models(plan: Plan, lang: str) -> Iterator[Note]:
    """Precision, padding, idle ranks, the reward model, experts."""
    job, ranks = plan.job, plan.cluster.ranks("actor")
    if job.precision.stored != 4:
        yield Note(sentence("plan.precision", lang))
    extra = ranks * job.actor.shard(ranks) / job.actor.whole() - 1
    if extra >= 0.02:
        even = 1 << (ranks - 1).bit_length()
        yield Note(sentence("plan.padding", lang, ranks=ranks, extra=f"{extra:.0%}", even=even))
    rollouts = min(job.rollouts, job.actor_learning.minibatch_rollouts)
    if rollouts < ranks:
        yield Note(sentence("plan.idle", lang, rollouts=rollouts, ranks=ranks, idle=ranks - rollouts))
    if job.reward is not None:
        yield Note(sentence("plan.reward_model", lang, size=show_bytes(job.reward.whole() * 4)))
    if job.actor.shape.experts > 1:
        yield Note(sentence("plan.experts", lang, experts=job.actor.shape.experts))


def _time(plan: Plan, lang: str) -> Iterator[Note]:
    longest = max(plan.speed.stages, key=lambda stage: stage.seconds)
    share = longest.seconds / plan.speed.seconds
    if longest.name == "generate" and share > 0.5:
        tokens = plan.job.longest.response
        floor = show_seconds(plan.job.actor.shape.layers * plan.cluster.assumptions.launch * tokens)
        yield Note(sentence("plan.generation", lang, share=f"{share:.0%}", tokens=tokens, floor=floor))
    if plan.turning_point is not None:
        yield Note(sentence("plan.communication_from", lang, gpus=plan.turning_point))
    else:
        yield Note(sentence("plan.communication_never", lang, gpus=plan.most))


def sentences(plan: Plan, lang: str) -> list[str]:
    """The verdict and what follows from the numbers."""
    return [note.text for note in (verdict(plan, lang), *notes(plan, lang))]
