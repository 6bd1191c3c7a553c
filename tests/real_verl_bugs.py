"""verl's own code with a bug planted into it at a time, under mingce.watch; prints what the live audit named as JSON.

Run by an interpreter that has verl 0.9.1, Ray and TransferQueue: python real_verl_bugs.py legacy|v1
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fake_verl
import numpy as np
import ray
import torch
import transfer_queue as queue
from real_verl import bare, composed, put
from verl import DataProto
from verl.trainer.ppo import core_algos, metric_utils, ray_trainer
from verl.trainer.ppo.v1 import trainer_base
from verl.utils.tracking import Tracking
from verl_bugs import BUGS, Bug

import mingce

ROWS, SIZE = 64, 4
MODULES = {"core_algos": core_algos, "ray_trainer": ray_trainer, "metric_utils": metric_utils}


@contextmanager
def planted(bug: Bug | None) -> Iterator[None]:
    """verl's function compiled anew with the changed text, wherever it is known by its name."""
    if bug is None:
        yield
        return
    module, _, name = bug.function.partition(".")
    original = getattr(MODULES[module], name)
    text = inspect.getsource(original)
    assert bug.old in text, bug.name
    scope = dict(vars(MODULES[module]))
    exec(text[text.index(f"def {name}") :].replace(bug.old, bug.new), scope)
    places = [one for one in (*MODULES.values(), trainer_base) if getattr(one, name, None) is original]
    for place in places:
        setattr(place, name, scope[name])
    yield
    for place in places:
        setattr(place, name, original)


def batch(settings: Any) -> dict[str, torch.Tensor]:
    """Groups of four, tokens of a tool inside some rows, a score for each row."""
    torch.manual_seed(3)
    made = fake_verl.made_batch(settings, ROWS)
    made["attention_mask"][:SIZE, 0] = 0
    made["prompts"] = made["prompts"][::SIZE].repeat_interleave(SIZE, 0) * made["attention_mask"][:, : fake_verl.PROMPT]
    long = made["response_mask"].sum(1) > 4
    made["response_mask"][long, 2] = 0
    made["values"] = torch.randn(made["values"].shape) * made["attention_mask"][:, fake_verl.PROMPT :]
    made["ref_log_prob"] = made["old_log_probs"] * torch.exp(0.1 * torch.randn(made["old_log_probs"].shape))
    left_out = ["routed_experts", "advantages", "returns"]
    if settings.algorithm.adv_estimator != "gae":
        left_out.append("values")
    return {name: one for name, one in made.items() if name not in left_out}


def step(kind: str, path: Path, settings: Any, bug: Bug | None) -> list[str]:
    """One step of verl's own under the watch; the codes of what was named."""
    made, uids = batch(settings), [f"p{row // SIZE}" for row in range(ROWS)]
    trainer = bare(trainer_base.PPOTrainer if kind == "v1" else ray_trainer.RayPPOTrainer, settings)
    trainer.parameter_sync_step = 1
    control = trainer.kl_ctrl_in_reward = core_algos.get_kl_controller(settings.algorithm.kl_ctrl)
    mingce.watch(trainer, path, audit_every=1)
    with planted(bug):
        data = DataProto.from_dict(tensors=made, non_tensors={"uid": np.array(uids, dtype=object)})
        if settings.algorithm.use_kl_in_reward:
            data, _ = ray_trainer.apply_kl_penalty(data, kl_ctrl=control, kl_penalty=settings.algorithm.kl_penalty)
        else:
            data.batch["token_level_rewards"] = data.batch["token_level_scores"]
        data = ray_trainer.compute_advantage(
            data, adv_estimator=settings.algorithm.adv_estimator, gamma=settings.algorithm.gamma,
            lam=settings.algorithm.lam, config=settings.algorithm,
        )  # fmt: skip
        logged = metric_utils.compute_data_metrics(data, use_critic=settings.algorithm.adv_estimator == "gae")
        if kind == "v1":
            keys = put(made, uids, SIZE)
            trainer._compute_advantage(keys, metrics={})
            queue.kv_clear(keys=keys.keys, partition_id="train")
        else:
            trainer._init_dump_executor()
            data.non_tensor_batch["reward_model"] = np.array([{}] * ROWS, dtype=object)
            trainer._log_rollout_data(data, {}, {}, tempfile.mkdtemp())
            trainer._shutdown_dump_executor()
        Tracking("p", "e", default_backend=["console"]).log(data=logged, step=1)
    mingce.unwatch(trainer)
    lines = [json.loads(line) for line in (path / "audit.jsonl").read_text().splitlines()]
    return [one["code"] for line in lines for one in line["findings"] if one["severity"] in ("bug", "suspicious")]


def main() -> None:
    kind = sys.argv[1]
    if kind == "v1":
        ray.init(num_cpus=32, include_dashboard=False, log_to_driver=False)
        queue.init()
    named: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, bug in enumerate((None, None, *BUGS)):
            estimator = bug.estimator if bug else ("gae", "grpo")[number]
            in_reward = "true" if estimator == "gae" else "false"
            settings = composed(
                f"algorithm.adv_estimator={estimator}", f"algorithm.use_kl_in_reward={in_reward}",
                f"actor_rollout_ref.rollout.n={SIZE}",
            )  # fmt: skip
            name = bug.name if bug else f"clean {estimator}"
            named[name] = step(kind, Path(folder) / str(number), settings, bug)
    print("FOUND " + json.dumps(named))


if __name__ == "__main__":
    main()
