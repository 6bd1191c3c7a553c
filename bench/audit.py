"""How many tokens a second the audit judges: clean dumps in memory, and a run read from its ledgers on disk."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from audit_case import Case
from measuring import Spread, growth, take_turns
from tables import Table, number, spread

from mingce.audit.audit import audit
from mingce.commands.audit import audit_all, dumps_at

ROWS = (512, 2048, 8192)
WIDTH = 256
RUN = (
    "steps=3", "prompts_per_step=1024", "samples_per_prompt=4", "actor.epochs=1", "critic.epochs=1",
    "validation.every=0", "validation.examples=1", "audit.every=0", "name=audited",
)  # fmt: skip


def add_row(table: Table, what: str, tokens: int, rows: int, seconds: list[float]) -> float:
    """Returns the median seconds."""
    rates = Spread.of(tokens / one for one in seconds)
    table.rows.append([what, f"{rows:,}", f"{tokens:,}", spread(rates, ""), number(Spread.of(seconds).median)])
    table.raw.append({"what": what, "tokens": tokens, "rows": rows, "seconds": seconds})
    table.at_least(f"{what}, {tokens:,} tokens", rates.median, None, " tok/s", group="Audit, tokens a CPU second")
    return Spread.of(seconds).median


def add_dumps(table: Table, sizes: tuple[int, ...], rounds: int) -> None:
    """Batches as mingce's own functions make them, with every column and with tool output."""
    dumps = [Case(0, "own", rows=rows, width=WIDTH, estimator="gae", samples=4).dump() for rows in sizes]
    assert not any(audit(dump).of("bug") for dump in dumps)
    taken = take_turns({str(len(dump.mask)): partial(audit, dump) for dump in dumps}, rounds)
    tokens, medians = [int(dump.mask.sum()) for dump in dumps], []
    for dump, count, seconds in zip(dumps, tokens, taken.values(), strict=True):
        medians.append(add_row(table, "a clean dump in memory", count, len(dump.mask), seconds))
    table.at_most("time over tokens, fitted exponent", growth(tokens, medians), 1.1,
                  group="Audit: growth over tokens, fitted exponent")  # fmt: skip


def add_run(table: Table, rounds: int) -> None:
    """Three steps of the embedded task, as `mingce audit RUN` reads and judges them."""
    with tempfile.TemporaryDirectory() as root:
        command = [str(Path(sys.executable).parent / "mingce"), "train", *RUN, f"root={root}"]
        subprocess.run(command, check=True, capture_output=True)
        place = Path(root) / "audited"
        audited = audit_all(dumps_at([place], None, {}), "en")
        tokens, rows = (sum(getattr(report, name) for report in audited.reports) for name in ("tokens", "rows"))
        taken = take_turns({"run": lambda: audit_all(dumps_at([place], None, {}), "en")}, rounds)
    add_row(table, "a run on disk, read and audited", tokens, rows, taken["run"])


def run(quick: bool) -> Table:
    table = Table("audit", "The audit", ["what", "rollouts", "tokens", "tokens a CPU second", "CPU s"])
    rounds = 3 if quick else 5
    with table.case("dumps in memory"):
        add_dumps(table, ROWS[:2] if quick else ROWS, rounds)
    with table.case("a run on disk"):
        add_run(table, rounds)
    return table
