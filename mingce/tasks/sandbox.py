"""Programs of the policy in a child process that can do little: print, compute, and write in a directory of its own.

What holds a program, by kind:

    bubblewrap  namespaces of its own and a file system of the interpreter alone: no network, no file of anybody's, no
                other process to see or to signal; what it writes is in memory, and gone afterwards
    namespaces  no network and no other process to signal (util-linux's unshare); it reads and writes what the user may
    limits      neither: it reads, writes, connects and signals as the user may

In all of them it is one process with one thread, that has so much CPU time, memory, time on the clock, output and size
of a file, and starts in a temporary directory; as root it runs as nobody. It cannot lift a limit, nor outlive its time
by ignoring signals, nor make namespaces of its own (`system_calls`).
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from mingce.base.errors import SettingError, UnknownNameError
from mingce.tasks.system_calls import refusals

NOBODY = 65534
MEGABYTE = 2**20
DIRECTORY_BYTES = 64 * MEGABYTE
_START = """
import os, resource, sys
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({nobody})
    os.setuid({nobody})
for name, most in {limits}:
    resource.setrlimit(getattr(resource, name), (most, most))
refused = {refused}
if refused:
    import ctypes
    class Filter(ctypes.Structure):
        _fields_ = [("count", ctypes.c_ushort), ("lines", ctypes.c_char_p)]
    library, filtered = ctypes.CDLL(None), Filter(len(refused) // 8, refused)
    if library.prctl(38, 1, 0, 0, 0) or library.prctl(22, 2, ctypes.byref(filtered), 0, 0):
        sys.exit("the kernel takes no filter of its calls")
import random, traceback
random.seed(0)
try:
    exec(compile(sys.stdin.buffer.read(), "<program>", "exec"), {{"__name__": "__main__"}})
except SystemExit:
    raise
except BaseException as error:
    traceback.print_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
    sys.exit(1)
"""


@dataclass(frozen=True)
class Bounds:
    """What one program may use."""

    seconds: float = 5.0
    memory: int = 1024 * MEGABYTE
    file_bytes: int = 16 * MEGABYTE
    output: int = 8000


@dataclass(frozen=True)
class Outcome:
    """What a program printed, and why it was stopped, or the code with which it ended."""

    text: str
    code: int
    stopped: str = ""


def run_program(source: str, kind: str = "bubblewrap", bounds: Bounds = Bounds()) -> Outcome:  # noqa: B008
    """Runs a program of Python to its end, or to its bounds."""
    expect_sandbox(kind)
    return _run(source, kind, bounds)


def expect_sandbox(kind: str) -> None:
    """An error that says what to do where this kind of sandbox cannot be had."""
    if kind not in KINDS:
        raise UnknownNameError("sandbox", kind, KINDS)
    if not works(kind):
        needed = KINDS[kind] if os.getuid() or works("limits") else KINDS["limits"]  # what every kind needs
        raise SettingError(
            f"programs cannot be run in the sandbox '{kind}' here; {needed}, or choose another of "
            f"{', '.join(KINDS)} and read in mingce/tasks/sandbox.py what it does not hold."
        )


KINDS = {
    "bubblewrap": "install bubblewrap (bwrap) and allow users namespaces of their own",
    "namespaces": "install util-linux (unshare) and allow users namespaces of their own",
    "limits": "as root, let the user nobody read the interpreter",
}
"""Kinds of sandbox, and what each needs."""


@cache
def works(kind: str) -> bool:
    """Whether a program runs in that kind of sandbox on this machine."""
    if sys.platform != "linux":
        return False
    try:
        return _run("print(6 * 7)", kind, Bounds(seconds=20.0)).text == "42\n"
    except OSError:
        return False


def _run(source: str, kind: str, bounds: Bounds) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="mingce-program-", ignore_cleanup_errors=True) as own:
        if os.getuid() == 0:
            os.chown(own, NOBODY, NOBODY)
        with tempfile.TemporaryFile() as program:
            program.write(source.encode("utf-8", "replace"))
            program.seek(0)
            child = subprocess.Popen(
                [
                    *_around(kind),
                    sys.executable,
                    "-s",
                    "-B",
                    "-P",
                    "-c",
                    _START.format(nobody=NOBODY, limits=_limits(bounds), refused=refusals()),
                ],
                stdin=program,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=own,
                env=_environment(own, kind),
                start_new_session=True,
            )
        try:
            assert child.stdout is not None
            text, stopped = _read(child.stdout, bounds)
            if not stopped:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(1.0)
        finally:
            _end(child)
    if not stopped and child.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL):
        stopped = f"more than {_cpu_seconds(bounds)} s of CPU time, or of memory"
    return Outcome(text, child.returncode, stopped)


def _limits(bounds: Bounds) -> list[tuple[str, int]]:
    """The last one forbids further processes and threads, so it comes last."""
    return [
        ("RLIMIT_CPU", _cpu_seconds(bounds)),
        ("RLIMIT_AS", bounds.memory),
        ("RLIMIT_FSIZE", bounds.file_bytes),
        ("RLIMIT_NOFILE", 64),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_NPROC", 0),
    ]


def _cpu_seconds(bounds: Bounds) -> int:
    return int(bounds.seconds) + 1


def _environment(own: str, kind: str) -> Mapping[str, str]:
    """Nothing of the trainer's, whose environment may hold keys."""
    home = "/program" if kind == "bubblewrap" else own
    single = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    return {"HOME": home, "TMPDIR": home, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"} | single


def _around(kind: str) -> list[str]:
    """The command in front of the interpreter. Root needs no namespace of users, and becomes nobody inside."""
    root = os.getuid() == 0
    if kind == "limits":
        return []
    if kind == "namespaces":
        mine = [] if root else ["--user"]
        return [_found("unshare"), *mine, "--net", "--pid", "--ipc", "--fork", "--kill-child"]
    mine = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else ["--unshare-user"]
    command = [_found("bwrap"), "--unshare-ipc", "--unshare-net", "--unshare-pid", "--unshare-uts", *mine]
    command += ["--die-with-parent", "--new-session", "--dev", "/dev"]
    command += ["--perms", "0777", "--size", str(DIRECTORY_BYTES), "--tmpfs", "/program"]
    for place in _places():
        for above in reversed(Path(place).parents[:-1]):  # which bubblewrap would make for the owner alone
            command += ["--perms", "0755", "--dir", str(above)]
        command += ["--ro-bind", place, place]
    for link in ("/lib", "/lib64"):
        if os.path.islink(link):
            command += ["--symlink", os.readlink(link), link]
        elif os.path.isdir(link):
            command += ["--ro-bind", link, link]
    return [*command, "--remount-ro", "/", "--chdir", "/program"]


def _places() -> Iterator[str]:
    """What the interpreter needs to read: itself and its libraries."""
    yield "/usr"
    for place in dict.fromkeys([sys.base_prefix, sys.prefix, str(Path(sys.executable).resolve().parent.parent)]):
        if not Path(place).is_relative_to("/usr"):
            yield place


def _found(command: str) -> str:
    path = shutil.which(command)
    if path is None:
        raise FileNotFoundError(command)
    return path


def _read(pipe: IO[bytes], bounds: Bounds) -> tuple[str, str]:
    """What came before the end, or before it was too much or too late, and which of these."""
    until, got, stopped = time.monotonic() + bounds.seconds, b"", ""
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        while not stopped:
            if not ready.select(max(0.0, until - time.monotonic())):
                stopped = f"more than {bounds.seconds:g} s"
            elif part := os.read(pipe.fileno(), 65536):
                got += part
                if len(got) > bounds.output:
                    got, stopped = got[: bounds.output], f"more than {bounds.output} bytes of output"
            else:
                break
    return got.decode("utf-8", "replace"), stopped


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the child and all that it may have started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()
