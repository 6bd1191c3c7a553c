"""Bugs of what was sampled from and what it is compared with: classes 2, 5, 6, 14, 17, 20, 22, 39, 41."""

from __future__ import annotations

from typing import Any

import torch
from audit_case import Case
from audit_world import (
    Sampler,
    other_experts,
    rounding_noise,
)
from audit_world import score as log_probs

from audit_plants import plant
from mingce.algorithms.masking import keep

MANY: dict[str, Any] = {"rows": 48, "width": 96}  # statistics need tokens
TRAINER = ("old_log_probs", "ref_log_probs", "new_log_probs")


def policies(case: Case) -> dict[str, Any]:
    return dict(zip(TRAINER, (case.policy, case.reference, case.learnt), strict=True))


def rescored(case: Case, names: tuple[str, ...] = TRAINER, **how: Any) -> None:
    """The trainer's forward passes again, wrongly."""
    for name in names:
        found, entropy = log_probs(policies(case)[name], case.rollouts, **({"temperature": case.temperature} | how))
        case.again(name, found)
        if name == "old_log_probs":
            case.again("entropy", entropy)


# ── 2, 14: what was sampled from ───────────────────────────────────────────────────────────────────────────────────


@plant(2, "the engine reports raw log-probs", temperature=0.7, **MANY)
def _(case: Case) -> None:
    case.again("rollout_log_probs", case.rollouts.plain_log_probs)


@plant(2, "the trainer scores at temperature 1", temperature=0.7, **MANY)
def _(case: Case) -> None:
    rescored(case, temperature=1.0)


@plant(2, "both sides say temperature 1", temperature=0.7, **MANY)
def _(case: Case) -> None:
    rescored(case, temperature=1.0)
    case.again("rollout_log_probs", case.rollouts.plain_log_probs)


@plant(2, "both sides say temperature 1, sampled hotter", temperature=1.3, **MANY)
def _(case: Case) -> None:
    rescored(case, temperature=1.0)
    case.again("rollout_log_probs", case.rollouts.plain_log_probs)


@plant(2, "entropy of unscaled logits", temperature=0.7, **MANY)
def _(case: Case) -> None:
    case.again("entropy", log_probs(case.policy, case.rollouts, 1.0)[1])


@plant(14, "top-p 0.9", sampler=Sampler(top_p=0.9), temperature=1.0, **MANY)
@plant(14, "top-p 0.8", sampler=Sampler(top_p=0.8), temperature=1.0, **MANY)
@plant(14, "top-k 20", sampler=Sampler(top_k=20), temperature=1.0, **MANY)
@plant(14, "min-p 0.05", sampler=Sampler(min_p=0.05), temperature=1.0, **MANY)
def _(case: Case) -> None:
    """The engine's log-probs are renormalised over what it kept; the trainer's are not."""


# ── 5, 6, 20, 41: another policy than the trainer's ────────────────────────────────────────────────────────────────


@plant(5, "other kernels", sampler=Sampler(noise=rounding_noise(0.2)), temperature=1.0, epochs=2, **MANY)
@plant(5, "other experts", sampler=Sampler(noise=other_experts(0.08, 1.0)), temperature=1.0, epochs=2, **MANY)
def _(case: Case) -> None:
    """lo and lq of the same weights differ."""


@plant(6, "one step, versions known", stale=0.12, epochs=2, **MANY)
def _(case: Case) -> None:
    versions = torch.full(case.shape, case.step - 4 if case.step else 0)
    case.then("measure", lambda c: c.columns.update(weight_versions=versions))
    case.settings["learner_version"] = case.step


@plant(6, "the sync stops at a step", epochs=2, **MANY)
def _(case: Case) -> list[Case]:
    steps = [case]
    for number in range(5):
        later = Case(case.seed + 1 + number, case.maker, case.holes, rows=48, like=steps[-1])
        if number >= 2:  # the engine keeps the weights of the step where the sync stopped, while the policy moves on
            policy = case.policy.moved(case.rng, 0.1 + 0.02 * number)
            later = Case(
                case.seed + 1 + number, case.maker, case.holes, rows=48, like=steps[-1],
                sampler=Sampler(case.temperature, noise=case.sampler.noise, policy=policy),
            )  # fmt: skip
        steps.append(later)
    return steps[1:]


@plant(20, "versions known", stale=0.12, epochs=1, minibatches=1, **MANY)
def _(case: Case) -> None:
    versions = torch.full(case.shape, case.step - 4 if case.step else 0)
    case.then("measure", lambda c: c.columns.update(weight_versions=versions))
    case.settings["learner_version"] = case.step


@plant(20, "ratio 1 everywhere", stale=0.2, epochs=1, minibatches=1, **MANY)
def _(case: Case) -> None:
    """Asynchronous data, and the denominator recomputed by the learner."""


def drop_out(case: Case, names: tuple[str, ...]) -> None:
    for name in names:
        units = (*case.shape, case.policy.output.shape[0])
        kept = case.rng.binomial(24, 0.9, units) / (24 * 0.9)  # each toy unit stands for 24 of a model's
        rescored(case, (name,), dropped=kept)


@plant(41, "two passes differ", epochs=1, minibatches=1, **MANY)
def _(case: Case) -> None:
    case.learnt, case.second_pass_differs = case.policy, True
    drop_out(case, ("old_log_probs", "new_log_probs"))


@plant(41, "one pass", epochs=2, **MANY)
def _(case: Case) -> None:
    drop_out(case, ("old_log_probs", "new_log_probs"))


@plant(17, "other batch shapes", epochs=1, minibatches=1)
def _(case: Case) -> None:
    case.second_pass_differs = True
    noise = case.rng.normal(size=case.shape) * 0.05
    case.again("new_log_probs", case.raw["old_log_probs"].numpy() + noise)


@plant(17, "no temperature in the update", epochs=1, minibatches=1, temperature=0.7, **MANY)
def _(case: Case) -> None:
    case.second_pass_differs, case.learnt = True, case.policy
    rescored(case, ("new_log_probs",), temperature=1.0)


# ── 22: the wrong reference ────────────────────────────────────────────────────────────────────────────────────────


@plant(22, "the reference is the policy itself", epochs=2)
def _(case: Case) -> list[Case]:
    later = Case(case.seed + 1, case.maker, case.holes, rows=32, like=case)
    for one in (case, later):
        one.raw["ref_log_probs"] = one.raw["old_log_probs"].clone()
    return [later]


@plant(22, "base model at step 0", far=0.5)
def _(case: Case) -> None:
    case.step = case.settings["step"] = 0


# ── 39: the weight's pair ──────────────────────────────────────────────────────────────────────────────────────────


def _weights(case: Case, over: str, under: str) -> None:
    def weigh(case: Case) -> None:
        apart = case.columns[over] - case.columns[under]
        case.columns["importance_weights"] = keep(apart.exp().clamp(max=2.0), case.chosen)

    case.then("update", weigh)


@plant(39, "new over rollout", stale=0.08, epochs=2)
def _(case: Case) -> None:
    _weights(case, "new_log_probs", "rollout_log_probs")


@plant(39, "on top of a ratio that has it already", stale=0.08, epochs=2)
def _(case: Case) -> None:
    _weights(case, "old_log_probs", "rollout_log_probs")

    def ratio(case: Case) -> None:
        case.columns["ratio"] = keep(
            (case.columns["new_log_probs"] - case.columns["rollout_log_probs"]).exp(), case.chosen
        )

    case.then("update", ratio)
