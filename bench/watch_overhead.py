"""What watching costs a trainer: TRL's GRPO with mingce.watch and without, the same seeds, turn about, in CPU seconds.

Needs an interpreter that has TRL 1.16: PYTHONPATH=. .venv-trl/bin/python bench/watch_overhead.py --pairs 5 --width 256
Each training is a process of its own; its CPU time (user and system, our thread's too) is taken from the end of the
first step, which compiles and imports, to the end of the last, with everything written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def share_of_as(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [sum(i % 5 == 0 for i in ids) / 8 for ids in completion_ids]


def train(watched: bool, steps: int, width: int, tokens: int, seed: int) -> None:
    """One training; prints its CPU seconds a step."""
    warnings.filterwarnings("ignore")
    import torch
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    from trl_toys import EOS, LETTERS, tokenizer

    import mingce

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    shape = LlamaConfig(
        vocab_size=len(LETTERS), hidden_size=width, intermediate_size=2 * width, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=4, eos_token_id=EOS, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    began: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 1:
                time.sleep(2.0)  # the first step's audit and its imports are over
                began.append(time.process_time())

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=LlamaForCausalLM(shape), reward_funcs=share_of_as, processing_class=tokenizer(),
            train_dataset=Dataset.from_list([{"prompt": LETTERS[3 + i % 20] * (2 + i % 5)} for i in range(64)]),
            args=GRPOConfig(
                output_dir=folder, per_device_train_batch_size=32, num_generations=4, max_steps=steps, seed=seed,
                max_completion_length=tokens, learning_rate=1e-5, report_to="none", save_strategy="no", beta=0.0,
                logging_steps=1, disable_tqdm=True, use_cpu=True, bf16=False, gradient_checkpointing=False,
            ),
            callbacks=[Clock()],
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        if watched:
            mingce.watch(trainer, f"{folder}/run")
        trainer.train()
        mingce.unwatch(trainer)
        print("CPU", (time.process_time() - began[0]) / (steps - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("pairs", 5), ("steps", 20), ("width", 64), ("tokens", 32), ("seed", -1), ("watched", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    if given.seed >= 0:
        train(bool(given.watched), given.steps, given.width, given.tokens, given.seed)
        return
    taken: dict[int, list[float]] = {0: [], 1: []}
    for seed in range(given.pairs):
        for watched in (0, 1) if seed % 2 else (1, 0):
            words = [f"--{name}={getattr(given, name)}" for name in ("steps", "width", "tokens")]
            command = [sys.executable, __file__, *words, f"--seed={seed}", f"--watched={watched}"]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            taken[watched].append(float(said.split("CPU")[1]))
    more = [b / a - 1 for a, b in zip(taken[0], taken[1], strict=True)]
    print(json.dumps({
        "alone": statistics.median(taken[0]), "watched": statistics.median(taken[1]),
        "median more": statistics.median(more), "pairs": [round(one, 4) for one in more],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
