"""Bugs of advantages and returns: classes 3, 16, 19, 33, 34."""

from __future__ import annotations

import torch
from audit_case import Case
from torch import Tensor

from audit_plants import here, plant
from audit_plants.operations import (
    advantages_are,
    compressed,
    credit,
    has_holes,
    has_pads,
    recursion,
    sees_all,
    verl_whiten,
)
from mingce.algorithms.masking import keep


@plant(3, "the recursion steps on tool output", holes=True)
def _(case: Case) -> None:
    has_holes(case)
    here(case.settings["gamma"] * case.settings["lam"] < 1)  # otherwise the values in between cancel
    case.sees["values"] = "present"
    credit(case, lambda c: recursion(c, c.columns["rewards"], keep(c.columns["values"], c.present)))


@plant(3, "the recursion decays over tool output", holes=True, choice=True)
def _(case: Case) -> None:
    has_holes(case)
    here(case.settings["gamma"] * case.settings["lam"] < 1)
    credit(case, lambda c: recursion(c, c.columns["rewards"], keep(c.columns["values"], c.chosen)))


@plant(3, "REINFORCE++ forgets left of a gap", holes=True, estimator="reinforce_plus_plus")
def _(case: Case) -> None:
    has_holes(case)

    def make(case: Case) -> None:
        c = case.columns
        back, running = [], torch.zeros(case.shape[0])
        for t in reversed(range(case.shape[1])):
            running = (c["rewards"][:, t] + case.settings["gamma"] * running) * case.mask[:, t]
            back.append(running)
        raw = torch.stack(back[::-1], dim=1)
        if case.maker == "own":
            c["raw_advantages"] = raw
        else:
            c["returns"], c["advantages"] = raw, verl_whiten(raw, case.mask) * case.mask

    case.put("credit", make)


def behind_last(case: Case) -> Tensor:
    """[B] the critic's number in the slot after the last chosen one; 0 where the row is full."""
    last = case.last
    found = case.raw["all_values"].gather(1, (last + 1)[:, None])[:, 0]
    return torch.where(last + 1 < case.shape[1], found, 0.0)


@plant(16, "the next slot's value")
def _(case: Case) -> None:
    has_pads(case)
    sees_all(case, "values")
    credit(case, lambda c: compressed(c, c.columns["values"], behind_last(c)))


@plant(16, "the whole tail", holes=False)
def _(case: Case) -> None:
    has_pads(case)
    here(case.settings["lam"] < 1)  # with λ = 1 the values on the way cancel
    sees_all(case, "values")
    credit(case, lambda c: recursion(c, c.columns["rewards"], c.columns["values"]))


@plant(16, "stored masked, used raw")
def _(case: Case) -> None:
    has_pads(case)
    case.sees["values"] = "chosen"
    credit(case, lambda c: compressed(c, c.columns["values"], behind_last(c)))


@plant(19, "the recursion reads V one late")
def _(case: Case) -> None:
    sees_all(case, "values")

    def make(case: Case) -> None:
        late = case.raw["all_values"][:, 1:]
        advantages_are(case, compressed(case, late, torch.zeros(case.shape[0])), late)

    case.put("credit", make)


@plant(19, "the recursion reads V one early")
def _(case: Case) -> None:
    sees_all(case, "values")

    def make(case: Case) -> None:
        values = case.columns["values"]
        early = torch.cat([values[:, :1], values[:, :-1]], dim=1)
        advantages_are(case, compressed(case, early, torch.zeros(case.shape[0])), early)

    case.put("credit", make)


@plant(34, "rows cut by the limit end in 0", choice=True)
def _(case: Case) -> None:
    here(case.cut.sum() >= 3)


@plant(33, "A = r − V")
def _(case: Case) -> None:
    credit(case, lambda c: c.columns["rewards"] - c.columns["values"])


@plant(33, "R of whitened advantages")
def _(case: Case) -> None:
    def make(case: Case) -> None:
        c = case.columns
        c["returns"] = keep(c["advantages"] + c["values"], case.chosen)

    case.then("whiten", make)


@plant(33, "R = r + V")
def _(case: Case) -> None:
    case.then("whiten", lambda c: c.columns.update(returns=keep(c.columns["rewards"] + c.columns["values"], c.chosen)))
