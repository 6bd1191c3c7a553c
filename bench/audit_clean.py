"""Clean dumps: the stages of a step by mingce's own functions, and random batches taken through them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from audit_case import CRITIC, STAGES, Case, Stage
from torch import Tensor

from mingce.algorithms import advantage, kl, losses, masking
from mingce.record.dump import Dump
from mingce.specs import find_estimator

# ── the stages as both trainers have them ──────────────────────────────────────────────────────────────────────────


def visible(case: Case, name: str) -> Tensor:
    """A measured column behind the mask that it is kept with."""
    where = {"chosen": case.chosen, "present": case.present, "all": torch.ones_like(case.present)}[case.sees[name]]
    return masking.keep(case.raw[name], where)


def measure(case: Case) -> None:
    names = ["rollout_log_probs", "old_log_probs", "entropy"]
    if case.settings["beta"] is not None:
        names.append("ref_log_probs")
    if case.estimator in CRITIC:
        names.append("values")
    case.columns |= {name: visible(case, name) for name in names}


def place_score(case: Case, index: Tensor) -> None:
    """Each row's outcome in the slot `index` [B]; −1 writes nothing."""
    scores = torch.zeros(case.shape)
    rows = torch.arange(case.shape[0])[index >= 0]
    scores[rows, index[rows]] = torch.tensor(case.outcomes, dtype=torch.float32)[rows]
    case.columns["scores"] = scores


def score_last(case: Case) -> None:
    place_score(case, case.last)
    if case.dense:  # a format reward on some tokens on the way
        some = torch.tensor(case.rng.random(case.shape) < 0.1) & case.chosen
        case.columns["scores"] += 0.1 * some.float()


