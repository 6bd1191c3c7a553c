"""Memory, processes and limits, as the operating system reports them."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path


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
