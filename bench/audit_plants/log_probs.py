"""Bugs of log-probs as numbers: classes 18, 21, 28, 38, 40."""

from __future__ import annotations

import numpy as np
import torch
from audit_case import Case
from audit_world import (
    log_softmax,
    states,
)

from audit_plants import here, plant
from audit_plants.sampling import MANY, TRAINER, policies
from mingce.algorithms.masking import keep

# ── 18, 40: the right numbers in the wrong place ───────────────────────────────────────────────────────────────────


def _shifted(case: Case, names: tuple[str, ...], by: int) -> None:
    for name in names:
        case.again(name, np.roll(case.raw[name].numpy(), by, axis=1))


@plant(18, "the trainer's, one late")
def _(case: Case) -> None:
    _shifted(case, TRAINER, 1)


@plant(18, "the trainer's, one early")
def _(case: Case) -> None:
    _shifted(case, TRAINER, -1)


@plant(18, "the engine's, one late")
def _(case: Case) -> None:
    _shifted(case, ("rollout_log_probs",), 1)


def _next_state(case: Case) -> None:
    """logits[:, t] are gathered with the token of slot t, which they have already read."""
    _, positions, context = states(case.rollouts)
    for name, policy in policies(case).items():
        log_p = log_softmax(policy.logits(case.rollouts.ids, positions + 1, context) / case.temperature)
        case.again(name, np.take_along_axis(log_p, case.rollouts.ids[..., None], -1)[..., 0])


@plant(18, "logits of the next state", **MANY)
def _(case: Case) -> None:
    _next_state(case)


@plant(18, "logits of the next state, no rollout log-probs", **MANY)
def _(case: Case) -> None:
    _next_state(case)
    case.hide.add("rollout_log_probs")


@plant(40, "zigzag blocks read as contiguous", samples=2, **MANY)
def _(case: Case) -> None:
    blocks = np.array_split(np.arange(case.shape[1]), 8)
    order = np.concatenate([blocks[i] for i in (0, 1, 4, 5, 6, 7, 2, 3)])
    for name in TRAINER:
        case.again(name, case.raw[name].numpy()[:, order])


@plant(40, "rows come back in another order")
def _(case: Case) -> None:
    order = np.roll(np.arange(case.shape[0]), 1)
    for name in TRAINER:
        case.again(name, case.raw[name].numpy()[order])


# ── 21, 28, 38: numbers that are none ──────────────────────────────────────────────────────────────────────────────


@plant(21, "log-softmax in bfloat16", coarse=False)
def _(case: Case) -> None:
    for name, policy in policies(case).items():
        logits = torch.tensor(policy.logits(*states(case.rollouts)) / case.temperature).bfloat16()
        found = torch.log_softmax(logits, -1).float().gather(-1, torch.tensor(case.rollouts.ids)[..., None])[..., 0]
        case.again(name, found.numpy())


@plant(21, "logits minus their log-sum-exp in bfloat16", coarse=False)
def _(case: Case) -> None:
    for name, policy in policies(case).items():
        logits = torch.tensor(policy.logits(*states(case.rollouts)) / case.temperature).bfloat16()
        of_ids = logits.gather(-1, torch.tensor(case.rollouts.ids)[..., None])[..., 0]
        case.again(name, (of_ids - logits.float().logsumexp(-1).bfloat16()).float().numpy())


@plant(28, "0 for the log-probs that the engine did not send", also=(12,))
def _(case: Case) -> None:
    found, last = case.raw["rollout_log_probs"].clone(), case.last
    for row in range(0, case.shape[0], 2):
        found[row, max(int(last[row]) - 5, 0) : int(last[row]) + 1] = 0.0
    case.raw["rollout_log_probs"] = found
    here((keep(torch.ones(case.shape), case.chosen & (found == 0)).sum(1) >= 4).sum() >= 2)


@plant(28, "+1 on pads of one model only, in the reward", also=(15,))
def _(case: Case) -> None:
    def reward(case: Case) -> None:
        c = case.columns
        c["old_log_probs"] = torch.where(case.present, c["old_log_probs"], 1.0)
        c["kl"] = c["old_log_probs"] - c["ref_log_probs"]
        c["rewards"] = c["scores"] - case.settings["beta"] * c["kl"]

    case.settings["kl_estimator"] = "k1"
    case.put("reward", reward)


@plant(28, "−1 where tokens are", also=(12,))
def _(case: Case) -> None:
    found, last = case.raw["rollout_log_probs"].clone(), case.last
    for row in range(0, case.shape[0], 2):
        found[row, max(int(last[row]) - 5, 0) : int(last[row]) + 1] = -1.0
    case.raw["rollout_log_probs"] = found
    here((keep(torch.ones(case.shape), case.chosen & (found == -1)).sum(1) >= 4).sum() >= 2)


def _behind(case: Case, name: str, what: float) -> None:
    where = ~case.chosen & (torch.rand(case.shape, generator=torch.Generator().manual_seed(case.seed)) < 0.3)
    here(where.any())
    case.then("log", lambda c: c.columns.update({name: torch.where(where, what, c.columns[name])}))


@plant(38, "−inf in the reference's log-probs")
def _(case: Case) -> None:
    _behind(case, "ref_log_probs", -np.inf)


@plant(38, "NaN in the values")
def _(case: Case) -> None:
    _behind(case, "values", np.nan)


@plant(38, "NaN times 0 in the loss")
def _(case: Case) -> None:
    _behind(case, "old_log_probs", np.nan)
    case.then("log", lambda c: c.scalars.update(pg_loss=float("nan")))
