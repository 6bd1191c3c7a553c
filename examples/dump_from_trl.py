"""Write TRL's PPO batches for `mingce audit`: paste `dump_trl` into your trainer and call it once a batch.

In PPOTrainer.train, below `advantages = torch.masked_fill(advantages, padding_mask, 0)`:

    rank = self.accelerator.process_index
    dump_trl(locals(), f"dumps/step_{update}_rank{rank}.npz", self.args, self.processing_class, update)

then `mingce audit dumps`. The file holds plain arrays in float32; opening it runs no code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

NAMES = (
    "queries", "responses", "logprobs", "ref_logprobs", "values", "scores", "rewards", "advantages", "returns",
    "padding_mask", "padding_mask_p1",
)  # fmt: skip


def dump_trl(tensors: Mapping[str, Any], path: str, args: Any, tokenizer: Any, step: int | None = None) -> None:
    """One batch of PPOTrainer.train with the settings that the audit asks for."""
    arrays = {}
    for name in NAMES:
        if tensors.get(name) is not None:
            tensor = tensors[name].detach().cpu()
            arrays[name] = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    settings = {
        "gamma": args.gamma,
        "lam": args.lam,
        "beta": args.kl_coef,
        "kl_estimator": getattr(args, "kl_estimator", "k1"),
        "estimator": "gae",
        "clip": args.cliprange,
        "value_clip": args.cliprange_value,
        "ppo_epochs": args.num_ppo_epochs,
        "temperature": args.temperature,
        "max_response_length": args.response_length,
        "eos_id": tokenizer.eos_token_id,
        "pad_id": tokenizer.pad_token_id,
        "step": step,
    }
    text = json.dumps({key: value for key, value in settings.items() if value is not None})
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    np.savez(path, settings=np.array(text), **arrays)
