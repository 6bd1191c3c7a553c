"""OpenRLHF 0.11: the experiences of a step as its experience maker gives them, critic and all.

    experience_maker.make_experience            the KL, which is dropped when advantages are computed
    experience_maker.make_experience_batch      the list of Experience, before it is split for the workers
    train_step                                  which step it is, and what is logged of it

New log-probs and ratios are in the workers only; rewards a token are not kept: both stay absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mingce.specs.kl import kl_name
from mingce.specs.trainer_names import OPENRLHF
from mingce.watching.host import Host, Taken
from mingce.watching.recorder import Recorder
from mingce.watching.trainers import copied, end_step, is_a, plain_config, token_ids, tokenizer_text, version_of
from mingce.watching.wrapping import Wraps

NAMES = ("OpenRLHF PPOTrainer",)
_STEP = ("sequences", "attention_mask", "action_mask", "action_log_probs", "base_action_log_probs", "rollout_log_probs",
         "values", "returns", "advantages", "rewards", "truncated", "index", "prompts")  # fmt: skip


def recognises(trainer: object) -> bool:
    return is_a(trainer, "openrlhf", "BasePPOTrainer")


def is_main(trainer: Any) -> bool:
    """The trainer is in one process, whatever the workers are."""
    return True


def host(trainer: Any) -> Host:
    """What its arguments say, which are in parts since 0.10: args.algo.kl.init_coef …"""
    steps = getattr(trainer, "max_steps", None)
    return Host(
        source="openrlhf",
        name=f"OpenRLHF{version_of('openrlhf')} {type(trainer).__name__}",
        settings=_settings(trainer.args) | token_ids(trainer.tokenizer),
        config=plain_config(trainer.args),
        steps=steps if type(steps) is int and steps > 0 else None,
        tokenizer=tokenizer_text(trainer.tokenizer),
    )


def _settings(args: Any) -> dict[str, Any]:
    def get(keys: str) -> Any:
        found = args
        for key in keys.split("."):
            found = getattr(found, key, None)
        return found

    in_loss, estimator = bool(get("algo.kl.use_loss")), get("algo.kl.estimator")
    both = get("actor.eps_clip_low_high")
    low, high = both if isinstance(both, list | tuple) and len(both) == 2 else (get("actor.eps_clip"),) * 2
    coefficient = get("algo.kl.init_coef")
    return {
        "estimator": OPENRLHF.get(str(get("algo.advantage.estimator"))),
        "std_over": {"group_norm": "group"}.get(str(get("algo.advantage.estimator"))),
        "gamma": get("algo.advantage.gamma"),
        "lam": get("algo.advantage.lambd"),
        "kl_in_reward": not in_loss,
        "beta": None if in_loss or get("algo.kl.target") else coefficient,
        "kl_loss_coef": coefficient if in_loss else None,
        "kl_estimator": None if estimator is None else kl_name(estimator) or estimator,
        "policy_loss": get("actor.policy_loss_type"),
        "clip_low": low,
        "clip_high": high,
        "dual_clip": get("actor.dual_clip"),
        "value_clip": get("critic.value_clip"),
        "entropy_coef": get("actor.entropy_coef"),
        "temperature": get("rollout.temperature"),
        "top_p": get("rollout.top_p"),
        "group_size": get("rollout.n_samples_per_prompt"),
        "max_response_length": get("rollout.max_new_tokens"),
    }


def attach(trainer: Any, wraps: Wraps, recorder: Recorder) -> None:
    """Wrap the making of experiences, and the step around it."""
    watched = _Steps(recorder)
    wraps.wrap(trainer, "train_step", before=watched.begins, after=watched.ended)
    if hasattr(trainer.experience_maker, "make_experience"):
        wraps.wrap(trainer.experience_maker, "make_experience", after=watched.forwarded)
    wraps.wrap(trainer.experience_maker, "make_experience_batch", after=watched.made)


class _Steps:
    """Offers the experiences of a step with what the step logs."""

    def __init__(self, recorder: Recorder):
        self._recorder, self._step = recorder, 0
        self._kl: list[Any] = []

    def begins(self, samples: Any, global_step: int, *rest: Any, **more: Any) -> None:
        self._step = int(global_step) + 1

    def forwarded(self, experiences: Any, *rest: Any, **more: Any) -> None:
        if self._recorder.wants(self._step):
            self._kl = [copied(getattr(one, "kl", None)) for one in experiences]

    def made(self, experiences: Any, *rest: Any, **more: Any) -> None:
        kept, self._kl = self._kl, []
        if self._recorder.wants(self._step):
            fields = [_fields(one) for one in experiences]
            if len(kept) == len(fields) and any(kl is not None and bool(kl.any()) for kl in kept):  # else no reference
                fields = [one | {"kl": kl} for one, kl in zip(fields, kept, strict=True)]
            self._recorder.hold(self._step, Taken({"experiences": fields}))

    def ended(self, result: tuple[Any, int], *rest: Any, **more: Any) -> None:
        """The step's status is what its loggers get."""
        status: Mapping[str, Any] = result[0]
        if isinstance(status, dict):
            status |= self._recorder.audit_metrics()
        self._recorder.logged(self._step, status)
        end_step(self._recorder)


def _fields(one: Any) -> dict[str, Any]:
    """Copies of an Experience's fields, and of what was paid for a row."""
    found = {name: copied(value) for name in _STEP if (value := getattr(one, name, None)) is not None}
    info = getattr(one, "info", None) or {}
    return found | {"info": {"reward": copied(info["reward"])} if "reward" in info else {}}
