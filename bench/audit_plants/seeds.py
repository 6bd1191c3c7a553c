"""The known defects of verl 0.1, each as a dump would show it.

Two of them no dump shows: ppo_epochs and shuffle ignored by the workers, and training that stops one update early.
"""

from __future__ import annotations

import numpy as np
import torch
from audit_case import Case
from audit_clean import micro_batches
from audit_world import Sampler

from audit_plants import here, plant
from audit_plants.losses import ONE, by_micro, logged, value_terms
from audit_plants.operations import credit, emptied, has_holes, has_pads, normal, recursion
from mingce.algorithms import masking
from mingce.algorithms.masking import keep


@plant(16, "verl 0.1: the value mask is one slot off", seed=True, holes=False, also=(19,), makers=("own",))
def _(case: Case) -> None:
    """V is kept up to the slot after EOS, and the recursion runs over it."""
    has_pads(case)
    here(case.settings["lam"] < 1)
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


@plant(4, "verl 0.1: micro-batches weigh the same", seed=True, mode="token-mean", **ONE)
def _(case: Case) -> None:
    logged(case, "pg_loss", lambda c: by_micro(c, [1.0] * len(micro_batches(c))))
    logged(case, "vf_loss", lambda c: by_micro(c, [1.0] * len(micro_batches(c)), value_terms))


@plant(3, "verl 0.1: retrieved tokens in the critic loss", seed=True, holes=True, also=(19, 26, 27), **ONE)
def _(case: Case) -> None:
    has_holes(case)
    case.sees |= {"values": "present", "new_values": "present"}
    logged(case, "vf_loss", lambda c: masking.masked_mean(value_terms(c), c.present))


@plant(
    14, "verl 0.1: top-p sampling, full-softmax log-probs", seed=True, sampler=Sampler(top_p=0.9), temperature=1.0,
    rows=48, width=96, also=(2,),
)  # fmt: skip
def _(case: Case) -> None:
    """There are no rollout log-probs: the actor scores what was sampled."""
    case.hide.add("rollout_log_probs")
