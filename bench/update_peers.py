"""One update within whole steps of TRL's PPO and GRPO and of mingce's: same model, batch, epochs and core.

The sides take turns step by step, and of each step only the update counts: from the first pass that is differentiated
to the last optimizer step. PPO's updates policy and critic, GRPO's the policy alone. The limits are those of update.py,
TRL's for all tokens.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from addition import CHARACTERS, prompt_ids, save, write_data
from measuring import Spread, cpu_seconds, products, ratio, repeats
from tables import Table, number, percent, spread
from toys import linear_shapes, llama
from turns import Side, has
from update import EPOCHS, MICRO, floating

HERE = Path(__file__).parent
ROWS, LENGTH, SAMPLES = 64, 64, 8


class Case(NamedTuple):
    """One row of the table."""

    algorithm: str
    model: str
    script: str
    models: int
    """That learn."""
    samples: int
    overrides: tuple[str, ...]


CASES = (
    Case("PPO", "1 M", "turn_trl.py", 2, 1, ()),
    Case("GRPO", "1 M", "turn_grpo.py", 1, SAMPLES, ("estimator=grpo", "kl.reward_coef=0")),
)


def measure(case: Case, peers: str, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each side's updates, and of its limit, round by round."""
    model = llama(case.model, vocabulary=len(CHARACTERS), window=512)
    width = len(prompt_ids(10, 10)) + LENGTH
    multiply = products(linear_shapes(model, min(ROWS * (width - 1), MICRO)))
    times = repeats(multiply)
    taken: dict[str, list[float]] = {"TRL": [], "mingce": [], "TRL's limit": [], "mingce's limit": []}
    with tempfile.TemporaryDirectory() as place:
        write_data(Path(place))
        asked: dict[str, Any] = {
            "model": str(save(model, False, Path(place) / "model")), "data": place, "directory": place, "batch": ROWS,
            "epochs": EPOCHS, "minibatches": 1, "length": LENGTH, "ends": False, "lr": 1e-6, "seed": 0, "threads": 1,
            "samples": case.samples, "overrides": list(case.overrides),
        }  # fmt: skip
        theirs, ours = (
            Side(peers, HERE / case.script, asked, 1),
            Side(sys.executable, HERE / "turn_mingce.py", asked, 1),
        )
        with theirs, ours:
            for number_of_round in range(1 + rounds):
                said = {"TRL": theirs.step(), "mingce": ours.step()}
                if number_of_round:  # the first is for warming up
                    for side, step in said.items():
                        taken[side].append(step["update"])
                    second = cpu_seconds(multiply, times)
                    for side, forward in (("TRL", None), ("mingce", said["mingce"]["forward"])):
                        work = case.models * EPOCHS * floating(model, ROWS, width, forward)
                        taken[f"{side}'s limit"].append(work * second)
    return taken


def run(quick: bool, peers: str | None) -> Table:
    table = Table(
        "update_peers",
        f"One update, {EPOCHS} epochs of {ROWS} × {LENGTH} tokens, against TRL 1.12.0's",
        ["algorithm", "model", "ratio", "TRL CPU s", "mingce CPU s", "TRL, of its matmul limit", "mingce, of its own"],
    )
    if not has(peers, "trl"):
        table.notes.append("Left out: no Python with trl==1.12.0 was given (`--peers`).")
        return table
    for case in CASES:
        with table.case(f"{case.algorithm}, {case.model}"):
            taken = measure(case, str(peers), 3 if quick else 5)
            won = ratio(taken["TRL"], taken["mingce"])
            shares = {side: ratio(taken[f"{side}'s limit"], taken[side]) for side in ("TRL", "mingce")}
            seconds = [number(Spread.of(taken[side]).median) for side in ("TRL", "mingce")]
            table.rows.append([case.algorithm, case.model, spread(won), *seconds, percent(shares["TRL"]),
                               percent(shares["mingce"])])  # fmt: skip
            table.raw.append({**case._asdict(), "seconds": taken})
            most = ratio(taken["TRL"], taken["mingce's limit"])
            why = f"The limit of its matrix products is {number(most.median)}×."
            table.at_least(f"{case.algorithm}, {case.model}", won.median, None, group=f"One update, {case.algorithm}",
                           peer=f"TRL 1.12.0 {case.algorithm}", why=why)  # fmt: skip
    table.notes.append(
        "TRL's GRPO is cut where its responses are drawn and scored, so Trainer's own work between optimizer steps "
        "counts as update; bf16 and gradient checkpointing are off."
    )
    return table
