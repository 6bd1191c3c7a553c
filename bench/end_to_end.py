"""Whole PPO steps of mingce and of TRL: same model, task, batch, epochs, cores; the two take turns step by step.

One minibatch an epoch, both with critic and reference of the policy's size. Equal: every response has the full length.
Ragged: responses end after a quarter of the limit on average. TRL computes every response at full length either way.
The limit is what the linear layers' products of mingce's step would take at torch.matmul's rate: a pass to draw, three
to score (policy, reference, critic), three for each epoch of policy and critic. What rows have in common it computes
once (`flops`), and so the limit counts it once, in drawing too, where only prompts are shared.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from addition import CHARACTERS, save, write_data
from measuring import Spread, matmul_rate, pinned, ratio
from tables import Table, number, spread
from toys import linear_shapes, linear_weights, llama
from turns import Side, has
from update import EPOCHS, MICRO

HERE = Path(__file__).parent


class Case(NamedTuple):
    """One row of the table."""

    model: str
    batch: int
    lengths: str
    limit: int
    threads: int
    rounds: int

    @property
    def label(self) -> str:
        plural = "s" if self.threads > 1 else ""
        return f"{self.model}, batch {self.batch}, {self.lengths}, {self.threads} thread{plural}"


WANTED = {"equal": 1.7, "ragged": 4.0, "short": 3.0}
CASES = (
    Case("1 M", 64, "equal", 64, 1, 5), Case("1 M", 64, "equal", 64, 2, 5), Case("1 M", 256, "equal", 64, 1, 5),
    Case("5 M", 64, "equal", 64, 1, 5), Case("5 M", 256, "equal", 64, 1, 5), Case("5 M", 64, "equal", 64, 2, 5),
    Case("1 M", 64, "ragged", 64, 1, 5), Case("1 M", 64, "ragged", 64, 2, 5), Case("1 M", 256, "ragged", 64, 1, 5),
    Case("5 M", 64, "ragged", 64, 1, 5), Case("5 M", 256, "ragged", 64, 1, 5),
    Case("1 M", 64, "short", 8, 1, 7), Case("1 M", 64, "short", 8, 2, 7), Case("1 M", 256, "short", 8, 1, 7),
    Case("5 M", 64, "short", 8, 1, 7), Case("5 M", 256, "short", 8, 1, 5),
)  # fmt: skip
QUICK = (Case("1 M", 64, "equal", 64, 1, 2), Case("1 M", 64, "ragged", 64, 1, 2), Case("1 M", 64, "short", 8, 1, 3))


def sides(case: Case, directory: Path, trl: str, overrides: tuple[str, ...] = ()) -> tuple[Side, Side]:
    """TRL and mingce, ready for their first step."""
    ends = case.lengths == "ragged"
    model = save(llama(case.model, vocabulary=len(CHARACTERS), window=512), ends, directory / "model")
    write_data(directory)
    asked: dict[str, Any] = {
        "model": str(model), "data": str(directory), "directory": str(directory), "batch": case.batch, "epochs": EPOCHS,
        "minibatches": 1, "length": case.limit, "ends": ends, "lr": 1e-6, "seed": 0, "threads": case.threads,
        "overrides": list(overrides),
    }  # fmt: skip
    return (
        Side(trl, HERE / "turn_trl.py", asked, case.threads),
        Side(sys.executable, HERE / "turn_mingce.py", asked, case.threads),
    )


def measure(case: Case, trl: str, overrides: tuple[str, ...] = ()) -> dict[str, list[dict[str, Any]]]:
    """What both said of every round, the first left out."""
    with tempfile.TemporaryDirectory() as place:
        theirs, ours = sides(case, Path(place), trl, overrides)
        with theirs, ours:
            rounds = [(theirs.step(), ours.step()) for _ in range(1 + case.rounds)][1:]
    return {"trl": [one for one, _ in rounds], "mingce": [one for _, one in rounds]}


def limit_seconds(case: Case, forward: float) -> float:
    """CPU seconds of a step whose forward pass has so many FLOPs, were it nothing but the linear layers' products."""
    model = llama(case.model, vocabulary=len(CHARACTERS), window=512)
    tokens = int(forward / (2.0 * sum(out * into for out, into in linear_weights(model))))
    return forward * (1 + 3 + 3 * 2 * EPOCHS) / matmul_rate(linear_shapes(model, min(tokens, MICRO)))


