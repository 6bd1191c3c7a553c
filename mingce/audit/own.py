"""Our own ledger as a dump: the names the audit uses, and the settings its numbers were made with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mingce.audit.dump import ROW_COLUMNS, TOKEN_COLUMNS, Dump
from mingce.config import Config
from mingce.importers.settled import settled
from mingce.ledger import Ledger


def dump_of_ledger(
    ledger: Ledger, config: Config, *, step: int | None = None, beta: float | None = None, stop_ids: Sequence[int] = ()
) -> Dump:
    """A ledger with everything the configuration says of it; `beta` is the price of its KL, which may be adaptive."""
    columns = {name: values.cpu().numpy() for name, values in ledger.columns().items()}
    if "whitened_advantages" in columns:  # what the loss used is `advantages` to the audit
        columns["raw_advantages"] = columns["advantages"]
        columns["advantages"] = columns["whitened_advantages"]
    rows = {name: values for name, values in ledger.rows.items() if name in ROW_COLUMNS}
    if "bootstrap_value" in ledger.rows:
        rows["final_values"] = ledger.rows["bootstrap_value"]
    dump = Dump(
        columns={name: column for name, column in columns.items() if name in TOKEN_COLUMNS},
        rows=rows,
        settings=settings_of(config, beta=beta, stop_ids=stop_ids),
        source="mingce",
        step=step,
    )
    return settled(dump)


def settings_of(config: Config, *, beta: float | None = None, stop_ids: Sequence[int] = ()) -> dict[str, Any]:
    """A run's configuration under the audit's names. β is left out where it moves and is not given."""
    kl, sampling = config.kl, config.sampling
    rollouts = config.prompts_per_step * config.samples_per_prompt
    settings: dict[str, Any] = {
        "gamma": config.credit.gamma,
        "lam": config.credit.lam,
        "estimator": config.estimator,
        "kl_estimator": kl.estimator,
        "kl_loss_coef": kl.loss_coef,
        "clip_low": config.actor.clip_low,
        "clip_high": config.actor.clip_high,
        "loss_agg_mode": config.actor.loss_agg_mode,
        "ppo_epochs": config.actor.epochs,
        "critic_updates": config.critic.epochs * math.ceil(rollouts / config.critic.minibatch_rollouts),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "group_size": config.samples_per_prompt,
        "max_response_length": sampling.max_new_tokens,
    }
    if config.critic.value_clip is not None:
        settings["value_clip"] = config.critic.value_clip
    if beta is not None or not kl.adaptive:
        settings["beta"] = kl.reward_coef if beta is None else beta
    if kl.adaptive:
        settings |= {"kl_target": kl.target, "kl_horizon": kl.horizon}
    if stop_ids:
        settings["stop_ids"] = list(stop_ids)
    return settings
