"""verl's own update of the actor in Ray workers on a CPU (FSDP2, the embedded model), watched; prints what differs.

Run by an interpreter that has verl 0.9.1 and Ray, with MINGCE_WATCH, mingce's entry point, and verl_cpu's platform:
python real_verl_update.py STEPS WORKERS OVERRIDE…   What is called is RayPPOTrainer._update_actor, unedited.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "RAY_USAGE_STATS_ENABLED": "0",
    "VERL_USE_EXTERNAL_MODULES": "verl_cpu", "VERL_PLATFORM": "cpu", "VERL_ENGINE_DEVICE": "cuda",
}  # fmt: skip
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import ray  # noqa: E402
import torch  # noqa: E402
from real_verl import bare, composed  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup  # noqa: E402
from verl.trainer.ppo.ray_trainer import RayPPOTrainer, compute_advantage  # noqa: E402
from verl.utils.metric import reduce_metrics  # noqa: E402
from verl.utils.tracking import Tracking  # noqa: E402
from verl_worker import Worker  # noqa: E402

import mingce  # noqa: E402
from mingce.record.run import Run  # noqa: E402

TINY = Path(mingce.__file__).parent / "models" / "tiny"
PROMPT, WIDTH, SIZE, ROWS, EOS = 4, 8, 4, 32, 2
ACTOR = "actor_rollout_ref.actor"
SETTINGS = (
    f"actor_rollout_ref.model.path={TINY}", "actor_rollout_ref.model.use_remove_padding=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=eager",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False", "actor_rollout_ref.rollout.name=hf",
    f"{ACTOR}.strategy=fsdp2", f"{ACTOR}.fsdp_config.strategy=fsdp2", f"{ACTOR}.fsdp_config.use_torch_compile=False",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
    f"{ACTOR}.use_torch_compile=False", f"{ACTOR}.ppo_micro_batch_size_per_gpu=4", f"{ACTOR}.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4", f"actor_rollout_ref.rollout.n={SIZE}",
    "algorithm.use_kl_in_reward=false", "algorithm.adv_estimator=grpo", f"data.max_response_length={WIDTH}",
    f"{ACTOR}.optim.lr=1e-3",
)  # fmt: skip


def batch(trainer: Any, step: int) -> DataProto:
    """Random answers and scores; their log-probs and advantages are verl's own."""
    torch.manual_seed(step)
    lengths = torch.randint(2, WIDTH + 1, (ROWS,))
    mask = (torch.arange(WIDTH) < lengths[:, None]).long()
    prompts = torch.randint(4, 50, (ROWS // SIZE, PROMPT)).repeat_interleave(SIZE, 0)
    responses = (torch.randint(4, 50, (ROWS, WIDTH)) * mask).scatter(1, lengths[:, None] - 1, EOS)
    ids = torch.cat([prompts, responses], 1)
    attended = torch.cat([torch.ones(ROWS, PROMPT, dtype=torch.long), mask], 1)
    scores = torch.zeros(ROWS, WIDTH).scatter(1, lengths[:, None] - 1, torch.randn(ROWS, 1))
    tensors = {
        "input_ids": ids, "attention_mask": attended, "position_ids": (attended.cumsum(1) - 1).clamp(min=0),
        "prompts": prompts, "responses": responses, "response_mask": mask,
        "token_level_scores": scores, "token_level_rewards": scores,
    }  # fmt: skip
    uids = np.array([f"{step}.{row // SIZE}" for row in range(ROWS)], dtype=object)
    data = DataProto.from_dict(tensors=tensors, non_tensors={"uid": uids})
    data.meta_info |= {"temperature": 1.0, "global_token_num": attended.sum(1).tolist()}
    old, _ = trainer._compute_old_log_prob(data)
    old.batch.pop("entropys")
    return compute_advantage(data.union(old), "grpo", num_repeat=SIZE, config=trainer.config.algorithm)


def differences(run: Path, step: int, seen: list[Any]) -> dict[str, float]:
    """Each row's new log-probs against what the worker's loss was given last for the same tokens."""
    ledger = Run.open(run, readonly=True).ledger
    last: dict[tuple[int, ...], list[float]] = {}
    for _, ids, said in sorted(seen, key=lambda one: one[0]):
        last[tuple(ids)] = said
    worst = {"rows": float(abs(ledger.count(step) - ROWS))}
    for row in ledger.rollouts(step, range(ledger.count(step))):
        ids = [*row["prompt_ids"], *row["token_ids"]]
        count = len(row["token_ids"])
        by_hand = last[tuple(ids)][PROMPT - 1 : PROMPT - 1 + count]
        gaps = [abs(a - b) for a, b in zip(row["new_log_probs"], by_hand, strict=True)]
        worst["new_log_probs"] = max(worst.get("new_log_probs", 0.0), *gaps)
        moved = max(abs(a - b) for a, b in zip(row["new_log_probs"], row["old_log_probs"], strict=True))
        worst["moved"] = max(worst.get("moved", 0.0), moved)
    return worst


def main() -> None:
    steps, workers, changed = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    config = composed(*SETTINGS, *changed)
    ray.init(num_cpus=32, include_dashboard=False, log_to_driver="VERBOSE" in os.environ)
    made = RayClassWithInitArgs(ray.remote(Worker), config=config.actor_rollout_ref, role="actor")
    group = RayWorkerGroup(RayResourcePool([workers], use_gpu=False), made, device_name="cpu")
    group.init_model()
    trainer = bare(RayPPOTrainer, config)
    trainer.actor_rollout_wg, trainer.total_training_steps = group, steps
    trainer.tokenizer.eos_token_id = EOS
    run, seen, logs = Path(os.environ.get("MINGCE_WATCH", "nothing")), [], []
    logger = Tracking("p", "e", default_backend=["console"])
    for trainer.global_steps in range(1, steps + 1):
        data = batch(trainer, trainer.global_steps)
        output = trainer._update_actor(data)
        metrics = reduce_metrics(output.meta_info["metrics"])
        logs.append({name: value for name, value in metrics.items() if "perf/" not in name})
        logger.log(data=metrics, step=trainer.global_steps)
        seen.append([one for rows in group.seen() for one in rows])
    mingce.unwatch(trainer)
    found: dict[str, Any] = {"logs": logs}
    if run.is_dir():
        found["differences"] = [differences(run, step, rows) for step, rows in enumerate(seen, 1)]
        with open(run / "audit.jsonl", encoding="utf-8") as lines:
            audits = [json.loads(line) for line in lines]
        found["alarms"] = [
            [line["step"], one["code"]] for line in audits for one in line["findings"]
            if one["severity"] in ("bug", "suspicious")
        ]  # fmt: skip
        found["left"] = [path.name for path in run.parent.iterdir() if path.name.endswith(".update")]
        found["audits"] = len(audits)
    print("FOUND " + json.dumps(found))


if __name__ == "__main__":
    main()
