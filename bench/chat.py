"""Chat questions that SmolLM2 answers at length, an answer ends when it does, or at the limit."""

from __future__ import annotations

import json
import random
from pathlib import Path

SYSTEM = "You are a careful tutor. Work out the problem step by step, then give the number."
_KINDS = (
    "A shop sold {a} apples in the morning and {b} in the afternoon. How many is that?",
    "What is {a} plus {b}?",
    "Tom had {a} marbles and lost {b} of them. How many has he now?",
    "Is {a} larger than {b}? Answer in one word.",
    "A train goes {a} km in one hour. How far does it go in {b} hours?",
)


def questions(count: int = 512) -> list[tuple[str, str]]:
    """Questions, and a number that a good answer has in it."""
    draw = random.Random(0)
    pairs = [(draw.randint(60, 99), draw.randint(2, 59)) for _ in range(count)]
    return [(_KINDS[i % len(_KINDS)].format(a=a, b=b), str(a + b)) for i, (a, b) in enumerate(pairs)]


def messages(question: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def write_data(directory: Path) -> None:
    """Training file, held-out file and reward function, as turn_mingce.py reads them."""
    lines = [
        json.dumps(
            {
                "prompt": messages(question), "data_source": "chat", "reward_model": {"ground_truth": number},
                "extra_info": {},
            }
        ) + "\n"
        for question, number in questions()
    ]  # fmt: skip
    (directory / "train.jsonl").write_text("".join(lines[16:]))
    (directory / "held_out.jsonl").write_text("".join(lines[:16]))
    (directory / "exact.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return float(ground_truth in solution_str)\n"
    )
