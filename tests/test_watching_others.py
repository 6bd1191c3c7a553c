"""OpenRLHF and SkyRL under mingce.watch, on objects built as their sources say (OpenRLHF 0.11, SkyRL 0.3)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_verl import EOS, PROMPT, WIDTH, config, made_batch

import mingce
from mingce.importers.opening import open_dump
from mingce.record.run import Run
from mingce.sources.dumps import open_source
from mingce.watching.wrapping import StopAsked

TOKENIZER = SimpleNamespace(eos_token_id=EOS, pad_token_id=0, bos_token_id=None)


@dataclass
class Experience:
    """The fields of OpenRLHF's that matter; more are left out."""

    sequences: torch.Tensor
    attention_mask: torch.Tensor
    action_mask: torch.Tensor
    action_log_probs: torch.Tensor
    base_action_log_probs: torch.Tensor
    values: torch.Tensor
    returns: torch.Tensor
    advantages: torch.Tensor
    rewards: torch.Tensor
    index: list[int]
    prompts: list[str]
    kl: None = None
    info: dict[str, Any] = field(default_factory=dict)


class OpenRLHF:
    """BasePPOTrainer's step: experiences in micro-batches of two, by GAE with the KL in the reward."""

    def __init__(self, steps: int):
        kl = SimpleNamespace(init_coef=0.05, target=None, use_loss=False, estimator="k1")
        advantage = SimpleNamespace(estimator="gae", gamma=0.99, lambd=0.9)
        self.args = SimpleNamespace(
            algo=SimpleNamespace(kl=kl, advantage=advantage),
            actor=SimpleNamespace(eps_clip=0.2, eps_clip_low_high=[0.2, 0.3], dual_clip=None, policy_loss_type="ppo"),
            critic=SimpleNamespace(value_clip=0.5),
            rollout=SimpleNamespace(temperature=1.0, top_p=1.0, n_samples_per_prompt=2, max_new_tokens=WIDTH),
            logger=SimpleNamespace(wandb=SimpleNamespace(key="x", api_key="secret")),
        )
        self.tokenizer, self.max_steps = TOKENIZER, steps
        self.experience_maker = SimpleNamespace(make_experience_batch=self._make)
        self.sign, self.seen, self.logs = 1.0, list[dict[str, torch.Tensor]](), list[dict[str, Any]]()

    def _make(self, samples: Any) -> list[Experience]:
        made = made_batch(config(), sign=self.sign)
        self.seen.append(made)
        parts = []
        for at in range(0, len(made["responses"]), 2):
            some = {name: tensor[at : at + 2] for name, tensor in made.items()}
            scores = some["token_level_scores"].sum(1)
            parts.append(
                Experience(
                    some["input_ids"], some["attention_mask"], some["response_mask"].bool(), some["old_log_probs"],
                    some["ref_log_prob"], some["values"], some["returns"], some["advantages"], scores,
                    [at, at + 1], ["same", "same"], info={"reward": scores},
                )
            )  # fmt: skip
        return parts

    def train_step(self, rollout_samples: Any, global_step: int) -> tuple[dict[str, Any], int]:
        experiences = self.experience_maker.make_experience_batch(rollout_samples)
        for one in experiences:
            one.kl = None
        return {"policy_loss": 0.5, "generated_samples": ["text"]}, global_step + 1

    def fit(self) -> None:
        step = 0
        while step < self.max_steps:
            status, step = self.train_step(None, step)
            self.logs.append(status)


OpenRLHF.__module__, OpenRLHF.__name__ = "openrlhf.trainer.ppo_trainer", "BasePPOTrainer"


class TrainingInputBatch(dict[str, Any]):
    metadata: dict[str, Any]


class SkyRL:
    """RayPPOTrainer's loop from the batch on: responses at the right edge, one row more that fills up."""

    def __init__(self, steps: int):
        algorithm = SimpleNamespace(
            advantage_estimator="gae", grpo_norm_by_std=True, gamma=0.99, lambd=0.9, use_kl_in_reward=True,
            use_kl_loss=False, kl_loss_coef=0.05, kl_estimator_type="k1", policy_loss_type="regular", eps_clip_low=0.2,
            eps_clip_high=0.28, value_clip=0.2, clip_ratio_c=3.0, kl_ctrl=SimpleNamespace(type="fixed"),
        )  # fmt: skip
        sampling = SimpleNamespace(temperature=1.0, top_p=1.0)
        self.cfg = SimpleNamespace(
            trainer=SimpleNamespace(algorithm=algorithm),
            generator=SimpleNamespace(sampling_params=sampling, n_samples_per_prompt=2),
        )
        self.tokenizer, self.total_training_steps, self.global_step = TOKENIZER, steps, 1
        self.tracker = SimpleNamespace(log=self._log)
        self.sign, self.seen, self.logs = 1.0, list[dict[str, torch.Tensor]](), list[dict[str, Any]]()

    def _log(self, data: dict[str, Any], step: int, commit: bool = False) -> None:
        self.logs.append(data)

    def compute_advantages_and_returns(self, data: TrainingInputBatch) -> TrainingInputBatch:
        return data

    def fit(self) -> None:
        while self.global_step <= self.total_training_steps:
            self.seen.append(made_batch(config(), sign=self.sign))
            data = self.compute_advantages_and_returns(right_aligned(self.seen[-1]))
            data.pop("rewards")
            data.metadata.pop("uids")
            self.tracker.log({"loss/avg_final_rewards": 0.5}, step=self.global_step, commit=True)
            self.global_step += 1


