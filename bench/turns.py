"""Two trainers as processes that take turns step by step, so that both meet the same machine.

A child (`Turn`) does a step when it is told `step`, says its held-out accuracy when told `accuracy`, and ends with its
input. The parent (`Side`) starts it in an environment of its own and asks. A child that waits takes no CPU time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

MARK = "@turn "


def memory(kind: str) -> int:
    """Bytes of this process, VmRSS now or VmHWM at most; ru_maxrss would begin with its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(kind)).split()[1])


class Over(Exception):
    """The parent has had enough."""


class Turn:
    """The child's end."""

    def __init__(self, accuracy: Callable[[], float] = lambda: float("nan")):
        self.accuracy = accuracy
        self._begin: float | None = None
        self._begin_wall = 0.0
        self._base = 0  # bytes before the first step
        self._begun: dict[str, float] = {}
        self._parts: dict[str, float] = {}

    def wait(self, more: Callable[[], dict[str, float]] = dict) -> None:
        """Ends a step, if one was begun, and returns when the next may begin; `more` is asked when it has ended."""
        if self._begin is not None:
            cpu, wall = time.process_time() - self._begin, time.perf_counter() - self._begin_wall
            self._say({"cpu": cpu, "wall": wall, "peak": memory("VmHWM"), "base": self._base, **self._parts, **more()})
        else:
            self._base = memory("VmRSS")
        while (told := sys.stdin.readline().strip()) != "step":
            if told == "accuracy":
                self._say({"accuracy": self.accuracy()})
            else:
                raise Over
        self._parts = {}
        self._begin, self._begin_wall = time.process_time(), time.perf_counter()

    def begin(self, part: str) -> None:
        """A part of the step begins, unless it has already."""
        self._begun.setdefault(part, time.process_time())

    def end(self, part: str) -> None:
        """It ends; its CPU seconds are told with the step's."""
        self._parts[part] = self._parts.get(part, 0.0) + time.process_time() - self._begun.pop(part)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self.begin(name)
        try:
            yield
        finally:
            self.end(name)

    def _say(self, values: dict[str, Any]) -> None:
        print(MARK + json.dumps(values), flush=True)


class Side:
    """The parent's end: `python script JSON`, pinned to the last `threads` cores."""

    def __init__(self, python: str, script: Path, settings: dict[str, Any], threads: int):
        cores = sorted(os.sched_getaffinity(0))[-threads:]
        assert len(cores) == threads, f"{threads} cores are wanted, and there are {len(cores)}"
        command = ["taskset", "-c", ",".join(map(str, cores)), python, str(script), json.dumps(settings)]
        quiet = {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment = {**os.environ, **quiet, "OMP_NUM_THREADS": str(threads)}
        self._log = Path(settings["directory"]) / f"{script.stem}.log"
        self._errors = open(self._log, "w")  # noqa: SIM115
        self.child = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    def step(self) -> dict[str, Any]:
        """CPU seconds of one step, the peak memory so far and what else it said."""
        return self._ask("step")

    def accuracy(self) -> float:
        return float(self._ask("accuracy")["accuracy"])

    def _ask(self, what: str) -> dict[str, Any]:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        try:
            self.child.stdin.write(what + "\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        for line in self.child.stdout:
            if line.startswith(MARK):
                answer: dict[str, Any] = json.loads(line.removeprefix(MARK))
                return answer
        raise self._ended()

    def _ended(self) -> RuntimeError:
        last = [line for line in self._log.read_text().splitlines() if line.strip()][-1:]
        return RuntimeError(f"{self._log.stem} has ended: {last[0] if last else 'it said nothing'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self.child.stdin is not None
        with suppress(BrokenPipeError):
            self.child.stdin.close()
        try:
            self.child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.child.kill()
        self._errors.close()


def has(python: str | None, module: str) -> bool:
    """Whether that Python can import it."""
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return python is not None and subprocess.run([python, "-c", look], check=False).returncode == 0
