"""The numbers behind docs/en/audits/trl-grpo.md: TRL 1.16.0's GRPOTrainer on the tiny model.

trl/bin/python bench/findings_grpo.py        in the environment of clean_grpo.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from clean_files import Parts
from clean_grpo import Kept, run


class Memory:
    """Takes the place of the writer of the clean set: the parts stay in memory."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, Parts]] = []

    def add(self, lot: str, parts: Parts) -> None:
        self.parts.append((lot, parts))


def passes(seed: int = 3, **changed: Any) -> list[Parts]:
    """The passes of the loss of one run."""
    memory = Memory()
    Kept.writer, Kept.lot = memory, ""  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), seed, **changed)
    return [parts for lot, parts in memory.parts if lot.startswith("loss")]


def cispo() -> None:
    print("cispo where all ratios are 1: logged loss, −mean(A·log π), cispo_clip_ratio, share of tokens with A > 0")
    for bound in (None, 5.0):
        for parts in passes(loss_type="cispo", epsilon_high=bound)[:2]:
            mask, advantages = parts.columns["completion_mask"].float(), parts.columns["advantages"][:, None]
            plain = -(advantages * parts.columns["new_log_probs"] * mask).sum() / mask.sum()
            positive = ((advantages > 0) * mask).sum() / mask.sum()
            print(f"  epsilon_high={bound}: {parts.scalars['loss']:+.5f} {plain.item():+.5f} "
                  f"{parts.scalars['cispo_clip_ratio']:.3f} {positive.item():.3f}")  # fmt: skip


def accumulation() -> None:
    print("the loss of the same 16 answers in 1, 2 and 4 micro-batches:")
    for loss in ("grpo", "bnpo", "dapo", "dr_grpo"):
        found, answers = [], set()
        for n in (1, 2, 4):
            split = {"steps_per_generation": n, "gradient_accumulation_steps": n}
            parts = passes(loss_type=loss, per_device_train_batch_size=16 // n, **split)[0]
            found.append(f"{parts.scalars['loss']:+.5f}")
            answers.add(tuple(sorted(map(tuple, parts.columns["completion_ids"].tolist()))))
        print(f"  {loss:8}", *found, "" if len(answers) == 1 else "(other answers)")


def masked_rows() -> None:
    parts = passes(mask_truncated_completions=True)[0]
    masked = parts.columns["completion_mask"].sum(dim=1) == 0
    group, advantages = torch.tensor(parts.rows["group"]), parts.columns["advantages"]
    short = [(group == g) & ~masked for g in group.unique() if bool(masked[group == g].any())]
    left = [f"{advantages[rows].mean().item():+.3f}" for rows in short if bool(rows.any())]
    print(
        f"mask_truncated_completions: {int(masked.sum())} of {len(masked)} rows masked; mean advantage of those left in"
    )
    print("  the groups that lost rows:", *left)


def truncated_sampling() -> None:
    print("mean of −log π and of the entropy on the tokens of six batches, and the z of their difference:")
    for top_p in (1.0, 0.9, 0.5):
        difference = []
        for seed in (3, 4):
            for parts in passes(seed, top_p=top_p, learning_rate=0.0):
                mask = parts.columns["completion_mask"].bool()
                difference.append((-parts.columns["new_log_probs"] - parts.columns["entropy"])[mask])
        all_tokens = torch.cat(difference)
        z = all_tokens.mean() / (all_tokens.std() / len(all_tokens) ** 0.5)
        print(f"  top_p={top_p}: {all_tokens.mean().item():+.3f} (z = {z.item():+.1f}, {len(all_tokens)} tokens)")


def main() -> None:
    torch.set_num_threads(1)
    cispo()
    accumulation()
    masked_rows()
    truncated_sampling()


if __name__ == "__main__":
    main()
