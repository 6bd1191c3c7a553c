"""`make demo`'s training, run as a person runs it: accuracy on held-out prompts and the process's CPU seconds."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tables import Table

from mingce.record.run import Run


def measure(table: Table, seed: int) -> None:
    """One row of the table."""
    command = [str(Path(sys.executable).parent / "mingce"), "train", f"seed={seed}"]
    with tempfile.TemporaryDirectory() as root:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [*command, f"root={root}", "name=demo"], check=True, stdout=subprocess.DEVNULL,
            env={**os.environ, "CI": "1"},
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        with Run.open(Path(root) / "demo") as done:
            metrics = done.metrics()
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    course = [(line["step"], line["val/accuracy_sampled"]) for line in metrics if "val/accuracy_sampled" in line]
    reached = next((step for step, share in course if share >= 0.95), None)
    share = "never" if reached is None else f"about {spent * reached / course[-1][0]:.0f} (step {reached:.0f})"
    table.rows.append([str(seed), f"{course[0][1]:.1%}", f"{course[-1][1]:.1%}", f"{spent:.0f}", share])
    table.raw.append({"seed": seed, "course": course, "cpu_seconds": spent})
    table.at_least(f"seed {seed}: sampled accuracy on held-out prompts", 100 * course[-1][1], 95, " %",
                   group="make demo, sampled accuracy on held-out prompts")  # fmt: skip
    table.at_most(f"seed {seed}: CPU seconds, start-up and validations included", spent, 60, " s",
                  group="make demo, CPU seconds with start-up and validations")  # fmt: skip


def run(quick: bool) -> Table:
    table = Table(
        "demo", "The demo", ["seed", "sampled accuracy before", "after", "CPU s, all", "CPU s to the step with 95 %"]
    )
    for seed in (0,) if quick else (0, 1, 2):
        with table.case(f"seed {seed}"):
            measure(table, seed)
    return table
