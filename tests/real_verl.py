"""verl's own trainers on batches of ours, with its plug-ins loaded by itself; prints what differs as JSON.

Run by an interpreter that has verl 0.9.1, Ray and TransferQueue, with MINGCE_WATCH set and mingce's entry point to be
found: python real_verl.py legacy|v1. Models and workers are left out: what is called is verl's own, unedited.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from types import SimpleNamespace
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "RAY_USAGE_STATS_ENABLED": "0"}
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from fake_verl import EOS, PROMPT, made_batch  # noqa: E402
from hydra import compose, initialize_config_module  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.trainer.ppo import core_algos  # noqa: E402
from verl.utils.tracking import Tracking  # noqa: E402

import mingce  # noqa: E402
from mingce.record.run import Run  # noqa: E402

NAMES = {
    "token_ids": "responses", "old_log_probs": "old_log_probs", "ref_log_probs": "ref_log_prob", "values": "values",
    "rollout_log_probs": "rollout_log_probs", "rewards": "token_level_rewards", "advantages": "advantages",
    "returns": "returns", "scores": "token_level_scores", "response_mask": "response_mask",
}  # fmt: skip
CHANGED = (
    "algorithm.use_kl_in_reward=true", "algorithm.kl_ctrl.kl_coef=0.05", "algorithm.gamma=0.99", "algorithm.lam=0.9",
    "actor_rollout_ref.rollout.n=2", "data.max_response_length=6", "algorithm.adv_estimator=gae",
)  # fmt: skip


def composed(*changed: str) -> Any:
    """verl's own defaults with our changes, and more."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=[*CHANGED, *changed])


def bare(kind: Any, settings: Any) -> Any:
    """A trainer without workers, data and models."""
    made: Any = type(kind.__name__, (kind,), {"__module__": kind.__module__})
    made.__abstractmethods__ = frozenset()
    trainer: Any = object.__new__(made)
    trainer.config, trainer.global_steps, trainer.total_training_steps = settings, 1, 1
    trainer.tokenizer = SimpleNamespace(
        eos_token_id=EOS, pad_token_id=0, bos_token_id=None, batch_decode=lambda ids, **_: ["text"] * len(ids)
    )
    return trainer


def legacy(settings: Any, batch: dict[str, torch.Tensor], uids: list[str]) -> Any:
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    trainer = bare(RayPPOTrainer, settings)
    trainer._init_dump_executor()
    infos = {"uid": np.array(uids, dtype=object), "reward_model": np.array([{}] * len(uids), dtype=object)}
    data = DataProto.from_dict(tensors=batch, non_tensors=infos)
    trainer._log_rollout_data(data, {}, {}, tempfile.mkdtemp())
    trainer._shutdown_dump_executor()
    return trainer


def put(batch: dict[str, torch.Tensor], uids: list[str], size: int) -> Any:
    """The batch's rows in TransferQueue, without their padding."""
    import transfer_queue as queue

    there = batch["attention_mask"].bool()
    rows = {"prompts": [ids[keep] for ids, keep in zip(batch["prompts"], there[:, :PROMPT], strict=True)]}
    names = ("responses", "response_mask", "old_log_probs", "rollout_log_probs", "ref_log_prob", "values")
    for name in (one for one in names if one in batch):
        rows[name] = [row[keep] for row, keep in zip(batch[name], there[:, PROMPT:], strict=True)]
    rows["rm_scores"] = [row[keep] for row, keep in zip(batch["token_level_scores"], there[:, PROMPT:], strict=True)]
    fields = TensorDict(
        {name: torch.nested.as_nested_tensor(one, layout=torch.jagged) for name, one in rows.items()},
        batch_size=len(uids),
    )
    fields["uid"] = np.array(uids, dtype=object)
    keys = [f"{uid}_{row % size}_0" for row, uid in enumerate(uids)]
    return queue.kv_batch_put(keys=keys, partition_id="train", fields=fields, tags=[{} for _ in keys])


def v1(settings: Any, batch: dict[str, torch.Tensor], uids: list[str]) -> Any:
    """verl computes KL, rewards, advantages and returns itself, of what TransferQueue holds."""
    import ray
    import transfer_queue as queue
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    ray.init(num_cpus=32, include_dashboard=False, log_to_driver=False)
    queue.init()
    trainer = bare(PPOTrainer, settings)
    trainer.parameter_sync_step = 1
    trainer.kl_ctrl_in_reward = core_algos.get_kl_controller(settings.algorithm.kl_ctrl)
    keys = put(batch, uids, 2)
    trainer._compute_advantage(keys, metrics={})
    queue.kv_clear(keys=keys.keys, partition_id="train")
    return trainer


def differences(path: str, batch: dict[str, torch.Tensor]) -> dict[str, float]:
    run = Run.open(path, readonly=True)
    found = run.ledger.rollouts(1, range(run.ledger.count(1)))
    worst = dict.fromkeys(NAMES, 0.0) | {"rows": float(abs(len(found) - len(batch["responses"])))}
    for row, one in enumerate(found):
        length = int(batch["response_mask"][row].sum())
        for ours, theirs in NAMES.items():
            given = batch[theirs][row, :length].double()
            worst[ours] = max(worst[ours], (torch.tensor(one[ours]).double() - given).abs().max().item())
        attended = batch["attention_mask"][row, :PROMPT].bool()
        assert one["prompt_ids"] == batch["prompts"][row][attended].tolist()
    return worst


def main() -> None:
    torch.manual_seed(0)
    settings = composed()
    batch = made_batch(settings)
    batch = {name: tensor for name, tensor in batch.items() if name != "routed_experts"}
    uids = [f"p{row // 2}" for row in range(len(batch["responses"]))]
    trainer = {"legacy": legacy, "v1": v1}[sys.argv[1]](settings, batch, uids)
    mean = batch["advantages"][batch["response_mask"].bool()].mean().item()
    Tracking("p", "e", default_backend=["console"]).log(data={"critic/advantages/mean": mean}, step=1)
    mingce.unwatch(trainer)
    path = os.environ["MINGCE_WATCH"]
    with open(f"{path}/audit.jsonl", encoding="utf-8") as lines:
        audits = [json.loads(line) for line in lines]
    alarms = [one["code"] for line in audits for one in line["findings"] if one["severity"] in ("bug", "suspicious")]
    settings_found = Run.open(path, readonly=True).config()["settings"]
    print("FOUND " + json.dumps({"differences": differences(path, batch), "alarms": alarms, "audits": len(audits),
                                 "settings": settings_found}))  # fmt: skip


if __name__ == "__main__":
    main()
