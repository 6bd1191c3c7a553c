"""slime: a function for its flag --rollout-data-postprocess-path, which it calls once a step with all but the update.

    MINGCE_WATCH=runs/mine … --rollout-data-postprocess-path mingce.watching.slime.record

It is called in every process; the first of those that have whole rows records its own. Under context parallelism no
process has whole rows: there --save-debug-train-data writes them, and `mingce view DIR --follow` shows them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from mingce.base.errors import first_line
from mingce.base.paths import expanded
from mingce.base.texts import sentence
from mingce.specs.kl import kl_name
from mingce.specs.trainer_names import SLIME, divided_by, unless_divided
from mingce.watching.host import Choices, Host, Taken
from mingce.watching.recorder import Recorder
from mingce.watching.trainers import copied, plain_config, version_of

LOG = logging.getLogger("mingce")
_NAMES = ("tokens", "loss_masks", "response_lengths", "sample_indices", "rewards", "truncated", "rollout_log_probs",
          "log_probs", "ref_log_probs", "values", "advantages", "returns", "kl", "entropy")  # fmt: skip
_RECORDERS: dict[str, Recorder | None] = {}


def record(args: Any, rollout_id: int, rollout_data: Mapping[str, Any]) -> None:
    """Record a step in the directory that MINGCE_WATCH names; whatever fails is one warning, and training goes on."""
    directory = os.environ.get("MINGCE_WATCH", "").strip()
    try:
        if directory and _is_first() and (recorder := _recorder(directory, args)) is not None:
            if recorder.wants(int(rollout_id)):
                recorder.offer(int(rollout_id), _taken(rollout_data))
            recorder.step_ended()
    except Exception as error:
        recorder = _RECORDERS.setdefault(directory, None)
        if recorder is None:
            LOG.warning(sentence("watching.failed", error=first_line(error)))
        else:
            recorder.failed(error)


def _recorder(directory: str, args: Any) -> Recorder | None:
    if directory not in _RECORDERS:
        path = expanded(directory)
        resume = (path / "config.yaml").is_file()
        _RECORDERS[directory] = None  # one that cannot be made is tried once
        _RECORDERS[directory] = Recorder(path, host(args), Choices(resume=resume))
    return _RECORDERS[directory]


def _is_first() -> bool:
    """Whether this process has whole rows with all columns, and is the first that has."""
    try:
        from megatron.core import mpu
    except ImportError:
        return True
    if mpu.get_context_parallel_world_size() > 1:
        raise ValueError(sentence("watching.slime_context"))
    last = mpu.is_pipeline_last_stage(ignore_virtual=True)
    return bool(last and not mpu.get_tensor_model_parallel_rank() and not mpu.get_data_parallel_rank())


def host(args: Any) -> Host:
    """What its arguments say."""

    def get(name: str) -> Any:
        return getattr(args, name, None)

    in_loss, kind, steps = bool(get("use_kl_loss")), get("kl_loss_type"), get("num_rollout")
    settings = {
        "estimator": unless_divided(SLIME.get(str(get("advantage_estimator"))), get("grpo_std_normalization")),
        "std_over": divided_by(get("advantage_estimator"), get("grpo_std_normalization")),
        "gamma": get("gamma"),
        "lam": get("lambd"),
        "kl_in_reward": bool(get("kl_coef")),
        "beta": get("kl_coef"),
        "kl_loss_coef": get("kl_loss_coef") if in_loss else None,
        "kl_estimator": None if kind is None else kl_name(kind) or kind,
        "clip_low": get("eps_clip"),
        "clip_high": get("eps_clip") if get("eps_clip_high") is None else get("eps_clip_high"),
        "dual_clip": get("eps_clip_c"),
        "value_clip": get("value_clip"),
        "entropy_coef": get("entropy_coef"),
        "temperature": get("rollout_temperature"),
        "top_p": get("rollout_top_p"),
        "group_size": get("n_samples_per_prompt"),
        "max_response_length": get("rollout_max_response_len"),
    }
    return Host(
        source="slime",
        name=f"slime{version_of('slime')}",
        settings=settings,
        config=plain_config(args),
        steps=steps if type(steps) is int and steps > 0 else None,
    )


def _taken(data: Mapping[str, Any]) -> Taken:
    """Copies of this process's rows; `raw_reward` is that of all of them, in the rollout's order."""
    found: dict[str, Any] = {}
    for name in _NAMES:
        if (value := data.get(name)) is not None:
            found[name] = [copied(one) for one in value] if isinstance(value, list | tuple) else copied(value)
    raw, places, rows = data.get("raw_reward"), data.get("partition"), len(data["response_lengths"])
    if raw is not None and places is not None:
        found["raw_reward"] = [raw[at] for at in places]
    elif raw is not None and len(raw) == rows:
        found["raw_reward"] = list(raw)
    return Taken({"rollout_data": found}, rows_of=len(raw) if raw is not None and len(raw) > rows else None)
