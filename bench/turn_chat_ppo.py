"""TRL's PPOTrainer on a chat model, a step at a time; run by the Python of an environment that has trl==1.12.0.

bf16 and gradient checkpointing are off, as in turn_trl.py, and the reward is a rule in the place where TRL wants a
model. Policy, reference and value model are three copies, as TRL has them.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

import torch
from chat import messages, questions
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, TrainerCallback
from trl.experimental.ppo import PPOConfig, PPOTrainer
from trl_rule import RuleReward
from turns import Over, Turn

asked: dict[str, Any] = json.loads(sys.argv[1])
torch.set_num_threads(asked["threads"])
turn = Turn()
tokens = 0
tokenizer: Any = AutoTokenizer.from_pretrained(asked["model"], padding_side="left")
tokenizer.pad_token = tokenizer.unk_token  # TRL takes whatever equals it for padding, so it must not be the end


def right(ids: list[int]) -> float:
    """1 if the answer has the number; its tokens are counted on the way."""
    global tokens
    prompt, _, said = tokenizer.decode(ids).partition(OPENS)
    tokens += len(ids) - len(tokenizer(prompt + OPENS).input_ids)
    return float(NUMBERS[prompt] in said)


class Stepwise(TrainerCallback):
    """Waits for its turn between steps."""

    def on_train_begin(self, *_: object, **__: object) -> None:
        turn.wait()

    def on_step_end(self, *_: object, **__: object) -> None:
        global tokens
        turn.wait(lambda: {"tokens": tokens})
        tokens = 0


def load(kind: Any, **more: object) -> Any:
    return kind.from_pretrained(asked["model"], dtype=torch.float32, **more)


OPENS = "<|im_start|>assistant\n"
pairs = questions()
texts = [tokenizer.apply_chat_template(messages(one), add_generation_prompt=True, tokenize=False) for one, _ in pairs]
NUMBERS = {text.removesuffix(OPENS): number for text, (_, number) in zip(texts, pairs, strict=True)}
config = PPOConfig(
    output_dir=asked["directory"], per_device_train_batch_size=asked["batch"], num_mini_batches=asked["minibatches"],
    gradient_accumulation_steps=1, num_ppo_epochs=asked["epochs"], local_rollout_forward_batch_size=asked["batch"],
    total_episodes=10**7, response_length=asked["length"], stop_token="eos", temperature=1.0, learning_rate=asked["lr"],
    lr_scheduler_type="constant", kl_coef=asked["beta"], vf_coef=0.1, lam=0.95, num_sample_generations=0,
    report_to="none", save_strategy="no", disable_tqdm=True, use_cpu=True, seed=asked["seed"], bf16=False,
    gradient_checkpointing=False,
)  # fmt: skip
rows = Dataset.from_list([{"input_ids": tokenizer(text).input_ids} for text in texts[16:]])
trainer = PPOTrainer(
    args=config, processing_class=tokenizer, model=load(AutoModelForCausalLM), ref_model=load(AutoModelForCausalLM),
    reward_model=RuleReward(right), value_model=load(AutoModelForSequenceClassification, num_labels=1),
    train_dataset=rows, eval_dataset=rows.select(range(16)), callbacks=[Stepwise()],
)  # fmt: skip
trainer.log = lambda *_, **__: None
with suppress(Over):
    trainer.train()
