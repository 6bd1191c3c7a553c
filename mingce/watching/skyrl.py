"""SkyRL 0.3: the batch as its advantages are computed, before rewards and uids are taken out of it.

    compute_advantages_and_returns      the TrainingInputBatch, responses at the right edge
    tracker.log                         what the trainer logs

Advantages are those before they are normalised for the loss. New log-probs and ratios are in the workers only.
"""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import Any

from mingce.importers.skyrl import COLUMNS
from mingce.specs.kl import kl_name
from mingce.specs.trainer_names import SKYRL, divided_by, unless_divided
from mingce.watching.host import Host, Taken
from mingce.watching.recorder import Recorder
from mingce.watching.trainers import copied, end_step, is_a, plain_config, token_ids, tokenizer_text, version_of
from mingce.watching.wrapping import Wraps

NAMES = ("SkyRL RayPPOTrainer",)
_LOSSES = {"regular": "ppo", "dual_clip": "ppo", "gspo": "gspo", "cispo": "cispo", "sapo": "sapo"}


def recognises(trainer: object) -> bool:
    return any(is_a(trainer, package, "RayPPOTrainer") for package in ("skyrl", "skyrl_train"))


def is_main(trainer: Any) -> bool:
    """The trainer is in one process, whatever the workers are."""
    return True


def host(trainer: Any) -> Host:
    """What its configuration says: dataclasses."""
    steps = getattr(trainer, "total_training_steps", None)
    config = asdict(trainer.cfg) if is_dataclass(trainer.cfg) and not isinstance(trainer.cfg, type) else trainer.cfg
    return Host(
        source="skyrl",
        name=f"SkyRL{version_of('skyrl')} {type(trainer).__name__}",
        settings=_settings(trainer.cfg) | token_ids(trainer.tokenizer),
        config=plain_config(config),
        steps=steps if type(steps) is int and steps > 0 else None,
        tokenizer=tokenizer_text(trainer.tokenizer),
    )


def _settings(config: Any) -> dict[str, Any]:
    algorithm, generator = config.trainer.algorithm, config.generator
    sampling = getattr(generator, "sampling_params", None)
    in_reward, in_loss = bool(algorithm.use_kl_in_reward), bool(algorithm.use_kl_loss)
    fixed = getattr(getattr(algorithm, "kl_ctrl", None), "type", "fixed") == "fixed"
    loss, kl = str(algorithm.policy_loss_type), algorithm.kl_estimator_type
    return {
        "estimator": unless_divided(SKYRL.get(str(algorithm.advantage_estimator)), algorithm.grpo_norm_by_std),
        "std_over": divided_by(algorithm.advantage_estimator, algorithm.grpo_norm_by_std),
        "gamma": algorithm.gamma,
        "lam": algorithm.lambd,
        "kl_in_reward": in_reward,
        "beta": algorithm.kl_loss_coef if in_reward and fixed else None,
        "kl_loss_coef": algorithm.kl_loss_coef if in_loss and not in_reward else None,
        "kl_estimator": (kl_name(kl) or kl) if in_reward or in_loss else None,
        "policy_loss": _LOSSES.get(loss),
        "clip_low": getattr(algorithm, "eps_clip_low", None),
        "clip_high": getattr(algorithm, "eps_clip_high", None),
        "dual_clip": getattr(algorithm, "clip_ratio_c", None) if loss == "dual_clip" else None,
        "value_clip": getattr(algorithm, "value_clip", None),
        "temperature": getattr(sampling, "temperature", None),
        "top_p": getattr(sampling, "top_p", None),
        "group_size": getattr(generator, "n_samples_per_prompt", None),
    }


def attach(trainer: Any, wraps: Wraps, recorder: Recorder) -> None:
    """Wrap what computes advantages, and the tracker."""
    watched = _Steps(trainer, recorder)
    wraps.wrap(trainer, "compute_advantages_and_returns", after=watched.computed)
    wraps.wrap(trainer.tracker, "log", before=watched.logging, after=watched.logged)


class _Steps:
    """Offers the batch of a step with what is logged of it."""

    def __init__(self, trainer: Any, recorder: Recorder):
        self._trainer, self._recorder = trainer, recorder

    def computed(self, batch: Any, *rest: Any, **more: Any) -> None:
        step = int(self._trainer.global_step)
        if self._recorder.wants(step):
            self._recorder.hold(step, _taken(batch))

    def logging(self, data: Any, *rest: Any, **more: Any) -> None:
        data |= self._recorder.audit_metrics()

    def logged(self, result: Any, data: Any, step: Any, *rest: Any, **more: Any) -> None:
        self._recorder.logged(int(step), data)
        end_step(self._recorder)


def _taken(batch: Any) -> Taken:
    """The batch as it is pickled, with what is taken out of it before that."""
    tensors = {name: copied(column) for name in COLUMNS if (column := batch.get(name)) is not None}
    about = {"uids": [str(uid) for uid in batch.metadata["uids"]], "pad_size": batch.metadata.get("pad_size")}
    if (ends := batch.metadata.get("is_last_step")) is not None:
        about["is_last_step"] = [bool(end) for end in ends]
    return Taken({"batch_dict": tensors, "metadata": about})
