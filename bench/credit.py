"""GAE + returns: the compiled recursion against Python loops over T, on the same tensors, interleaved, one thread.

    python bench/credit.py            the table
    python bench/credit.py --rounds 3 quicker

"loop" is the recursion as trainers write it, carrying value and advantage over slots that were not chosen; "bare loop"
is the least a loop can do, for a mask without holes. "max error" is against the loop in float64, relative to the row's
largest number.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from mingce.algorithms.advantage import gae
from mingce.memory import keep_freed_memory

GAMMA, LAM = 0.99, 0.95
TARGETS = {(256, 2048): 80, (64, 1024): 100, (64, 8192): 200}


def bare_loop(rewards: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The textbook recursion, for a mask without holes."""
    after, last, backwards = 0.0, 0.0, []
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + GAMMA * after - values[:, t]
        last = delta + GAMMA * LAM * last
        backwards.append(last)
        after = values[:, t]
    advantages = torch.stack(backwards[::-1], dim=1)
    return advantages, advantages + values


def masked_loop(rewards: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The recursion that steps over masked slots, as verl writes it."""
    weight = mask.to(values.dtype)
    after, last, backwards = 0.0, 0.0, []
    for t in reversed(range(rewards.shape[1])):
        m = weight[:, t]
        delta = rewards[:, t] + GAMMA * after - values[:, t]
        step = delta + GAMMA * LAM * last
        last = step * m + (1 - m) * last
        after = values[:, t] * m + (1 - m) * after
        backwards.append(last)
    advantages = torch.stack(backwards[::-1], dim=1) * weight
    return advantages, advantages + values * weight


def measure(shape: tuple[int, int], holes: bool, rounds: int) -> tuple[float, float, float, float]:
    """(loop ms, bare loop ms, mingce ms, max relative error), each time the best of `rounds`."""
    generator = torch.Generator().manual_seed(shape[1])
    rewards, values = (torch.randn(shape, generator=generator) for _ in range(2))
    mask = torch.ones(shape, dtype=torch.bool)
    if holes:
        starts = torch.randint(1, shape[1] // 2, (shape[0],), generator=generator)
        slots = torch.arange(shape[1])
        mask = ~((slots >= starts[:, None]) & (slots < starts[:, None] + shape[1] // 8))

    def seconds(run: Callable[[], object]) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    loop, bare, compiled = float("inf"), float("inf"), float("inf")
    for _ in range(rounds):
        loop = min(loop, seconds(lambda: masked_loop(rewards, values, mask)))
        if not holes:
            bare = min(bare, seconds(lambda: bare_loop(rewards, values, mask)))
        for _ in range(5):  # the short one needs more tries to be seen undisturbed
            compiled = min(compiled, seconds(lambda: gae(rewards, values, mask, GAMMA, LAM)))
    exact, _ = masked_loop(rewards.double(), values.double(), mask)
    error = (gae(rewards, values, mask, GAMMA, LAM).advantages - exact).abs().amax(1) / exact.abs().amax(1)
    return loop * 1e3, bare * 1e3, compiled * 1e3, float(error.max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="best of so many")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    keep_freed_memory()  # as `mingce train` does; for loops and kernel alike
    table = Table(title=f"GAE + returns, one thread, best of {rounds}, torch {torch.__version__}")
    for heading in ("shape", "mask", "loop ms", "mingce ms", "ratio", "wanted", "to a bare loop", "max error"):
        table.add_column(heading, justify="right")
    for shape, target in TARGETS.items():
        for holes in (False, True):
            slow, bare, fast, error = measure(shape, holes, rounds)
            wanted = target / 2 if holes else target
            colour = "green" if slow / fast >= wanted else "red"
            table.add_row(
                f"{shape[0]} × {shape[1]}",
                "a hole a row" if holes else "full",
                f"{slow:.1f}",
                f"{fast:.2f}",
                f"[{colour}]{slow / fast:.0f}×[/]",
                f"≥ {wanted:.0f}×",
                "" if holes else f"{bare / fast:.0f}×",
                f"{error:.1e}",
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
