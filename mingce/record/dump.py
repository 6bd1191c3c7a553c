"""A batch as some trainer wrote it: named columns, nothing cleaned. Half of the evidence stands behind the mask."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mingce.base.errors import ColumnError
from mingce.specs import ESTIMATORS

Array = NDArray[Any]

# Token columns [B, T] under their one name here; aligned as in columns.py. Those that are not in the column table:
#   raw_advantages      before whitening
#   advantages          what the policy loss multiplies the ratio with, whitened or not
#   importance_weights  the weight that corrects for the sampling policy, if the trainer uses one
#   value_mask          where values are kept, if that is not the response mask (TRL keeps one slot more)
#   weight_versions     version of the weights that sampled each token
TOKEN_COLUMNS = (
    "token_ids", "response_mask", "attention_mask", "loss_mask", "value_mask", "rollout_log_probs", "old_log_probs",
    "ref_log_probs", "new_log_probs", "entropy", "scores", "kl", "rewards", "values", "new_values", "deltas",
    "raw_advantages", "advantages", "returns", "ratio", "importance_weights", "weight_versions",
)  # fmt: skip
# One entry a row:
#   uid, group          the row's own name; the name its prompt's samples share
#   prompt_ids          list of ids without padding
#   left_pad            how many pads stood before the prompt in the trainer's batch
#   position_ids        the whole row's position ids (prompt and response, pads included), list or None
#   finish_reason       "stop" or "length"
#   rank, minibatch, micro_batch, epoch      which part of the step the row was in
#   final_values        V of the state after the last token
#   outcome             the row's scalar score, where it is stored apart from the token columns
#   rollout_ids         ids as they were sampled, where they are stored apart from the trained ones
#   prompt, response, reward_text            texts; reward_text is what the scorer was given
ROW_COLUMNS = (
    "uid", "group", "prompt_ids", "left_pad", "position_ids", "finish_reason", "rank", "minibatch", "micro_batch",
    "epoch", "final_values", "outcome", "rollout_ids", "prompt", "response", "reward_text", "policy_version",
)  # fmt: skip
# Settings of the run, each of them optional:
#   gamma, lam, beta (KL in the reward), kl_estimator, kl_loss_coef, estimator, clip, clip_low, clip_high, value_clip,
#   loss_agg_mode, loss_norm, temperature, top_p, top_k, ppo_epochs, critic_updates, group_size, world_size,
#   learner_version, step, eos_id, pad_id, bos_id, stop_ids, max_response_length, kl_target, kl_horizon
# Scalars the trainer logged for this step: pg_loss, vf_loss, kl_loss, entropy_mean, kl_mean, pg_clipfrac, vf_clipfrac,
#   approx_kl, advantages_mean, kl_coef …


@dataclass
class Dump:
    """What was found in a dump. Floats are float32 or float64 arrays holding exactly the stored numbers."""

    columns: dict[str, Array]
    rows: dict[str, list[Any]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    source: str = "generic"  # verl, trl, openrlhf, prime_rl, slime, nemo_rl, mingce, generic
    stored: dict[str, str] = field(default_factory=dict)  # dtype of each column in the file, e.g. "bfloat16"
    remarks: list[tuple[str, str]] = field(default_factory=list)  # (中文, English) about the reading: a missing shard …
    path: str = ""
    step: int | None = None

    def __post_init__(self) -> None:
        if "response_mask" not in self.columns:
            raise ColumnError(
                "the dump has no response_mask (or loss mask, action mask, padding mask), so no token can be judged; "
                "add it, or name it in a mapping file.",
                column="response_mask",
            )
        shape = self.columns["response_mask"].shape
        for name, column in self.columns.items():
            if column.ndim != 2 or column.shape != shape:
                raise ColumnError(
                    f"{name} has shape {list(column.shape)} where response_mask has {list(shape)}.", column=name
                )
        for name, row in self.rows.items():
            if len(row) != shape[0]:
                raise ColumnError(f"{name} has {len(row)} entries for {shape[0]} rows.", column=name)

    @property
    def shape(self) -> tuple[int, int]:
        rows, width = self.columns["response_mask"].shape
        return rows, width

    @property
    def mask(self) -> NDArray[np.bool_]:
        """[B, T] True where the policy chose the token."""
        return self.columns["response_mask"].astype(bool)

    def wide(self, name: str) -> NDArray[np.float64]:
        """The column in float64, exactly the stored numbers."""
        return self.columns[name].astype(np.float64)

    def has(self, *names: str) -> bool:
        """Whether every name is a token column, row column, setting or scalar of this dump; `a|b` means either."""
        known = (self.columns, self.rows, self.settings, self.scalars)
        return all(any(one in part for one in name.split("|") for part in known) for name in names)


def own_estimator(dump: Dump) -> str | None:
    """The person's own estimator that made the advantages of a ledger of ours, which nothing here can recompute."""
    name = dump.settings.get("estimator") if dump.source == "mingce" else None
    spec = ESTIMATORS.get(str(name))
    return str(name) if name is not None and (spec is None or spec.kind == "own") else None
