"""Bugs of scores, rewards, advantages and whitening: classes 1, 3, 9–11, 15, 16, 19, 23–25, 29–34, 37 and verl 0.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from audit_clean import Case, empty_row, last_of, place_score, split
from audit_plants import here, plant
from audit_world import FIRST_WORD, VOCABULARY
from torch import Tensor

from mingce.algorithms import advantage, kl
from mingce.algorithms.masking import keep


def outcomes(case: Case) -> Tensor:
    return torch.tensor(case.outcomes, dtype=torch.float32)


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
    c["advantages"] = _verl_whiten(raw, case.mask)


def _verl_whiten(raw: Tensor, mask: Tensor) -> Tensor:
    from audit_peers import verl

    whitened: Tensor = verl().verl_F.masked_whiten(raw, mask)
    return whitened


def credit(case: Case, make: Callable[[Case], Tensor]) -> None:
    """`make` in the place of the recursion."""
    case.put("credit", lambda c: advantages_are(c, make(c)))


def raw_of(case: Case) -> Tensor:
    """The advantages before whitening."""
    c = case.columns
    return c["raw_advantages"] if "raw_advantages" in c else c["returns"] - c["values"]


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


# ── 3: tool output as steps ────────────────────────────────────────────────────────────────────────────────────────


def has_holes(case: Case) -> None:
    here((case.present & ~case.chosen).any(dim=1).sum() >= 3)


@plant(3, "KL on tool output", holes=True)
def _(case: Case) -> None:
    has_holes(case)
    case.sees |= dict.fromkeys(("old_log_probs", "ref_log_probs"), "present")
    pays(case, lambda c: c.present)


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
            c["returns"], c["advantages"] = raw, _verl_whiten(raw, case.mask) * case.mask

    case.put("credit", make)


# ── 9, 10, 11: where the score is put ──────────────────────────────────────────────────────────────────────────────


def scored_at(case: Case, index: Callable[[Case], Tensor]) -> None:
    """The score in another slot, and rewards that keep it there."""
    case.put("score", lambda c: place_score(c, index(c)))
    pays(case, lambda c: c.chosen)


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


def emptied(case: Case) -> None:
    for row in case.rng.permutation(case.shape[0])[: max(1, case.shape[0] // 12)]:
        score = case.outcomes[row]
        empty_row(case, int(row))
        case.outcomes[row] = score
        case.rollouts.finish[row] = "stop"
    here(case.chosen.any(dim=1).sum() >= 4)
    scored_at(case, lambda c: torch.where(c.last_present < 0, c.shape[1] - 1, c.last_present))


@plant(11, "critic")
def _(case: Case) -> None:
    emptied(case)


@plant(11, "its group moves", estimator="grpo", samples=4)
def _(case: Case) -> None:
    emptied(case)
    case.put("credit", lambda c: grouped(c, total(c), c.rollouts.group))


# ── 15, 16, 19: what stands behind the end ─────────────────────────────────────────────────────────────────────────


def has_pads(case: Case) -> None:
    here((~case.present).any(dim=1).sum() >= 4)


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


def compressed(case: Case, values: Tensor, after: Tensor) -> Tensor:
    """The right recursion, with `after` [B] as the value behind the last token."""
    s = case.settings
    return advantage.gae(case.columns["rewards"], values, case.chosen, s["gamma"], s["lam"], after).advantages


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
    here(case.settings["gamma"] * case.settings["lam"] < 1)
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


# ── 29–33: whitening and returns ───────────────────────────────────────────────────────────────────────────────────


def whitened(case: Case, make: Callable[[Case, Tensor], Tensor]) -> None:
    case.then("whiten", lambda c: c.columns.update(advantages=make(c, raw_of(c))))


def moments(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    chosen = values[mask]
    return chosen.mean(), chosen.var()


def normal(values: Tensor, mask: Tensor, over: Tensor | None = None) -> Tensor:
    """(A − μ)/σ with statistics over `over`, 0 behind the mask."""
    mean, var = moments(values, mask if over is None else over)
    return keep((values - mean) * torch.rsqrt(var + 1e-8), mask)


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


# ── 1, 37: groups ──────────────────────────────────────────────────────────────────────────────────────────────────


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


@plant(1, "labels shuffled", estimator="grpo", samples=4, rows=32, also=(37,))
def _(case: Case) -> None:
    order = case.rng.permutation(case.shape[0])
    labels = [case.rollouts.group[i] for i in order]
    case.rows["group"] = labels
    misgrouped(case, lambda c: labels)


@plant(37, "one row dropped, its advantage not", estimator="grpo", samples=4, rows=32, also=(1,))
@plant(37, "one row dropped, its advantage not, rloo", estimator="rloo", samples=4, rows=32, also=(1,))
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


# ── verl 0.1 ───────────────────────────────────────────────────────────────────────────────────────────────────────


@plant(16, "verl 0.1: the value mask is one slot off", seed=True, holes=False, also=(19,), makers=("own",))
def _(case: Case) -> None:
    """V is kept up to the slot after EOS, and the recursion runs over it."""
    has_pads(case)
    here(case.settings["gamma"] * case.settings["lam"] < 1)
    wider = case.present | torch.cat([torch.ones(case.shape[0], 1, dtype=torch.bool), case.present[:, :-1]], dim=1)
    case.then("measure", lambda c: c.columns.update(values=keep(c.raw["values"], wider)))
    case.then("measure", lambda c: c.columns.update(value_mask=wider))
    credit(case, lambda c: recursion(c, c.columns["rewards"], c.columns["values"]))


@plant(40, "verl 0.1: values masked before the rows are put back", seed=True, also=(19, 27, 37), makers=("own",))
def _(case: Case) -> None:
    has_pads(case)
    order = case.rng.permutation(case.shape[0])
    back = np.argsort(order)
    case.then("measure", lambda c: c.columns.update(values=keep(c.raw["values"][order], c.chosen)[torch.tensor(back)]))


@plant(3, "verl 0.1: retrieved tokens in GAE and whitening", seed=True, holes=True, makers=("own",), also=(29,))
def _(case: Case) -> None:
    has_holes(case)
    here(case.settings["gamma"] * case.settings["lam"] < 1)
    case.sees["values"] = "present"
    case.put("credit", lambda c: _attended(c))
    case.put("whiten", lambda c: c.columns.update(advantages=normal(c.columns["raw_advantages"], c.present)))


def _attended(case: Case) -> None:
    c = case.columns
    c["raw_advantages"] = keep(recursion(case, c["rewards"], c["values"]), case.present)
    c["returns"] = c["raw_advantages"] + c["values"]


@plant(34, "verl 0.1: responses at the limit are terminal", seed=True, choice=True)
def _(case: Case) -> None:
    here(case.cut.sum() >= 3)


@plant(11, "verl 0.1: a response of length 0 is scored at −1", seed=True)
def _(case: Case) -> None:
    emptied(case)
