"""Ways in which TRL's trainers are used beyond their defaults: several rewards, a sampler of its own, tools.

Keys of the settings beside those of TRL's configuration: `kind` (grpo, rloo, gmpo), `ends` (the toy's wish to end),
`scored` (how many reward functions, the second without an opinion on some rows), `sampler` ("vllm": an object in the
place of TRL's vLLM client, whose log-probs are a little off; "rollout": a rollout_func with foreign tokens in between),
`dtype` of the policy's weights.
"""

from __future__ import annotations

from typing import Any

import torch
from trl_toys import EOS

OURS = ("kind", "ends", "scored", "sampler", "dtype")


def share_of_as(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [sum(i % 5 == 0 for i in ids) / 8 for ids in completion_ids]


def shortness(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
    return [None if len(ids) % 5 == 0 else 1 - len(ids) / 16 for ids in completion_ids]


def silence(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
    """Of some rows there is nothing to say at all."""
    return [None if ids[0] % 7 == 0 else float(ids[0] % 3) for ids in completion_ids]


def rewards(scored: Any) -> list[Any]:
    kinds: dict[Any, list[Any]] = {1: [share_of_as], 2: [share_of_as, shortness], "some": [silence]}
    return kinds[scored]


@torch.no_grad()
def sampled(model: Any, prompt: list[int], most: int, foreign: bool) -> tuple[list[int], list[float], list[int]]:
    """One answer, token by token: ids, log-probs, which tokens are the model's own."""
    ids: list[int] = []
    log_probs: list[float] = []
    own: list[int] = []
    training = model.training
    model.eval()
    while len(ids) < most:
        logits = model(input_ids=torch.tensor([prompt + ids])).logits[0, -1].float()
        chosen = int(torch.multinomial(logits.softmax(0), 1))
        ids.append(chosen)
        log_probs.append(float(logits.log_softmax(0)[chosen]))
        own.append(1)
        if chosen == EOS:
            break
        if foreign and len(ids) == 3:  # what an environment says
            ids, log_probs, own = [*ids, 7, 8], [*log_probs, 0.0, 0.0], [*own, 0, 0]
    model.train(training)
    return ids, log_probs, own


class Sampler:
    """In the place of TRL's vLLM client: samples with the policy; its log-probs are off by a little noise."""

    def __init__(self, trainer: Any):
        self._trainer = trainer

    def sync_weights(self) -> None: ...

    def generate(self, prompts: list[list[int]], **_: Any) -> tuple[Any, Any, Any, Any]:
        model, most = self._trainer.model, self._trainer.max_completion_length
        ids, log_probs = [], []
        for prompt in prompts:
            answer, said, _own = sampled(model, prompt, most, foreign=False)
            ids.append(answer)
            log_probs.append([[min(one + 0.05 * float(torch.randn(())), 0.0)] for one in said])
        return None, ids, log_probs, None


def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
    """A rollout_func: answers with foreign tokens in between, which `env_mask` tells."""
    asked = trainer.processing_class(prompts)["input_ids"]
    answers = [sampled(trainer.model, ids, trainer.max_completion_length - 2, foreign=True) for ids in asked]
    ids, log_probs, own = (list(column) for column in zip(*answers, strict=True))
    return {"prompt_ids": asked, "completion_ids": ids, "logprobs": log_probs, "env_mask": own}


def attach_sampler(made: Any, sampler: str | None) -> None:
    if sampler == "vllm":
        made.use_vllm, made._last_loaded_step = True, -1
        made.vllm_generation = Sampler(made)


def classes(kind: str) -> tuple[Any, Any, Any]:
    """The trainer, its configuration, and the module that makes reference models."""
    if kind == "rloo":
        from trl import RLOOConfig, RLOOTrainer
        from trl.trainer import rloo_trainer

        return RLOOTrainer, RLOOConfig, rloo_trainer
    from trl import GRPOConfig, GRPOTrainer
    from trl.trainer import grpo_trainer

    if kind == "gmpo":
        from trl.experimental.gmpo import GMPOConfig, GMPOTrainer

        return GMPOTrainer, GMPOConfig, grpo_trainer
    return GRPOTrainer, GRPOConfig, grpo_trainer


__all__ = ["OURS", "attach_sampler", "classes", "rewards", "rollout"]
