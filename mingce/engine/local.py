"""The roles in this process, where a breakpoint works."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from mingce.algorithms.own import load_own
from mingce.base.errors import DataError, RankFault
from mingce.base.lang import display_lang, say
from mingce.base.memory import keep_freed_memory
from mingce.config import Config, check_specs
from mingce.models.loading import check_vocabulary, load_causal_lm, load_tokenizer
from mingce.models.lora import LoraSettings
from mingce.models.prompts import render_prompt
from mingce.models.value_head import ValueModel
from mingce.roles.actor import Actor
from mingce.roles.critic import Critic
from mingce.roles.reference import Reference
from mingce.roles.reward import Judge, Reward, function_pool, reward_scorer
from mingce.specs import find_estimator
from mingce.tasks.base import Example, Task
from mingce.tasks.combined import BatchScorer
from mingce.tasks.data import filter_prompts
from mingce.tasks.registry import load_task
from mingce.tasks.rows import READERS


@dataclass(frozen=True)
class Roles:
    """The four, the task they work on, and its prompts."""

    actor: Actor
    critic: Critic | None
    reference: Reference | None
    reward: Reward
    judge: Judge
    task: Task
    tokenizer: PreTrainedTokenizerBase
    train: Sequence[Example]
    held_out: Sequence[Example]

    def batch(self, step: int, prompts: int, seed: int) -> list[Example]:
        """The prompts of a step (from 1): every epoch goes through all in an order of its own."""
        count = len(self.train)
        start = (step - 1) * prompts
        return [self.train[_order(count, seed, i // count)[i % count]] for i in range(start, start + prompts)]

    @property
    def restarts(self) -> int:
        """How often processes of the roles were replaced."""
        return 0

    def rebuild(self, fault: RankFault) -> None:
        """Restarts lost processes with the weights the run began with."""
        raise AssertionError("roles in this process cannot lose one") from fault

    def close(self) -> None:
        """Ends the processes that the roles have."""
        self.reward.close()
        self.judge.close()


_orders: dict[tuple[int, int, int], list[int]] = {}


def _order(count: int, seed: int, epoch: int) -> list[int]:
    key = (count, seed, epoch)
    if key not in _orders:
        if len(_orders) > 4:
            _orders.clear()
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        _orders[key] = torch.randperm(count, generator=generator).tolist()
    return _orders[key]


def build_roles(config: Config, note: Callable[[str], None] = lambda sentence: None) -> Roles:
    """Loads task, tokenizer and models; everything a person may have got wrong shows here."""
    load_specs(config)
    task, task_scores = task_of(config)
    function = function_pool(config.reward)
    scorer = reward_scorer(task, config.reward, function, task_scores=task_scores)
    scorer.start()
    try:
        return _around(config, task, scorer, Judge(task, config.reward, function), note)
    except BaseException:
        scorer.close()
        raise


def load_specs(config: Config) -> None:
    """The person's own estimator and policy loss, executed here, and that the settings go with them."""
    load_own(estimator=config.estimator, loss=config.actor.loss)
    check_specs(config)


def _around(config: Config, task: Task, scorer: BatchScorer, judge: Judge, note: Callable[[str], None]) -> Roles:
    """The roles of a run whose task and scorer are there."""
    actor = build_actor(config)
    model, tokenizer = actor.model, actor.tokenizer
    reference = None
    if needs_reference(config):
        reference = Reference(model, actor.pad_id, config.sampling.temperature, config.micro_batch_tokens)
    critic = build_critic(config, actor) if find_estimator(config.estimator).needs_critic else None
    train, held_out = fitting_prompts(config, task, tokenizer, note)
    reward = Reward(scorer, tokenizer, config.seed)
    return Roles(actor, critic, reference, reward, judge, task, tokenizer, train, held_out)


def fitting_prompts(
    config: Config, task: Task, tokenizer: PreTrainedTokenizerBase, note: Callable[[str], None]
) -> tuple[Sequence[Example], Sequence[Example]]:
    """The task's prompts to train on and those held out, without the overlong ones, which `note` reports."""
    fitting = [
        filter_prompts(
            examples,
            lambda prompt: len(render_prompt(tokenizer, prompt)),
            config.data.max_prompt_tokens,
            config.data.overlong,  # type: ignore[arg-type]
        )
        for examples in (task.train_examples(), task.held_out_examples())
    ]
    (train, cut), (held_out, held_out_cut) = ((f.examples, f.overlong) for f in fitting)
    if not len(train):
        raise DataError("no prompt is left to train on; raise data.max_prompt_tokens or look at the data.")
    if cut + held_out_cut:
        count, most, kept = cut + held_out_cut, config.data.max_prompt_tokens, config.data.overlong == "cut"
        zh = f"{count} 个提示超过 {most} 个 token，已{'截短' if kept else '去掉'}"
        note(
            say(display_lang(), zh, f"{count} prompts of more than {most} tokens were {'cut' if kept else 'left out'}")
        )
    return train, held_out


def needs_reference(config: Config) -> bool:
    """Whether any KL term needs the reference policy."""
    return config.kl.reward_coef > 0 or config.kl.loss_coef > 0 or config.kl.adaptive


def build_actor(config: Config) -> Actor:
    """The policy as the configuration names it."""
    keep_freed_memory()
    torch.set_num_threads(config.threads or 1)
    torch.manual_seed(config.seed)  # new adapters draw from it
    lora = config.model.lora
    adapters = LoraSettings(lora.rank, lora.alpha, tuple(lora.target_modules)) if lora.rank else None
    tokenizer = load_tokenizer(config.model.path)
    model = load_causal_lm(config.model.path, dtype=config.model.dtype, device=config.model.device, lora=adapters)
    check_vocabulary(config.model.path, model, tokenizer)
    torch.set_num_threads(config.threads or fitting_threads(model))
    return Actor(model, tokenizer, config)


def build_critic(config: Config, actor: Actor) -> Critic:
    """The critic: its own model where one is named, else a copy of the policy with a new head."""
    own, device = config.critic.path, str(next(actor.model.parameters()).device)
    if own is None:
        return Critic(ValueModel.from_causal_lm(actor.model), actor.pad_id, config)
    return Critic(ValueModel.load(own, dtype=config.model.dtype, device=device), actor.pad_id, config)


def task_of(config: Config) -> tuple[Task, bool]:
    """The task, and whether it has a score of its own beside a reward function or model."""
    data, reward = config.data, config.reward
    files = data.train or ([config.task] if Path(config.task).suffix in READERS else [])
    task = load_task(
        files or config.task,
        lang=data.lang,
        seed=0,  # what is held out does not depend on the run's seed
        held_out=data.held_out or None,
        function=reward.function if files else None,
        full_marks=reward.full_marks,
        scored_by_model=bool(files) and reward.function is None and reward.model is not None,
        chat=data.chat,
        size=data.size,
        held_out_size=data.held_out_size,
        options=data.options or None,
    )
    return task, not (files and (reward.function is not None or reward.model is not None))


def fitting_threads(model: torch.nn.Module) -> int:
    """One for a small model, whose matrices are not worth sharing out, else every core."""
    return 1 if sum(p.numel() for p in model.parameters()) < 5_000_000 else os.cpu_count() or 1
