"""A process beside the driver that outlives it, and ends what a run's own Ray cluster leaves behind.

Started by cluster.py as a program of its own, with the standard library alone. Its input is a pipe from the driver: a
line `raylet PID` when the cluster is there, and the end of the input when the driver is gone, however it ended. The
processes of the cluster are known by a word in their environment, which they inherited, and those that write over it,
as Ray's agents do to show a name, as children of the raylet.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

QUIET_SWEEPS = 3
PAUSE = 0.1
LIMIT = 20.0
"""Seconds after which nothing more is looked for."""


def guard(mark: str, sentence: str) -> None:
    """Waits for the driver's end; says the sentence if the cluster had died under it; ends all that has the mark."""
    raylet = 0
    agents: dict[int, str] = {}
    for line in sys.stdin:
        if line.startswith("raylet "):
            raylet = int(line.split()[1])
            agents = children(raylet)
        elif line.startswith("bye"):
            raylet = 0
    agents |= children(raylet) if raylet else {}
    if raylet and not os.path.exists(f"/proc/{raylet}"):
        print(sentence, file=sys.stderr, flush=True)
    for process, since in agents.items():
        if stat(process)[1] == since:  # not another one that has its number now
            kill(process)
    until, quiet = time.monotonic() + LIMIT, 0
    while quiet < QUIET_SWEEPS and time.monotonic() < until:
        quiet = 0 if sweep(f"MINGCE_CLUSTER={mark}".encode()) else quiet + 1
        time.sleep(PAUSE)


def sweep(mark: bytes) -> int:
    """Kills the processes that have the mark in their environment; how many there were."""
    killed = 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                marked = mark in file.read().split(b"\0")
        except OSError:  # another person's, or gone meanwhile
            continue
        if marked:
            kill(int(name))
            killed += 1
    return killed


def children(parent: int) -> dict[int, str]:
    """The processes that a process has started, each with when it began."""
    processes = {int(name): stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return {process: since for process, (above, since) in processes.items() if above == str(parent)}


def stat(process: int) -> tuple[str, str]:
    """A process's parent and when it began, as the kernel writes them; empty when it is gone."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[1], fields[19]


def kill(process: int) -> None:
    """Ends a process that may be gone."""
    with contextlib.suppress(OSError):
        os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    guard(sys.argv[1], sys.argv[2])
