"""Bugs of whitening: classes 29, 30, 31, 32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from audit_case import Case
from audit_clean import split
from torch import Tensor

from audit_plants import here, plant
from audit_plants.operations import has_holes, has_pads, moments, normal, raw_of
from mingce.algorithms.masking import keep


def whitened(case: Case, make: Callable[[Case, Tensor], Tensor]) -> None:
    case.then("whiten", lambda c: c.columns.update(advantages=make(c, raw_of(c))))


def stored(case: Case, raw: Tensor) -> Tensor:
    """The raw advantages as they stand in memory: verl's carry on over slots that were not chosen."""
    return raw if case.maker == "verl" else keep(raw, case.chosen)


@plant(29, "statistics over every slot")
def _(case: Case) -> None:
    has_pads(case)
    whitened(case, lambda c, raw: normal(stored(c, raw), c.chosen, torch.ones_like(c.chosen)))


@plant(29, "statistics over the attention mask", holes=True)
def _(case: Case) -> None:
    has_holes(case)
    whitened(case, lambda c, raw: normal(stored(c, raw), c.chosen, c.present))


def by_part(case: Case, raw: Tensor, part: list[Any]) -> Tensor:
    found = torch.zeros(case.shape)
    for name in dict.fromkeys(part):
        rows = torch.tensor([p == name for p in part])
        here(case.chosen[rows].sum() >= 2)
        found[rows] = normal(raw[rows], case.chosen[rows])
    return found


@plant(30, "per rank")
def _(case: Case) -> None:
    ranks = (np.arange(case.shape[0]) * 4 // case.shape[0]).tolist()
    case.rows["rank"], case.settings["world_size"] = ranks, 4
    whitened(case, lambda c, raw: by_part(c, raw, ranks))


@plant(30, "per rank, ranks not stored", rows=32, samples=4)
def _(case: Case) -> None:
    ranks = (np.arange(case.shape[0]) * 4 // case.shape[0]).tolist()
    whitened(case, lambda c, raw: by_part(c, raw, ranks))


@plant(30, "per row")
def _(case: Case) -> None:
    here((case.chosen.sum(1) >= 2).all())
    whitened(case, lambda c, raw: by_part(c, raw, list(range(c.shape[0]))))


@plant(30, "per micro-batch", minibatches=1)
def _(case: Case) -> None:
    split(case)
    whitened(case, lambda c, raw: by_part(c, raw, c.rows["micro_batch"]))


@plant(32, "shift_mean inverted", choice=True)
def _(case: Case) -> None:
    def make(case: Case, raw: Tensor) -> Tensor:
        mean, _ = moments(raw, case.chosen)
        return keep(normal(raw, case.chosen) + mean, case.chosen)

    whitened(case, make)


@plant(31, "one token in the batch", rows=1, width=16, samples=1)
def _(case: Case) -> None:
    case.rollouts.chosen[:, 1:] = case.rollouts.present[:, 1:] = False
    case.rollouts.log_probs[:, 1:] = 0.0
    case.rollouts.ids[:, 0] = 2
    case.rollouts.finish = ["stop"]
    case.rescore()
    case.put("whiten", lambda c: c.columns.update(advantages=torch.where(c.chosen, torch.nan, 0.0)))
    if case.maker == "verl":
        case.put("credit", lambda c: c.columns.update(returns=c.columns["rewards"].clone()))
    case.put("update", lambda c: c.columns.update(new_log_probs=c.columns["old_log_probs"]))
    case.put("log", lambda c: None)
