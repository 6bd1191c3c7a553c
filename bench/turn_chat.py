"""TRL's GRPOTrainer on a chat model, a step at a time: a batch of responses, scored, and one optimizer step on it.

Run by the Python of the peers' environment. bf16 and gradient checkpointing are off, as in turn_trl.py.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

import torch
from chat import messages, questions
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from turns import Over, Turn

asked: dict[str, Any] = json.loads(sys.argv[1])
torch.set_num_threads(asked["threads"])
turn = Turn()
tokens = 0


class Stepwise(TrainerCallback):
    """Waits for its turn after every step."""

    def on_train_begin(self, *_: object, **__: object) -> None:
        turn.wait()

    def on_step_end(self, *_: object, **__: object) -> None:
        turn.wait(lambda: {"tokens": tokens})


def contains(completion_ids: list[list[int]], completions: list[Any], number: list[str], **_: object) -> list[float]:
    """1 for an answer with the number in it."""
    global tokens
    tokens = sum(map(len, completion_ids))
    return [float(wanted in said[0]["content"]) for wanted, said in zip(number, completions, strict=True)]


def adapters() -> Any:
    if not asked["rank"]:
        return None
    from peft import LoraConfig

    return LoraConfig(r=asked["rank"], lora_alpha=2 * asked["rank"], target_modules="all-linear", task_type="CAUSAL_LM")


config = GRPOConfig(
    output_dir=asked["directory"], per_device_train_batch_size=asked["batch"], gradient_accumulation_steps=1,
    steps_per_generation=1, num_iterations=1, num_generations=asked["samples"], beta=asked["beta"],
    max_completion_length=asked["length"], temperature=1.0, learning_rate=asked["lr"], lr_scheduler_type="constant",
    max_steps=10**7, report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=True,
    seed=asked["seed"], bf16=False, gradient_checkpointing=False,
)  # fmt: skip
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(asked["model"], dtype=torch.float32), reward_funcs=contains, args=config,
    train_dataset=Dataset.from_list([{"prompt": messages(one), "number": number} for one, number in questions()[16:]]),
    processing_class=AutoTokenizer.from_pretrained(asked["model"]), callbacks=[Stepwise()], peft_config=adapters(),
)  # fmt: skip
trainer.remove_callback(PrinterCallback)
with suppress(Over):
    trainer.train()
