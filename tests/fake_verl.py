"""Trainers shaped as verl 0.9.1's sources say, without verl, Ray or TransferQueue: names, methods, order of calls.

`PPOTrainer` is the V1 trainer, whose batches stay in TransferQueue (here a dict), `RayPPOTrainer` the legacy one. What
they compute is right, and small. `package(directory)` writes a `verl` and a `transfer_queue` to be imported.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from omegaconf import OmegaConf

from mingce.algorithms.verl_names import compute_gae_advantage_return

PROMPT, WIDTH, EOS = 4, 6, 1
QUEUE: dict[str, dict[str, Any]] = {}
_FILES = {
    "verl/__init__.py": "import mingce.watching.verl_plugin",  # as its entry points are loaded
    "verl/utils/__init__.py": "",
    "verl/utils/tracking.py": "from fake_verl import Tracking",
    "verl/trainer/__init__.py": "",
    "verl/trainer/ppo/__init__.py": "",
    "verl/trainer/ppo/ray_trainer.py": "from fake_verl import RayPPOTrainer",
    "verl/trainer/ppo/v1/__init__.py": "",
    "verl/trainer/ppo/v1/trainer_base.py": "from fake_verl import PPOTrainer",
    "transfer_queue.py": "from fake_verl import kv_batch_get",
}


def package(directory: Path) -> None:
    for name, text in _FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(f"{text}\n")


class Tracking:
    """Keeps what is logged."""

    __module__ = "verl.utils.tracking"
    lines: ClassVar[list[dict[str, Any]]] = []

    def log(self, data: dict[str, Any], step: int, backend: str | None = None) -> None:
        self.lines.append({**data, "step": step})


class KVBatchMeta(SimpleNamespace):
    partition_id: str
    keys: list[str]
    tags: list[dict[str, Any]]


class NonTensorStack(SimpleNamespace):
    """Texts as TensorDict has them: no tensor, though it has a tensor's methods."""

    texts: list[str]

    def tolist(self) -> list[str]:
        return self.texts

    def detach(self) -> NonTensorStack:
        return self

    def unbind(self, dim: int) -> list[Any]:
        return [NonTensorStack(texts=[text]) for text in self.texts]


def kv_batch_get(keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
    """Nested tensors of the fields that are there, in the order of the keys."""
    assert partition_id == "train"
    found: dict[str, Any] = {}
    for name in select_fields:
        rows = [QUEUE[key].get(name) for key in keys]
        if rows[0] is not None:
            text = isinstance(rows[0], str)
            found[name] = NonTensorStack(texts=rows) if text else torch.nested.nested_tensor(rows, layout=torch.jagged)
    return found


def config(**changed: Any) -> Any:
    """The part of verl's that matters; OmegaConf's, with its interpolations."""
    actor = {
        "clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 3.0, "use_kl_loss": False,
        "entropy_coeff": 0.0, "loss_agg_mode": "token-mean", "ppo_epochs": 1, "policy_loss": {"loss_mode": "vanilla"},
    }  # fmt: skip
    rollout = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "n": 2}
    made = {
        "algorithm": {"adv_estimator": "gae", "gamma": 0.99, "lam": 0.9, "use_kl_in_reward": True,
                      "kl_penalty": "kl", "kl_ctrl": {"type": "fixed", "kl_coef": 0.05}},
        "actor_rollout_ref": {"actor": actor, "rollout": rollout},
        "critic": {"cliprange_value": 0.5, "loss_agg_mode": "${actor_rollout_ref.actor.loss_agg_mode}"},
        "data": {"max_response_length": WIDTH},
        "trainer": {"logger": {"wandb_api_key": "secret"}, "rollout_data_dir": None},
    }  # fmt: skip
    return OmegaConf.merge(OmegaConf.create(made), OmegaConf.create(changed))


