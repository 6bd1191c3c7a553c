"""What the ledger and the checkpoints cost: milliseconds a step, size, time to one random rollout, share of a step."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from addition import CHARACTERS, write_data
from addition import save as save_model
from measuring import Spread
from tables import Table, number, spread
from toys import llama
from turns import Side

from mingce.columns import TOKEN_COLUMNS
from mingce.ledger import Ledger
from mingce.record.checkpoints import load, save
from mingce.record.run import Run

STEPS = 40
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


def milliseconds(work: Callable[[], object], times: int) -> Spread:
    """On the wall, since it is a disk that is waited for."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(1e3 * (time.perf_counter() - start))
    return Spread.of(taken)


def write_and_sync(run: Run, ledger: Ledger) -> None:
    run.ledger.write(0, ledger)
    run.ledger.sync()


def add_ledger(table: Table, rows: int, shortest: int, longest: int, times: int) -> None:
    with tempfile.TemporaryDirectory() as root, Run.create(root, None, {}) as run:
        ledger = make_ledger(rows, shortest, longest)
        write = milliseconds(lambda: run.ledger.write(0, ledger), times)
        sync = milliseconds(lambda: write_and_sync(run, ledger), times)
        read = milliseconds(lambda: run.ledger.read(0), times)
        for step in range(1, STEPS):
            run.ledger.write(step, make_ledger(rows, shortest, longest, step))
        chance = random.Random(0)
        places = [(chance.randrange(1, STEPS), chance.randrange(rows)) for _ in range(200)]
        one = [milliseconds(partial(run.ledger.rollout, step, row), 1).median for step, row in places]
        find = [milliseconds(partial(run.ledger.find, f"{step}-{row}"), 1).median for step, row in places]
        tokens, size = int(ledger.lengths.sum()), (run.ledger_path / "step-000000.parquet").stat().st_size
    name = f"ledger of {rows} × {longest}, {len(ledger.columns())} columns"
    last = f"{number(Spread.of(one).median)} ({number(sorted(one)[197])})"
    figures = [*(spread(taken, "") for taken in (write, sync, read)), last, number(Spread.of(find).median)]
    table.rows.append([name, f"{size / 1e6:.2f} MB, {size / tokens:.0f} bytes a token", *figures, ""])
    found = {"write_ms": write, "with_sync_ms": sync, "read_ms": read, "rollout_ms": one, "find_ms": find}
    table.raw.append({"what": name, "bytes": size, "tokens": tokens, **found})


def add_checkpoint(table: Table, parameters: int, times: int) -> None:
    with tempfile.TemporaryDirectory() as root, Run.create(root, None, {}) as run:
        pieces = {f"layer.{number}": torch.randn(parameters // 40) for number in range(40)}
        names = ("actor", "critic", "actor_exp_avg", "actor_exp_avg_sq", "critic_exp_avg", "critic_exp_avg_sq")
        tensors = {name: pieces for name in names}
        steps = iter(range(10_000))
        saved = milliseconds(lambda: save(run, next(steps), tensors=tensors, state={}), times)
        loaded = milliseconds(lambda: load(run, run.checkpoint_steps()[-1]), times)
    name = f"checkpoint of two {parameters / 1e6:g} M models and AdamW"
    size = f"{24 * parameters / 1e6:,.0f} MB"
    table.rows.append([name, size, "", spread(saved, ""), spread(loaded, ""), "", "", ""])
    table.raw.append({"what": name, "save_ms": saved, "load_ms": loaded})


def add_share(table: Table, rows: int, length: int, rounds: int) -> None:
    """Writing as a part of whole steps of a 1 M model, 4 epochs."""
    with tempfile.TemporaryDirectory() as place:
        write_data(Path(place))
        model = save_model(llama("1 M", vocabulary=len(CHARACTERS), window=512), False, Path(place) / "model")
        asked: dict[str, Any] = {
            "model": str(model), "data": place, "directory": place, "batch": rows, "epochs": 4, "minibatches": 1,
            "length": length, "lr": 1e-6, "seed": 0, "threads": 1, "overrides": [],
        }  # fmt: skip
        with Side(sys.executable, Path(__file__).parent / "turn_mingce.py", asked, 1) as side:
            said = [side.step() for _ in range(1 + rounds)][1:]
    share = Spread.of(step["write"] / step["cpu"] for step in said)
    written = Spread.of(1e3 * step["write"] for step in said)
    name = f"ledger of a PPO step, 1 M model, {rows} × {length}"
    shown = f"{100 * share.median:.2g} % ({100 * share.low:.2g}–{100 * share.high:.2g})"
    table.rows.append([name, "", spread(written, ""), "", "", "", "", shown])
    table.raw.append({"what": name, "steps": said})
    table.at_most(f"{rows} × {length}: writing, of a step's CPU time", 100 * share.median, None, " %",
                  group="Ledger: writing it, of a step's CPU time")  # fmt: skip


def run(quick: bool) -> Table:
    table = Table(
        "store",
        "What the ledger and the checkpoints cost on disk",
        ["what", "size", "write ms", "with sync ms", "read ms", "one rollout ms (p99)", "where a uid is, ms",
         "of a step's CPU time"],
    )  # fmt: skip
    torch.manual_seed(0)
    times = 3 if quick else 7
    for rows, shortest, longest in ((256, 9, 16), (512, 512, 512))[: 1 if quick else None]:
        with table.case(f"ledger of {rows} × {longest}"):
            add_ledger(table, rows, shortest, longest, times)
    for rows, length in ((64, 64), (256, 8))[: 1 if quick else None]:
        with table.case(f"writing within a step of {rows} × {length}"):
            add_share(table, rows, length, 3 if quick else 5)
    for parameters in (150_000, 1_000_000, 20_000_000)[: 2 if quick else None]:
        with table.case(f"checkpoint of {parameters / 1e6:g} M"):
            add_checkpoint(table, parameters, times)
    table.notes.append(
        "Milliseconds on the wall; of writing within a step CPU milliseconds. Columns of random numbers compress as "
        f"badly as any: a real ledger is smaller. Rollouts are asked for at random in {STEPS} steps."
    )
    return table
