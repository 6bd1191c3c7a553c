"""The numbers behind docs/en/audits/trl-ppo.md: TRL 1.12.0's PPOTrainer on the tiny model.

trl/bin/python bench/findings_trl.py        in the environment of clean_trl.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import torch
from audit_trl import Enough, Watched, train


class Told(Watched):
    """Keeps what train() logs, and its variables, for one batch."""

    logs: ClassVar[dict[str, float]] = {}
    found: ClassVar[dict[str, Any]] = {}

    def log(self, logs: dict[str, float], *rest: Any, **more: Any) -> None:
        Told.logs, Told.found = dict(logs), dict(sys._getframe(1).f_locals)
        raise Enough


def one_batch(reseed: bool = True, **changed: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        train(Told, Path(folder), reseed=reseed, **changed)


def seeds() -> None:
    print("two runs with seed=0, first batch: policy/approxkl_avg, loss/value_avg")
    for _ in range(2):
        one_batch(reseed=False)
        print(f"  {Told.logs['policy/approxkl_avg']:.6f} {Told.logs['loss/value_avg']:.6f}")


def limits() -> None:
    one_batch(missing_eos_penalty=None, response_length=12)
    pads, values = Told.found["padding_mask"], Told.found["values"]
    cut = ~pads[:, -1] & (Told.found["responses"][:, -1] != 2)
    print(f"rows that the limit ended: {int(cut.sum())} of {len(pads)}; their returns end without a value behind them,")
    print(f"  mean |V| of their last token: {values[cut][:, -1].abs().mean().item():.3f}")


def whitened() -> None:
    print("rewards of the first batch, whose KL is 0: mean and std over all slots, median where no score is")
    for whiten in (False, True):
        one_batch(whiten_rewards=whiten, missing_eos_penalty=None)
        rewards, slots = Told.found["rewards"], ~Told.found["padding_mask_p1"]
        unscored = slots.clone()
        unscored[Told.found["actual_start"], Told.found["actual_end"]] = False
        print(f"  whiten_rewards={whiten}: {rewards[slots].mean().item():.4f} {rewards[slots].std().item():.4f} "
              f"{rewards[unscored].median().item():+.4f}")  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    seeds()
    limits()
    whitened()


if __name__ == "__main__":
    main()
