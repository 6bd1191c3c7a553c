"""Trainers shaped as TRL's sources say, without TRL: its classes' names, methods, variables and the order of its calls.

`GRPOTrainer` is that of 1.16, `PPOTrainer` that of 1.12. What they compute is right, and small.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch

IDS, WIDTH = 20, 6
EOS, PAD = 1, 0


class Control:
    should_training_stop = False


class _Accelerator:
    is_main_process, num_processes, process_index = True, 1, 0

    def backward(self, loss: torch.Tensor, **named: Any) -> None:
        loss.backward()


def _processing() -> Any:
    return SimpleNamespace(eos_token_id=EOS, pad_token_id=PAD, bos_token_id=None)


def _answers(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids of different lengths, each with an end, and their mask."""
    lengths = torch.randint(2, WIDTH + 1, (rows,))
    mask = (torch.arange(WIDTH) < lengths[:, None]).long()
    ids = torch.randint(3, IDS, (rows, WIDTH)) * mask
    return ids.scatter(1, lengths[:, None] - 1, EOS), mask


class GRPOTrainer:
    """One parameter, which shifts every log-prob; prompts in blocks of `num_generations`."""

    __module__ = "trl.trainer.grpo_trainer"

    def __init__(self, steps: int = 3, prompts: int = 8, micro_batches: int = 2, **changed: Any):
        self.args = SimpleNamespace(**({
            "epsilon": 0.2, "epsilon_high": None, "num_iterations": 1, "temperature": 1.0, "top_p": 1.0, "top_k": 0,
            "min_p": None, "num_generations": 4, "max_completion_length": WIDTH, "scale_rewards": "group", "beta": 0.04,
            "loss_type": "dapo", "max_steps": steps, "steps_per_generation": micro_batches, "hub_token": "secret",
            "gradient_accumulation_steps": micro_batches, "learning_rate": 1e-3,
        } | changed))  # fmt: skip
        self.steps, self.prompts = steps, prompts
        self.num_generations, self.beta = self.args.num_generations, self.args.beta
        self.model = torch.nn.Linear(1, 1)
        self.reward_weights, self.reward_func_names = torch.tensor([1.0, 0.5]), ["right", "short"]
        self.accelerator, self.processing_class = _Accelerator(), _processing()
        self.state, self.control = SimpleNamespace(global_step=0, log_history=[]), Control()
        self._metrics: dict[str, Any] = {"train": defaultdict(list), "eval": defaultdict(list)}
        self.sign, self.seen = 1.0, list[dict[str, Any]]()

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        return torch.stack([torch.rand(len(prompts)), torch.rand(len(prompts)).round()], dim=1)

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **named: Any
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        ids = input_ids[:, -logits_to_keep:].float()
        shift = model.weight.squeeze() if model is not None else torch.tensor(0.0)
        logps = -0.2 - (ids * 1.37).sin() ** 2 * 2.5 + 0.1 * shift * (ids * 0.7).cos()
        return logps, -logps.detach() * 0.9 + 0.01, None

    def _generate_and_score_completions(self, inputs: list[Any]) -> dict[str, Any]:
        rows = self.prompts * self.num_generations
        prompts = torch.randint(3, IDS, (self.prompts, 4)).repeat_interleave(self.num_generations, 0)
        ids, mask = _answers(rows)
        whole = torch.cat([prompts, ids], 1)
        ref, _, _ = self._get_per_token_logps_and_entropies(None, whole, whole, WIDTH)
        texts = ["".join(chr(97 + int(i)) for i in row) for row in whole]
        rewards = (self._calculate_rewards(inputs, texts, texts, ids.tolist()) * self.reward_weights).nansum(1)
        grouped = rewards.view(-1, self.num_generations)
        mean, std = (x.repeat_interleave(self.num_generations) for x in (grouped.mean(1), grouped.std(1)))
        advantages = self.sign * (rewards - mean) / (std + 1e-4)
        return {
            "prompt_ids": prompts, "prompt_mask": torch.ones_like(prompts), "completion_ids": ids,
            "completion_mask": mask, "advantages": advantages, "num_items_in_batch": mask.sum(),
            "ref_per_token_logps": ref,
        }  # fmt: skip

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        mask = inputs["completion_mask"]
        whole = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        new, entropies, _ = self._get_per_token_logps_and_entropies(model, whole, whole, WIDTH)
        gap = inputs["ref_per_token_logps"] - new
        kl = gap.exp() - gap - 1
        each = -(new - new.detach()).exp() * inputs["advantages"][:, None] + self.beta * kl
        noted = self._metrics["train"]
        noted["kl"].append(((kl * mask).sum() / mask.sum()).item())
        noted["entropy"].append(float((entropies * mask).sum() / mask.sum()))
        self.seen.append(
            inputs | {"new": new.detach().clone(), "entropies": entropies, "step": self.state.global_step + 1}
        )
        loss: torch.Tensor = (each * mask).sum() / inputs["num_items_in_batch"]
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        logs |= {name: sum(said) / len(said) for name, said in self._metrics["train"].items()}
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self._metrics["train"].clear()

    def train(self) -> None:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.args.learning_rate)
        while self.state.global_step < self.steps and not self.control.should_training_stop:
            batch = self._generate_and_score_completions([{}])
            count = batch.pop("num_items_in_batch")
            order = torch.randperm(len(batch["advantages"]))
            parts = zip(*(batch[name][order].chunk(self.args.steps_per_generation) for name in batch), strict=True)
            total = 0.0
            for part in parts:
                loss = self._compute_loss(
                    self.model, dict(zip(batch, part, strict=True)) | {"num_items_in_batch": count}
                )
                self.accelerator.backward(loss)
                total += loss.item()
            optimizer.step()
            optimizer.zero_grad()
            self.state.global_step += 1
            self.log({"loss": total})


