"""What Ray and sharding cost: the same step by local with two threads and by ray with two ranks of one thread each.

    python bench/ray_overhead.py [--steps 6] [--reshard]

A model of five million parameters with random weights, on the embedded task. Steps of both engines alternate in one
run, so that whatever else the machine does falls on both; medians are compared, start-up apart.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from mingce.config import Config, read_config
from mingce.credit import assign_credit
from mingce.engine import local, ray
from mingce.models.loading import model_directory

STAGES = ("generate", "score", "log_probs", "ref_log_probs", "values", "update_critic", "update_actor")


def make_model(directory: Path) -> int:
    """A Llama of about five million parameters with the embedded tokenizer; returns how many."""
    tokenizer = AutoTokenizer.from_pretrained(model_directory("tiny"))
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=256, intermediate_size=768, num_hidden_layers=6,
            num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=256,
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return sum(p.numel() for p in model.parameters())


def step(roles: local.Roles, config: Config, number: int) -> dict[str, float]:
    """Seconds of each stage of one step."""
    assert roles.critic is not None and roles.reference is not None
    clock, seconds = time.perf_counter(), []

    def lap() -> None:
        nonlocal clock
        seconds.append(time.perf_counter() - clock)
        clock = time.perf_counter()

    examples = roles.batch(number, config.prompts_per_step, config.seed)
    ledger = roles.actor.generate(examples, number)
    lap()
    ledger.fill(roles.reward.score(ledger, [e for e in examples for _ in range(config.samples_per_prompt)]))
    lap()
    ledger.fill(roles.actor.log_probs(ledger))
    lap()
    ledger.fill(roles.reference.log_probs(ledger))
    lap()
    ledger.fill(roles.critic.values(ledger))
    lap()
    assign_credit(ledger, config, config.kl.reward_coef)
    roles.critic.update(ledger, number)
    lap()
    roles.actor.update(ledger, number)
    lap()
    return dict(zip(STAGES, seconds, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("settings", nargs="*", help="more settings, as ray.reshard=true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        size = make_model(Path(directory))
        shared = [f"model.path={directory}", "max_new_tokens=32", "prompts_per_step=16", "minibatch_rollouts=32", *options.settings]
        here = read_config(None, [*shared, "threads=2"])
        there = read_config(None, [*shared, "engine=ray", "ray.ranks=2", "threads=1"])
        begun = time.perf_counter()
        near = local.build_roles(here)
        print(f"{size / 1e6:.2f} M parameters; local ready after {time.perf_counter() - begun:.1f} s", flush=True)
        begun = time.perf_counter()
        far = ray.build_roles(there)
        print(f"ray ready after {time.perf_counter() - begun:.1f} s", flush=True)
        try:
            spent: dict[str, list[dict[str, float]]] = {"local": [], "ray": []}
            for number in range(1, options.steps + 2):  # the first is for warming up
                torch.set_num_threads(2)
                spent["local"].append(step(near, here, number))
                spent["ray"].append(step(far, there, number))
        finally:
            near.close()
            far.close()
    print(f"{'median of a step, s':24}{'local':>9}{'ray':>9}{'ratio':>9}")
    for stage in (*STAGES, "whole"):
        a, b = (
            statistics.median(sum(lap.values()) if stage == "whole" else lap[stage] for lap in laps[1:])
            for laps in spent.values()
        )
        print(f"{stage:24}{a:9.3f}{b:9.3f}{b / a:9.2f}")


if __name__ == "__main__":
    main()
