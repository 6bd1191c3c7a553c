"""Bugs of scores and rewards: classes 9, 10, 11, 15, 23, 24, 25, and the KL of class 3."""

from __future__ import annotations

import torch
from audit_case import Case, last_of
from audit_world import FIRST_WORD, VOCABULARY

from audit_plants import here, plant
from audit_plants.operations import (
    credit,
    emptied,
    grouped,
    has_holes,
    has_pads,
    pays,
    recursion,
    scored_at,
    sees_all,
    total,
)
from mingce.algorithms import kl
from mingce.algorithms.masking import keep


@plant(3, "KL on tool output", holes=True)
def _(case: Case) -> None:
    has_holes(case)
    case.sees |= dict.fromkeys(("old_log_probs", "ref_log_probs"), "present")
    pays(case, lambda c: c.present)


# ── 9, 10, 11: where the score is put ──────────────────────────────────────────────────────────────────────────────


@plant(9, "first pad")
def _(case: Case) -> None:
    here((case.last < case.shape[1] - 1).sum() >= 4)
    scored_at(case, lambda c: (c.last + 1).clamp(max=c.shape[1] - 1))


@plant(9, "first pad, recursion over every slot", holes=False)
def _(case: Case) -> None:
    here((case.last < case.shape[1] - 1).sum() >= 4)
    here(case.settings["gamma"] * case.settings["lam"] < 1)
    scored_at(case, lambda c: (c.last + 1).clamp(max=c.shape[1] - 1))
    case.sees["values"] = "chosen"
    credit(case, lambda c: recursion(c, c.columns["rewards"], c.columns["values"]))


@plant(9, "last column")
def _(case: Case) -> None:
    here((case.last < case.shape[1] - 1).sum() >= 4)
    scored_at(case, lambda c: torch.full_like(c.last, c.shape[1] - 1))


@plant(9, "before EOS")
def _(case: Case) -> None:
    before = case.chosen.clone()
    before[torch.arange(case.shape[0]), case.last] = False
    here(before.any(dim=1).all())
    scored_at(case, lambda c: last_of(before))


@plant(9, "the reward model's own index")
def _(case: Case) -> None:
    here((case.last > 8).sum() >= 6)
    off = torch.tensor(case.rng.integers(-6, 0, case.shape[0]))
    here((case.chosen.gather(1, (case.last + off).clamp(min=0)[:, None])[:, 0]).float().mean() > 0.5)
    scored_at(case, lambda c: (c.last + off).clamp(min=0))


def ends_in_tool_output(case: Case) -> None:
    """Rows that were aborted while a tool spoke: their last tokens are attended and were not chosen."""
    rollouts, last, width, hit = case.rollouts, case.last_present, case.shape[1], 0
    for row in range(case.shape[0]):
        end, more = int(last[row]), int(case.rng.integers(1, 4))
        if end < 3 or not rollouts.chosen[row, end - 1] or end + more > width or case.rng.random() < 0.3:
            continue
        rollouts.chosen[row, end:] = False
        rollouts.present[row, end : end + more] = True
        rollouts.ids[row, end : end + more] = case.rng.integers(FIRST_WORD, VOCABULARY, more)
        rollouts.finish[row] = "length"
        hit += 1
    here(hit >= 4)
    rollouts.log_probs[~rollouts.chosen] = 0.0
    case.rescore()


@plant(10, "on tool output at the end, lost")
def _(case: Case) -> None:
    ends_in_tool_output(case)
    scored_at(case, lambda c: c.last_present)


@plant(10, "on tool output at the end, decayed", holes=False)
def _(case: Case) -> None:
    ends_in_tool_output(case)
    here(case.settings["gamma"] * case.settings["lam"] < 1)
    scored_at(case, lambda c: c.last_present)
    credit(case, lambda c: recursion(c, c.columns["rewards"], keep(c.columns["values"], c.chosen)))


@plant(10, "on tool output at the end, counted by the group", estimator="grpo", samples=4)
def _(case: Case) -> None:
    ends_in_tool_output(case)
    scored_at(case, lambda c: c.last_present)
    case.put("credit", lambda c: grouped(c, total(c), c.rollouts.group))


@plant(11, "critic")
def _(case: Case) -> None:
    emptied(case)


@plant(11, "its group moves", estimator="grpo", samples=4)
def _(case: Case) -> None:
    emptied(case)
    case.put("credit", lambda c: grouped(c, total(c), c.rollouts.group))


# ── 15: the KL on pads ───────────────────────────────────────────────────────────────────────────────────────────────


@plant(15, "on pads")
def _(case: Case) -> None:
    has_pads(case)
    sees_all(case, "old_log_probs", "ref_log_probs")
    pays(case, lambda c: c.chosen | ~c.present)


@plant(15, "on pads, into the returns", holes=False)
def _(case: Case) -> None:
    has_pads(case)
    sees_all(case, "old_log_probs", "ref_log_probs")
    case.sees["values"] = "chosen"
    pays(case, lambda c: torch.ones_like(c.present))
    credit(case, lambda c: recursion(c, c.columns["rewards"], c.columns["values"]))


@plant(15, "on pads, the group's sum", estimator="grpo", samples=4)
def _(case: Case) -> None:
    has_pads(case)
    sees_all(case, "old_log_probs", "ref_log_probs")
    pays(case, lambda c: c.chosen | ~c.present)
    case.put("credit", lambda c: grouped(c, total(c), c.rollouts.group))


# ── 23, 24, 25: the KL's price ─────────────────────────────────────────────────────────────────────────────────────


def paid(case: Case, estimator: str, beta: float, stored: str | None = None) -> None:
    def reward(case: Case) -> None:
        c = case.columns
        lo, lr = c["old_log_probs"], c["ref_log_probs"]
        c["kl"] = kl.kl_penalty(lo, lr, stored or estimator, case.chosen)
        c["rewards"] = c["scores"] - beta * kl.kl_penalty(lo, lr, estimator, case.chosen)

    case.put("reward", reward)


@plant(23, "added to the reward")
def _(case: Case) -> None:
    paid(case, case.settings["kl_estimator"], -case.settings["beta"])


@plant(23, "added to the reward, KL not stored", far=0.1)
def _(case: Case) -> None:
    paid(case, case.settings["kl_estimator"], -case.settings["beta"])
    case.hide.add("kl")


for _used in ("k2", "k3", "abs"):

    @plant(24, f"{_used} for k1", far=0.15)
    def _(case: Case, used: str = _used) -> None:
        case.settings["kl_estimator"] = "k1"
        paid(case, used, case.settings["beta"])
        case.hide.add("kl")


@plant(24, "k1 reported, k3 paid", far=0.15)
def _(case: Case) -> None:
    case.settings["kl_estimator"] = "k1"
    paid(case, "k3", case.settings["beta"], "k1")


@plant(25, "in the reward and in the loss", choice=True, makers=("own",))
def _(case: Case) -> None:
    case.settings["kl_loss_coef"] = 0.01


@plant(25, "nowhere", choice=True)
def _(case: Case) -> None:
    case.settings |= {"beta": 0.0, "kl_loss_coef": 0.0}
