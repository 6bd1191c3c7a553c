"""Write TRL's batches for `mingce audit`: paste a function into your program and call it once a batch.

GRPO (TRL 1.16), in a trainer of your own; `rewards` are those of `_calculate_rewards`, one a row:

    class Trainer(GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            step, rank = self.state.global_step, self.accelerator.process_index
            dump_trl_grpo(output, f"dumps/step_{step}_rank{rank}.npz", self.args, self.processing_class, step)
            return output

PPO (TRL up to 1.12), in PPOTrainer.train below `advantages = torch.masked_fill(advantages, padding_mask, 0)`:

    rank = self.accelerator.process_index
    dump_trl(locals(), f"dumps/step_{update}_rank{rank}.npz", self.args, self.processing_class, update)

then `mingce audit dumps`. The file holds plain arrays in float32; opening it runs no code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

PPO = (
    "queries", "responses", "logprobs", "ref_logprobs", "values", "scores", "rewards", "advantages", "returns",
    "padding_mask", "padding_mask_p1",
)  # fmt: skip
GRPO = (
    "prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "advantages", "old_per_token_logps",
    "ref_per_token_logps", "sampling_per_token_logps", "importance_sampling_ratio",
)  # fmt: skip
MEANS = {"grpo": "seq-mean-token-mean", "bnpo": "token-mean", "dapo": "token-mean", "cispo": "token-mean"}


def dump_trl(tensors: Mapping[str, Any], path: str, args: Any, tokenizer: Any, step: int | None = None) -> None:
    """One batch of PPOTrainer.train with the settings that the audit asks for."""
    settings = {
        "gamma": args.gamma,
        "lam": args.lam,
        "beta": args.kl_coef,
        "kl_estimator": getattr(args, "kl_estimator", "k1"),
        "estimator": "gae",
        "whiten_rewards": args.whiten_rewards,
        "clip": args.cliprange,
        "value_clip": args.cliprange_value,
        "ppo_epochs": args.num_ppo_epochs,
        "temperature": args.temperature,
        "max_response_length": args.response_length,
    }
    save({name: tensors.get(name) for name in PPO}, path, settings, tokenizer, step)


def dump_trl_grpo(
    output: Mapping[str, Any],
    path: str,
    args: Any,
    tokenizer: Any,
    step: int | None = None,
    rewards: Sequence[float] | None = None,
) -> None:
    """One batch of GRPOTrainer._generate_and_score_completions with the settings that the audit asks for."""
    scaled = {"group": "grpo", "True": "grpo", "none": "dr_grpo", "False": "dr_grpo"}.get(str(args.scale_rewards))
    sequences = getattr(args, "importance_sampling_level", "token") == "sequence"
    settings = {
        "estimator": scaled,
        "kl_loss_coef": args.beta,
        "kl_estimator": "k3",
        "policy_loss": "gspo" if sequences else "cispo" if args.loss_type == "cispo" else "ppo",
        "loss_agg_mode": MEANS.get(args.loss_type),
        "clip_low": args.epsilon,
        "clip_high": args.epsilon if args.epsilon_high is None else args.epsilon_high,
        "ppo_epochs": args.num_iterations,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "top_k": args.top_k,
        "min_p": args.min_p,
        "group_size": args.num_generations,
        "max_response_length": args.max_completion_length,
    }
    columns = {name: output.get(name) for name in GRPO}
    columns["outcome"] = None if rewards is None else np.asarray(rewards, dtype=np.float32)
    save(columns, path, settings, tokenizer, step)


def save(columns: Mapping[str, Any], path: str, settings: dict[str, Any], tokenizer: Any, step: int | None) -> None:
    """The columns that are there as arrays, the settings as a text of JSON."""
    arrays = {}
    for name, column in columns.items():
        if hasattr(column, "detach"):
            column = column.detach().cpu()
            column = (column.float() if column.is_floating_point() else column).numpy()
        if column is not None:
            arrays[name] = column
    settings |= {"eos_id": tokenizer.eos_token_id, "pad_id": tokenizer.pad_token_id, "step": step}
    text = json.dumps({key: value for key, value in settings.items() if value is not None})
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    np.savez(path, settings=np.array(text), **arrays)
