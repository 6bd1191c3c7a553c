"""Clean dumps by TRL 1.12.0's PPO: the statements of PPOTrainer.train on the toy model's rollouts, and the trainer.

python -m venv trl && trl/bin/pip install torch==2.13.0 && trl/bin/pip install trl==1.12.0 accelerate datasets
trl/bin/python bench/clean_trl.py OUT --seed 0
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audit_trl import NAMES, Enough, Watched, settings_of, statements, through_train, train
from audit_world import EOS, PAD
from clean_batches import DEGENERATE, sample
from clean_files import Parts, Writer

CREDIT = ((1.0, 0.95), (0.99, 0.95), (1.0, 1.0), (0.95, 0.9))
RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {"missing_eos_penalty": None}),
    ("plain", {"num_ppo_epochs": 1, "missing_eos_penalty": None, "gamma": 0.99, "lam": 0.9, "temperature": 0.7}),
    ("k3", {"kl_estimator": "k3", "missing_eos_penalty": None}),
    ("missing_eos_penalty", {}),
    ("whiten_rewards", {"whiten_rewards": True, "missing_eos_penalty": None}),
    ("whiten_rewards", {"whiten_rewards": True, "kl_estimator": "k3", "lam": 1.0, "gamma": 0.99}),
    ("no KL", {"kl_coef": 0.0}),
    ("one minibatch", {"num_mini_batches": 1, "num_ppo_epochs": 1, "response_length": 12}),
)
STEPS = 3


def plan() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(lot, degenerate kind, settings) of the batches that go through train()'s statements."""
    for (gamma, lam), kl, whiten, penalty in itertools.product(CREDIT, ("k1", "k3"), (False, True), (None, 1.0)):
        lot = "whiten_rewards" if whiten else "missing_eos_penalty" if penalty else "k3" if kl == "k3" else "plain"
        yield lot, "", credit(gamma, lam, kl, whiten, penalty)
    for kind, kl, whiten in itertools.product(DEGENERATE, ("k1", "k3"), (False, True)):
        yield f"degenerate/{kind}", kind, credit(1.0, 0.95, kl, whiten, None)


def credit(gamma: float, lam: float, kl: str, whiten: bool, penalty: float | None) -> dict[str, Any]:
    return {
        "gamma": gamma, "lam": lam, "kl_estimator": kl, "whiten_rewards": whiten, "missing_eos_penalty": penalty,
    }  # fmt: skip


def made(kind: str, settings: dict[str, Any], code: types.CodeType, seed: list[int]) -> Parts:
    """One batch through train()'s statements."""
    rng = np.random.default_rng(seed)
    batch = sample(rng, kind=kind)
    args = types.SimpleNamespace(
        **settings, kl_coef=float(rng.choice([0.01, 0.05, 0.2])), temperature=batch.temperature,
        response_length=batch.rollouts.shape[1],
    )  # fmt: skip
    measured = {"logprobs": batch.old, "ref_logprobs": batch.reference, "values": batch.values}
    found = through_train(code, batch.rollouts, measured | {"scores": batch.outcomes}, args)
    return parts(found, settings_of(args, PAD, EOS) | {"step": batch.step}, with_kl=bool(rng.random() < 0.5))


def parts(
    found: dict[str, Any], settings: dict[str, Any], with_kl: bool, scalars: dict[str, float] | None = None
) -> Parts:
    names = [name for name in NAMES if name in found and (with_kl or name != "kl")]
    columns = {name: found[name].detach().clone() for name in names}
    return Parts(columns, {}, settings, scalars or {}, flat=True)


class Kept(Watched):
    """Writes the variables of train() and what it logs at the end of each batch."""

    writer: Writer
    lot: str

    def log(self, logs: dict[str, float], *rest: Any, **more: Any) -> None:
        number, args = int(self.state.global_step), self.args
        processing = self.processing_class
        settings = settings_of(args, processing.pad_token_id, processing.eos_token_id) | {
            "step": number, "clip": args.cliprange, "value_clip": args.cliprange_value,
            "ppo_epochs": args.num_ppo_epochs,
        }  # fmt: skip
        scalars = {name: float(value) for name, value in logs.items() if name != "eps"}  # a speed
        self.writer.add(f"trained/{self.lot}", parts(sys._getframe(1).f_locals, settings, number % 2 == 0, scalars))
        if number >= STEPS:
            raise Enough


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    writer, code = Writer(asked.out, "trl-ppo"), statements()
    for number, (lot, kind, settings) in enumerate(plan()):
        writer.add(f"statements/{lot}", made(kind, settings, code, [asked.seed, number]))
    Kept.writer = writer
    with tempfile.TemporaryDirectory() as folder:
        for number, (lot, changed) in enumerate(RUNS):
            Kept.lot = lot
            train(Kept, Path(folder), seed=asked.seed * 100 + number, **changed)
    print(f"{len(writer.index.read_text().splitlines())} dumps of TRL's PPO in {asked.out}")


if __name__ == "__main__":
    main()
