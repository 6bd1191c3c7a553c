"""TRL's GRPOTrainer watched by one line: every token's account as a run of ours, audited while it trains.

    pip install mingce trl==1.16.0
    python examples/watch_trl_grpo.py runs/grpo --steps 50        # meanwhile: mingce view runs

The model is the one that comes with mingce (0.17 M parameters), the task its sums; put your own trainer in their place.
"""

from __future__ import annotations

import argparse
import os
import random
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import mingce

TINY = Path(mingce.__file__).parent / "models" / "tiny"


def questions(count: int) -> Dataset:
    """Sums with a claim that is right or wrong, and the sentence that answers it."""
    rng, rows = random.Random(0), []
    for _ in range(count):
        a, b, off = rng.randrange(100), rng.randrange(100), rng.choice((0, rng.randint(1, 9)))
        verdict = "No" if off else "Yes"
        rows.append({"prompt": f"Is {a}+{b}={a + b + off}?", "answer": f"{verdict}, it is {a + b}!"})
    return Dataset.from_list(rows)


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(said == wanted) for said, wanted in zip(completions, answer, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="the run's directory, a new one")
    parser.add_argument("--steps", type=int, default=50)
    asked = parser.parse_args()
    settings = GRPOConfig(
        output_dir=f"{asked.run}.trl", max_steps=asked.steps, per_device_train_batch_size=64, num_generations=8,
        max_completion_length=16, learning_rate=3e-4, beta=0.02, logging_steps=1, report_to="none", save_strategy="no",
        use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(TINY), processing_class=AutoTokenizer.from_pretrained(TINY),
        reward_funcs=right, args=settings, train_dataset=questions(2048),
    )  # fmt: skip
    mingce.watch(trainer, asked.run)  # the one line
    trainer.train()
    mingce.unwatch(trainer)  # writes what is waiting; the end of the program does so, too
    print(f"mingce view {asked.run}")


if __name__ == "__main__":
    main()