def split(case: Case) -> None:
    """Minibatches and micro-batches of like length, as row ids."""
    rows = case.shape[0]
    order = case.rng.permutation(rows)
    minibatch, micro = np.zeros(rows, dtype=int), np.zeros(rows, dtype=int)
    for number, part in enumerate(np.array_split(order, case.minibatches)):
        minibatch[part] = number
        part = part[np.argsort(-case.chosen.sum(dim=1).numpy()[part], kind="stable")]
        for smaller in np.array_split(part, max(2, len(part) // 6)):
            micro[smaller] = micro.max() + 1
    case.rows |= {"minibatch": minibatch.tolist(), "micro_batch": [int(i) - 1 for i in micro]}
    case.rows["epoch"] = [case.settings["ppo_epochs"] - 1] * rows


def parts(case: Case) -> None:
    """The parts of the step, and what the models said when the loss last used them."""
    if "micro_batch" not in case.rows:
        split(case)
    minibatch = np.array(case.rows["minibatch"])
    untouched = case.settings["ppo_epochs"] == 1 and not case.second_pass_differs
    if untouched:  # the first minibatch has learnt nothing
        first = torch.tensor(minibatch == 0)[:, None]
        for new, old in (("new_log_probs", "old_log_probs"), ("new_values", "values")):
            case.raw[new] = torch.where(first, case.raw[old], case.raw[new])
    case.columns["new_log_probs"] = visible(case, "new_log_probs")
    if case.estimator in CRITIC:
        case.columns["new_values"] = visible(case, "new_values")


def micro_batches(case: Case) -> list[Tensor]:
    """Row indices of each micro-batch."""
    ids = torch.tensor(case.rows["micro_batch"])
    return [(ids == i).nonzero()[:, 0] for i in sorted(set(case.rows["micro_batch"]))]


def statistics(case: Case) -> None:
    """The means that are logged beside the losses, over chosen tokens."""
    c, mask, scalars = case.columns, case.chosen, case.scalars
    scalars["entropy_mean"] = float(masking.masked_mean(c["entropy"], mask))
    scalars["advantages_mean"] = float(masking.masked_mean(c["advantages"], mask))
    scalars["approx_kl"] = float(masking.masked_mean(c["old_log_probs"] - c["new_log_probs"], case.loss_mask))
    if "kl" in c:
        rows = mask.any(dim=1)
        scalars["kl_mean"] = float(masking.masked_mean(c["kl"], mask, axis=1)[rows].mean())
        scalars["kl_coef"] = case.settings["beta"]


# ── mingce ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def own_reward(case: Case) -> None:
    c, s = case.columns, case.settings
    if s["beta"] is None:
        c["rewards"] = c["scores"].clone()
        return
    c["kl"] = kl.kl_penalty(c["old_log_probs"], c["ref_log_probs"], s["kl_estimator"], case.chosen)
    c["rewards"] = kl.kl_rewards(c["scores"], c["kl"], case.chosen, s["beta"])


def own_credit(case: Case) -> None:
    """As mingce.credit.assign_credit does it, without a ledger."""
    c, s = case.columns, case.settings
    bootstrap, case.loss_mask = advantage.truncation_rule(
        case.truncation, case.cut, case.chosen, case.bootstrap if case.estimator in CRITIC else None
    )
    columns = {**c, "response_mask": case.chosen, "group": case.rollouts.group}
    spec = find_estimator(case.estimator)
    credit = advantage.function_of(spec)(**spec.arguments(columns, s, bootstrap))
    c["raw_advantages"] = credit.advantages
    if credit.returns is not None:
        c["returns"] = credit.returns
        c["deltas"] = advantage.td_errors(c["rewards"], c["values"], case.chosen, s["gamma"], bootstrap)


def own_whiten(case: Case) -> None:
    c = case.columns
    if not find_estimator(case.estimator).whitens:
        c["advantages"] = c.pop("raw_advantages")
    else:
        c["advantages"] = masking.masked_whiten(c["raw_advantages"], case.loss_mask)


def own_update(case: Case) -> None:
    """The losses as roles/learner.py adds them up: micro-batch by micro-batch, over the minibatch's totals."""
    parts(case)
    c, s, mask = case.columns, case.settings, case.loss_mask
    ratio, shares = torch.zeros(case.shape), {name: torch.zeros(case.shape) for name in ("pg", "vf")}
    clipped = {name: torch.zeros(case.shape) for name in ("pg", "vf")}
    for rows in micro_batches(case):
        policy = losses.ppo_loss(
            c["old_log_probs"][rows], c["new_log_probs"][rows], c["advantages"][rows], mask[rows],
            cliprange_low=s["clip_low"], cliprange_high=s["clip_high"], clip_ratio_c=s["dual_clip"],
        )  # fmt: skip
        ratio[rows], shares["pg"][rows] = policy.columns["ratio"], policy.columns["policy_loss"]
        clipped["pg"][rows] = policy.columns["clipped"].float()
        if "values" in c:
            value = losses.value_loss(
                c["new_values"][rows], c["returns"][rows], c["values"][rows], mask[rows], s["value_clip"]
            )
            shares["vf"][rows] = value.columns["value_loss"]
            clipped["vf"][rows] = value.columns["value_clipped"].float()
    c["ratio"] = ratio
    for name in ("pg", "vf") if "values" in c else ("pg",):
        mode = s["loss_agg_mode"] if name == "pg" else "token-mean"
        case.scalars[f"{name}_loss"] = float(
            losses.agg_loss(shares[name], mask, mode, loss_scale_factor=s["loss_norm"])
        )
        case.scalars[f"{name}_clipfrac"] = float(masking.masked_mean(clipped[name], mask))
    if s["kl_loss_coef"]:
        term = losses.kl_loss(c["new_log_probs"], c["ref_log_probs"], mask, loss_agg_mode=s["loss_agg_mode"])
        case.scalars["kl_loss"] = float(term.loss)


OWN: dict[str, Stage] = dict(
    zip(STAGES, (measure, score_last, own_reward, own_credit, own_whiten, own_update, statistics), strict=True)
)


# ── one of them ────────────────────────────────────────────────────────────────────────────────────────────────────


def clean(seed: int, maker: str = "own", holes: bool = True, coarse: bool = False) -> Dump:
    """A random batch without a bug: any shape, estimator, aggregation; sometimes without the settings, sometimes the
    first step (policy = reference), sometimes with an empty row."""
    rng = np.random.default_rng([seed, 1])
    case = Case(
        seed, maker, holes, dense=None, spread=False, truncation=None if maker == "own" else "zero",
        beta=None if rng.random() < 0.85 else 0.0,
    )  # fmt: skip
    kind = rng.random()
    if rng.random() < 0.2 and maker == "own":
        case.then("update", weigh)
    if kind < 0.1:
        case.step = 1
        case.raw["ref_log_probs"] = case.raw["old_log_probs"].clone()
    elif kind < 0.15:  # no reference model at all
        case.settings["beta"] = None
    elif kind < 0.2:  # the engine gave nothing back for one row, and nobody scored it
        empty_row(case, int(rng.integers(case.shape[0])))
    elif kind < 0.25 and maker == "own":
        case.settings |= {"beta": 0.0, "kl_loss_coef": 0.01}
    dump = case.dump(coarse)
    if rng.random() < 0.3 and case.estimator not in ("n_step", "uniform", "last_k"):  # nobody could guess these
        names = ("gamma", "lam", "beta", "kl_estimator", "estimator", "loss_agg_mode", "loss_norm")
        dump.settings = replace(dump.settings, **dict.fromkeys(names))
    if maker == "own" and rng.random() < 0.3:
        dump.source = "generic"
    return dump


def weigh(case: Case) -> None:
    """Truncated weights that correct for the engine's own numbers."""
    apart = case.columns["old_log_probs"] - case.columns["rollout_log_probs"]
    case.columns["importance_weights"] = masking.keep(apart.exp().clamp(max=2.0), case.chosen)


def empty_row(case: Case, row: int) -> None:
    """The row has no response."""
    case.rollouts.chosen[row] = case.rollouts.present[row] = False
    case.rollouts.log_probs[row], case.outcomes[row] = 0.0, 0.0
    case.remask()
