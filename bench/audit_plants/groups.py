"""Bugs of groups: classes 1, 31, 37."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from audit_case import Case

from audit_plants import here, plant
from audit_plants.operations import against, grouped, spread, total


def misgrouped(case: Case, group: Callable[[Case], list[Any]], single: float | None = 0.0) -> None:
    case.put("credit", lambda c: grouped(c, total(c), group(c), single=single))


for _estimator in ("grpo", "dr_grpo", "rloo"):

    @plant(1, f"fixed stride, {_estimator}", estimator=_estimator, samples=4, rows=32)
    def _(case: Case) -> None:
        n = case.settings["group_size"]
        rows = case.shape[0]
        order = np.arange(rows).reshape(-1, n).T.reshape(-1)  # p1 p2 … p1 p2 …
        case.rollouts, case.outcomes = case.rollouts.take(order), case.outcomes[order]
        case.rescore()
        misgrouped(case, lambda c: (np.arange(rows) // n).tolist())


@plant(1, "the whole batch", estimator="grpo")
def _(case: Case) -> None:
    here(len(set(case.rollouts.group)) >= 2)
    misgrouped(case, lambda c: [0] * c.shape[0])


@plant(1, "a uid for each trajectory", estimator="grpo")
def _(case: Case) -> None:
    here(len(set(case.rollouts.group)) >= 2)
    case.rows["group"] = [f"u{i}" for i in range(case.shape[0])]
    misgrouped(case, lambda c: c.rows["group"], single=None)


@plant(1, "groups split over ranks", estimator="grpo", samples=8, rows=40)
def _(case: Case) -> None:
    rank = [(i * 4) // case.shape[0] for i in range(case.shape[0])]
    order = case.rng.permutation(case.shape[0])
    case.rollouts, case.outcomes = case.rollouts.take(order), case.outcomes[order]
    case.rescore()
    case.rows["rank"], case.settings["world_size"] = rank, 4
    misgrouped(case, lambda c: list(zip(rank, c.rollouts.group, strict=True)))


@plant(1, "labels shuffled", estimator="grpo", samples=4, rows=32)
def _(case: Case) -> None:
    order = case.rng.permutation(case.shape[0])
    labels = [case.rollouts.group[i] for i in order]
    case.rows["group"] = labels
    misgrouped(case, lambda c: labels)


@plant(37, "one row dropped, its advantage not", estimator="grpo", samples=4, rows=32)
@plant(37, "one row dropped, its advantage not, rloo", estimator="rloo", samples=4, rows=32)
def _(case: Case) -> None:
    gone = int(case.rng.integers(2, case.shape[0] // 2))
    kept = [i for i in range(case.shape[0]) if i != gone]
    group, everyone = list(case.rollouts.group), case.outcomes.copy()
    case.settings["beta"] = None
    case.rollouts, case.outcomes = case.rollouts.take(np.array(kept)), everyone[kept]
    case.rescore()

    def make(case: Case) -> None:
        scores = torch.tensor(everyone, dtype=torch.float32)
        spread(case, against(case, scores, group, 0.0, 1e-6)[: case.shape[0]])

    case.put("credit", make)


# ── 31: a group that cannot be compared ──────────────────────────────────────────────────────────────────────────────


def alone(case: Case) -> None:
    """One sample of the first group loses its siblings."""
    first = [i for i, name in enumerate(case.rollouts.group) if name == case.rollouts.group[0]]
    keep_rows = [i for i in range(case.shape[0]) if i not in first[1:]]
    here(len(set(case.rollouts.group)) >= 3)
    case.rollouts = case.rollouts.take(np.array(keep_rows))
    case.outcomes = case.outcomes[keep_rows]
    case.rescore()


@plant(31, "a group of one, Bessel", estimator="grpo", samples=4)
def _(case: Case) -> None:
    alone(case)
    case.put("credit", lambda c: grouped(c, total(c), c.rollouts.group, single=torch.nan))


@plant(31, "a group of one keeps its score", estimator="grpo", samples=4, choice=True)
def _(case: Case) -> None:
    alone(case)
    case.put("credit", lambda c: grouped(c, total(c), c.rollouts.group, single=None))


@plant(31, "a group of equals over its own std", estimator="grpo", samples=4, beta=0.0)
def _(case: Case) -> None:
    first = [i for i, name in enumerate(case.rollouts.group) if name == case.rollouts.group[0]]
    case.outcomes[first] = 1.0
    case.put("credit", lambda c: grouped(c, total(c), c.rollouts.group, epsilon=0.0))
