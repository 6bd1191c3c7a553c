"""Timing that survives a shared machine: sides take turns, CPU seconds, medians and their spread, the machine's limits.

A ratio is taken within a round, where both sides met the same machine, and the median is of the rounds' ratios.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import log
from typing import NamedTuple

import torch

Work = Callable[[], object]
"""What is timed; a number that it returns is the units of work it did (tokens), anything else counts as one."""

_SHORT = 0.02
"""CPU seconds under which a work is repeated within its turn, so that the clock's own cost does not count."""
_LONG = 0.5
"""CPU seconds from which on one run before the counted ones is enough."""


class Spread(NamedTuple):
    """The median of some rounds, and the lowest and highest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, numbers: Iterable[float]) -> Spread:
        ordered = sorted(numbers)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])


def cpu_seconds(work: Work, times: int = 1) -> float:
    """CPU seconds of this process, all threads, for a unit of the work."""
    begin = time.process_time()
    units = 0.0
    for _ in range(times):
        done = work()
        units += float(done) if isinstance(done, int | float) and not isinstance(done, bool) else 1.0
    return (time.process_time() - begin) / units


def repeats(work: Work) -> int:
    """How often a turn should run the work, which is run here once or twice."""
    begin = time.process_time()
    work()
    if time.process_time() - begin < _LONG:
        begin = time.process_time()
        work()
    return max(1, round(_SHORT / max(time.process_time() - begin, 1e-6)))


def take_turns(works: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """CPU seconds a unit of every work in every round; the sides alternate, after a round that is not counted."""
    times = {name: repeats(work) for name, work in works.items()}
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(cpu_seconds(work, times[name]))
    return taken


def ratio(slow: Sequence[float], fast: Sequence[float]) -> Spread:
    """How many times as long the first took, round by round."""
    return Spread.of(a / b for a, b in zip(slow, fast, strict=True))


def products(shapes: Sequence[tuple[int, int, int]]) -> Work:
    """The matrix products [m, k] × [k, n] by torch.matmul and nothing else; a unit is a floating-point operation."""
    pairs = [(torch.randn(m, k), torch.randn(n, k)) for m, k, n in shapes]
    floating = float(sum(2 * m * k * n for m, k, n in shapes))

    def multiply() -> float:
        for left, right in pairs:
            torch.mm(left, right.T)
        return floating

    return multiply


def matmul_rate(shapes: Sequence[tuple[int, int, int]], times: int = 3) -> float:
    """FLOP/s of these products, best of several: what no computation of these shapes can pass."""
    multiply = products(shapes)
    count = repeats(multiply)
    return 1 / min(cpu_seconds(multiply, count) for _ in range(times))


def memory_bandwidth(megabytes: int = 256, times: int = 5) -> float:
    """Bytes a second that a copy reads and writes, best of several."""
    source = torch.ones(megabytes << 18)
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * 4 * len(source) / min(cpu_seconds(lambda: target.copy_(source)) for _ in range(times))


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """As many torch threads as cores, always the same cores: the last ones, for the first is the system's."""
    cores, before = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, sorted(cores)[-threads:])
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(before)


def growth(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The exponent e of cost ∝ size^e, fitted by least squares of the logarithms."""
    x, y = [log(size) for size in sizes], [log(cost) for cost in costs]
    return float(statistics.linear_regression(x, y).slope)
