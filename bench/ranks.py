"""Seconds a step over ranks: engine=ray with N ranks of one thread beside engine=local with N threads, 5 M model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from measuring import Spread, ratio
from ray_overhead import STAGES
from tables import Table, number, spread
from turns import MARK, has

HERE = Path(__file__).parent
WALL, CPU = 0, 1


def whole(steps: list[list[tuple[float, float]]], kind: int) -> list[float]:
    """Seconds of each step."""
    return [sum(lap[kind] for lap in laps) for laps in steps]


def measure(ranks: int, steps: int) -> dict[str, Any]:
    """What ray_overhead.py says."""
    program = [sys.executable, str(HERE / "ray_overhead.py"), "--ranks", str(ranks), "--steps", str(steps)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return found
    raise RuntimeError((done.stderr.strip().splitlines() or ["ray_overhead.py said nothing"])[-1])


def run(quick: bool) -> Table:
    table = Table(
        "ranks",
        "Seconds a step over ranks, 5 M model, 128 rollouts of at most 32 tokens",
        ["ranks or threads", "ray's wall time to local's", "local wall s", "ray wall s", "local CPU s", "ray CPU s",
         "ray to its 1 rank", "slowest stage beside local"],
    )  # fmt: skip
    if not has(sys.executable, "ray"):
        table.notes.append("Left out: ray is not installed (`pip install 'mingce[ray]'`).")
        return table
    alone: float | None = None
    for ranks in range(1, min(2, os.cpu_count() or 1) + 1):
        with table.case(f"{ranks} ranks"):
            found = measure(ranks, 2 if quick else 5)
            add_row(table, ranks, found, alone)
            alone = alone or Spread.of(whole(found["ray"], WALL)).median
    table.notes.append("Wall time, since processes that wait for each other are what ranks cost; start-up is apart.")
    return table


def add_row(table: Table, ranks: int, found: dict[str, Any], alone: float | None) -> None:
    times = {(side, kind): whole(found[side], kind) for side in ("local", "ray") for kind in (WALL, CPU)}
    medians = {key: Spread.of(seconds).median for key, seconds in times.items()}
    cost = ratio(times["ray", WALL], times["local", WALL])
    stages = {
        stage: ratio(*([laps[place][WALL] for laps in found[side]] for side in ("ray", "local"))).median
        for place, stage in enumerate(STAGES)
        if stage != "score"  # a few milliseconds
    }
    slowest = max(stages, key=lambda stage: stages[stage])
    table.rows.append(
        [str(ranks), spread(cost), *(number(medians[side, kind]) for kind in (WALL, CPU) for side in ("local", "ray")),
         f"{number(alone / medians['ray', WALL])}× faster" if alone else "", f"{slowest}, {number(stages[slowest])}×"]
    )  # fmt: skip
    table.raw.append({"ranks": ranks, **found})
    table.at_most(f"{ranks} ranks: ray's wall time to local's", cost.median, None, "×",
                  group="engine=ray, a step's wall time as a multiple of engine=local's")  # fmt: skip
