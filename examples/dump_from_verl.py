"""Write verl batches for `mingce audit`: paste `dump_verl` into your trainer and call it after compute_advantage.

In RayPPOTrainer.fit (verl/trainer/ppo/ray_trainer.py), below the line that sets batch to compute_advantage(...):

    dump_verl(batch, f"dumps/step_{self.global_steps}.pt", self.config, self.tokenizer, self.global_steps)

then `mingce audit dumps`. The file is a plain dict of tensors in float32; opening it runs no code.
"""

from __future__ import annotations

import os
from typing import Any

import torch


def dump_verl(batch: Any, path: str, config: Any = None, tokenizer: Any = None, step: int | None = None) -> None:
    """One step's DataProto with the settings that the audit asks for."""

    def wide(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach().cpu()
        return tensor.float() if tensor.is_floating_point() and tensor.dtype != torch.float64 else tensor.clone()

    def get(*keys: str) -> Any:
        found = config
        for key in keys:
            found = None if found is None else found.get(key)
        return found

    settings = {
        "gamma": get("algorithm", "gamma"),
        "lam": get("algorithm", "lam"),
        "estimator": get("algorithm", "adv_estimator"),
        "beta": get("algorithm", "kl_ctrl", "kl_coef") if get("algorithm", "use_kl_in_reward") else None,
        "kl_estimator": get("algorithm", "kl_penalty"),
        "clip": get("actor_rollout_ref", "actor", "clip_ratio"),
        "loss_agg_mode": get("actor_rollout_ref", "actor", "loss_agg_mode"),
        "ppo_epochs": get("actor_rollout_ref", "actor", "ppo_epochs"),
        "temperature": get("actor_rollout_ref", "rollout", "temperature"),
        "top_p": get("actor_rollout_ref", "rollout", "top_p"),
        "top_k": get("actor_rollout_ref", "rollout", "top_k"),
        "group_size": get("actor_rollout_ref", "rollout", "n"),
        "value_clip": get("critic", "cliprange_value"),
        "eos_id": getattr(tokenizer, "eos_token_id", None),
        "pad_id": getattr(tokenizer, "pad_token_id", None),
        "bos_id": getattr(tokenizer, "bos_token_id", None),
        "step": step,
    }
    kept = {"uid", "data_source"}
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    torch.save(
        {
            "batch": {key: wide(tensor) for key, tensor in batch.batch.items() if isinstance(tensor, torch.Tensor)},
            "non_tensor_batch": {
                key: [str(one) for one in values] for key, values in batch.non_tensor_batch.items() if key in kept
            },
            "settings": {key: value for key, value in settings.items() if value is not None},
        },
        path,
    )
