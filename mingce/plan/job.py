"""A recipe as work: how many rows of which length, in which batches, through which models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mingce.base.errors import SettingError, UnknownNameError
from mingce.base.user_files import names_file
from mingce.config import Config, check_ranges, merged_config
from mingce.plan import roles
from mingce.plan.presets import find_shape, model_of_recipe
from mingce.plan.roles import DTYPES, Precision, RoleModel
from mingce.plan.units import ceiling
from mingce.specs import find_estimator


@dataclass(frozen=True)
class Lengths:
    """Tokens of a prompt and of a response."""

    prompt: int
    response: int

    @property
    def row(self) -> int:
        return self.prompt + self.response


@dataclass(frozen=True)
class Learning:
    """How a model is updated in a step."""

    minibatch_rollouts: int
    epochs: int


@dataclass(frozen=True)
class Job:
    """One step's work."""

    prompts: int
    samples: int
    longest: Lengths  # what memory has to be kept for
    expected: Lengths  # what time is spent on, on average
    micro_batch_tokens: int
    decoded_rows: int  # rows decoded at a time
    actor: RoleModel
    critic: RoleModel | None
    reference: RoleModel | None
    reward: RoleModel | None
    actor_learning: Learning
    critic_learning: Learning
    precision: Precision
    shares_reference: bool = False  # the actor with its adapters off is the reference
    checkpointing: bool = False
    """Activation checkpointing: a layer keeps only its input and is computed again for the backward pass."""
    offload: bool = False  # weights, gradients and moments of the sharded models in the host's memory
    reshard: bool = True
    """Gathered weights are given back after every use, and gradients summed after every micro-batch."""
    greedy: bool = False
    """Every prompt is answered once more by the likeliest tokens, whose score the estimator reads."""
    role_ranks: tuple[tuple[str, int], ...] = ()  # roles that have ranks to themselves, and how many

    @property
    def rollouts(self) -> int:
        """Rows of a step."""
        return self.prompts * self.samples

    @property
    def answers(self) -> int:
        """Responses generated and scored in a step: its rows, and the greedy ones."""
        return self.prompts * (self.samples + self.greedy)

    @property
    def sharded(self) -> list[RoleModel]:
        """The models that are spread over GPUs, the actor first."""
        return [role for role in (self.actor, self.critic, self.reference) if role is not None]

    def minibatches(self, learning: Learning) -> int:
        """Optimizer steps of one model in a step."""
        return learning.epochs * ceiling(self.rollouts, learning.minibatch_rollouts)

    def times(self, factor: float) -> Job:
        """The same job with batches `factor` times as large."""

        def larger(learning: Learning) -> Learning:
            return replace(learning, minibatch_rollouts=max(1, round(learning.minibatch_rollouts * factor)))

        return replace(
            self,
            prompts=max(1, round(self.prompts * factor)),
            actor_learning=larger(self.actor_learning),
            critic_learning=larger(self.critic_learning),
        )


def read_job(
    recipe: Path | None,
    overrides: Sequence[str] = (),
    *,
    model: str | None = None,
    prompt_tokens: int | None = None,
    response_tokens: int | None = None,
) -> Job:
    """The work of a recipe with overrides. `model` (preset, config.json, directory) replaces its model.

    Expected lengths are the recipe's limits unless given.
    """
    config = merged_config(recipe, overrides)
    check_ranges(config)  # not the whole check: a step need not fit this machine
    shape = find_shape(model) if model is not None else model_of_recipe(config.model.path, "model.path")
    lora = config.model.lora
    needs_reference = config.kl.reward_coef > 0 or config.kl.loss_coef > 0 or config.kl.adaptive
    paths = {"critic.path": config.critic.path, "reward.model": config.reward.model}
    others = {key: shape if path is None else model_of_recipe(path, key) for key, path in paths.items()}
    # a file is not executed for a plan, and is taken to need a critic and nothing more
    estimator = None if names_file(config.estimator) else find_estimator(config.estimator)
    with_critic = estimator is None or estimator.needs_critic
    with_reference = needs_reference and not lora.rank
    adapters = (lora.rank, lora.target_modules) if config.critic_has_adapters else ()
    pools = {
        "critic": config.ray.critic_ranks if with_critic else 0,
        "reference": config.ray.reference_ranks if with_reference else 0,
    }
    longest = Lengths(config.data.max_prompt_tokens, config.sampling.max_new_tokens)
    expected = Lengths(
        _within("--prompt-tokens", prompt_tokens, "data.max_prompt_tokens", longest.prompt),
        _within("--response-tokens", response_tokens, "sampling.max_new_tokens", longest.response),
    )
    return Job(
        prompts=config.prompts_per_step,
        samples=config.samples_per_prompt,
        longest=longest,
        expected=expected,
        micro_batch_tokens=config.micro_batch_tokens,
        decoded_rows=config.sampling.max_rows,
        actor=roles.actor(shape, lora.rank, lora.target_modules),
        critic=roles.critic(others["critic.path"], *adapters) if with_critic else None,
        reference=roles.reference(shape) if with_reference else None,
        reward=roles.reward_model(others["reward.model"]) if config.reward.model is not None else None,
        actor_learning=Learning(config.minibatch_rollouts, config.actor.epochs),
        critic_learning=Learning(config.critic.minibatch_rollouts, config.critic.epochs),
        precision=_precision(config, shape.dtype),
        shares_reference=bool(needs_reference and lora.rank),
        checkpointing=config.ray.activation_checkpointing,
        offload=config.ray.cpu_offload,
        reshard=config.ray.reshards(shape.parameters),
        greedy=estimator is not None and "greedy_score" in estimator.row_inputs,
        role_ranks=tuple((role, ranks) for role, ranks in pools.items() if ranks),
    )


def _within(option: str, asked: int | None, key: str, limit: int) -> int:
    if asked is None:
        return limit
    if not 1 <= asked <= limit:
        raise SettingError(f"{option} is {asked}, but must lie between 1 and the recipe's {key}, {limit}.")
    return asked


def _precision(config: Config, dtype: str) -> Precision:
    """As a run on GPUs would choose: `auto` is what the weights come in."""
    stored = dtype if config.model.dtype == "auto" else config.model.dtype
    mixed = config.ray.mixed_precision
    compute = stored if mixed == "none" else mixed
    for key, name in (("model.dtype", stored), ("ray.mixed_precision", compute)):
        if name not in DTYPES:
            raise UnknownNameError(key, name, DTYPES)
    return Precision(DTYPES[stored], DTYPES[compute])
