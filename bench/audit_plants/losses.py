"""Bugs of losses, logged numbers and controllers: classes 4, 19, 26, 27, 43, 44, 45, 47."""

from __future__ import annotations

from collections.abc import Callable

import torch
from audit_case import Case
from audit_clean import micro_batches
from torch import Tensor

from audit_plants import here, plant
from audit_plants.operations import has_holes, has_pads
from mingce.algorithms import losses, masking

ONE = {"minibatches": 1, "epochs": 2}  # one optimizer step's loss, after the policy has moved


def policy_terms(case: Case) -> Tensor:
    """Each slot's policy loss, chosen or not."""
    c, s = case.columns, case.settings
    ratio = (c["new_log_probs"] - c["old_log_probs"]).clamp(-20, 20).exp()
    plain, near = -c["advantages"] * ratio, -c["advantages"] * ratio.clamp(1 - s["clip_low"], 1 + s["clip_high"])
    worse = torch.maximum(plain, near)
    return torch.where(c["advantages"] < 0, torch.minimum(worse, -c["advantages"] * s["dual_clip"]), worse)


def value_terms(case: Case) -> Tensor:
    c, clip = case.columns, case.settings["value_clip"]
    near = torch.minimum(torch.maximum(c["new_values"], c["values"] - clip), c["values"] + clip)
    return 0.5 * torch.maximum((c["new_values"] - c["returns"]).square(), (near - c["returns"]).square())


def logged(case: Case, name: str, make: Callable[[Case], Tensor | float]) -> None:
    """Another number in the log; another batch unless it differs from the right one."""

    def log(case: Case) -> None:
        right, wrong = case.scalars[name], float(make(case))
        here(abs(wrong - right) > 0.03 * abs(right) + 2e-3)
        case.scalars[name] = wrong

    case.then("log", log)


# ── 4, 26, 27, 44: the policy loss ─────────────────────────────────────────────────────────────────────────────────


@plant(4, "equal weights", mode="token-mean", **ONE)
def _(case: Case) -> None:
    logged(case, "pg_loss", lambda c: by_micro(c, [1.0] * len(micro_batches(c))))


@plant(4, "weights by samples", mode="token-mean", **ONE)
def _(case: Case) -> None:
    logged(case, "pg_loss", lambda c: by_micro(c, [float(len(rows)) for rows in micro_batches(c)]))


def by_micro(case: Case, weights: list[float], make: Callable[[Case], Tensor] = policy_terms) -> float:
    terms = make(case)
    means = [float(losses.agg_loss(terms[rows], case.loss_mask[rows])) for rows in micro_batches(case)]
    return sum(w * mean for w, mean in zip(weights, means, strict=True)) / sum(weights)


@plant(26, "tool output in the denominator", mode="token-mean", holes=True, estimator="grpo", **ONE)
def _(case: Case) -> None:
    has_holes(case)
    logged(case, "pg_loss", lambda c: masking.masked_sum(policy_terms(c), c.chosen) / c.present.sum())


@plant(26, "rows that were cut in the denominator", mode="token-mean", truncation="mask", makers=("own",), **ONE)
def _(case: Case) -> None:
    here(case.cut.sum() >= 2)
    logged(case, "pg_loss", lambda c: masking.masked_sum(policy_terms(c), c.loss_mask) / c.chosen.sum())


@plant(27, "advantages passed as the mask", mode="token-mean", **ONE)
def _(case: Case) -> None:
    logged(case, "pg_loss", lambda c: _weighted(c, c.columns["advantages"]))


def _weighted(case: Case, weight: Tensor) -> Tensor:
    return (policy_terms(case) * weight).sum() / (weight.sum() + 1e-8)


@plant(27, "advantages of a group passed as the mask", mode="token-mean", estimator="grpo", **ONE)
def _(case: Case) -> None:
    logged(case, "pg_loss", lambda c: _weighted(c, c.columns["advantages"]))


@plant(27, "a row's length for its mask", mode="token-mean", **ONE)
def _(case: Case) -> None:
    has_pads(case)
    logged(case, "pg_loss", lambda c: _weighted(c, c.chosen.sum(1, keepdim=True).expand(c.shape).float()))


@plant(27, "no mask at all", mode="token-mean", **ONE)
def _(case: Case) -> None:
    has_pads(case)
    logged(case, "pg_loss", lambda c: policy_terms(c).mean())


@plant(44, "times the micro-batches", mode="seq-mean-token-sum-norm", estimator="dr_grpo", **ONE)
def _(case: Case) -> None:
    logged(case, "pg_loss", lambda c: c.scalars["pg_loss"] * len(micro_batches(c)))


