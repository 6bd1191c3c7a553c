"""verl 0.9: its V1 trainer (TransferQueue) and the legacy RayPPOTrainer, in the process that drives the workers.

    _compute_advantage              V1, after it: what TransferQueue holds of the batch, long before it is cleared
    _update_critic, _update_actor   legacy, before them: the DataProto with its advantages
    _log_rollout_data               both, where none of these came
    Tracking.log                    what the trainer logs

The first batch of a step is taken. New log-probs and values are in the workers only: under MINGCE_WATCH these write
them down (verl_update.py), and our thread lays them beside the batch (verl_join.py).
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from mingce.base.texts import sentence
from mingce.importers.aliases import TOKENS
from mingce.specs.kl import kl_name
from mingce.specs.trainer_names import divided_by, unless_divided
from mingce.watching import verl_plugin
from mingce.watching.host import Host, Taken
from mingce.watching.recorder import Recorder
from mingce.watching.trainers import copied, end_step, is_a, plain_config, token_ids, tokenizer_text, version_of
from mingce.watching.verl_join import Joiner
from mingce.watching.wrapping import Wraps

NAMES = ("verl PPOTrainer", "verl RayPPOTrainer")
METHODS = {
    "PPOTrainer": {"_compute_advantage": "after", "_log_rollout_data": "before"},
    "RayPPOTrainer": {"_update_critic": "before", "_update_actor": "before", "_log_rollout_data": "before"},
}
"""What has a step's batch, by class: as its result, or as its first argument."""
_FIELDS = (
    "uid", "prompts", "responses", "response_mask", "rm_scores", "rollout_log_probs", "old_log_probs", "ref_log_prob",
    "values", "entropy", "advantages", "returns", "token_level_rewards", "rollout_is_weights",
)  # fmt: skip
_PADDED = (TOKENS.keys() - {"input_ids"}) | {"prompts", "responses", "attention_mask", "position_ids"}
_BY_ROW = ("uid", "data_source", "request_id")


def recognises(trainer: object) -> bool:
    return _kind(trainer) is not None


def _kind(trainer: object) -> str | None:
    return next((name for name in METHODS if is_a(trainer, "verl", name)), None)


def is_main(trainer: Any) -> bool:
    """The trainer is in one process, whatever the workers are."""
    return True


def host(trainer: Any) -> Host:
    """What its configuration says."""
    steps = getattr(trainer, "total_training_steps", None)
    tokenizer = getattr(trainer, "tokenizer", None)
    config = resolved(trainer.config)
    return Host(
        source="verl",
        name=f"verl{version_of('verl')} {type(trainer).__name__}",
        settings=_settings(config) | token_ids(tokenizer),
        config=plain_config(config),
        steps=steps if type(steps) is int and steps > 0 else None,
        tokenizer=tokenizer_text(tokenizer),
    )


