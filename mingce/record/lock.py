"""The lock of a run's directory: one process trains there."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import weakref
from pathlib import Path
from typing import ClassVar, TextIO

from mingce.base import atomic
from mingce.base.errors import RunError
from mingce.base.places import NOT_THERE


class Lock:
    """The right to train in a run directory. The kernel takes it back when the process dies, however it dies."""

    _held: ClassVar[weakref.WeakSet[Lock]] = weakref.WeakSet()

    def __init__(self, path: Path):
        self._file = _open_lock(path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            owner = self._file.read(200).strip() or "unknown"
            self._file.close()
            raise RunError(
                f"another process is training in {path.parent} ({owner}); wait for it or end it, then resume"
            ) from None
        with atomic.disk_errors(path):
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            self._file.flush()
        self._held.add(self)

    def release(self) -> None:
        self._held.discard(self)
        self._file.close()

    @classmethod
    def forget_in_child(cls) -> None:
        """A forked worker must not keep the lock alive after its parent has been killed."""
        for lock in list(cls._held):
            lock.release()


def _open_lock(path: Path) -> TextIO:
    """The lock's file; something else in its place is one sentence."""
    with atomic.disk_errors(path):
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno not in NOT_THERE:
                raise
        else:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return os.fdopen(handle, "a+", encoding="utf-8")
            os.close(handle)
    raise RunError(f"{path} is not a file, so the run cannot be locked; delete it and try again")


os.register_at_fork(after_in_child=Lock.forget_in_child)
