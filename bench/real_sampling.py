"""Drawing answers of SmolLM2-135M: our decoder and vLLM's on the CPU, both in float32, with log-probs, in turns.

Prompts differ from each other, and every answer has all its tokens.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from measuring import Spread, ratio
from tables import Table, number, spread
from turns import Side, has

from mingce.models.smollm2 import converted

HERE = Path(__file__).parent
VLLM = HERE.parent / ".venv-vllm/bin/python"
WANTED = 1.5


class Case(NamedTuple):
    rows: int
    prompt: int = 32
    limit: int = 64
    threads: int = 1
    rounds: int = 4

    @property
    def label(self) -> str:
        return f"SmolLM2-135M, {self.rows} rows, {self.threads} threads"


CASES = (Case(16), Case(64), Case(64, threads=2))


def measure(case: Case) -> dict[str, list[dict[str, Any]]]:
    """What both said of every round, the first left out."""
    draw = random.Random(0)
    prompts = [[draw.randrange(100, 40000) for _ in range(case.prompt)] for _ in range(case.rows)]
    with tempfile.TemporaryDirectory() as place:
        asked = {
            "model": str(converted()), "directory": place, "prompts": prompts, "rows": case.rows,
            "prompt": case.prompt, "length": case.limit, "threads": case.threads,
        }  # fmt: skip
        sides = {"vLLM": (str(VLLM), "turn_vllm.py"), "mingce": (sys.executable, "turn_draw.py")}
        said: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
        (one, first), (other, second) = sides.values()
        with Side(one, HERE / first, asked, case.threads) as a, Side(other, HERE / second, asked, case.threads) as b:
            for _ in range(1 + case.rounds):
                for name, side in zip(sides, (a, b), strict=True):
                    said[name].append(side.step())
    return {name: steps[1:] for name, steps in said.items()}


def run(quick: bool, wanted: str = "") -> Table:
    """The cases whose name has `wanted` in it."""
    table = Table(
        "real_sampling",
        "Sampling of SmolLM2-135M against vLLM on the CPU",
        ["rows", "prompt", "tokens", "threads", "to vLLM", "vLLM tok per CPU s", "mingce tok per CPU s"],
    )
    if not has(str(VLLM), "vllm"):
        table.notes.append(f"Left out (make {VLLM.parents[1].name}/.installed brings vLLM).")
        return table
    for case in CASES[:1] if quick else CASES:
        if wanted in case.label:
            with table.case(case.label):
                add_row(table, case, measure(case))
    return table


def add_row(table: Table, case: Case, said: dict[str, list[dict[str, Any]]]) -> None:
    cpu = {name: [step["cpu"] / step["tokens"] for step in steps] for name, steps in said.items()}
    won = ratio(cpu["vLLM"], cpu["mingce"])
    rates = [number(1 / Spread.of(seconds).median) for seconds in cpu.values()]
    cells = [str(count) for count in (case.rows, case.prompt, case.limit, case.threads)]
    table.rows.append([*cells, spread(won), *rates])
    table.raw.append({**case._asdict(), "ratio": won, "steps": said})
    table.at_least(case.label, won.median, WANTED, group="Sampling of SmolLM2", peer="vLLM")
