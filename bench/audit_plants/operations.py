"""What several plants do to a case: look for a batch that shows the bug, or compute a column in another way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from audit_case import Case
from audit_clean import empty_row, place_score
from torch import Tensor

from audit_plants import here
from mingce.algorithms import advantage, kl
from mingce.algorithms.masking import keep


def has_holes(case: Case) -> None:
    here((case.present & ~case.chosen).any(dim=1).sum() >= 3)


def has_pads(case: Case) -> None:
    here((~case.present).any(dim=1).sum() >= 4)


def total(case: Case) -> Tensor:
    """[B] each row's reward."""
    return case.columns["rewards"].sum(dim=1)


def recursion(case: Case, rewards: Tensor, values: Tensor, through: Tensor | None = None) -> Tensor:
    """GAE over every slot, without a mask; where `through` is 0 nothing is carried further."""
    gamma, lam = case.settings["gamma"], case.settings["lam"]
    backwards, later, ahead = [], torch.zeros(len(rewards)), torch.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        later = rewards[:, t] + gamma * ahead - values[:, t] + gamma * lam * later
        if through is not None:
            later = later * through[:, t]
        ahead = values[:, t]
        backwards.append(later)
    return torch.stack(backwards[::-1], dim=1)


def advantages_are(case: Case, raw: Tensor, values: Tensor | None = None, returns: Tensor | None = None) -> None:
    """The columns that follow from raw advantages, kept as the maker keeps them."""
    c = case.columns
    values = c["values"] if values is None else values
    returns = raw + values if returns is None else returns
    if case.maker == "own":
        c["raw_advantages"], c["returns"] = keep(raw, case.chosen), keep(returns, case.chosen)
        return
    c["returns"] = returns
    c["advantages"] = verl_whiten(raw, case.mask)


def verl_whiten(raw: Tensor, mask: Tensor) -> Tensor:
    from audit_peers import verl

    whitened: Tensor = verl().verl_F.masked_whiten(raw, mask)
    return whitened


def credit(case: Case, make: Callable[[Case], Tensor]) -> None:
    """`make` in the place of the recursion."""
    case.put("credit", lambda c: advantages_are(c, make(c)))


def penalty(case: Case) -> Tensor:
    """The KL's estimate from the stored log-probs on every slot, masked nowhere."""
    c = case.columns
    return kl.kl_penalty(c["old_log_probs"], c["ref_log_probs"], case.settings["kl_estimator"])


def pays(case: Case, where: Callable[[Case], Tensor]) -> None:
    """The KL enters the reward on the slots `where`."""

    def reward(case: Case) -> None:
        case.columns["kl"] = keep(penalty(case), where(case))
        case.columns["rewards"] = case.columns["scores"] - case.settings["beta"] * case.columns["kl"]

    case.put("reward", reward)


def sees_all(case: Case, *names: str) -> None:
    case.sees |= dict.fromkeys(names, "all")


def raw_of(case: Case) -> Tensor:
    """The advantages before whitening."""
    c = case.columns
    return c["raw_advantages"] if "raw_advantages" in c else c["returns"] - c["values"]


def scored_at(case: Case, index: Callable[[Case], Tensor]) -> None:
    """The score in another slot, and rewards that keep it there."""
    case.put("score", lambda c: place_score(c, index(c)))
    pays(case, lambda c: c.chosen)


def emptied(case: Case) -> None:
    for row in case.rng.permutation(case.shape[0])[: max(1, case.shape[0] // 12)]:
        score = case.outcomes[row]
        empty_row(case, int(row))
        case.outcomes[row] = score
        case.rollouts.finish[row] = "stop"
    here(case.chosen.any(dim=1).sum() >= 4)
    scored_at(case, lambda c: torch.where(c.last_present < 0, c.shape[1] - 1, c.last_present))


def grouped(case: Case, scores: Tensor, group: list[Any], *, single: float | None = 0.0, epsilon: float = 1e-6) -> None:
    """A row's score against its group's, as GRPO, Dr. GRPO or RLOO; `single` is what a group of one gets, None its
    own score."""
    spread(case, against(case, scores, group, single, epsilon))


def against(case: Case, scores: Tensor, group: list[Any], single: float | None, epsilon: float) -> Tensor:
    found = torch.zeros(len(scores))
    for name in dict.fromkeys(group):
        rows = torch.tensor([g == name for g in group])
        own = scores[rows]
        n = len(own)
        if n == 1:
            found[rows] = own if single is None else single
        elif case.estimator == "rloo":
            found[rows] = (own - own.mean()) * n / (n - 1)
        elif case.estimator == "dr_grpo":
            found[rows] = own - own.mean()
        else:
            found[rows] = (own - own.mean()) / (own.std() + epsilon)
    return found


def spread(case: Case, row: Tensor) -> None:
    """A row's advantage on each of its chosen tokens."""
    name = "raw_advantages" if case.maker == "own" else "advantages"
    case.columns[name] = torch.where(case.chosen, row[:, None], 0.0)
    if case.maker == "verl":
        case.columns["returns"] = case.columns["advantages"]


def compressed(case: Case, values: Tensor, after: Tensor) -> Tensor:
    """The right recursion, with `after` [B] as the value behind the last token."""
    s = case.settings
    return advantage.gae(case.columns["rewards"], values, case.chosen, s["gamma"], s["lam"], after).advantages


def moments(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    chosen = values[mask]
    return chosen.mean(), chosen.var()


def normal(values: Tensor, mask: Tensor, over: Tensor | None = None) -> Tensor:
    """(A − μ)/σ with statistics over `over`, 0 behind the mask."""
    mean, var = moments(values, mask if over is None else over)
    return keep((values - mean) * torch.rsqrt(var + 1e-8), mask)