def run(quick: bool, peers: str | None, wanted: str = "") -> Table:
    """The cases whose name has `wanted` in it."""
    table = Table(
        "end_to_end",
        "A PPO step from end to end against TRL 1.12.0",
        ["model", "batch", "lengths", "limit", "threads", "ratio", "update alone", "TRL CPU s", "mingce CPU s",
         "of the products' limit", "mingce tok/CPU s", "TRL's peak memory (beyond its start)", "mingce's"],
    )  # fmt: skip
    if not has(peers, "trl"):
        table.notes.append("Left out: no Python with trl==1.12.0 was given (`--peers`).")
        return table
    for case in QUICK if quick else CASES:
        if wanted in case.label:
            with table.case(case.label):
                add_row(table, case, measure(case, str(peers)))
    table.notes.append(
        "Four epochs, one minibatch an epoch; mingce with its ledger written at every step and audited, TRL without "
        "logging and saving, bf16 and gradient checkpointing off (both would cost it time here). The start is when the "
        "models are loaded: most of a process's memory are then the libraries. TRL computes all tokens at all layers; "
        "mingce computes once what rows have in common at their beginning, which is much with these prompts (`17+25=`, "
        "seven tokens with the start), and no layer where nobody reads it: about two thirds of all tokens' products on "
        "short answers, three quarters on ragged lengths, nearly all on equal ones."
    )
    return table


def add_row(table: Table, case: Case, said: dict[str, list[dict[str, Any]]]) -> None:
    label = case.label
    seconds = {side: [step["cpu"] for step in steps] for side, steps in said.items()}
    updates = {side: [step["update"] for step in steps] for side, steps in said.items()}
    won, update = ratio(seconds["trl"], seconds["mingce"]), ratio(updates["trl"], updates["mingce"])
    medians = {side: Spread.of(rounds).median for side, rounds in seconds.items()}
    peaks = {side: steps[-1]["peak"] for side, steps in said.items()}
    grown = {side: peaks[side] - steps[0]["base"] for side, steps in said.items()}
    tokens = Spread.of(step["tokens"] for step in said["mingce"]).median
    with pinned(1):
        limit = limit_seconds(case, Spread.of(step["forward"] for step in said["mingce"]).median)
    table.rows.append(
        [case.model, str(case.batch), case.lengths, str(case.limit), str(case.threads), spread(won), spread(update),
         *(number(medians[side]) for side in ("trl", "mingce")), f"{limit / medians['mingce']:.0%}",
         number(tokens / medians["mingce"]),
         *(f"{peaks[side] / 1e6:,.0f} ({grown[side] / 1e6:,.0f}) MB" for side in ("trl", "mingce"))]
    )  # fmt: skip
    table.raw.append({**case._asdict(), "ratio": won, "limit_seconds": limit, "steps": said})
    why = f"The products' limit of this step is {number(medians['trl'] / limit)}×."
    group = f"PPO end to end, {case.lengths} lengths" if case.lengths != "short" else "PPO end to end, 8-token answers"
    table.at_least(label, won.median, WANTED[case.lengths], group=group, peer="TRL 1.12.0 PPO", why=why)
    for what, bytes_of in (("the process's peak memory", peaks), ("peak memory beyond the start", grown)):
        share = bytes_of["mingce"] / bytes_of["trl"]
        table.at_most(f"{label}: share of {what}", share, None, group=f"PPO end to end, share of {what}",
                      peer="TRL 1.12.0 PPO")  # fmt: skip
