"""Memory, processes and limits, as the operating system reports them."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

MOMENT = 0.2
"""Seconds over which it is seen how busy the cores are."""


def memory_sizes() -> tuple[float, float] | None:
    """(bytes in all, bytes available) of this machine; None where it does not say."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
        total, free = (1024.0 * int(lines[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    except (OSError, LookupError, ValueError):
        return None
    return total, free


def free_memory() -> float | None:
    """Bytes that this process may still take, as the machine and its control group say; None where neither says."""
    sizes = memory_sizes()
    limits = [] if sizes is None else [sizes[1]]
    try:
        group = Path("/sys/fs/cgroup")
        limits.append(float((group / "memory.max").read_text()) - float((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no limit is the word max
        pass
    return min(limits) if limits else None


def usable_cores(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that this process may use, as its affinity and its control group say."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (group / "cpu.max").read_text().split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # no limit is the word max
        pass
    return max(cores, 1)


def free_cores(stat: Path = Path("/proc/stat"), pause: Callable[[], None] = lambda: time.sleep(MOMENT)) -> int:
    """Usable cores that nobody else is busy on, one at least, by a look of a moment in which this process rests.

    Threads that share a core with another process make every other thread wait for them at each step of a product, so
    that a thread more can be many times slower.
    """
    cores = usable_cores()
    try:
        before = _busy_and_all(stat)
        pause()
        busy, passed = (after - was for was, after in zip(before, _busy_and_all(stat), strict=True))
        taken = round((os.cpu_count() or 1) * busy / passed)
    except (OSError, ValueError, IndexError, ZeroDivisionError):
        return cores
    return max(1, min(cores, (os.cpu_count() or 1) - taken))


def _busy_and_all(stat: Path) -> tuple[int, int]:
    """Ticks of all cores since the machine started: those that were not idle, and all."""
    ticks = [int(number) for number in stat.read_text(encoding="utf-8").split("\n")[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def is_running(process: int) -> bool:
    """Whether a process with this id exists, of any owner."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def limit(kind: int, most: int) -> None:
    """Sets a soft limit of this process, which can be raised again; not every system knows every kind."""
    with contextlib.suppress(ValueError, OSError):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
