"""Steps of SmolLM2-135M on chat questions: mingce with all weights and with LoRA, TRL's GRPOTrainer and PPOTrainer.

Two sides take turns step by step. Each step draws answers that end when they end, or at the limit, scores them and
makes one update of the whole batch, without a KL term. A step's seconds are divided by its tokens, for the answers'
lengths differ. On one thread CPU seconds are right on a busy machine too; on two they count the waiting for each other.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from chat import write_data
from measuring import Spread, ratio
from tables import Table, number, spread
from turns import Side, has

from mingce.models.smollm2 import converted

HERE = Path(__file__).parent
TRL = HERE.parent / ".venv-trl/bin/python"
TRL_PPO = HERE.parent / ".venv-peers/bin/python"
RANK = 16
GB_OF_PPO = 3.0
"""What PPO with adapters of actor and critic may take."""


class Case(NamedTuple):
    """Two sides and the batch both compute."""

    one: str
    other: str
    batch: int
    limit: int
    threads: int
    rounds: int
    wanted: float

    @property
    def label(self) -> str:
        return f"{self.one} against {self.other}, {self.batch} answers of ≤ {self.limit} tokens, {self.threads} threads"


CASES = (
    Case("full", "LoRA", 32, 64, 1, 2, 1.25), Case("full", "LoRA", 32, 64, 2, 5, 1.25),
    Case("full", "LoRA", 32, 128, 2, 4, 1.25),
    Case("TRL", "full", 8, 128, 1, 1, 3.0), Case("TRL", "full", 32, 128, 2, 4, 3.0),
    Case("TRL LoRA", "LoRA", 8, 128, 1, 1, 3.0), Case("TRL LoRA", "LoRA", 32, 128, 2, 4, 3.0),
    Case("TRL PPO", "PPO", 32, 128, 2, 4, 3.0), Case("PPO", "PPO LoRA", 32, 64, 1, 1, 1.25),
)  # fmt: skip
QUICK = CASES[:1]


def side(name: str, case: Case, directory: Path) -> Side:
    ppo, rank = "PPO" in name, RANK if "LoRA" in name else 0
    asked: dict[str, Any] = {
        "model": str(converted()), "data": str(directory), "directory": str(directory), "batch": case.batch,
        "samples": 1 if ppo else 8, "epochs": 1, "minibatches": 1, "length": case.limit, "lr": 1e-6, "seed": 0,
        "beta": 0.0, "threads": case.threads, "rank": rank,
        "overrides": [f"estimator={'gae' if ppo else 'grpo'}", "kl.reward_coef=0", f"model.lora.rank={rank}"],
    }  # fmt: skip
    python, script = sys.executable, "turn_mingce.py"
    if name.startswith("TRL"):
        python, script = (str(TRL_PPO), "turn_chat_ppo.py") if ppo else (str(TRL), "turn_chat.py")
    return Side(python, HERE / script, asked, case.threads)


def measure(case: Case) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What both said of every round, the first left out."""
    with tempfile.TemporaryDirectory() as place:
        write_data(Path(place))
        with side(case.one, case, Path(place)) as one, side(case.other, case, Path(place)) as other:
            rounds = [(one.step(), other.step()) for _ in range(1 + case.rounds)][1:]
    return [first for first, _ in rounds], [second for _, second in rounds]


def empty() -> Table:
    """The table without rows."""
    note = "Each step draws, scores, makes one update of the batch and writes the ledger; the first is not counted."
    return Table(
        "real_model",
        "SmolLM2-135M from end to end, with all weights and with LoRA, against TRL",
        ["sides", "batch", "limit", "threads", "ratio", "CPU s per 1,000 tokens", "wall s per 1,000 tokens",
         "peak memory", "share of memory"],
        notes=[note],
    )  # fmt: skip


def run(quick: bool, wanted: str = "") -> Table:
    """The cases whose name has `wanted` in it."""
    table = empty()
    for case in QUICK if quick else CASES:
        if wanted not in case.label:
            continue
        python = TRL_PPO if "PPO" in case.one else TRL
        if case.one.startswith("TRL") and not has(str(python), "trl"):
            table.notes.append(f"Left out: {case.label} (make {python.parents[1].name}/.installed brings TRL).")
            continue
        with table.case(case.label):
            add_row(table, case, measure(case))
    return table


def add_row(table: Table, case: Case, said: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    def per_token(kind: str) -> list[list[float]]:
        return [[1000 * step[kind] / step["tokens"] for step in steps] for steps in said]

    cpu, wall = per_token("cpu"), per_token("wall")
    won = ratio(*cpu)
    peaks = [steps[-1]["peak"] for steps in said]
    table.rows.append(
        [f"{case.one} / {case.other}", str(case.batch), str(case.limit), str(case.threads), spread(won),
         *(" / ".join(number(Spread.of(one).median) for one in kind) for kind in (cpu, wall)),
         " / ".join(f"{peak / 1e9:.2f} GB" for peak in peaks), f"{peaks[1] / peaks[0]:.2f}"]
    )  # fmt: skip
    table.raw.append({**case._asdict(), "ratio": won, "steps": said})
    peer = f"{case.one} by mingce" if not case.one.startswith("TRL") else case.one
    share = 1 / 3 if case.one.startswith("TRL") else 0.5
    table.at_least(case.label, won.median, case.wanted, group="Steps of SmolLM2-135M", peer=peer)
    table.at_most(
        f"{case.label}: share of memory", peaks[1] / peaks[0], share, group="Steps of SmolLM2-135M, memory", peer=peer
    )
    if case.other == "PPO LoRA":
        table.at_most(
            f"{case.label}: peak memory", peaks[1] / 1e9, GB_OF_PPO, " GB", group="PPO with LoRA, peak memory"
        )
