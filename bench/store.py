"""What the ledger and the checkpoints cost on disk: milliseconds a step, size, and time to one random rollout.

python bench/store.py            one thread, best of several
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mingce.checkpoints import load, save
from mingce.columns import TOKEN_COLUMNS
from mingce.ledger import Ledger
from mingce.run import Run

COLUMNS = 20  # with token_ids and the two masks


def make_ledger(rows: int, shortest: int, longest: int, step: int = 0) -> Ledger:
    """Random numbers, which compress as badly as any: a real ledger is smaller."""
    lengths = torch.randint(shortest, longest + 1, (rows,))
    mask = torch.arange(longest) < lengths[:, None]
    texts = ["请问17+25=42？", "是的，等于42！"]
    rows_of: dict[str, list[Any]] = {
        "uid": [f"{step}-{row}" for row in range(rows)],
        "group": [f"{step}-{row // 8}" for row in range(rows)],
        "data_source": ["arithmetic"] * rows,
        "prompt": [texts[0]] * rows,
        "prompt_ids": [list(range(11))] * rows,
        "response": [texts[1]] * rows,
        "finish_reason": ["stop"] * rows,
        "score_parts": [{"correct": 1.0}] * rows,
        "step": [step] * rows,
        "policy_version": [step] * rows,
        "temperature": [1.0] * rows,
    }
    ledger = Ledger(torch.randint(4096, mask.shape), mask, rows=rows_of)
    names = [name for name in TOKEN_COLUMNS if name not in ledger][: COLUMNS - 3]
    names += [name for name in ("advantages", "rewards", "scores", "values") if name not in names]
    columns = {name: torch.randn(mask.shape) for name in names}
    return ledger.fill({name: v > 0 if TOKEN_COLUMNS[name].dtype == "bool" else v for name, v in columns.items()})


def best_ms(work: Callable[[], object], times: int) -> float:
    """The quickest of several, in milliseconds."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken) * 1e3


def write_and_sync(run: Run, ledger: Ledger) -> None:
    run.ledger.write(0, ledger)
    run.ledger.sync()


def bench_ledger(root: Path, rows: int, shortest: int, longest: int, times: int) -> None:
    with Run.create(root, None, {}) as run:
        ledger = make_ledger(rows, shortest, longest)
        write = best_ms(lambda: run.ledger.write(0, ledger), times)
        sync = best_ms(lambda: write_and_sync(run, ledger), times)
        read = best_ms(lambda: run.ledger.read(0), times)
        steps = 40
        for step in range(1, steps):
            run.ledger.write(step, make_ledger(rows, shortest, longest, step))
        chance = random.Random(0)
        one, find = [], []
        for _ in range(200):
            step, row = chance.randrange(1, steps), chance.randrange(rows)
            one.append(best_ms(lambda step=step, row=row: run.ledger.rollout(step, row), 1))  # type: ignore[misc]
            find.append(best_ms(lambda uid=f"{step}-{row}": run.ledger.find(uid), 1))  # type: ignore[misc]
        tokens = int(ledger.lengths.sum())
        size = (run.ledger_path / "step-000000.parquet").stat().st_size
        print(f"ledger of {rows} × {longest} × {len(ledger.columns())} columns, {tokens} tokens")
        print(f"    write {write:.1f} ms, with sync {sync:.1f} ms, read {read:.1f} ms")
        print(f"    {size / 1e6:.2f} MB, {size / tokens:.0f} bytes a token")
        print(f"    one rollout {statistics.median(one):.1f} ms median, {sorted(one)[197]:.1f} ms p99")
        print(f"    where a uid is {statistics.median(find):.1f} ms median")


def bench_checkpoint(root: Path, parameters: int, times: int) -> None:
    with Run.create(root, None, {}) as run:
        pieces = {f"layer.{number}": torch.randn(parameters // 40) for number in range(40)}
        names = ("actor", "critic", "actor_exp_avg", "actor_exp_avg_sq", "critic_exp_avg", "critic_exp_avg_sq")
        tensors = {name: pieces for name in names}
        steps = iter(range(10_000))
        took = best_ms(lambda: save(run, next(steps), tensors=tensors, state={}), times)
        newest = run.checkpoint_steps()[-1]
        loaded = best_ms(lambda: load(run, newest), times)
        print(f"checkpoint of two {parameters / 1e6:g} M models and AdamW, {24 * parameters / 1e6:.0f} MB")
        print(f"    save {took:.0f} ms, load {loaded:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=7, help="how often each is tried")
    parser.add_argument("--directory", type=Path, help="where to write; default a temporary directory")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(dir=options.directory) as root:
        bench_ledger(Path(root), 256, 9, 16, options.times)
        bench_ledger(Path(root), 512, 512, 512, options.times)
        bench_checkpoint(Path(root), 150_000, options.times)
        bench_checkpoint(Path(root), 1_000_000, options.times)
        bench_checkpoint(Path(root), 20_000_000, options.times)


if __name__ == "__main__":
    main()
