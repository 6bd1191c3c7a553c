"""The numbers behind docs/en/audits/verl.md: verl 0.9.1's own functions on batches of the toy model.

verl/bin/python bench/findings_verl.py        in the environment of clean_verl.py
"""

from __future__ import annotations

import numpy as np
import torch
from clean_batches import Batch, sample
from clean_verl import GRADIENT, LOSSES, MODES, Asked, credit, on_responses, proto, score_rows, update
from verl import DataProto
from verl.trainer.ppo import core_algos

SPLITS = (1, 2, 4, 8)


def prepared() -> tuple[DataProto, Batch]:
    """A GRPO batch after compute_advantage."""
    rng = np.random.default_rng(5)
    batch = sample(rng, grouped=True)
    data = proto(batch, rng)
    score_rows(data, batch, rng, Asked("", "grpo"))
    credit(data, batch, Asked("", "grpo"))
    return data, batch


def micro_batches(data: DataProto, batch: Batch) -> None:
    print(f"pg_loss of one minibatch of {len(data)} rows in {SPLITS} micro-batches, seq-mean-token-mean:")
    for loss in LOSSES:
        asked = Asked("", "grpo", loss=loss, mode="seq-mean-token-mean")
        torch.manual_seed(0)
        print(f"  {loss:12}", *(f"{update(data, batch, asked, 2, n)['actor/pg_loss']:+.6f}" for n in SPLITS))
    print("size of the gradient on the log-probs of the same, vanilla and geo_mean:")
    for loss in ("vanilla", "geo_mean"):
        asked = Asked("", "grpo", loss=loss, mode="seq-mean-token-mean")
        print(f"  {loss:12}", *(f"{update(data, batch, asked, 2, n)[GRADIENT]:.6f}" for n in SPLITS))
    print("actor/ppo_kl and actor/pg_clipfrac of the same, vanilla:")
    for n in SPLITS:
        found = update(data, batch, Asked("", "grpo"), 2, n)
        print(f"  {n}  {found['actor/ppo_kl']:.6f}  {found['actor/pg_clipfrac']:.6f}")


def modes(data: DataProto, batch: Batch) -> None:
    print(f"pg_loss by loss_agg_mode {MODES}:")
    for loss in LOSSES:
        found = [update(data, batch, Asked("", "grpo", loss=loss, mode=mode), 2, 1)["actor/pg_loss"] for mode in MODES]
        print(f"  {loss:12}", *(f"{value:+.5f}" for value in found))
    entropy, mask = on_responses(data, batch.entropy), data.batch["response_mask"]
    print(
        "actor/entropy by loss_agg_mode:", *(f"{core_algos.agg_loss(entropy, mask, mode).item():.3f}" for mode in MODES)
    )
    wider = (torch.nn.functional.pad(one, (0, 100)) for one in (entropy, mask))
    print(f"  the last one with 100 more pads: {core_algos.agg_loss(*wider, MODES[-1]).item():.3f}")
    print("actor/ppo_kl by loss:", {
        loss: round(update(data, batch, Asked("", "grpo", loss=loss), 2, 1).get("actor/ppo_kl", float("nan")), 6)
        for loss in LOSSES
    })  # fmt: skip


def equal_scores() -> None:
    print("largest |advantage| of a group of 8 equal scores, grpo and grpo_vectorized:")
    for score in (0.1, 0.3, 0.7, 1.0, 10.1, 100.1):
        rewards, mask = torch.zeros(8, 4), torch.ones(8, 4)
        rewards[:, -1] = score
        uids = np.array(["one"] * 8, dtype=object)
        plain = core_algos.compute_grpo_outcome_advantage(rewards, mask, uids)[0]
        fast = core_algos.compute_grpo_vectorized_outcome_advantage(rewards, mask, uids)[0]
        print(f"  {score:<6} {plain.abs().max().item():.4f} {fast.abs().max().item():.4f}")


def off_the_mask() -> None:
    print("slots with an advantage outside response_mask, batches with tool output:")
    for estimator in sorted(core_algos.ADV_ESTIMATOR_REGISTRY):
        rng = np.random.default_rng(7)
        asked, batch = Asked("", estimator, holes=True), sample(rng, holes=True, grouped=True)
        data = proto(batch, rng)
        score_rows(data, batch, rng, asked)
        credit(data, batch, asked)
        outside = (data.batch["advantages"] != 0) & (data.batch["response_mask"] == 0)
        print(f"  {estimator:30} {int(outside.sum())} of {int((data.batch['response_mask'] == 0).sum())}")


def main() -> None:
    torch.set_num_threads(1)
    data, batch = prepared()
    micro_batches(data, batch)
    modes(data, batch)
    equal_scores()
    off_the_mask()


if __name__ == "__main__":
    main()
