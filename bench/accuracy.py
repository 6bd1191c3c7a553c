"""CPU seconds to an accuracy: two-digit addition from one base, mingce and TRL each at the settings found best for it.

TRL's are those of a search (256 a batch, 4 minibatches, 4 epochs, learning rate 5e-5). Evaluation is not counted.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from addition import ANSWER_LIMIT, save, warmed_up, write_data
from tables import Table, number
from turns import Side

HERE = Path(__file__).parent
BASE, GOAL, BUDGET, EVERY = 0.5, 0.90, 400.0, 8.0
OWN = ("actor.epochs=2", "critic.epochs=2", "actor.lr=3e-4", "critic.lr=1e-3", "kl.reward_coef=0.01")


def climb(side: Side, goal: float, budget: float) -> list[tuple[float, float, float]]:
    """(CPU seconds, accuracy, peak memory) every few CPU seconds, until the goal is reached or the budget spent."""
    spent, seen, course = 0.0, 0.0, [(0.0, side.accuracy(), 0.0)]
    while course[-1][1] < goal and spent < budget:
        said = side.step()
        spent += said["cpu"]
        if spent - seen >= EVERY:
            seen = spent
            course.append((spent, side.accuracy(), said["peak"]))
    return course


def asked(model: Path, directory: Path, seed: int, overrides: tuple[str, ...]) -> dict[str, Any]:
    return {
        "model": str(model), "data": str(directory), "directory": str(directory), "batch": 256, "epochs": 4,
        "minibatches": 4, "length": ANSWER_LIMIT, "ends": True, "lr": 5e-5, "seed": seed, "threads": 1,
        "overrides": list(overrides),
    }  # fmt: skip


def run(quick: bool, trl: str | None) -> Table:
    table = Table(
        "accuracy",
        f"CPU seconds to {GOAL:.0%} of two-digit sums, from a 1 M model at {BASE:.0%}",
        ["side", "seed", "CPU s", "accuracy then", "from", "peak memory"],
    )
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        write_data(directory)
        model = save(warmed_up("1 M", 0.2 if quick else BASE), True, directory / "model")
        taken: dict[str, list[tuple[float, float]]] = {}
        goal = 0.25 if quick else GOAL
        for name, python, script, seeds in (
            ("mingce", sys.executable, "turn_mingce.py", (0, 1, 2)), ("TRL", trl, "turn_trl.py", (0,)),
        ):  # fmt: skip
            for seed in seeds[: 1 if quick else None]:
                if python is None:
                    continue
                with Side(python, HERE / script, asked(model, directory, seed, OWN), 1) as side:
                    course = climb(side, goal, BUDGET)
                spent, reached, peak = course[-1]
                taken.setdefault(name, []).append((spent, peak))
                cells = [f"{spent:.0f}", f"{reached:.1%}", f"{course[0][1]:.1%}", f"{peak / 1e6:,.0f} MB"]
                table.rows.append([name, str(seed), *cells])
                table.raw.append({"side": name, "seed": seed, "course": course})
    if "TRL" in taken:
        own = sorted(taken["mingce"])[len(taken["mingce"]) // 2]
        table.at_least("fewer CPU seconds than TRL PPO, median seed", taken["TRL"][0][0] / own[0], 3)
        table.at_most("peak memory, as a share of TRL's", own[1] / taken["TRL"][0][1], 0.5)
    table.notes.append(
        f"mingce: {' '.join(OWN)}, 256 a batch, 4 minibatches. TRL: 4 epochs, learning rate 5e-5. A side that spent "
        f"{number(BUDGET)} CPU s without getting there is shown with what it had reached."
    )
    return table
