"""How a step grows: time over response length and over the number of rollouts, memory over that of micro-batches.

A step here is drawing, scoring and one epoch of updates by the functions the trainer calls, 1 M model. The time of
attention alone, which reads every earlier token, is clocked in the step and taken off before the exponent is fitted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
from measuring import Spread, Work, growth, take_turns
from plan_memory import Live
from tables import Table, number
from toys import PAD, llama, prompts
from update import MICRO, PROMPT, make_ledger, ours

from mingce.ledger import Ledger
from mingce.models.cpu import decoder, layer
from mingce.models.log_probs import response_log_probs
from mingce.models.micro_batches import packed_batches
from mingce.models.sampling import Sampling, generate

LENGTHS = [(8, length) for length in (128, 256, 512, 1024, 2048)]
BATCHES = [(rows, 32) for rows in (64, 128, 256, 512)]
MICRO_BATCHES = (1, 2, 4, 8)


def step(model: Any, ledger: Ledger) -> None:
    """As many responses as the ledger has, drawn; its own scored and learnt from."""
    rows, length = len(ledger), ledger.width
    generate(model, prompts(rows, PROMPT), Sampling(max_new_tokens=length), seeds=range(rows), pad_id=PAD)
    with torch.no_grad():
        for part in (ledger.select(rows) for rows in packed_batches(ledger, MICRO)):
            response_log_probs(model, part.row("prompt_ids"), part["token_ids"], part["attention_mask"], pad_id=PAD)
    ours(model, ledger, epochs=1)


class AttentionClock(ExitStack):
    """CPU seconds in attention while it is entered: the decoder's reading, and passes over rows there and back."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        places: list[tuple[Any, str]] = [(decoder, "_attention")]
        places += [(kind, name) for kind in (layer._Whole, layer._ByPieces) for name in ("__init__", "backward")]
        for place, name in places:
            self.enter_context(mock.patch.object(place, name, self._timed(getattr(place, name))))

    def _timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            begin = time.process_time()
            made = work(*given)
            self.seconds += time.process_time() - begin
            return made

        return timed


def add_growth(table: Table, what: str, shapes: list[tuple[int, int]], rounds: int) -> None:
    """Rows of the table for steps of these shapes, which take turns too, so that a busy minute bends no curve."""
    model = llama("1 M")
    attention: dict[str, list[float]] = {}

    def work(name: str, rows: int, length: int) -> Work:
        ledger = make_ledger(rows, length)

        def clocked() -> None:
            with AttentionClock() as clock:
                step(model, ledger)
            attention.setdefault(name, []).append(clock.seconds)

        return clocked

    taken = take_turns({f"{r} × {n}": work(f"{r} × {n}", r, n) for r, n in shapes}, rounds)
    seconds, alone = ([Spread.of(of[name]).median for name in taken] for of in (taken, attention))
    tokens = [rows * length for rows, length in shapes]
    rest = [whole - part for whole, part in zip(seconds, alone, strict=True)]
    for name, count, whole, part in zip(taken, tokens, seconds, alone, strict=True):
        table.rows.append([what, name, number(whole), f"{part / whole:.0%}", number(1e6 * whole / count)])
    table.raw.append({"over": what, "shapes": shapes, "seconds": taken, "attention_seconds": attention})
    table.at_most(f"over {what}, beyond attention: fitted exponent", growth(tokens, rest), 1.1,
                  group="Growth of a step's time over its tokens, fitted exponent")  # fmt: skip
    table.notes.append(f"With attention's own term the exponent over {what} is {growth(tokens, seconds):.2f}.")


def add_memory(table: Table) -> None:
    """Peak memory of updates that differ in their number of micro-batches only."""
    model, peaks = llama("1 M"), []
    for count in MICRO_BATCHES:
        ledger = make_ledger(count * 16, 64)
        with Live([*model.parameters(), *ledger.columns().values()]) as live:
            ours(model, ledger, epochs=1, micro=16 * (PROMPT + 64))
        peaks.append(live.peak)
    table.raw.append({"micro_batches": MICRO_BATCHES, "peak_bytes": peaks})
    times = MICRO_BATCHES[-1] // MICRO_BATCHES[0]
    what = f"peak memory of {times} times as many micro-batches, as a multiple"
    table.at_most(what, peaks[-1] / peaks[0], 1.25, "×", group="An update's " + what)


def run(quick: bool) -> Table:
    table = Table(
        "growth",
        "Growth of a step, 1 M model",
        ["over", "rollouts × length", "step CPU s", "of it attention", "CPU µs a token"],
    )
    for what, shapes in (("response length", LENGTHS), ("rollouts", BATCHES)):
        with table.case(what):
            add_growth(table, what, shapes[: 2 if quick else None], 3 if quick else 5)
    with table.case("memory"):
        add_memory(table)
    return table
