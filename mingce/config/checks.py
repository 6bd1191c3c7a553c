"""Settings that are out of range, or contradict each other, are errors before anything is made."""

from __future__ import annotations

from collections.abc import Iterable

from mingce.base.errors import SettingError, UnknownNameError
from mingce.base.lang import LANGS
from mingce.base.user_files import names_file
from mingce.config.bounds import check_bounds
from mingce.config.table import Config, settings, value_of
from mingce.specs import AGGREGATIONS, ESTIMATORS, KL_KINDS, POLICY_LOSSES, find_kl
from mingce.specs.estimator import TRUNCATIONS
from mingce.specs.kl import FULL, KL_NAMES

_CHOICES: dict[str, Iterable[str]] = {
    "data.lang": LANGS,
    "engine": ("local", "ray"),
    "ray.reshard": ("auto", "always", "never"),
    "ray.mixed_precision": ("none", "bfloat16", "float16"),
    "data.overlong": ("filter", "cut", "error"),
    "credit.truncation": TRUNCATIONS,
    "credit.whiten": ("auto", "always", "never"),
    "kl.estimator": KL_NAMES,
    "kl.loss_estimator": KL_NAMES,
    "actor.loss_agg_mode": AGGREGATIONS,
    "actor.schedule": ("constant", "linear", "cosine"),
    "critic.schedule": ("constant", "linear", "cosine"),
    "estimator": ESTIMATORS,
    "actor.loss": POLICY_LOSSES,
}
_FROM_FILES = ("estimator", "actor.loss")
"""Settings that may also be `file.py:name`."""
_AT_LEAST_ONE = (
    "prompts_per_step", "samples_per_prompt", "minibatch_rollouts", "critic.minibatch_rollouts", "micro_batch_tokens",
    "data.max_prompt_tokens", "sampling.max_new_tokens", "sampling.max_rows", "actor.epochs", "critic.epochs",
    "keep.checkpoint_every", "keep.last", "keep.optimizer", "credit.n", "credit.k", "ray.ranks", "ray.cpus",
    "agent.max_turns", "reward.judge.at_once",
)  # fmt: skip
_AT_LEAST_ZERO = (
    "steps", "threads", "model.lora.rank", "sampling.top_k", "kl.reward_coef", "kl.loss_coef", "actor.lr", "critic.lr",
    "actor.grad_clip", "critic.grad_clip", "actor.warmup_steps", "critic.warmup_steps", "critic.warmup",
    "validation.every", "validation.examples", "audit.every", "keep.ledger_every", "keep.validation_prompts",
    "keep.best", "actor.clip_low", "actor.clip_high", "actor.entropy_coef", "reward.workers", "ray.critic_ranks",
    "ray.reference_ranks", "ray.reward_ranks", "ray.max_restarts", "agent.turn_tokens", "agent.observation_tokens",
    "agent.workers", "validation.budget",
)  # fmt: skip


def check_config(config: Config) -> None:
    """Names, ranges, and what settings need of each other."""
    check_bounds(config, {key: value_of(config, key) for key, _, _ in settings()})
    for key, names in _CHOICES.items():
        value = value_of(config, key).removesuffix("+" if names is KL_NAMES else "")
        if value not in names and not (key in _FROM_FILES and names_file(value)):
            raise UnknownNameError(key, value, names)
    check_ranges(config)
    for key in ("credit.gamma", "credit.lam"):
        if not 0 <= value_of(config, key) <= 1:
            raise SettingError(f"{key} must lie between 0 and 1, but is {value_of(config, key)}.")
    if config.ray.timeout <= 0:
        raise SettingError(f"ray.timeout must be above 0 seconds, but is {config.ray.timeout}.")
    if config.agent.time_limit <= 0:
        raise SettingError(f"agent.time_limit must be above 0 seconds, but is {config.agent.time_limit}.")
    if config.sampling.temperature <= 0:
        raise SettingError("sampling.temperature must be above 0 for training: a greedy policy does not explore.")
    if "" in config.sampling.stop:
        raise SettingError("sampling.stop has an empty text in it, which would end every response; leave it out.")
    _check_kl(config)
    _check_weights(config)
    check_specs(config)


def check_ranges(config: Config) -> None:
    """No count is below the least that makes sense."""
    for keys, least in ((_AT_LEAST_ONE, 1), (_AT_LEAST_ZERO, 0)):
        for key in keys:
            if not value_of(config, key) >= least:
                raise SettingError(f"{key} must be at least {least}, but is {value_of(config, key)}.")


def _check_kl(config: Config) -> None:
    if FULL in (config.kl.estimator, config.kl.loss_estimator):
        raise SettingError(
            f"kl.estimator={FULL} needs every logit of both models and is not offered in training; use one of "
            f"{', '.join(KL_KINDS)}."
        )
    in_loss = config.kl.loss_estimator
    if config.kl.loss_coef > 0 and not (in_loss.endswith("+") or find_kl(in_loss).as_loss):
        raise SettingError(
            f"kl.loss_estimator={in_loss} as a loss does not depend on the reference; use {in_loss}+ or one of "
            f"{', '.join(kind.name for kind in KL_KINDS.values() if kind.as_loss)}."
        )


def _check_weights(config: Config) -> None:
    """As many weights as there are things to weigh, and grades that can be divided by the best of them."""
    data, reward = config.data, config.reward
    if data.weights and len(data.weights) != len(data.train):
        raise SettingError(
            f"data.weights has {len(data.weights)} numbers for {len(data.train)} files of data.train; give one each."
        )
    if data.weights and not (min(data.weights) >= 0 and 0 < sum(data.weights) < float("inf")):
        raise SettingError("data.weights must be finite, 0 or more, and not all 0.")
    if len(reward.function_weight) not in (1, len(reward.function)):
        raise SettingError(
            f"reward.function_weight has {len(reward.function_weight)} numbers for {len(reward.function)} functions; "
            "give one for all or one each."
        )
    if not all(abs(weight) < float("inf") for weight in reward.function_weight):
        raise SettingError("reward.function_weight must be finite numbers.")
    if not reward.judge.best > 0:
        raise SettingError(f"reward.judge.best is the best grade and must be above 0, but is {reward.judge.best}.")


def check_specs(config: Config) -> None:
    """What estimator and policy loss need of the other settings; of one in a file, once that is loaded."""
    estimator, loss = ESTIMATORS.get(config.estimator), POLICY_LOSSES.get(config.actor.loss)
    for spec, section, prefix in ((estimator, config.credit, "credit"), (loss, config.actor, "actor")):
        for name in () if spec is None else spec.settings:
            if spec is not None and name not in vars(section):
                raise UnknownNameError(
                    f"setting of {spec.name}", f"{prefix}.{name}", [f"{prefix}.{known}" for known in vars(section)]
                )
    if estimator is None:
        return
    if estimator.grouped and config.samples_per_prompt < 2:
        raise SettingError(
            f"estimator={config.estimator} compares the samples of a prompt; set samples_per_prompt to 2 or more."
        )
    if config.credit.truncation == "bootstrap" and not estimator.needs_critic:
        raise SettingError(
            f"credit.truncation=bootstrap needs a critic, which estimator={config.estimator} does not have; "
            "use zero or mask."
        )