class PPOTrainer:
    """Its variables stand in `train` alone, under the names of TRL's."""

    __module__ = "trl.experimental.ppo.ppo_trainer"

    def __init__(self, steps: int = 2, rows: int = 16):
        self.args = SimpleNamespace(
            gamma=1.0, lam=0.95, kl_coef=0.05, kl_estimator="k1", whiten_rewards=False, cliprange=0.2,
            cliprange_value=0.2, num_ppo_epochs=2, temperature=1.0, response_length=WIDTH, num_total_batches=steps,
        )  # fmt: skip
        self.rows, self.accelerator, self.processing_class = rows, _Accelerator(), _processing()
        self.state, self.control = SimpleNamespace(global_step=0, log_history=[]), Control()
        self.weight = torch.zeros((), requires_grad=True)
        self.sign, self.kept = 1.0, list[dict[str, Any]]()

    def log(self, logs: dict[str, float]) -> None:
        self.state.log_history.append({**logs, "step": self.state.global_step})

    def train(self) -> None:
        args, accelerator, rows = self.args, self.accelerator, self.rows
        iter_dataloader = iter(torch.randint(3, IDS, (args.num_total_batches, rows, 3)))
        for _update in range(args.num_total_batches):
            queries = next(iter_dataloader)
            responses, mask = _answers(rows)
            padding_mask = mask == 0
            lengths = mask.sum(1)
            padding_mask_p1 = torch.arange(WIDTH) > lengths[:, None]
            logprobs = torch.masked_fill(-0.5 - torch.rand(rows, WIDTH) * 2, padding_mask, 1.0)
            ref_logprobs = torch.masked_fill(logprobs - 0.1 * torch.randn(rows, WIDTH), padding_mask, 1.0)
            values = torch.masked_fill(torch.randn(rows, WIDTH), padding_mask_p1, 0)
            scores = torch.randn(rows)
            kl = logprobs - ref_logprobs
            non_score_reward = -args.kl_coef * kl
            rewards = self.sign * non_score_reward
            end = torch.where(lengths < WIDTH, lengths, lengths - 1)
            rewards[torch.arange(rows), end] += scores
            last, reversed_advantages = torch.zeros(rows), []
            for t in reversed(range(WIDTH)):
                following = values[:, t + 1] if t < WIDTH - 1 else torch.zeros(rows)
                last = rewards[:, t] + args.gamma * following - values[:, t] + args.gamma * args.lam * last
                reversed_advantages.append(last)
            advantages = torch.stack(reversed_advantages[::-1], 1)
            returns = advantages + values
            chosen = advantages[~padding_mask]
            advantages = torch.masked_fill((advantages - chosen.mean()) / (chosen.var() + 1e-8).sqrt(), padding_mask, 0)
            for ppo_epoch_idx in range(args.num_ppo_epochs):
                b_inds = torch.randperm(rows).numpy()
                for minibatch_idx in range(2):
                    micro_batch_inds = b_inds[minibatch_idx * rows // 2 : (minibatch_idx + 1) * rows // 2]
                    new_logprobs = logprobs[micro_batch_inds] + 0.01 * ppo_epoch_idx + 0.01 * self.weight
                    new_logprobs = torch.masked_fill(new_logprobs, padding_mask[micro_batch_inds], 1.0)
                    vpred = values[micro_batch_inds] * 0.9
                    ratio = torch.exp(new_logprobs - logprobs[micro_batch_inds])
                    loss = -(ratio * advantages[micro_batch_inds]).mean()
                    accelerator.backward(loss)
                    if ppo_epoch_idx == args.num_ppo_epochs - 1:
                        self.kept.append({
                            "rows": micro_batch_inds, "new": new_logprobs.detach(), "ratio": ratio.detach(),
                            "vpred": vpred,
                        })  # fmt: skip
                    del new_logprobs, vpred, ratio, loss
            self.kept.append({
                "queries": queries, "responses": responses, "logprobs": logprobs, "ref_logprobs": ref_logprobs,
                "values": values, "scores": scores, "rewards": rewards, "advantages": advantages, "returns": returns,
                "mask": ~padding_mask, "value_mask": ~padding_mask_p1, "kl": kl,
            })  # fmt: skip
            self.state.global_step += 1
            self.log({"objective/kl": float(kl.sum(1).mean()), "eps": 3.0})
