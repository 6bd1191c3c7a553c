"""TRL's GRPOTrainer, a step at a time: a batch of responses and every epoch's optimizer step on it.

Run by the Python of the peers' environment. bf16 and gradient checkpointing are off, as in turn_trl.py; responses have
equal lengths, because none may end before the limit.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

import torch
from addition import EOS, answer_ids, problems, prompt
from datasets import Dataset
from transformers import AutoTokenizer, LlamaForCausalLM, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from turns import Over, Turn

asked: dict[str, Any] = json.loads(sys.argv[1])
torch.set_num_threads(asked["threads"])
turn = Turn()


class Stepwise(TrainerCallback):
    """Waits for its turn when a batch has been gone through."""

    def on_train_begin(self, *_: object, **__: object) -> None:
        turn.wait()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if state.global_step % asked["epochs"] == 0:
            turn.end("update")
            turn.wait()


class Watched(GRPOTrainer):  # type: ignore[misc]
    """The update begins when the responses are drawn and scored."""

    def _generate_and_score_completions(self, *given: Any, **named: Any) -> Any:
        scored = super()._generate_and_score_completions(*given, **named)
        turn.begin("update")
        return scored


def exact(prompts: list[str], completion_ids: list[list[int]], **_: object) -> list[float]:
    """1 for the sum that was asked for."""
    sums = ([int(part) for part in text.rstrip("=").split("+")] for text in prompts)
    return [float(ids == answer_ids(a, b)) for (a, b), ids in zip(sums, completion_ids, strict=True)]


tokenizer = AutoTokenizer.from_pretrained(asked["model"])
tokenizer.eos_token_id = EOS
config = GRPOConfig(
    output_dir=asked["directory"], per_device_train_batch_size=asked["batch"], gradient_accumulation_steps=1,
    steps_per_generation=1, num_iterations=asked["epochs"], num_generations=asked["samples"], beta=0.0,
    max_completion_length=asked["length"], generation_kwargs={"min_new_tokens": asked["length"]}, temperature=1.0,
    learning_rate=asked["lr"], lr_scheduler_type="constant", max_steps=10**7, report_to="none", save_strategy="no",
    logging_strategy="no", disable_tqdm=True, use_cpu=True, seed=asked["seed"], bf16=False,
    gradient_checkpointing=False,
)  # fmt: skip
trainer = Watched(
    model=LlamaForCausalLM.from_pretrained(asked["model"]), reward_funcs=exact, args=config,
    train_dataset=Dataset.from_list([{"prompt": prompt(a, b)} for a, b in problems(held_out=False)]),
    processing_class=tokenizer, callbacks=[Stepwise()],
)  # fmt: skip
trainer.remove_callback(PrinterCallback)
with suppress(Over):
    trainer.train()
