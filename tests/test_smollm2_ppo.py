"""Steps of a real pretrained model by the recipe that is shipped for it. Slow: run with `make test-slow`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM

from mingce.commands import export
from mingce.record.run import Run
from mingce.training import start
from mingce.training.opening import open_policy

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "recipes" / "smollm2_sums.yaml"
FILES = [f"data.train=[{ROOT / 'recipes/sums.jsonl'}]", f"reward.function=[{ROOT / 'recipes/sums.py'}]"]
SMALL = ["steps=2", "prompts_per_step=2", "samples_per_prompt=2", "minibatch_rollouts=4", "validation.examples=1"]


@pytest.mark.slow
def test_two_ppo_steps_with_adapters_on_one_trunk(tmp_path: Path) -> None:
    settings = ["estimator=gae", "kl.reward_coef=0.005", "model.lora.rank=8", f"root={tmp_path}", "name=smol"]
    console = Console(file=io.StringIO(), width=120)
    start.train(console, RECIPE, [*FILES, *SMALL, *settings])
    run = Run.open(tmp_path / "smol", readonly=True)
    metrics = run.metrics()
    assert [line["step"] for line in metrics] == [0, 1, 2]
    assert metrics[1]["rollout/log_prob_gap"] < 1e-3
    assert metrics[1]["critic/kl"] == pytest.approx(0, abs=1e-4)
    assert metrics[2]["actor/grad_norm"] > 0
    assert run.ledger.read(2)["advantages"].shape[0] == 4
    newest = run.checkpoints_path / "step-000002"
    assert sum(file.stat().st_size for file in newest.rglob("*") if file.is_file()) <= 60e6
    export.run(console, str(run.path), tmp_path / "merged")
    ids = torch.arange(40).view(2, 20)
    with torch.no_grad():
        merged: Any = cast(Any, AutoModelForCausalLM).from_pretrained(tmp_path / "merged")(input_ids=ids).logits
        trained: Any = open_policy(run.path).actor.model(input_ids=ids).logits
    assert float((merged - trained).abs().max()) < 1e-4