@plant(44, "the padded width for the constant", mode="seq-mean-token-sum-norm", estimator="dr_grpo", **ONE)
def _(case: Case) -> None:
    case.settings["loss_norm"] = 2 * case.shape[1]
    logged(case, "pg_loss", lambda c: c.scalars["pg_loss"] * 2)


# ── 19, 45: the value loss ─────────────────────────────────────────────────────────────────────────────────────────


@plant(19, "the critic's mask one slot left", **ONE)
def _(case: Case) -> None:
    shifted = torch.cat([case.chosen[:, 1:], torch.zeros(case.shape[0], 1, dtype=torch.bool)], dim=1)
    case.then("measure", lambda c: c.columns.update(value_mask=shifted))
    logged(case, "vf_loss", lambda c: masking.masked_mean(value_terms(c), shifted))


@plant(19, "the critic's loss one slot left", **ONE)
def _(case: Case) -> None:
    shifted = torch.cat([case.chosen[:, 1:], torch.zeros(case.shape[0], 1, dtype=torch.bool)], dim=1)
    logged(case, "vf_loss", lambda c: masking.masked_mean(value_terms(c), shifted))


def plain_value_terms(case: Case) -> Tensor:
    return 0.5 * (case.columns["new_values"] - case.columns["returns"]).square()


@plant(45, "the clip fraction compares the clipped value", **ONE)
def _(case: Case) -> None:
    case.settings["value_clip"] = 0.05
    logged(case, "vf_clipfrac", lambda c: 0.0)


@plant(45, "the loss does not clip", **ONE)
def _(case: Case) -> None:
    case.settings["value_clip"] = 0.05
    logged(case, "vf_loss", lambda c: masking.masked_mean(plain_value_terms(c), c.loss_mask))
    case.then("log", lambda c: c.scalars.update(vf_clipfrac=0.0))


@plant(45, "old values recomputed", **ONE)
def _(case: Case) -> None:
    case.raw["new_values"] = case.raw["values"].clone()


# ── 47: numbers for people ─────────────────────────────────────────────────────────────────────────────────────────


@plant(47, "entropy over pads")
def _(case: Case) -> None:
    has_pads(case)
    logged(case, "entropy_mean", lambda c: c.columns["entropy"].mean())


@plant(47, "approximate KL over pads", **ONE)
def _(case: Case) -> None:
    has_pads(case)
    logged(case, "approx_kl", lambda c: (c.columns["old_log_probs"] - c.columns["new_log_probs"]).mean())


# ── 43: the price over steps ───────────────────────────────────────────────────────────────────────────────────────


HORIZON = 400


def steered(
    case: Case,
    heard: Callable[[Case], float],
    counted: Callable[[Case], int],
    before: Callable[[Case], None] = lambda case: None,
    close: float = 0.85,
) -> list[Case]:
    """Four steps whose adaptive price hears `heard` and counts `counted` samples; rightly it would rise each time.

    `before` prepares each batch; `close` says how far below the least KL the target is."""
    steps, price, right = [case], 0.05, 0.05
    for number in range(3):
        steps.append(Case(case.seed + 1 + number, case.maker, case.holes, rows=48, like=steps[-1]))
    for one in steps:
        before(one)
    target = close * min(float(mean) for one in steps for mean in means(one))
    here(target > 1e-3)
    for one in steps:
        seen, wanted = price, right
        one.settings |= {"kl_target": target, "kl_horizon": HORIZON, "kl_estimator": "k1", "beta": price}
        one.then("log", lambda c, p=price: c.scalars.update(kl_coef=p))  # type: ignore[misc]
        price = _moved(price, heard(one) / target, counted(one))
        right = _moved(right, float(means(one)[0]) / target, one.shape[0])
    here(abs(seen / wanted - 1) > 0.02)
    return steps[1:]


def means(case: Case) -> tuple[Tensor, Tensor]:
    """The KL's mean over tokens, and over rows of the mean over tokens: trainers steer by either."""
    x = apart(case)
    return masking.masked_mean(x, case.chosen), masking.masked_mean(x, case.chosen, axis=1).mean()


def _moved(price: float, heard: float, counted: int) -> float:
    return price * (1 + min(max(heard - 1, -0.2), 0.2) * counted / HORIZON)


def apart(case: Case) -> Tensor:
    """x = lo − lr on chosen tokens."""
    return masking.keep(case.raw["old_log_probs"] - case.raw["ref_log_probs"], case.chosen)


@plant(43, "the step count is 1", rows=48, far=0.12)
def _(case: Case) -> list[Case]:
    return steered(case, lambda c: float(means(c)[0]), lambda c: 1)


@plant(43, "the KL's mean over pads", rows=48, far=0.12)
def _(case: Case) -> list[Case]:
    has_pads(case)
    return steered(case, lambda c: float(apart(c).mean()), lambda c: c.shape[0])
