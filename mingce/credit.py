"""Stage 2 of a step: from scores and log-probs to rewards, advantages and returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mingce.algorithms.advantage import function_of, td_errors, truncation_rule
from mingce.algorithms.kl import kl_penalty, kl_rewards
from mingce.algorithms.masking import masked_whiten
from mingce.columns import ROW_COLUMNS
from mingce.config import Config
from mingce.ledger import Ledger
from mingce.specs import Estimator, find_estimator


def assign_credit(ledger: Ledger, config: Config, beta: float) -> None:
    """Fills kl, rewards, loss_mask, the estimator's columns and whitened_advantages; `beta` is the price of the KL."""
    assign_rewards(ledger, config, beta)
    assign_advantages(ledger, config)
    if whitens(config):
        ledger.fill({"whitened_advantages": masked_whiten(ledger["advantages"], ledger.loss_mask)})


def assign_rewards(ledger: Ledger, config: Config, beta: float) -> None:
    """Fills kl and rewards; `beta` is the price of the KL."""
    mask, kl = ledger.mask, config.kl
    if "ref_log_probs" in ledger:
        ledger.fill({"kl": kl_penalty(ledger["old_log_probs"], ledger["ref_log_probs"], kl.estimator, mask, kl.clamp)})
        ledger.fill({"rewards": kl_rewards(ledger["scores"], ledger["kl"], mask, beta)})
    else:
        ledger.fill({"rewards": ledger["scores"]})


def assign_advantages(ledger: Ledger, config: Config) -> None:
    """Fills loss_mask and the estimator's columns."""
    mask, spec = ledger.mask, find_estimator(config.estimator)
    cut = torch.tensor([reason == "length" for reason in ledger.row("finish_reason")], device=mask.device)
    after = torch.tensor(ledger.row("bootstrap_value"), device=mask.device) if spec.needs_critic else None
    bootstrap, loss_mask = truncation_rule(config.credit.truncation, cut.bool(), mask, after)
    ledger.fill({"loss_mask": loss_mask})
    ledger.fill(credit_columns(ledger, spec, vars(config.credit), bootstrap))


def credit_columns(
    ledger: Ledger, spec: Estimator, settings: Mapping[str, Any], bootstrap: Tensor | None = None
) -> dict[str, Tensor]:
    """The estimator's columns from those of the ledger; with a critic, deltas and returns too."""
    if spec.kind == "group" and len(set(conversations := ledger.rows.get("conversation", []))) < len(conversations):
        return {"advantages": _among_conversations(ledger, spec, settings)}
    inputs: dict[str, Any] = {name: _input(ledger, name) for name in spec.inputs}
    arguments = spec.arguments(inputs, settings, bootstrap)
    columns = function_of(spec)(**arguments).columns()
    if spec.needs_critic:
        gamma = arguments.get("gamma", settings.get("gamma", 1.0))
        columns["deltas"] = td_errors(ledger["rewards"], ledger["values"], ledger.mask, gamma, bootstrap)
    return columns


def _among_conversations(ledger: Ledger, spec: Estimator, settings: Mapping[str, Any]) -> Tensor:
    """Advantages where conversations are several rows, of which each counts once in its group.

    A row is compared with the first rows of the other conversations: what came later is paid there, too.
    """
    group, conversation, mask = ledger.row("group"), ledger.row("conversation"), ledger.mask
    advantages = torch.zeros_like(ledger["rewards"])
    groups: dict[Any, list[int]] = {}
    for row, name in enumerate(group):
        groups.setdefault(name, []).append(row)
    for rows in groups.values():
        first = {conversation[row]: row for row in reversed(rows)}
        sets = [[row, *(one for own, one in first.items() if own != conversation[row])] for row in rows]
        members = [one for compared in sets for one in compared]
        names = [number for number, compared in enumerate(sets) for _ in compared]
        inputs = {"rewards": ledger["rewards"][members], "response_mask": mask[members], "group": names}
        found = function_of(spec)(**spec.arguments(inputs, settings)).columns()["advantages"]
        advantages[rows] = found[torch.arange(0, len(members), len(first))]
    return advantages


def _input(ledger: Ledger, name: str) -> Any:
    if name == "turn" and name not in ledger:  # an answer without an environment is one turn
        return torch.zeros_like(ledger["token_ids"])
    return ledger.row(name) if name in ROW_COLUMNS else ledger[name]


def whitens(config: Config) -> bool:
    """Whether this configuration whitens advantages."""
    return config.credit.whiten == "always" or (
        config.credit.whiten == "auto" and find_estimator(config.estimator).whitens
    )
