"""In verl's workers: what the policy loss and the value loss were given, for the driver to lay beside its rows.

    core_algos.get_policy_loss_fn      the registered losses that it gives: new log-probs
    core_algos.compute_value_loss      new values

A micro-batch does not say which rows it has, so each row goes by a digest of what the driver has of it, too: old
log-probs and advantages, values and returns, at the tokens of the mask. Of several epochs the last is kept. A thread
writes files beside the run's directory, which the driver reads and removes; where nobody does, no more are written.
Nothing is computed with the loss's tensors but copies, and whatever fails is nothing but missing.
"""

from __future__ import annotations

import functools
import hashlib
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mingce.base.atomic import atomic_write

POLICY, VALUE = "new_log_probs", "new_values"
_LOSS = ("old_log_prob", "log_prob", "advantages", "response_mask")
_CRITIC = ("vpreds", "returns", "values", "response_mask")
_WAITING, _FILES = 256, 64
"""Micro-batches that may wait to be written, and files that may wait to be read; what comes then is left out."""
_IDLE = 0.2
"""Seconds without a micro-batch after which what there is is written."""


@dataclass(frozen=True)
class Seen:
    """A micro-batch of an update: its rows' digests and their new numbers."""

    column: str
    keys: list[str]
    rows: Any  # [rows, width]
    epoch: int
    minibatch: int


def folder_of(directory: Path) -> Path:
    """Where workers put their files for the run of this directory."""
    return directory.with_name(f".{directory.name}.update")


def digests(mask: Any, *columns: Any) -> list[str]:
    """A name for each of the rows [B, T]: of its numbers where the mask is set; empty for a row without any."""
    found = []
    for row, chosen in enumerate(mask):
        kept = np.asarray(chosen).astype(bool)
        parts = [np.asarray(column[row], dtype=np.float32)[: len(kept)][kept] for column in columns]
        whole = b"".join((part + np.float32(0.0)).tobytes() for part in parts)  # which makes -0 a 0
        found.append(hashlib.blake2b(whole, digest_size=16).hexdigest() if whole else "")
    return found


def losses_told(module: Any, saw: Callable[[Seen], object]) -> dict[str, Any]:
    """verl's two functions, the same but that `saw` is told of each micro-batch with gradients."""
    lookup, value_loss = module.get_policy_loss_fn, module.compute_value_loss

    @functools.wraps(lookup)
    def get_policy_loss_fn(*given: Any, **named: Any) -> Any:
        return _told(lookup(*given, **named), POLICY, _LOSS, ("old_log_prob", "advantages"), "log_prob", saw)

    critic = _told(value_loss, VALUE, _CRITIC, ("values", "returns"), "vpreds", saw)
    return {"get_policy_loss_fn": get_policy_loss_fn, "compute_value_loss": critic}


def _told(
    loss: Any, column: str, order: tuple[str, ...], keys: tuple[str, ...], new: str, saw: Callable[[Seen], object]
) -> Any:
    @functools.wraps(loss)
    def told(*given: Any, **named: Any) -> Any:
        result = loss(*given, **named)
        try:
            held = dict(zip(order, given, strict=False)) | named
            if held[new].requires_grad and (place := _place()) is not None:
                mask = _copied(held["response_mask"])
                names = digests(mask, *(_copied(held[name]) for name in keys))
                saw(Seen(column, names, _copied(held[new]), *place))
        except Exception as error:
            _say(error)
        return result

    return told


def _copied(tensor: Any) -> Any:
    return tensor.detach().float().cpu().numpy().copy()


def _place() -> tuple[int, int] | None:
    """The epoch and the minibatch of the update that is running; None in an epoch that is not the last, or a copy."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "train_mini_batch":
        frame = frame.f_back
    if frame is None:
        return 0, 0
    held = frame.f_locals
    epochs, at, count = (int(held.get(name) or 0) for name in ("epochs", "batch_idx", "total_num_iterations"))
    engine = getattr(held.get("self"), "engine", None)
    if isinstance(held, dict):  # before Python 3.13 the frame keeps it, and with it a batch
        held.clear()
    if not getattr(engine, "is_mp_src_rank_with_outputs", lambda: True)():
        return None
    epoch, minibatch = divmod(at, max(count // max(epochs, 1), 1))
    return (epoch, minibatch) if epoch >= epochs - 1 else None


_SAID: list[str] = []


def _say(error: Exception) -> None:
    """One warning a process."""
    from mingce.watching.verl_plugin import warn

    if not _SAID:
        _SAID.append(str(error))
        warn(error)


class UpdateWriter:
    """The thread of a worker that writes what it is told, soon after the last micro-batch of a while."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._queue: queue.Queue[Seen] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self._written: list[Path] = []
        self.dropped = 0

    def saw(self, seen: Seen) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mingce-update", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(seen)
        except queue.Full:
            self.dropped += 1

    def _work(self) -> None:
        pending: list[Seen] = []
        while True:
            try:
                pending.append(self._queue.get(timeout=_IDLE if pending else None))
                if len(pending) < _WAITING:
                    continue
            except queue.Empty:
                pass
            try:
                self._write(pending)
            except Exception as error:
                _say(error)
            pending = []

    def _write(self, pending: list[Seen]) -> None:
        self._written = [path for path in self._written if path.exists()]
        if len(self._written) >= _FILES:
            self.dropped += len(pending)
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{_now()}-{socket.gethostname()}-{os.getpid()}.npz"
        atomic_write(path, packed(pending), durable=False)
        self._written.append(path)


def _now() -> str:
    import time

    return f"{time.time_ns():020d}"


def packed(pending: Sequence[Seen]) -> bytes:
    """Micro-batches as the bytes of a file of arrays."""
    import io

    held: dict[str, Any] = {}
    for number, seen in enumerate(pending):
        held[f"{number}.keys"] = np.array(seen.keys, dtype="U32")
        held[f"{number}.rows"] = np.asarray(seen.rows, dtype=np.float32)
        held[f"{number}.about"] = np.array([seen.column, str(seen.epoch), str(seen.minibatch)])
    stream = io.BytesIO()
    np.savez(stream, **held)
    return stream.getvalue()


def unpacked(path: Path) -> list[Seen]:
    """What `packed` packed; raises what numpy does for a file that is none."""
    found = []
    with np.load(path, allow_pickle=False) as held:
        for number in range(len(held.files) // 3):
            column, epoch, minibatch = (str(one) for one in held[f"{number}.about"])
            rows = held[f"{number}.rows"]
            found.append(Seen(column, [str(key) for key in held[f"{number}.keys"]], rows, int(epoch), int(minibatch)))
    return found
