"""How a step grows: time over response length and over the number of rollouts, memory over that of micro-batches.

A step here is drawing, scoring and one epoch of updates by the functions the trainer calls, 1 M model. The time of
attention alone, measured on tensors of the same shapes, is taken off before the exponent over length is fitted.
"""

from __future__ import annotations

from typing import Any

import torch
from measuring import Spread, Work, growth, take_turns
from plan_memory import Live
from tables import Table, number
from toys import PAD, llama, prompts
from update import MICRO, PROMPT, make_ledger, ours

from mingce.ledger import Ledger
from mingce.models.log_probs import response_log_probs
from mingce.models.sampling import Sampling, generate

LENGTHS = [(8, length) for length in (128, 256, 512, 1024, 2048)]
BATCHES = [(rows, 32) for rows in (64, 128, 256, 512)]
MICRO_BATCHES = (1, 2, 4, 8)


def step(model: Any, ledger: Ledger) -> None:
    """As many responses as the ledger has, drawn; its own scored and learnt from."""
    rows, length = len(ledger), ledger.width
    generate(model, prompts(rows, PROMPT), Sampling(max_new_tokens=length), seeds=range(rows), pad_id=PAD)
    with torch.no_grad():
        for part in (ledger.select(rows) for rows in ledger.micro_batches(MICRO)):
            response_log_probs(model, part.row("prompt_ids"), part["token_ids"], part["attention_mask"], pad_id=PAD)
    ours(model, ledger, epochs=1)


def attention_seconds(model: Any, rows: int, length: int) -> float:
    """CPU seconds of a step's attention: two passes over whole rows, one with gradients, and the decoder's reading."""
    config, width = model.config, PROMPT + length
    heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    q, k, v = (torch.randn(1, heads, width, size, requires_grad=True) for _ in range(3))

    def attend() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    half = slice(width // 2)  # what the decoder reads at a step, on average

    def read() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q[:, :, :1], k[:, :, half], v[:, :, half])

    works: dict[str, Work] = {"both": lambda: attend().sum().backward()}  # type: ignore[no-untyped-call]
    seconds = take_turns(works, 3)
    with torch.no_grad():
        seconds |= take_turns({"once": attend, "reading": read}, 3)
    both, once, reading = (min(seconds[name]) for name in ("both", "once", "reading"))
    return float(rows * config.num_hidden_layers * (both + once + length * reading))


def add_growth(table: Table, what: str, shapes: list[tuple[int, int]], rounds: int) -> None:
    """Rows of the table for steps of these shapes, which take turns too, so that a busy minute bends no curve."""
    model = llama("1 M")

    def work(rows: int, length: int) -> Work:
        ledger = make_ledger(rows, length)
        return lambda: step(model, ledger)

    taken = take_turns({f"{rows} × {length}": work(rows, length) for rows, length in shapes}, rounds)
    seconds = [Spread.of(one).median for one in taken.values()]
    tokens = [rows * length for rows, length in shapes]
    longer = shapes[0][1] != shapes[-1][1]  # attention is linear in rows
    alone = [attention_seconds(model, *shape) if longer else 0.0 for shape in shapes]
    rest = [whole - min(part, 0.9 * whole) for whole, part in zip(seconds, alone, strict=True)]
    for name, count, whole, part in zip(taken, tokens, seconds, alone, strict=True):
        share = f"{part / whole:.0%}" if longer else ""
        table.rows.append([what, name, number(whole), share, number(1e6 * whole / count)])
    table.raw.append({"over": what, "shapes": shapes, "seconds": taken, "attention_seconds": alone})
    beyond = ", beyond attention" if longer else ""
    table.at_most(f"over {what}{beyond}: fitted exponent", growth(tokens, rest), 1.1,
                  group="Growth of a step's time over its tokens, fitted exponent")  # fmt: skip
    if longer:
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