def made_batch(settings: Any, rows: int = 8, sign: float = 1.0) -> dict[str, torch.Tensor]:
    """A padded batch up to its returns, whitened as verl does; `sign` −1: a KL that is added."""
    lengths = torch.randint(2, WIDTH + 1, (rows,))
    mask = (torch.arange(WIDTH) < lengths[:, None]).long()
    before = torch.ones(rows, PROMPT, dtype=torch.long)
    before[:2, 0] = 0
    ids = (torch.randint(3, 30, (rows, WIDTH)) * mask).scatter(1, lengths[:, None] - 1, EOS)
    old = -torch.rand(rows, WIDTH) - 0.1
    ref = old + 0.01 * torch.randn(rows, WIDTH)
    scores = torch.zeros(rows, WIDTH).scatter(1, lengths[:, None] - 1, torch.randn(rows, 1))
    values = torch.randn(rows, WIDTH) * mask
    rewards = scores - sign * settings.algorithm.kl_ctrl.kl_coef * (old - ref) * mask
    advantages, returns = compute_gae_advantage_return(
        rewards, values, mask, settings.algorithm.gamma, settings.algorithm.lam
    )
    prompts = torch.randint(3, 30, (rows // 2, PROMPT)).repeat_interleave(2, 0) * before
    return {
        "prompts": prompts, "responses": ids, "attention_mask": torch.cat([before, mask], 1), "response_mask": mask,
        "old_log_probs": old, "rollout_log_probs": old + 1e-3, "ref_log_prob": ref, "values": values,
        "token_level_scores": scores, "token_level_rewards": rewards, "advantages": advantages, "returns": returns,
        "input_ids": torch.cat([prompts, ids], 1), "routed_experts": torch.zeros(rows, PROMPT + WIDTH, 2),
    }  # fmt: skip


class _Trainer:
    def __init__(self, steps: int = 3, **changed: Any):
        self.config, self.total_training_steps, self.global_steps = config(**changed), steps, 0
        self.tokenizer = SimpleNamespace(eos_token_id=EOS, pad_token_id=0, bos_token_id=None)
        self.sign, self.seen = 1.0, list[dict[str, Any]]()

    def _made(self) -> dict[str, torch.Tensor]:
        batch = made_batch(self.config, sign=self.sign)
        self.seen.append({name: tensor.clone() for name, tensor in batch.items()})
        return batch

    @staticmethod
    def _metrics(batch: dict[str, torch.Tensor]) -> dict[str, Any]:
        mask = batch["response_mask"].bool()
        advantages = batch["advantages"][mask].mean().item()
        scores = batch["token_level_scores"].sum(1).numpy().mean()  # verl logs NumPy's, too
        return {"critic/advantages/mean": advantages, "critic/score/mean": scores, "timing_s/step": float("nan")}


class RayPPOTrainer(_Trainer):
    __module__ = "verl.trainer.ppo.ray_trainer"

    def fit(self) -> None:
        from verl.utils.tracking import Tracking

        logger = Tracking()
        while self.global_steps < self.total_training_steps:
            self.global_steps += 1
            made = self._made()
            uids = np.array([f"p{row // 2}" for row in range(len(made["responses"]))], dtype=object)
            batch = SimpleNamespace(batch=made, non_tensor_batch={"uid": uids}, meta_info={})
            self._update_critic(batch)
            self._update_actor(batch)
            if self.config.trainer.rollout_data_dir:
                self._log_rollout_data(batch, {}, {}, self.config.trainer.rollout_data_dir)
            logger.log(data=self._metrics(made), step=self.global_steps)

    def _update_critic(self, batch: Any) -> Any:
        return batch

    def _update_actor(self, batch: Any) -> Any:
        return batch

    def _log_rollout_data(self, batch: Any, infos: Any, timing: Any, directory: str) -> None:
        pass


class PPOTrainer(_Trainer):
    __module__ = "verl.trainer.ppo.v1.trainer_base"
    parameter_sync_step = 1

    def fit(self, agent_loop_manager: Any = None) -> None:
        from verl.utils.tracking import Tracking

        self.logger = Tracking()
        while self.global_steps < self.total_training_steps:
            self.global_steps += 1
            for _ in range(self.parameter_sync_step):
                made = self._made()
                batch = self._compute_advantage(self._put(made), metrics={})
            if self.config.trainer.rollout_data_dir:
                self._log_rollout_data(batch, {}, self.config.trainer.rollout_data_dir)
            QUEUE.clear()
            self.logger.log(data=self._metrics(made), step=self.global_steps)

    def _put(self, made: dict[str, torch.Tensor]) -> KVBatchMeta:
        """Rows without their padding, and one that only fills the batch up."""
        there = made["attention_mask"].bool()
        keys = [f"p{row // 2}_{row % 2}_0" for row in range(len(there))]
        for row, key in enumerate(keys):
            QUEUE[key] = {"uid": f"p{row // 2}", "prompts": made["prompts"][row][there[row, :PROMPT]]}
            for name, tensor in made.items():
                if name not in ("prompts", "attention_mask", "input_ids", "advantages", "returns", "routed_experts"):
                    theirs = "rm_scores" if name == "token_level_scores" else name
                    QUEUE[key][theirs] = tensor[row][there[row, PROMPT:]]
        QUEUE["pad_0_0"] = {**QUEUE[keys[0]], "uid": "pad"}
        self._computed = made
        tags: list[dict[str, Any]] = [{} for _ in keys]
        return KVBatchMeta(partition_id="train", keys=[*keys, "pad_0_0"], tags=[*tags, {"is_padding": True}])

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        for row, key in enumerate(batch.keys[:-1]):
            length = len(QUEUE[key]["responses"])
            QUEUE[key] |= {name: self._computed[name][row, :length] for name in ("advantages", "returns")}
        QUEUE["pad_0_0"] |= {name: QUEUE[batch.keys[0]][name] for name in ("advantages", "returns")}
        return batch

    def _log_rollout_data(self, batch: KVBatchMeta, timing: Any, directory: str) -> None:
        pass