SkyRL.__module__, SkyRL.__name__ = "skyrl.train.trainer", "RayPPOTrainer"


def right_aligned(made: dict[str, torch.Tensor]) -> TrainingInputBatch:
    def moved(tensor: torch.Tensor) -> torch.Tensor:
        lengths = made["response_mask"].sum(1).tolist()
        rows = [row.roll(WIDTH - n) if n < WIDTH else row for row, n in zip(tensor, lengths, strict=True)]
        return torch.stack([*rows, rows[0]])

    names = {"rewards": "token_level_rewards", "action_log_probs": "old_log_probs", "values": "values",
             "base_action_log_probs": "ref_log_prob", "advantages": "advantages", "returns": "returns",
             "response_mask": "response_mask", "loss_mask": "response_mask"}  # fmt: skip
    batch = TrainingInputBatch({theirs: moved(made[ours]) for theirs, ours in names.items()})
    whole = []
    for prompt, ids, there in zip(made["prompts"], made["responses"], made["attention_mask"].bool(), strict=True):
        kept = torch.cat([prompt[there[:PROMPT]], ids[there[PROMPT:]]])
        whole.append(torch.cat([torch.zeros(PROMPT + WIDTH - len(kept), dtype=torch.long), kept]))
    batch["sequences"] = torch.stack([*whole, whole[0]])
    batch["attention_mask"] = (batch["sequences"] != 0).long()
    batch["rollout_logprobs"] = None
    batch.metadata = {"uids": [f"p{row // 2}" for row in range(8)] + ["p0"], "pad_size": 1}
    return batch


@pytest.mark.parametrize(("kind", "source"), [(OpenRLHF, "openrlhf"), (SkyRL, "skyrl")])
def test_columns_and_settings_are_as_they_were(kind: Any, source: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    trainer = kind(2)
    names = set(vars(trainer))
    watched = mingce.watch(trainer, tmp_path / "run", audit_every=1)
    assert watched is not None
    trainer.fit()
    mingce.unwatch(trainer)
    assert (watched.failures, watched.dropped) == (0, 0)
    assert set(vars(trainer)) == names
    pairs = {"token_ids": "responses", "old_log_probs": "old_log_probs", "ref_log_probs": "ref_log_prob",
             "values": "values", "advantages": "advantages", "returns": "returns"}  # fmt: skip
    if kind is SkyRL:
        pairs["rewards"] = "token_level_rewards"
    run = Run.open(tmp_path / "run", readonly=True)
    for step, theirs in enumerate(trainer.seen, start=1):
        found = run.ledger.rollouts(step, range(run.ledger.count(step)))
        assert len(found) == 8
        for row, one in enumerate(found):
            length = int(theirs["response_mask"][row].sum())
            for ours, name in pairs.items():
                assert one[ours] == theirs[name][row, :length].tolist(), ours
            attended = theirs["attention_mask"][row, :PROMPT].bool()
            assert one["prompt_ids"] == theirs["prompts"][row][attended].tolist()
        assert [one["group"] for one in found[::2]] == [one["group"] for one in found[1::2]]
    (dump, _) = open_dump(tmp_path / "run")
    assert dump.source == source
    expected = {"gamma": 0.99, "lam": 0.9, "beta": 0.05, "kl_estimator": "k1", "estimator": "gae", "group_size": 2}
    assert expected.items() <= dump.settings.known().items()
    assert not any("secret" in str(value) for value in open_source(tmp_path / "run").config().values())
    for line in (tmp_path / "run" / "audit.jsonl").read_text().splitlines():
        assert not [one["code"] for one in json.loads(line)["findings"] if one["severity"] in ("bug", "suspicious")]
    assert len(open_source(tmp_path / "run").series().steps) == len(trainer.logs) == 2


def test_a_bug_stops_them_as_asked(tmp_path: Path) -> None:
    torch.manual_seed(0)
    trainer: Any = SkyRL(10_000)
    trainer.sign = -1.0
    mingce.watch(trainer, tmp_path / "run", audit_every=1, on_bug="stop")
    with pytest.raises(StopAsked, match="KL"):
        trainer.fit()
    mingce.unwatch(trainer)
    assert trainer.global_step < 10_000
