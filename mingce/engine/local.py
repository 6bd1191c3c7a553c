"""The roles in this process, where a breakpoint works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from transformers import PreTrainedTokenizerBase

from mingce.algorithms.own import load_own
from mingce.base.errors import DataError, RankFault
from mingce.base.machine import free_cores, usable_cores
from mingce.base.memory import keep_freed_memory
from mingce.base.texts import sentence
from mingce.config import Config, check_specs
from mingce.models.loading import check_vocabulary, load_causal_lm, load_tokenizer
from mingce.models.lora import LoraSettings
from mingce.models.prompts import check_template_arguments, render_prompts
from mingce.models.value_head import ValueModel
from mingce.roles.actor import Actor, LocalActor
from mingce.roles.critic import Critic, LocalCritic
from mingce.roles.learner import Learner
from mingce.roles.reference import LocalReference, Reference
from mingce.roles.reward import Judge, Reward, extra_members, reward_scorer
from mingce.roles.worlds import Worlds
from mingce.specs import find_estimator
from mingce.tasks.base import Example, Prompt, Task
from mingce.tasks.combined import BatchScorer
from mingce.tasks.data import FittingPrompts, Sliced, WithSystem, filter_prompts
from mingce.tasks.data_columns import Keys
from mingce.tasks.environment import EnvironmentTask
from mingce.tasks.mixing import Mixed
from mingce.tasks.registry import SKYRL, load_task, names_files


@dataclass(frozen=True)
class Roles:
    """The roles of a run, the task they work on, and its prompts; wherever the models are."""

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
        start = (step - 1) * prompts
        return [self.train[self._place(position, seed)] for position in range(start, start + prompts)]

    def _place(self, position: int, seed: int) -> int:
        """The index of the prompt at a position of the run."""
        if isinstance(self.train, Mixed):
            return self.train.place(position, seed, epoch_order)
        count = len(self.train)
        return epoch_order(count, seed, position // count)[position % count]

    @property
    def learners(self) -> dict[str, Learner]:
        """What a checkpoint holds, by role."""
        return {"actor": self.actor.learner} | ({} if self.critic is None else {"critic": self.critic.learner})

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
        if self.actor.worlds is not None:
            self.actor.worlds.close()


@dataclass(frozen=True)
class LocalRoles(Roles):
    """With the models in this process."""

    actor: LocalActor
    critic: LocalCritic | None
    reference: LocalReference | None


@lru_cache(maxsize=16)
def epoch_order(count: int, seed: int, epoch: int) -> tuple[int, ...]:
    """The numbers below `count` in the order of an epoch."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return tuple(torch.randperm(count, generator=generator).tolist())


def build_roles(config: Config, note: Callable[[str], None] = lambda sentence: None) -> LocalRoles:
    """Loads task, tokenizer and models; everything a person may have got wrong shows here."""
    load_specs(config)
    task, task_scores = task_of(config)
    members = extra_members(config.reward)
    scorer = reward_scorer(task, config.reward, members, task_scores=task_scores)
    scorer.start()
    try:
        actor = build_actor(config)
        reference = build_reference(config, actor) if needs_reference(config) else None
        critic = build_critic(config, actor) if find_estimator(config.estimator).needs_critic else None
        threads, cores = torch.get_num_threads(), usable_cores()
        if not config.threads and threads < cores and not _is_small(actor.model):
            note(sentence("engine.threads", threads=threads, cores=cores))
        train, held_out = fitting_prompts(config, task, actor.tokenizer, note)
        actor.worlds = worlds_of(config, task, actor)
        reward = reward_role(config, scorer, actor)
        judge = Judge(task, config.reward, members)
        return LocalRoles(actor, critic, reference, reward, judge, task, actor.tokenizer, train, held_out)
    except BaseException:
        scorer.close()
        raise


def worlds_of(config: Config, task: Task, actor: Actor) -> Worlds | None:
    """The task's environments; None of a task that has none."""
    if not isinstance(task, EnvironmentTask):
        return None
    template = config.data.chat_template_kwargs
    return Worlds(task, config.agent, actor.tokenizer, actor.sampling, template)


def reward_role(config: Config, scorer: BatchScorer, actor: Actor) -> Reward:
    """The reward, which pays turns as it pays the task's own score."""
    failed = None if actor.worlds is None else actor.worlds.failed_score
    weight = config.reward.task_weight
    return Reward(scorer, actor.tokenizer, config.seed, turn_weight=weight, failed_score=failed or 0.0)


def load_specs(config: Config) -> None:
    """Executes the person's own estimator and policy loss, and checks that the settings go with them."""
    load_own(estimator=config.estimator, loss=config.actor.loss)
    check_specs(config)


