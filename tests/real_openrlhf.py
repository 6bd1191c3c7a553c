"""OpenRLHF's own trainer and experience maker, watched; its models are tensors of ours. Prints what differs as JSON.

Run by an interpreter that has Ray and transformers, with OpenRLHF 0.11's unpacked wheel on the path:
python real_openrlhf.py gae|reinforce|rloo|reinforce_baseline|dr_grpo|group_norm KL_IN_LOSS(0|1)
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stand_ins import stand_in

stand_in()

import ray  # noqa: E402
import torch  # noqa: E402
from openrlhf.trainer.ppo_trainer import BasePPOTrainer  # noqa: E402
from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: E402

import mingce  # noqa: E402
from mingce.record.run import Run  # noqa: E402

PROMPT, WIDTH, SIZE, ROWS, EOS = 3, 6, 4, 16, 2
NAMES = {"old_log_probs": "action_log_probs", "values": "values", "advantages": "advantages", "returns": "returns",
         "ref_log_probs": "base_action_log_probs"}  # fmt: skip


class Group:
    """A group of workers: one number a token."""

    def __init__(self, seed: int, drift: float = 0.0):
        self._draw, self._drift, self._scale = torch.Generator().manual_seed(seed), drift, 2.0

    def async_run_method_batch(self, method_name: str, **named: Any) -> Any:
        if method_name != "forward":
            return []
        masks = named["action_mask"]
        self._scale += self._drift
        return [[-torch.rand(mask.shape, generator=self._draw) * self._scale * mask for mask in masks]]

    def async_run_method(self, method_name: str, **_: Any) -> Any:
        return [{}]


def arguments(estimator: str, in_loss: bool) -> Any:
    def space(**named: Any) -> Any:
        return SimpleNamespace(**named)

    return space(
        algo=space(kl=space(init_coef=0.05, target=None, horizon=1, use_loss=in_loss, estimator="k1"),
                   advantage=space(estimator=estimator, gamma=0.98 if estimator == "gae" else 1.0, lambd=0.9,
                                   no_std_norm=False)),
        logger=space(wandb=space(key=None), tensorboard_dir=None), ckpt=space(best_metric_key=""),
        train=space(dynamic_batch_enable=False, colocate_all=False, colocate_actor_ref=False,
                    colocate_critic_reward=False),
        ds=space(ring_attn_size=1, tensor_parallel_size=1, enable_sleep=False),
        rollout=space(micro_batch_size=4, n_samples_per_prompt=SIZE, batch_size=ROWS // SIZE, temperature=1.0,
                      top_p=1.0, max_new_tokens=WIDTH),
        reward=space(clip_range=(-10.0, 10.0), overlong_buffer_len=None, stop_properly_penalty_coef=None),
        actor=space(eps_clip=0.2, eps_clip_low_high=(0.2, 0.2), dual_clip=None, policy_loss_type="ppo",
                    entropy_coef=None),
        critic=space(freezing_steps=-1, value_clip=0.2),
    )  # fmt: skip


def samples(step: int) -> list[Experience]:
    """Prompt and answer a row, ids without padding, a score."""
    torch.manual_seed(step)
    made = []
    for row in range(ROWS):
        length = int(torch.randint(2, WIDTH + 1, ()))
        torch.manual_seed(1000 * step + row // SIZE)
        prompt = torch.randint(4, 50, (PROMPT,))
        torch.manual_seed(100 * step + row)
        answer = torch.randint(4, 50, (length,))
        answer[-1] = EOS
        ids, chosen = torch.cat([prompt, answer]), torch.ones(1, PROMPT + length - 1, dtype=torch.bool)
        chosen[0, : PROMPT - 1] = False
        score = torch.randn(1)
        made.append(Experience(
            sequences=ids[None], attention_mask=torch.ones_like(ids)[None], action_mask=chosen, rewards=score,
            scores=score.clone(), prompts=[f"{step}.{row // SIZE}"], labels=[""], info={"reward": score.clone()},
            response_length=torch.tensor([length]), truncated=torch.tensor([False]),
            total_length=torch.tensor([len(ids)]),
        ))  # fmt: skip
    return made


def differences(run: Path, step: int, experiences: list[Any]) -> dict[str, float]:
    ledger, worst = Run.open(run, readonly=True).ledger, dict[str, float]()
    ours = ledger.rollouts(step, range(ledger.count(step)))
    theirs = [(one, row) for one in experiences for row in range(len(one.sequences))]
    theirs.sort(key=lambda pair: pair[0].index[pair[1]])
    worst["rows"] = float(abs(len(ours) - len(theirs)))
    by_tokens = {tuple([*row["prompt_ids"], *row["token_ids"]]): row for row in ours}
    for one, row in theirs:
        ids = one.sequences[row][one.attention_mask[row].bool()].tolist()
        mine, chosen = by_tokens[tuple(ids)], one.action_mask[row].bool()
        for name, source in NAMES.items():
            column = getattr(one, source)
            if column is not None:
                gaps = (torch.tensor(mine[name]).double() - column[row][chosen].double()).abs()
                worst[name] = max(worst.get(name, 0.0), gaps.max().item())
        worst["outcome"] = max(worst.get("outcome", 0.0), abs(mine["outcome"] - float(one.info["reward"][row])))
        if "kl" in mine:
            worst["kl"] = 0.0
    return worst


def main() -> None:
    estimator, in_loss = sys.argv[1], sys.argv[2] == "1"
    vars(ray).update(get=lambda refs: refs, put=lambda value: value)
    critic = Group(2) if estimator == "gae" else None
    tokenizer = SimpleNamespace(pad_token_id=0, eos_token_id=EOS, decode=lambda *_, **__: ["text"])
    trainer = BasePPOTrainer(
        SimpleNamespace(args=arguments(estimator, in_loss)), Group(0), critic, None, Group(0, 0.01), None, tokenizer
    )
    kept: list[list[Any]] = []
    advantages = trainer.experience_maker.compute_advantages_and_returns

    def kept_by_hand(given: list[Any]) -> list[Any]:
        kept.append(advantages(given))
        return kept[-1]

    trainer.experience_maker.compute_advantages_and_returns = kept_by_hand
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        mingce.watch(trainer, run, audit_every=1)
        step = 0
        while step < 3:
            _, step = trainer.train_step(samples(step), step)
        mingce.unwatch(trainer)
        audits = [json.loads(line) for line in (run / "audit.jsonl").read_text().splitlines()]
        alarms = [
            [line["step"], one["code"]] for line in audits for one in line["findings"]
            if one["severity"] in ("bug", "suspicious")
        ]  # fmt: skip
        found = [differences(run, at, experiences) for at, experiences in enumerate(kept, 1)]
        settings = Run.open(run, readonly=True).config()["settings"]
        print("FOUND " + json.dumps({"differences": found, "alarms": alarms, "settings": settings}))


if __name__ == "__main__":
    main()
