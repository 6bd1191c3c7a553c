"""TRL's PPOTrainer (trl.experimental.ppo, up to 1.12): one long method, whose variables are read where it calls out.

    accelerator.backward     in the loss of a micro-batch: new log-probs, ratios and values
    log                      at the end of a step: everything else

The update's columns are those of the last epoch. The trainer never asks whether to stop: on_bug="stop" raises.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from mingce.specs.estimators import GAE
from mingce.watching.host import Host, Taken
from mingce.watching.recorder import Recorder
from mingce.watching.trainers import copied, end_step, is_a, plain_config, token_ids, tokenizer_text, version_of
from mingce.watching.trl import is_main, on_log
from mingce.watching.wrapping import Wraps

NAMES = ("TRL PPOTrainer",)
_UPDATED = {"new_logprobs": "new_log_probs", "ratio": "ratio", "vpred": "new_values"}
_STEP = ("queries", "responses", "logprobs", "ref_logprobs", "values", "scores", "kl", "rewards", "advantages",
         "returns", "padding_mask", "padding_mask_p1")  # fmt: skip

__all__ = ["NAMES", "attach", "host", "is_main", "recognises"]


def recognises(trainer: object) -> bool:
    return is_a(trainer, "trl", "PPOTrainer")


def host(trainer: Any) -> Host:
    """What its configuration says."""
    args = trainer.args
    return Host(
        source="trl",
        name=f"TRL{version_of('trl')} PPOTrainer",
        settings={
            "estimator": GAE,
            "gamma": args.gamma,
            "lam": args.lam,
            "beta": args.kl_coef,
            "kl_estimator": getattr(args, "kl_estimator", "k1"),
            "kl_in_reward": True,
            "whiten_rewards": args.whiten_rewards,
            "policy_loss": "ppo",
            "clip": args.cliprange,
            "value_clip": args.cliprange_value,
            "ppo_epochs": args.num_ppo_epochs,
            "temperature": args.temperature,
            "max_response_length": args.response_length,
        }
        | token_ids(trainer.processing_class),
        config=plain_config(args),
        steps=getattr(args, "num_total_batches", None),
        tokenizer=tokenizer_text(trainer.processing_class),
    )


def attach(trainer: Any, wraps: Wraps, recorder: Recorder) -> None:
    """Wrap what is called in the middle and at the end of a step."""
    watched = _Steps(trainer, recorder)
    wraps.wrap(trainer.accelerator, "backward", before=watched.updated)
    wraps.wrap(trainer, "log", before=watched.ended)
    wraps.wrap(trainer, "log", **on_log(trainer, recorder))
    wraps.wrap(trainer, "log", after=watched.logged)


class _Steps:
    """Collects the columns of the update, and offers all when the step is logged."""

    def __init__(self, trainer: Any, recorder: Recorder):
        self._trainer, self._recorder = trainer, recorder
        self._parts: list[dict[str, Any]] = []

    def updated(self, *given: Any, **named: Any) -> None:
        if self._recorder.wants(int(self._trainer.state.global_step) + 1):
            found = _variables((*_UPDATED, "micro_batch_inds", "ppo_epoch_idx", "minibatch_idx"), self._trainer)
            if found.get("ppo_epoch_idx") == self._trainer.args.num_ppo_epochs - 1:
                self._parts.append(found)

    def ended(self, logs: Mapping[str, Any], *rest: Any, **more: Any) -> None:
        parts, self._parts = self._parts, []
        step = int(self._trainer.state.global_step)
        if self._recorder.wants(step) and (found := _variables(_STEP, self._trainer)):
            scalars = {name: float(value) for name, value in logs.items() if name not in ("eps", "episode")}
            self._recorder.offer(step, lambda: _taken(found, parts, scalars))

    def logged(self, *given: Any, **named: Any) -> None:
        end_step(self._recorder)


def _variables(names: tuple[str, ...], trainer: Any) -> dict[str, Any]:
    """Copies of the named variables of the trainer's `train`, as far as they are there."""
    frame = sys._getframe(1)
    while frame is not None and not (frame.f_code.co_name == "train" and "iter_dataloader" in frame.f_code.co_varnames):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return {}
    held = frame.f_locals
    found = {name: copied(held[name]) for name in names if held.get(name) is not None}
    mine = held.get("self") is trainer
    if isinstance(held, dict):  # before Python 3.13 the frame keeps it, and with it a batch's logits and their graph
        held.clear()
    return found if mine else {}


def _taken(found: dict[str, Any], parts: list[dict[str, Any]], scalars: dict[str, float]) -> Taken:
    """The step's columns with those of its last epoch; called in our thread."""
    data = dict(found)
    rows = len(found["responses"])
    places = [row for part in parts for row in part["micro_batch_inds"].tolist()]
    numbers = [part["minibatch_idx"] for part in parts for _ in part["micro_batch_inds"]]
    if sorted(places) == list(range(rows)):
        import torch

        data["epoch"] = [parts[-1]["ppo_epoch_idx"]] * rows
        data["minibatch"] = [number for _, number in sorted(zip(places, numbers, strict=True))]
        for theirs, ours in _UPDATED.items():
            if all(theirs in part for part in parts):
                column = torch.cat([part[theirs] for part in parts])
                data[ours] = torch.empty_like(column).index_copy_(0, torch.tensor(places), column)
    return Taken(data | {"scalars": scalars})
