"""A run killed with SIGKILL again and again, whatever it is doing, ends as the run that was never killed.

Its scores come from worker processes and are drawn at random.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import shutil
import signal
import time
from pathlib import Path

from rich.console import Console
from test_train import same_files

from mingce.record.run import Run

SETTINGS = (
    "prompts_per_step=16", "samples_per_prompt=2", "minibatch_rollouts=16", "validation.examples=8",
    "validation.every=3", "keep.checkpoint_every=2", "kl.adaptive=true", "threads=1", "reward.workers=2",
)  # fmt: skip
REWARD = """
import random

def compute_score(data_source, solution_str, ground_truth, extra_info):
    return 0.3 * random.random() + 0.01 * len(solution_str)
"""
KILLS = int(os.environ.get("MINGCE_KILLS", "10"))
STEPS = 14 if KILLS <= 10 else 2 * KILLS


def _train(root: Path, name: str) -> None:
    """In a process of its own: begin the run, or go on with it."""
    from mingce.training import start

    console = Console(file=io.StringIO())
    reward = root / "reward.py"
    if (root / name / "config.yaml").exists():
        start.resume(console, root / name)
    else:
        start.train(
            console, None, [f"root={root}", f"name={name}", f"steps={STEPS}", f"reward.function={reward}", *SETTINGS]
        )


def _child(root: Path, name: str) -> multiprocessing.process.BaseProcess:
    # forked, so that the libraries are loaded already and kills come while it trains, not while it imports
    process = multiprocessing.get_context("fork").Process(target=_train, args=(root, name))
    process.start()
    return process


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_at_random_moments_it_ends_bit_for_bit_the_same(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(REWARD, encoding="utf-8")
    whole = _child(tmp_path, "whole")
    begun = time.monotonic()
    whole.join()
    step_seconds = (time.monotonic() - begun) / STEPS
    assert whole.exitcode == 0

    chance = random.Random(7)
    metrics = tmp_path / "killed" / "metrics.jsonl"
    killed = 0
    while True:
        child = _child(tmp_path, "killed")
        if killed < KILLS:
            before = _lines(metrics)
            while child.is_alive() and _lines(metrics) <= before - 2:  # it rewinds first, then goes on
                time.sleep(0.005)
            time.sleep(chance.uniform(0.2, 3.0) * step_seconds)
            early = child.is_alive()
            if early:
                assert child.pid is not None
                os.kill(child.pid, signal.SIGKILL)
                killed += 1
            child.join()
            if not early:  # it was faster than measured, and is through
                shutil.rmtree(metrics.parent)
                step_seconds /= 2
            continue
        child.join()
        assert child.exitcode == 0
        break
    assert killed == KILLS
    same_files(Run.open(tmp_path / "whole", readonly=True), Run.open(tmp_path / "killed", readonly=True))
