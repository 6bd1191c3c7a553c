"""Work on a stranger's text in a process of its own: it ends where it takes too long or too much memory.

One process per kind of work, started when it is first needed and again after it ended. It gets pickles of ours through
a pipe and answers with JSON; who asks waits for one answer at a time.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import IO, Any

import mingce
from mingce.base.errors import MingceError
from mingce.base.machine import limit
from mingce.base.texts import sentence

MEMORY = 2 << 30
_START = "import sys; sys.path[:] = sys.argv[1:]; from mingce.view.apart import serve; serve()"
_HEAD = struct.Struct(">cI")
_ANSWER, _REFUSAL, _MISTAKE = b"A", b"R", b"M"


class EndedError(MingceError):
    """The work took more time or memory than it may."""


class Refusal(MingceError):
    """What the process says is wrong with what it was asked."""


class Apart:
    """The asking side. `seconds` is what one piece of work may take."""

    def __init__(self, job: str, seconds: float):
        self.job, self.seconds = job, seconds
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: Callable[[], object] = lambda: None

    def work(self, lang: str, *arguments: Any) -> bytes:
        """The answer of the job to the arguments, as JSON."""
        parcel = pickle.dumps((self.job, self.seconds, arguments))
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(struct.pack(">I", len(parcel)) + parcel)
                process.stdin.flush()
                kind, body = _received(process.stdout)
            except (OSError, EOFError):
                raise self._ended(lang) from None
        if kind == _MISTAKE:
            raise RuntimeError(body.decode())
        if kind == _REFUSAL:
            raise Refusal(body.decode("utf-8", "replace"))
        return body

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.stop()
            root = str(Path(mingce.__file__).resolve().parent.parent)
            paths = [root, *(path for path in sys.path if path and path != root)]  # never the current directory
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, *paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is the server's
            )
            self._finalizer = weakref.finalize(self, _end, self._process)
        return self._process

    def _ended(self, lang: str) -> EndedError:
        assert self._process is not None
        code = self._process.wait()
        self.stop()
        if -code == signal.SIGALRM:
            return EndedError(sentence(f"page.{self.job}_too_slow", lang, seconds=f"{self.seconds:g}"))
        return EndedError(sentence("page.ended", lang, code=code))

    def stop(self) -> None:
        """Ends the process; the next work starts another."""
        self._finalizer()
        self._process = None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what it had not taken yet
                pipe.close()


def _received(pipe: IO[bytes]) -> tuple[bytes, bytes]:
    kind, size = _HEAD.unpack(_exactly(pipe, _HEAD.size))
    return kind, _exactly(pipe, size)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    content = pipe.read(size)
    if len(content) < size:
        raise EOFError
    return content


# ── the working side ─────────────────────────────────────────────────────────────────────────────────────────────────


def serve() -> None:
    """Works on one parcel after the other until the asking side is gone."""
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that prints can get into an answer
    limit(resource.RLIMIT_AS, MEMORY)
    from mingce.view.tutor import JOBS

    while True:
        try:
            job, seconds, arguments = pickle.loads(_exactly(incoming, *struct.unpack(">I", _exactly(incoming, 4))))
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, seconds)  # its signal ends the process, whatever it is busy with
        kind, body = _worked(JOBS[job], arguments)
        signal.setitimer(signal.ITIMER_REAL, 0)
        outgoing.write(_HEAD.pack(kind, len(body)) + body)
        outgoing.flush()


def _worked(job: Callable[..., bytes], arguments: tuple[Any, ...]) -> tuple[bytes, bytes]:
    try:
        return _ANSWER, job(*arguments)
    except MingceError as error:
        return _REFUSAL, str(error).encode("utf-8", "replace")
    except Exception as error:
        traceback.print_exc()
        return _MISTAKE, type(error).__name__.encode()
