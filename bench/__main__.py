"""Every benchmark, side by side with its peers: `python -m bench`, or `make bench`, which makes the peers' environment.

python -m bench --only credit,sampling          some of the tables
python -m bench --peers PYTHON                  with TRL and torchrl, by a Python that has the `bench` extra's packages
python -m bench --json figures.json             keep the numbers; tables not measured now are kept as they were
python -m bench --only end_to_end --case "5 M, batch 256" --json figures.json     some rows of a long table
python -m bench --json figures.json --write docs/en/performance.md --only ""     the page from the numbers alone
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import sys
import time
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
import transformers
from measuring import matmul_rate, memory_bandwidth, pinned
from rich.console import Console
from tables import Table, as_json, of_json
from toys import linear_shapes, llama
from writing import page, show

from mingce.base.atomic import atomic_write
from mingce.base.memory import keep_freed_memory

NAMES = (
    "credit", "sampling", "conversations", "log_probs", "update", "update_peers", "end_to_end", "real_model",
    "real_sampling",
    "accuracy", "demo", "growth", "ranks", "store", "view", "audit",
)  # fmt: skip
WITH_PEERS = ("credit", "update_peers", "end_to_end", "accuracy")
BY_CASE = ("end_to_end", "real_model", "real_sampling")
ALL_CORES = ("end_to_end", "real_model", "real_sampling", "accuracy", "demo", "ranks", "view")
PEERS = Path(__file__).parents[1] / ".venv-peers/bin/python"


def measured(name: str, quick: bool, peers: str | None, case: str) -> Table:
    """One table; its module is imported here, so that one that is not asked for costs nothing."""
    begin, load = time.perf_counter(), os.getloadavg()[0]
    try:
        with nullcontext() if name in ALL_CORES else pinned(1):
            work = importlib.import_module(name).run
            given = [quick, *([peers] if name in WITH_PEERS else []), *([case] if name in BY_CASE else [])]
            table: Table = work(*given)
    except Exception as error:  # the other tables are still worth having
        traceback.print_exc()
        table = Table(name, name.replace("_", " "), [], failures=[f"{type(error).__name__}: {error}"])
    loads, minutes = [load, os.getloadavg()[0]], (time.perf_counter() - begin) / 60
    day = time.strftime("%Y-%m-%d")
    table.calls = [{"day": day, "minutes": minutes, "loads": loads, "cores": os.cpu_count()}]
    if quick:
        table.notes.append("Quick: fewer cases and rounds.")
    return table


def conditions() -> dict[str, Any]:
    """The machine and what its own limits are now, on one core."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    with pinned(1):
        rates = {"1024³": matmul_rate([(1024, 1024, 1024)])}
        for size in ("1 M", "5 M"):
            rates[f"the products of a {size} model's update of 64 × 64"] = matmul_rate(
                linear_shapes(llama(size), 64 * 71)
            )
        copied = memory_bandwidth()
    return {
        "processor": f"{next(names, platform.machine())}, {os.cpu_count()} cores",
        "software": f"torch {torch.__version__}, transformers {transformers.__version__}, "
        f"Python {platform.python_version()}",
        **{f"torch.matmul on one core, {what}": f"{rate / 1e9:.0f} GFLOP/s" for what, rate in rates.items()},
        "a copy in memory on one core, read and written": f"{copied / 1e9:.0f} GB/s",
    }


class NoNumbers(Exception):
    """A file that is damaged or of another kind."""


def read_numbers(path: Path | None) -> tuple[dict[str, Table], dict[str, Any]]:
    """The tables of a file of numbers by name, and the machine; nothing of a file that is not there yet."""
    if path is None or not path.exists():
        return {}, {}
    try:
        tables, machine = of_json(json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError):
        raise NoNumbers(f"{path} is no whole file of numbers; restore it or name another") from None
    return {table.name: table for table in tables}, machine


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default=",".join(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--case", default="", help=f"only the cases of {', '.join(BY_CASE)} with this in their names")
    parser.add_argument("--quick", action="store_true", help="fewer cases and rounds")
    parser.add_argument("--peers", default=str(PEERS) if PEERS.exists() else None, help="a Python with trl and torchrl")
    parser.add_argument("--json", type=Path, help="file of the numbers")
    parser.add_argument("--write", type=Path, help="page to write")
    options = parser.parse_args()
    asked = [name for name in options.only.split(",") if name]
    for name in asked:
        if name not in NAMES:
            parser.error(f"there is no table '{name}'; there are {', '.join(NAMES)}")
    if options.case:
        if not asked or not set(asked) <= set(BY_CASE):
            parser.error(f"--case is for {', '.join(BY_CASE)} alone; name it with --only")
        labels = [case.label for name in asked for case in importlib.import_module(name).CASES]
        if not any(options.case in label for label in labels):
            parser.error(f"no case has '{options.case}' in its name; there are {'; '.join(labels)}")
    keep_freed_memory()
    transformers.utils.logging.disable_progress_bar()
    console = Console(width=max(140, Console().width))
    failures: dict[str, list[str]] = {}
    if options.peers and shutil.which(options.peers) is None:
        parser.error(f"there is no Python at {options.peers}; `make bench` makes one in .venv-peers")
    for path in filter(None, (options.json, options.write)):
        if not path.parent.is_dir():
            parser.error(f"there is no directory {path.parent}; make it first")
    if not asked and not (options.json and options.json.exists()):
        parser.error("there are no numbers to write about; name tables with --only or a file of numbers with --json")
    try:
        known, machine = read_numbers(options.json)
    except NoNumbers as error:
        parser.error(str(error))
    machine = conditions() if asked or not machine else machine
    for name in asked:
        new = measured(name, options.quick, options.peers, options.case)
        show(console, new)
        failures[name] = new.failures
        try:
            known = read_numbers(options.json)[0] or known  # another process may have written there meanwhile
        except NoNumbers as error:
            options.json = options.json.with_name(options.json.name + ".new")
            console.print(f"[red]{error}[/]; what is measured now goes to {options.json}")
        if options.case and name in known and known[name].cases:
            order = [case.label for case in importlib.import_module(name).CASES]
            new = new.joined(known[name], order)
        known[name] = new
        if options.json:
            tables = [known[name] for name in NAMES if name in known]
            numbers = json.dumps(as_json(tables, machine), indent=1, ensure_ascii=False) + "\n"
            atomic_write(options.json, numbers.encode())
    if options.write:
        options.write.write_text(page([known[name] for name in NAMES if name in known], machine))
    failed = [name for name in asked if failures[name]]
    if failed:
        console.print(f"[red]not all was measured[/] in {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
