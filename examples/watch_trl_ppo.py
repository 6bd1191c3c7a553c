"""TRL's PPOTrainer (in wheels up to 1.12) watched by one line, critic and all.

    pip install mingce trl==1.12.0
    python examples/watch_trl_ppo.py runs/ppo --steps 20          # meanwhile: mingce view runs

Policy and reference are the model that comes with mingce; the critic is new, and the reward model counts digits.
"""

from __future__ import annotations

import argparse
import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch
from datasets import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl.experimental.ppo import PPOConfig, PPOTrainer

import mingce

TINY = Path(mingce.__file__).parent / "models" / "tiny"


class Digits(torch.nn.Module):
    """A reward model as TRL calls it: a backbone that passes the ids on, and a score at every token."""

    base_model_prefix = "backbone"

    def __init__(self, tokenizer: Any):
        super().__init__()
        self.backbone = self._pass_on
        self.digits = torch.tensor(tokenizer.convert_tokens_to_ids(list("0123456789")))

    def _pass_on(self, input_ids: torch.Tensor, **_: Any) -> Any:
        return SimpleNamespace(hidden_states=[input_ids])

    def score(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.isin(ids, self.digits).float().cumsum(1)[:, :, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="the run's directory, a new one")
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    tokenizer, rng = AutoTokenizer.from_pretrained(TINY), random.Random(0)
    asks = [f"Is {rng.randrange(10, 100)}+{rng.randrange(10, 100)}={rng.randrange(20, 199)}?" for _ in range(512)]
    data = Dataset.from_list([{"input_ids": tokenizer(ask)["input_ids"]} for ask in asks])
    settings = PPOConfig(
        output_dir=f"{asked.run}.trl", total_episodes=32 * asked.steps, per_device_train_batch_size=8,
        gradient_accumulation_steps=4, num_mini_batches=1, num_ppo_epochs=2, response_length=16, stop_token="eos",
        learning_rate=1e-4, kl_coef=0.05, local_rollout_forward_batch_size=32, num_sample_generations=0,
        report_to="none", save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True,
    )  # fmt: skip
    trainer = PPOTrainer(
        args=settings, processing_class=tokenizer, model=AutoModelForCausalLM.from_pretrained(TINY),
        ref_model=AutoModelForCausalLM.from_pretrained(TINY), reward_model=Digits(tokenizer),
        value_model=AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(TINY, num_labels=1)),
        train_dataset=data, eval_dataset=data.select(range(8)),
    )  # fmt: skip
    mingce.watch(trainer, asked.run)  # the one line
    trainer.train()
    mingce.unwatch(trainer)  # writes what is waiting; the end of the program does so, too
    print(f"mingce view {asked.run}")


if __name__ == "__main__":
    main()
