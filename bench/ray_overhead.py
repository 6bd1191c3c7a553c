"""The same step by local with N threads and by ray with N ranks of one thread each, in a process of its own.

    python bench/ray_overhead.py [--ranks 2] [--steps 5]        the laps of every stage as JSON, for ranks.py

A model of five million parameters with random weights, on the embedded task. Steps of both engines alternate in one
run, so that whatever else the machine does falls on both; start-up is apart.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from turns import MARK

from mingce.config import Config, read_config
from mingce.credit import assign_credit
from mingce.engine import local, ray
from mingce.models.loading import model_directory

STAGES = ("generate", "score", "log-probs and values", "update critic", "update actor")


def make_model(directory: Path) -> int:
    """A Llama of about five million parameters with the embedded tokenizer; returns how many."""
    tokenizer = AutoTokenizer.from_pretrained(model_directory("tiny"))
    torch.manual_seed(0)
    model = cast(Any, LlamaForCausalLM)(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=256, intermediate_size=768, num_hidden_layers=6,
            num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=256,
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return sum(p.numel() for p in model.parameters())


class Clock:
    """Seconds on the wall and of processors, of this process and of ranks."""

    def __init__(self, ranks: list[int]):
        self.ranks = ranks
        self.lap()

    def lap(self) -> tuple[float, float]:
        """Since the last lap: (wall, processors)."""
        now = time.perf_counter(), time.process_time() + sum(map(cpu_seconds, self.ranks))
        before, self.last = getattr(self, "last", now), now
        return now[0] - before[0], now[1] - before[1]


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def step(roles: local.Roles, config: Config, number: int, clock: Clock) -> list[tuple[float, float]]:
    """Seconds of each stage of one step, as `Clock.lap` gives them."""
    assert roles.critic is not None
    assert roles.reference is not None
    clock.lap()
    examples = roles.batch(number, config.prompts_per_step, config.seed)
    ledger = roles.actor.generate(examples, number)
    laps = [clock.lap()]
    ledger.fill(roles.reward.score(ledger, [e for e in examples for _ in range(config.samples_per_prompt)], 1))
    laps.append(clock.lap())
    ledger.fill(roles.actor.log_probs(ledger), roles.reference.log_probs(ledger), roles.critic.values(ledger))
    laps.append(clock.lap())
    assign_credit(ledger, config, config.kl.reward_coef)
    roles.critic.update(ledger, number)
    laps.append(clock.lap())
    roles.actor.update(ledger, number)
    return [*laps, clock.lap()]


def measure(ranks: int, steps: int) -> dict[str, object]:
    """Laps of `steps` steps of both engines, after one for warming up, and what starting ray took."""
    with tempfile.TemporaryDirectory() as directory:
        size = make_model(Path(directory))
        shared = [f"model.path={directory}", "max_new_tokens=32", "prompts_per_step=32", "minibatch_rollouts=64"]
        shared += ["critic.minibatch_rollouts=32"]  # half and a quarter of the rollouts, as by default
        here = read_config(None, [*shared, f"threads={ranks}"])
        there = read_config(None, [*shared, "engine=ray", f"ray.ranks={ranks}", "threads=1"])
        near = local.build_roles(here)
        begun = time.perf_counter()
        far = ray.build_roles(there)
        started = time.perf_counter() - begun
        clocks = Clock([]), Clock([process for group in far.groups for _, process in group.processes])
        laps: tuple[list[list[tuple[float, float]]], ...] = ([], [])
        try:
            for number in range(1, steps + 2):
                torch.set_num_threads(ranks)
                laps[0].append(step(near, here, number, clocks[0]))
                laps[1].append(step(far, there, number, clocks[1]))
        finally:
            near.close()
            far.close()
    return {"parameters": size, "start_seconds": started, "local": laps[0][1:], "ray": laps[1][1:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    print(MARK + json.dumps(measure(options.ranks, options.steps)))


if __name__ == "__main__":
    main()
