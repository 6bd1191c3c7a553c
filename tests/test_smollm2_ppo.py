"""Two PPO steps of a real pretrained model on questions in GSM8K's form. Slow: run with `make test-slow`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from mingce.record.run import Run
from mingce.training import start

RECIPE = Path(__file__).parent.parent / "recipes" / "smollm2_gsm8k.yaml"
QUESTIONS = [
    ("Tom has 3 apples and buys 4 more. How many apples has he?", "3 + 4 = 7\n#### 7"),
    ("A box holds 6 eggs. How many eggs are in 5 boxes?", "6 * 5 = 30\n#### 30"),
    ("Ann had 10 pens and lost 2. How many are left?", "10 - 2 = 8\n#### 8"),
    ("There are 12 cookies for 4 children. How many does each get?", "12 / 4 = 3\n#### 3"),
]


@pytest.mark.slow
def test_two_ppo_steps_of_smollm2(tmp_path: Path) -> None:
    data = tmp_path / "gsm8k"
    data.mkdir()
    for split in ("train", "test"):
        rows = [json.dumps({"question": question, "answer": answer}) for question, answer in QUESTIONS]
        (data / f"{split}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    settings = [
        "steps=2",
        f"task=gsm8k:{data}",
        "max_new_tokens=24",
        "validation.examples=1",
        f"root={tmp_path}",
        "name=smol",
    ]
    start.train(Console(file=io.StringIO(), width=120), RECIPE, settings)
    run = Run.open(tmp_path / "smol", readonly=True)
    metrics = run.metrics()
    assert [line["step"] for line in metrics] == [0, 1, 2]
    assert metrics[1]["rollout/log_prob_gap"] < 1e-3
    assert metrics[1]["critic/kl"] == pytest.approx(0, abs=1e-4)
    assert metrics[2]["actor/grad_norm"] > 0
    assert run.ledger.read(2)["advantages"].shape[0] == 4
