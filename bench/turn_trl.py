"""TRL's PPOTrainer, a step at a time; run by the Python of an environment that has trl==1.12.0.

Nothing of TRL is changed but what its defaults would lose: bf16 and gradient checkpointing are off, both of which cost
time on a CPU. The reward is a rule in the place where TRL wants a model.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

import torch
from addition import ANSWER_LIMIT, EOS, ID, PAD, accuracy, answer_ids, problems, prompt_ids
from datasets import Dataset
from transformers import AutoTokenizer, LlamaForCausalLM, LlamaForSequenceClassification, TrainerCallback
from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer
from trl_rule import RuleReward
from turns import Over, Turn

asked: dict[str, Any] = json.loads(sys.argv[1])
torch.set_num_threads(asked["threads"])


def right(ids: list[int]) -> float:
    """1 if what follows the first "=" is the sum."""
    begin = ids.index(ID["="]) + 1
    digits = "".join(str(i - ID["0"]) if ID["0"] <= i <= ID["9"] else " " for i in ids[:begin])
    wanted = answer_ids(*(int(part) for part in digits.split()))
    return float(ids[begin : begin + len(wanted)] == wanted)


class Stepwise(TrainerCallback):
    """Waits for its turn between steps."""

    def on_train_begin(self, *_: object, **__: object) -> None:
        turn.wait()

    def on_step_end(self, *_: object, **__: object) -> None:
        turn.wait()


def watched(*given: Any, **named: Any) -> Any:
    """TRL's forward pass; the first that is differentiated begins the update."""
    if torch.is_grad_enabled():
        turn.begin("update")
    return forward(*given, **named)


def load(kind: Any, **more: object) -> Any:
    return kind.from_pretrained(asked["model"], **more)


policy = load(LlamaForCausalLM)
turn = Turn(lambda: accuracy(policy))
tokenizer = AutoTokenizer.from_pretrained(asked["model"])
if tokenizer.eos_token_id is None:
    tokenizer.eos_token_id = EOS  # TRL counts it; without stop_token it ends nothing
config = PPOConfig(
    output_dir=asked["directory"], per_device_train_batch_size=asked["batch"], num_mini_batches=asked["minibatches"],
    gradient_accumulation_steps=1,  # an optimizer step for each minibatch
    num_ppo_epochs=asked["epochs"], local_rollout_forward_batch_size=asked["batch"],
    total_episodes=asked.get("steps", 40_000) * asked["batch"], response_length=asked["length"],
    stop_token="eos" if asked["ends"] else None, temperature=asked.get("temperature", 1.0), learning_rate=asked["lr"],
    lr_scheduler_type=asked.get("schedule", "constant"), warmup_steps=asked.get("warmup", 0),
    kl_coef=asked.get("kl", 0.01), vf_coef=0.1, lam=0.95,
    num_sample_generations=0, report_to="none", save_strategy="no", logging_steps=1, disable_tqdm=True, use_cpu=True,
    seed=asked["seed"], bf16=False, gradient_checkpointing=False,
)  # fmt: skip
rows = [{"input_ids": prompt_ids(a, b)} for a, b in problems(held_out=False)]
trainer = PPOTrainer(
    args=config, processing_class=tokenizer, model=policy, ref_model=load(LlamaForCausalLM),
    reward_model=RuleReward(right), value_model=load(LlamaForSequenceClassification, num_labels=1),
    train_dataset=Dataset.from_list(rows), eval_dataset=Dataset.from_list(rows[:64]), callbacks=[Stepwise()],
)  # fmt: skip
trainer.log = lambda *_, **__: turn.end("update")  # the first thing after it
forward, ppo_trainer.forward = ppo_trainer.forward, watched
assert tokenizer.pad_token_id == PAD
assert asked["length"] >= ANSWER_LIMIT
with suppress(Over):
    trainer.train()
