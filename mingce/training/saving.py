"""Checkpoints written beside training: the next step runs while the last one's state goes to the disk.

The state is copied first, so what is written is exactly that of its step, and the logs it belongs to are on the disk
before the writing begins. One checkpoint is written at a time. Where the copy would not fit into memory, or other
processes hold the tensors, training waits instead.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mingce.base.machine import free_memory
from mingce.base.numbers import show_bytes
from mingce.base.texts import sentence
from mingce.config import Config
from mingce.engine.local import Roles
from mingce.record.checkpoints import Draft

SHARE = 0.5
"""Of the memory that is free, the most that a copy may take."""
WORTH_SAYING = 100e6


class Saver:
    """Writes checkpoints, one at a time, in a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(self, draft: Draft) -> None:
        """Writes it in the background if a copy of its tensors fits into memory, else at once."""
        self.wait()
        if not _fits(draft):
            draft.write()
            return
        copied = {
            role: {name: tensor.detach().to("cpu", copy=True) for name, tensor in flat.items()}
            for role, flat in draft.tensors.items()
            if isinstance(flat, Mapping)
        }
        self._thread = threading.Thread(target=self._write, args=(replace(draft, tensors=copied),), name="checkpoint")
        self._thread.start()

    def check(self) -> None:
        """Raises what went wrong with the checkpoint that was being written, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self) -> None:
        """Until nothing is being written; raises what went wrong."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def _write(self, draft: Draft) -> None:
        try:
            draft.write()
        except BaseException as error:  # raised in the thread that trains
            self._error = error


def _fits(draft: Draft) -> bool:
    if not all(isinstance(flat, Mapping) for flat in draft.tensors.values()):
        return False
    free = free_memory()
    return free is not None and draft.size <= SHARE * free


def size_note(config: Config, roles: Roles, place: Path) -> tuple[str, bool] | None:
    """What checkpoints will take, if it is worth saying: (sentence, is a warning that the disk lacks room)."""
    learners = roles.learners.values()
    weights = sum(parameter.nbytes for learner in learners for parameter in getattr(learner, "parameters", ()))
    whole, keep = 3 * weights, config.keep  # AdamW has two moments
    light = max(keep.last + keep.best - keep.optimizer, 0)
    total = (keep.last + keep.best - light) * whole + light * weights + whole  # and one that is being written
    free = shutil.disk_usage(place).free
    short = total > free
    if whole < WORTH_SAYING and not short:
        return None
    kept = f"{keep.last + keep.best - light} × {show_bytes(whole)}"
    kept += f" + {light} × {show_bytes(weights)}" if light else ""
    sizes = {"whole": show_bytes(whole), "kept": kept, "total": show_bytes(total), "free": show_bytes(free)}
    return sentence("training.disk_short" if short else "training.checkpoint_size", **sizes), short
