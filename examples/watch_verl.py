"""verl 0.9 watched without a line of code. Where you train, this is all:

    pip install --no-deps mingce && pip install numba            # beside verl's transformers, which is older than ours
    MINGCE_WATCH=$PWD/runs/mine python -m verl.trainer.main_ppo …           # meanwhile: mingce view runs

With Ray on other machines hand it on: +ray_kwargs.ray_init.runtime_env.env_vars.MINGCE_WATCH=/shared/runs/mine

This program needs no GPU and shows that the plug-in is found: verl's own trainer computes advantages of random batches
and logs them, without workers and models.

    MINGCE_WATCH=runs/verl python examples/watch_verl.py
"""

from __future__ import annotations

import os
import sys
import tempfile
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_module
from verl import DataProto
from verl.trainer.ppo.ray_trainer import RayPPOTrainer, compute_advantage
from verl.utils.tracking import Tracking

import mingce

ROWS, WIDTH, EOS = 16, 8, 1


def batch(config: Any) -> DataProto:
    """Random answers, each with a score at its end, and what verl's GAE makes of them."""
    lengths = torch.randint(2, WIDTH + 1, (ROWS,))
    mask = (torch.arange(WIDTH) < lengths[:, None]).long()
    responses = (torch.randint(3, 50, (ROWS, WIDTH)) * mask).scatter(1, lengths[:, None] - 1, EOS)
    scores = torch.zeros(ROWS, WIDTH).scatter(1, lengths[:, None] - 1, torch.randn(ROWS, 1))
    tensors = {
        "prompts": torch.randint(3, 50, (ROWS, 4)), "responses": responses, "response_mask": mask,
        "attention_mask": torch.cat([torch.ones(ROWS, 4, dtype=torch.long), mask], 1),
        "old_log_probs": -torch.rand(ROWS, WIDTH), "values": torch.randn(ROWS, WIDTH) * mask,
        "token_level_scores": scores, "token_level_rewards": scores,
    }  # fmt: skip
    names = {"uid": np.array([f"prompt {row}" for row in range(ROWS)], dtype=object)}
    names["reward_model"] = np.array([{} for _ in range(ROWS)], dtype=object)
    data = DataProto.from_dict(tensors=tensors, non_tensors=names)
    return compute_advantage(data, "gae", config.algorithm.gamma, config.algorithm.lam, config=config.algorithm)


def main() -> None:
    if not os.environ.get("MINGCE_WATCH"):
        sys.exit("Set MINGCE_WATCH to the directory of a run.")
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=["algorithm.gamma=0.99", "algorithm.lam=0.95"])
    trainer = object.__new__(RayPPOTrainer)  # one that trains has models and workers, too
    trainer.config, trainer.total_training_steps = config, 3
    trainer.tokenizer = SimpleNamespace(eos_token_id=EOS, pad_token_id=0, batch_decode=lambda ids, **_: [""] * len(ids))
    trainer._init_dump_executor()
    logger = Tracking("mingce", "watch_verl", default_backend=["console"])
    for trainer.global_steps in range(1, 4):
        made = batch(config)
        trainer._log_rollout_data(made, {}, {}, tempfile.gettempdir())
        logger.log(
            data={"critic/score/mean": made.batch["token_level_scores"].sum(1).mean().item()}, step=trainer.global_steps
        )
    trainer._shutdown_dump_executor()
    mingce.unwatch(trainer)  # where verl's own loop runs, its end does this
    print(f"mingce view {os.environ['MINGCE_WATCH']}")


if __name__ == "__main__":
    main()