def resolved(config: Any) -> dict[str, Any]:
    """A configuration of OmegaConf, or one that it can be made of, as dicts; what it cannot resolve stays a text."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    made = config if OmegaConf.is_config(config) else OmegaConf.create(config)
    try:
        found: Any = OmegaConf.to_container(made, resolve=True)
    except OmegaConfBaseException:
        found = OmegaConf.to_container(made)
    return found if isinstance(found, dict) else {}


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    def get(keys: str) -> Any:
        found: Any = config
        for key in keys.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        return getattr(found, "value", found)  # that of an enum

    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    in_reward, in_loss = bool(get("algorithm.use_kl_in_reward")), bool(get(f"{actor}.use_kl_loss"))
    fixed = get("algorithm.kl_ctrl.type") in (None, "fixed")
    kl = get("algorithm.kl_penalty") if in_reward else get(f"{actor}.kl_loss_type") if in_loss else None
    scaled = get(f"{actor}.loss_agg_mode") == "seq-mean-token-sum-norm"
    top_k = get(f"{rollout}.top_k")
    return {
        "estimator": unless_divided(get("algorithm.adv_estimator"), get("algorithm.norm_adv_by_std_in_grpo")),
        "std_over": divided_by(get("algorithm.adv_estimator"), get("algorithm.norm_adv_by_std_in_grpo")),
        "gamma": get("algorithm.gamma"),
        "lam": get("algorithm.lam"),
        "kl_in_reward": in_reward,
        "beta": get("algorithm.kl_ctrl.kl_coef") if in_reward and fixed else None,
        "kl_estimator": None if kl is None else kl_name(kl) or kl,
        "kl_loss_coef": get(f"{actor}.kl_loss_coef") if in_loss else None,
        "policy_loss": _loss(get(f"{actor}.policy_loss.loss_mode")),
        "clip": get(f"{actor}.clip_ratio"),
        "clip_low": get(f"{actor}.clip_ratio_low"),
        "clip_high": get(f"{actor}.clip_ratio_high"),
        "dual_clip": get(f"{actor}.clip_ratio_c"),
        "entropy_coef": get(f"{actor}.entropy_coeff"),
        "loss_agg_mode": get(f"{actor}.loss_agg_mode"),
        "loss_norm": get(f"{actor}.loss_scale_factor") if scaled else None,
        "ppo_epochs": get(f"{actor}.ppo_epochs"),
        "value_clip": get("critic.cliprange_value"),
        "temperature": get(f"{rollout}.temperature"),
        "top_p": get(f"{rollout}.top_p"),
        "top_k": top_k if type(top_k) is int and top_k > 0 else None,
        "group_size": get(f"{rollout}.n"),
        "max_response_length": get("data.max_response_length"),
    }


def _loss(mode: Any) -> Any:
    return "ppo" if mode == "vanilla" else mode


def attach(trainer: Any, wraps: Wraps, recorder: Recorder) -> None:
    """Wrap what has a batch on the trainer, and the class by which it logs, as the legacy one hides its logger."""
    steps = _STEPS[id(trainer)] = _Steps(trainer, recorder)
    for name, when in methods(trainer, _kind(trainer) or ""):
        wraps.wrap(trainer, name, **{when: _first(steps.took)})
    tracking = importlib.import_module("verl.utils.tracking").Tracking
    wraps.wrap(tracking, "log", before=steps.logging, after=steps.logged)


def methods(owner: Any, kind: str) -> list[tuple[str, str]]:
    """Those of METHODS that a release has."""
    found = [(name, when) for name, when in METHODS[kind].items() if hasattr(owner, name)]
    if not found:
        raise AttributeError(sentence("watching.release", kind=kind))
    return found


def _first(took: Any) -> Any:
    """A batch is the first argument or the result, which comes first, too."""
    return lambda batch, *rest, **more: took(batch)


def is_watched(trainer: Any) -> bool:
    return id(trainer) in _STEPS


def took(trainer: Any, batch: Any) -> None:
    """A batch of a watched trainer."""
    if (steps := _STEPS.get(id(trainer))) is not None:
        steps.took(batch)


class _Steps:
    """Takes the first batch of each step."""

    def __init__(self, trainer: Any, recorder: Recorder):
        self._trainer, self._recorder = trainer, recorder
        self._step = -1
        self._joiner = _joiner(recorder)

    def took(self, batch: Any) -> None:
        step = int(self._trainer.global_steps)
        if step == self._step or not self._recorder.wants(step):
            return
        self._step = step
        more = None if self._joiner is None else self._joiner.joined
        if hasattr(batch, "non_tensor_batch"):
            self._recorder.hold(step, replace(_padded(batch), more=more))
        elif getattr(self._trainer, "parameter_sync_step", 1) == 1:
            self._recorder.hold(step, replace(_fetched(batch), more=more))
        else:  # what is logged is of all the batches of the step
            self._recorder.offer(step, _fetched(batch))

    def logging(self, tracking: Any, data: Any, *rest: Any, **more: Any) -> None:
        data |= self._recorder.audit_metrics()

    def logged(self, result: Any, tracking: Any, data: Any, step: Any, *rest: Any, **more: Any) -> None:
        self._recorder.logged(int(step), data)
        if self._joiner is not None and int(step) != self._step:
            self._recorder.work(partial(self._joiner.forget, time.time_ns()))
        end_step(self._recorder)


def _joiner(recorder: Recorder) -> Joiner | None:
    """Reads what workers write, if they were asked to."""
    if not os.environ.get(verl_plugin.VARIABLE, "").strip():
        return None
    joiner = Joiner(verl_plugin.update_folder())
    recorder.work(partial(joiner.forget, time.time_ns()))
    recorder.at_end = joiner.close
    return joiner


_STEPS: WeakValueDictionary[int, _Steps] = WeakValueDictionary()  # each is held by what it wrapped


def _padded(batch: Any) -> Taken:
    """Copies of what the importer reads of a DataProto."""
    tensors = {str(name): copied(batch.batch[name]) for name in batch.batch.keys() if name in _PADDED}  # noqa: SIM118
    others = {name: list(batch.non_tensor_batch[name]) for name in _BY_ROW if name in batch.non_tensor_batch}
    return Taken({"batch": tensors, "non_tensor_batch": others})


def _fetched(batch: Any) -> Taken:
    """What TransferQueue has of the batch's rows, each field a list of rows; those that only fill up are left out."""
    tags = batch.tags or [{}] * len(batch.keys)
    keys = [key for key, tag in zip(batch.keys, tags, strict=True) if not tag.get("is_padding", False)]
    import torch

    queue = sys.modules["transfer_queue"]
    data = queue.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=list(_FIELDS))
    rows: dict[str, Any] = {"keys": keys}
    for name in _FIELDS:
        if (value := data.get(name, None)) is not None:
            rows[name] = list(value.unbind(0)) if isinstance(value, torch.Tensor) else _listed(value)
    if "token_level_rewards" not in rows and "rm_scores" in rows:  # without a KL in the reward there is one of the two
        rows["token_level_rewards"] = rows["rm_scores"]
    return Taken(rows)


def _listed(values: Any) -> list[Any]:
    return list(values.tolist() if hasattr(values, "tolist") else values)
