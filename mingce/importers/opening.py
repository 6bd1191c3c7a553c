"""open_dump: whatever a trainer wrote, as dumps in the order of their steps, read by another process within limits.

check_ledger: the same limits for a ledger that is then read here, rollout by rollout.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import mingce
from mingce.base.errors import DataError, RunError
from mingce.base.lang import display_lang
from mingce.base.texts import sentence
from mingce.importers.limits import Refused, factor
from mingce.importers.parcel import one_line, read_parcel
from mingce.importers.traces import Line
from mingce.record.dump import Dump

_START = "import sys; sys.path[:] = sys.argv[2:]; from mingce.importers.child import serve; serve(int(sys.argv[1]))"
# one thread, so that a fork is whole; memory from malloc, so that a limit on it is met where it is asked for
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def open_dump(
    path: Path,
    mapping: Path | None = None,
    settings: dict[str, Any] | None = None,
    steps: Collection[int] | None = None,
    *,
    files: Sequence[str] | None = None,
    lines: Sequence[Line] | None = None,
) -> list[Dump]:
    """The dumps at a file or directory, one a step, in order. `settings` count more than what the files say.

    `mapping` is a YAML or JSON file with `columns: {their_name: our_name}` and `settings: {...}`. `steps` leaves out
    the other steps of a directory. The files are read in a process of their own whose memory and time are bounded by
    the files' sizes; MINGCE_DUMP_LIMIT=4 allows four times as much.
    `files` are names of some of the directory's files: only these are read, and none of them need be a dump. `lines`
    are lines of a stream of traces at `path`, as mingce.importers.streams finds them.
    """
    return _ask(
        path,
        mapping=None if mapping is None else str(mapping),
        settings=settings,
        steps=None if steps is None else [int(step) for step in steps],
        files=None if files is None else list(files),
        lines=None if lines is None else list(lines),
    )


def check_ledger(path: Path, rows: Sequence[int] | None = None, columns: Sequence[str] | None = None) -> None:
    """Refuse a ledger that takes more to unpack than `open_dump` gives a file of its size; damage is not judged.

    With `rows` only the row groups that hold them are tried, with `columns` only those columns.
    """
    wanted = {"rows": None if rows is None else list(rows), "columns": None if columns is None else list(columns)}
    _ask(path, unpack=wanted)


def _ask(path: Path, **request: Any) -> list[Dump]:
    """What the reading process answers."""
    with _parcel() as number:
        code = _READER.ask({"path": str(path), "cwd": _here(), "lang": display_lang()} | request, number)
        if code != 0:
            raise _ended(str(path), code)
        return read_parcel(number)


def _here() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise RunError(f"the current directory cannot be read ({error.strerror}); change to another one.") from error


@contextmanager
def _parcel() -> Iterator[int]:
    """The number of an empty file without a name, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("dump", os.MFD_CLOEXEC)
        try:
            yield number
        finally:
            os.close(number)
    else:
        with tempfile.TemporaryFile() as file:
            yield file.fileno()


def _ended(path: str, code: int) -> DataError:
    """Why the process that read the file ended without an answer."""
    path = one_line(path)
    if -code in (signal.SIGXCPU, signal.SIGALRM):
        return Refused(sentence("importers.out_of_time", path=path))
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return DataError(sentence("importers.crashed", path=path, how=how))


class _Reader:
    """The process that opens dumps: started when it is first needed, and again where limits change or it is gone."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._state: tuple[int, float] | None = None
        self.seconds = 0.0  # of computing that the last request took

    def ask(self, request: dict[str, Any], number: int) -> int:
        """How the work on the request ended: 0, an exit code, or a negative signal. `number` is the file it fills."""
        text = json.dumps(request, default=str).encode()
        with self._lock:
            state = (os.getpid(), factor())
            if self._state != state or self._process is None or self._process.poll() is not None:
                self._start(state)
            assert self._connection is not None
            answer = b""
            try:
                socket.send_fds(self._connection, [len(text).to_bytes(4, "little")], [number])
                self._connection.sendall(text)
                while not answer.endswith(b"\n") and (part := self._connection.recv(4096)):
                    answer += part
            except OSError:
                pass
            finally:
                if not answer.endswith(b"\n"):  # it died, or the person pressed Ctrl-C
                    self.stop()
            outcome = json.loads(answer) if answer else {"code": -int(signal.SIGKILL), "seconds": 0.0}
            self.seconds = float(outcome["seconds"])
            return int(outcome["code"])

    def _start(self, state: tuple[int, float]) -> None:
        self.stop()
        ours, theirs = socket.socketpair()
        root = str(Path(mingce.__file__).resolve().parent.parent)
        paths = [root, *(path for path in sys.path if path and path != root)]  # never the current directory
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(theirs.fileno()), *paths],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()], env=os.environ | _ENVIRONMENT, process_group=0,
            )  # fmt: skip
        self._connection, self._state = ours, state

    def stop(self) -> None:
        """End the process and what it forked."""
        if self._connection is not None:
            self._connection.close()
        mine = self._state is not None and self._state[0] == os.getpid()
        if mine and self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # not yet waited for, so the number is still its own
            self._process.wait()
        self._process = self._connection = self._state = None


_READER = _Reader()
atexit.register(_READER.stop)
