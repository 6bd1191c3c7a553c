"""The settings that the numbers of an account are made with, under one name each wherever they come from.

A run's configuration, a run directory's config.yaml and a dump of any trainer lead here, and only here; the trainer's
audit, the page and the tutor read the same names. None stands for what is not known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from types import NoneType
from typing import Any, Self, get_args, get_origin, get_type_hints

from mingce.columns import SETTINGS
from mingce.specs.estimators import GAE

SYMBOLS = {"gamma": SETTINGS["gamma"].symbol, "lam": SETTINGS["lam"].symbol, "beta": SETTINGS["kl_coef"].symbol}
"""How formulas write the settings of credit; those that are missing are written by their names."""


def _from(key: str) -> Any:
    """A setting that stands in a configuration under that dotted key."""
    return field(default=None, metadata={"key": key})


@dataclass(frozen=True)
class AccountSettings:
    """What credit, KL and losses of one step were computed with."""

    estimator: str | None = _from("estimator")
    gamma: float | None = _from("credit.gamma")
    lam: float | None = _from("credit.lam")
    n: int | None = _from("credit.n")
    k: int | None = _from("credit.k")
    truncation: str | None = _from("credit.truncation")
    beta: float | None = _from("kl.reward_coef")
    kl_estimator: str | None = _from("kl.estimator")
    kl_clamp: float | None = _from("kl.clamp")
    whiten: bool | None = None
    policy_loss: str | None = _from("actor.loss")
    clip_low: float | None = _from("actor.clip_low")
    clip_high: float | None = _from("actor.clip_high")
    dual_clip: float | None = _from("actor.dual_clip")
    value_clip: float | None = _from("critic.value_clip")

    @classmethod
    def from_config(cls, values: Mapping[str, Any], *, beta: float | None = None, whiten: bool | None = None) -> Self:
        """Of a configuration by dotted key; `beta` is the step's own, without which one that adapts is not known.

        `whiten` says whether it was done.
        """
        keys = {one.name: one.metadata["key"] for one in fields(cls) if "key" in one.metadata}
        known = {name: values.get(key) for name, key in keys.items()} | {"whiten": whiten}
        if beta is not None or values.get("kl.adaptive"):
            known["beta"] = beta
        return cls(**known)

    @classmethod
    def from_dump(cls, settings: Mapping[str, Any], columns: Sequence[str]) -> AccountSettings:
        """Of a dump's settings, given or inferred, and of the columns it has."""
        known = {one.name: settings.get(one.name) for one in fields(cls)}
        clip = settings.get("clip")
        known["clip_low"] = clip if known["clip_low"] is None else known["clip_low"]
        known["clip_high"] = clip if known["clip_high"] is None else known["clip_high"]
        known["estimator"] = known["estimator"] or (GAE if "values" in columns else None)
        known["whiten"] = "whitened_advantages" in columns
        return cls(**known)

    def checked(self) -> AccountSettings:
        """The same with None for what is no finite number or no text where one belongs: files may say anything."""
        wrong = {one.name: None for one in fields(self) if not _fits(getattr(self, one.name), str(one.type))}
        return replace(self, **wrong)

    def as_dict(self) -> dict[str, Any]:
        """By name."""
        return asdict(self)


@dataclass(frozen=True)
class DumpSettings(AccountSettings):
    """What an audit knows of the run that a dump comes from: the account's settings and those around it."""

    clip: float | None = None
    kl_loss_coef: float | None = _from("kl.loss_coef")
    kl_target: float | None = None
    kl_horizon: float | None = None
    loss_agg_mode: str | None = _from("actor.loss_agg_mode")
    loss_norm: float | None = None
    entropy_coef: float | None = None
    ppo_epochs: int | None = _from("actor.epochs")
    critic_updates: int | None = None
    temperature: float | None = _from("sampling.temperature")
    top_p: float | None = _from("sampling.top_p")
    top_k: int | None = _from("sampling.top_k")
    min_p: float | None = None
    group_size: int | None = _from("samples_per_prompt")
    world_size: int | None = None
    learner_version: int | None = None
    step: int | None = None
    eos_id: int | None = None
    pad_id: int | None = None
    bos_id: int | None = None
    stop_ids: list[int] | None = None
    max_response_length: int | None = _from("sampling.max_new_tokens")
    mask_truncated: bool | None = None  # rows that the limit cut are left out of the loss
    whiten_rewards: bool | None = None
    std_over: str | None = None  # whose deviation a group's advantages are divided by: group, batch or none
    rewards_apart: bool | None = None  # several rewards, each compared by itself before they are added up
    ratio_cap: float | None = None  # the largest ratio, clipped or not
    entropy_share: float | None = None  # of the tokens, those with the highest entropy, that the loss keeps
    kl_in_reward: bool | None = None
    kl_loss_weighted: bool | None = None  # the KL in the loss is multiplied by the ratio
    first_minibatch: bool | None = None
    score_after_last: bool | None = None

    @classmethod
    def from_run(
        cls, values: Mapping[str, Any], *, beta: float | None = None, stop_ids: Sequence[int] = ()
    ) -> DumpSettings:
        """Of a run of ours, from its configuration by dotted key; β is unknown where it adapts and is not given."""
        settings = cls.from_config(values, beta=beta)
        if values.get("kl.adaptive"):
            target, horizon = values.get("kl.target"), values.get("kl.horizon")
            settings = replace(settings, kl_target=target, kl_horizon=horizon)
        counts = [count for key in _CRITIC_UPDATES if isinstance(count := values.get(key), int) and count > 0]
        if len(counts) == len(_CRITIC_UPDATES):
            epochs, prompts, samples, minibatch = counts
            settings = replace(settings, critic_updates=epochs * math.ceil(prompts * samples / minibatch))
        return replace(settings, stop_ids=list(stop_ids)) if stop_ids else settings

    def known(self) -> dict[str, Any]:
        """Those that are known, by name."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, bool) or kind.startswith("bool"):
        return isinstance(value, bool) and kind.startswith("bool")
    if kind.startswith("str"):
        return isinstance(value, str)
    return isinstance(value, int if kind.startswith("int") else int | float) and abs(value) < math.inf


def _types(hint: Any) -> tuple[type, ...]:
    kind = next(get_origin(one) or one for one in get_args(hint) if one is not NoneType)
    return (int, float) if kind is float else (kind,)


SETTING_TYPES = {name: _types(hint) for name, hint in get_type_hints(DumpSettings).items()}
"""The types that a setting's value may have."""
_CRITIC_UPDATES = ("critic.epochs", "prompts_per_step", "samples_per_prompt", "critic.minibatch_rollouts")


def by_dotted_key(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= by_dotted_key(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