def fitting_prompts(
    config: Config, task: Task, tokenizer: PreTrainedTokenizerBase, note: Callable[[str], None]
) -> tuple[Sequence[Example], Sequence[Example]]:
    """The task's prompts to train on and those held out, without the overlong ones, which `note` reports."""
    fitting = [fitting_examples(config, part, tokenizer) for part in (task.train_examples(), task.held_out_examples())]
    (train, cut), (held_out, held_out_cut) = ((f.examples, f.overlong) for f in fitting)
    if not len(train):
        raise DataError("no prompt is left to train on; raise data.max_prompt_tokens or look at the data.")
    if config.data.weights:
        assert isinstance(train, Sliced)
        train = Mixed(train, config.data.weights)
    if cut + held_out_cut:
        key = "engine.prompts_cut" if config.data.overlong == "cut" else "engine.prompts_left_out"
        note(sentence(key, count=cut + held_out_cut, most=config.data.max_prompt_tokens))
    return train, held_out


def fitting_examples(config: Config, examples: Sequence[Example], tokenizer: PreTrainedTokenizerBase) -> FittingPrompts:
    """Those whose prompts fit, as `data.overlong` says."""

    def lengths(prompts: list[Prompt]) -> list[int]:
        return [len(ids) for ids in render_prompts(tokenizer, prompts, config.data.chat_template_kwargs)]

    if config.data.system is not None:
        examples = WithSystem(examples, config.data.system)
    most, overlong = config.data.max_prompt_tokens, config.data.overlong
    return filter_prompts(examples, lengths, most, overlong)  # type: ignore[arg-type]


def needs_reference(config: Config) -> bool:
    """Whether any KL term needs the reference policy."""
    return config.kl.reward_coef > 0 or config.kl.loss_coef > 0 or config.kl.adaptive


def build_actor(config: Config) -> LocalActor:
    """The policy as the configuration names it."""
    keep_freed_memory()
    torch.set_num_threads(config.threads or 1)
    torch.manual_seed(config.seed)  # new adapters draw from it
    lora = config.model.lora
    adapters = LoraSettings(lora.rank, lora.alpha, tuple(lora.target_modules)) if lora.rank else None
    tokenizer = load_tokenizer(config.model.path)
    check_template_arguments(tokenizer, config.data.chat_template_kwargs)
    model = load_causal_lm(config.model.path, dtype=config.model.dtype, device=config.model.device, lora=adapters)
    check_vocabulary(config.model.path, model, tokenizer)
    torch.set_num_threads(config.threads or fitting_threads(model))
    return LocalActor(model, tokenizer, config)


def build_critic(config: Config, actor: LocalActor, *, share: bool = True) -> LocalCritic:
    """The critic: the model that the configuration names, else the policy's with a new head.

    Where the policy has adapters, so has the critic, on the same frozen weights if they may be shared.
    """
    path, device = config.critic.path, str(next(actor.model.parameters()).device)
    if path is not None:
        model = ValueModel.load(path, dtype=config.model.dtype, device=device)
    elif config.critic_has_adapters:
        model = ValueModel.with_adapters(actor.model, share=share)
    else:
        model = ValueModel.from_causal_lm(actor.model)
    return LocalCritic(model, actor.pad_id, config)


def build_reference(config: Config, actor: LocalActor) -> LocalReference:
    """The policy as it is now."""
    return LocalReference(actor.model, actor.pad_id, config.sampling.temperature, config.micro_batch_tokens)


def task_of(config: Config) -> tuple[Task, bool]:
    """The task, and whether it has a score of its own beside a reward function or model."""
    data, reward = config.data, config.reward
    files = data.train or ([config.task] if names_files(config.task) else [])
    environment = config.task if files and config.task.startswith(SKYRL) else None
    task = load_task(
        files or config.task,
        environment=environment,
        lang=data.lang,
        seed=0,  # what is held out does not depend on the run's seed
        held_out=data.held_out or None,
        function=reward.function[0] if files and reward.function else None,
        full_marks=reward.full_marks,
        scored_by_model=bool(files) and not reward.function and (reward.scores_files or environment is not None),
        chat=data.chat,
        size=data.size,
        held_out_size=data.held_out_size,
        options=data.options or None,
        tools=config.agent.tools,
        mcp=config.agent.mcp,
        keys=Keys.of(data),
    )
    return task, not (files and reward.scores_files)


def fitting_threads(model: torch.nn.Module) -> int:
    """One for a small model, whose matrices are not worth sharing out, else as many as there are free cores."""
    return 1 if _is_small(model) else free_cores()


def _is_small(model: torch.nn.Module) -> bool:
    return sum(p.numel() for p in model.parameters()) < 5_000_000
