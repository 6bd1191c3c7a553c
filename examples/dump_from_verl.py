"""Write verl 0.9 batches for `mingce audit`: paste one of the functions into your trainer and call it once a step.

The default trainer (V1, trainer.use_v1=True): in PPOTrainer.fit (verl/trainer/ppo/v1/trainer_base.py), above
`tq.kv_clear(…)`, fetch what TransferQueue holds of the step and write it:

    keys = [key for key, tag in zip(batch.keys, batch.tags) if not tag.get("is_padding")]
    data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=FIELDS)
    dump_verl_v1(data, f"dumps/step_{self.global_steps}.pt", self.config, self.tokenizer, self.global_steps, metrics)

The other one: in RayPPOTrainer.fit (verl/trainer/ppo/ray_trainer.py), where the metrics of the step are logged:

    dump_verl(batch, f"dumps/step_{self.global_steps}.pt", self.config, self.tokenizer, self.global_steps, metrics)

then `mingce audit dumps`. The file is a plain dict of tensors in float32; opening it runs no code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

FIELDS = [
    "uid", "prompts", "responses", "response_mask", "rm_scores", "rollout_log_probs", "old_log_probs", "ref_log_prob",
    "values", "entropy", "advantages", "returns", "token_level_rewards", "rollout_is_weights",
]  # fmt: skip


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """In float32 at least, with memory of its own."""
    tensor = tensor.detach().cpu()
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.clone()


def settings_of(config: Any, tokenizer: Any, step: int | None) -> dict[str, Any]:
    """The settings that the audit asks for."""

    def get(*keys: str) -> Any:
        found = config
        for key in keys:
            found = None if found is None else found.get(key)
        return found

    actor, rollout = ("actor_rollout_ref", "actor"), ("actor_rollout_ref", "rollout")
    settings = {
        "gamma": get("algorithm", "gamma"),
        "lam": get("algorithm", "lam"),
        "estimator": get("algorithm", "adv_estimator"),
        "beta": get("algorithm", "kl_ctrl", "kl_coef") if get("algorithm", "use_kl_in_reward") else None,
        "kl_estimator": get("algorithm", "kl_penalty"),
        "kl_loss_coef": get(*actor, "kl_loss_coef") if get(*actor, "use_kl_loss") else None,
        "clip": get(*actor, "clip_ratio"),
        "clip_low": get(*actor, "clip_ratio_low"),
        "clip_high": get(*actor, "clip_ratio_high"),
        "dual_clip": get(*actor, "clip_ratio_c"),
        "entropy_coef": get(*actor, "entropy_coeff"),
        "loss_agg_mode": get(*actor, "loss_agg_mode"),
        "ppo_epochs": get(*actor, "ppo_epochs"),
        "temperature": get(*rollout, "temperature"),
        "top_p": get(*rollout, "top_p"),
        "top_k": get(*rollout, "top_k"),
        "group_size": get(*rollout, "n"),
        "value_clip": get("critic", "cliprange_value"),
        "max_response_length": get("data", "max_response_length"),
        "eos_id": getattr(tokenizer, "eos_token_id", None),
        "pad_id": getattr(tokenizer, "pad_token_id", None),
        "bos_id": getattr(tokenizer, "bos_token_id", None),
        "step": step,
    }
    return {key: value for key, value in settings.items() if value is not None}


def logged(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """Those of the step's metrics that are single numbers."""
    return {key: float(value) for key, value in (metrics or {}).items() if isinstance(value, int | float)}


def dump_verl(
    batch: Any,
    path: str,
    config: Any = None,
    tokenizer: Any = None,
    step: int | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> None:
    """One step's DataProto."""
    kept = {"uid", "data_source"}
    others = {key: [str(one) for one in values] for key, values in batch.non_tensor_batch.items() if key in kept}
    tensors = {key: wide(tensor) for key, tensor in batch.batch.items() if isinstance(tensor, torch.Tensor)}
    save({"batch": tensors, "non_tensor_batch": others}, path, config, tokenizer, step, metrics)


def dump_verl_v1(
    data: Any,
    path: str,
    config: Any = None,
    tokenizer: Any = None,
    step: int | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> None:
    """One step's TensorDict from TransferQueue: each field a list of rows, nested or padded alike."""
    rows: dict[str, Any] = {}
    for name in FIELDS:
        value = data.get(name, None)
        if isinstance(value, torch.Tensor):
            rows[name] = [wide(row) for row in value.unbind(0)]
        elif value is not None:
            rows[name] = [str(one) for one in (value.tolist() if hasattr(value, "tolist") else value)]
    if "token_level_rewards" not in rows and "rm_scores" in rows:  # without a KL in the reward verl keeps one of them
        rows["token_level_rewards"] = rows["rm_scores"]
    save(rows, path, config, tokenizer, step, metrics)


def save(
    content: dict[str, Any],
    path: str,
    config: Any,
    tokenizer: Any,
    step: int | None,
    metrics: Mapping[str, Any] | None,
) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    about = {"settings": settings_of(config, tokenizer, step), "scalars": logged(metrics)}
    torch.save(content | about, path)
