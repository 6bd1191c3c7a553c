"""Log-probs and entropies with their backward pass: ours against a full log_softmax of every position's logits.

Time is of the whole pass of a 1 M model with a large vocabulary; memory counts every tensor's storage while it lives,
the weights and their gradients not.
"""

from __future__ import annotations

from typing import Any

import torch
from measuring import Spread, Work, matmul_rate, ratio, take_turns
from plan_memory import Live
from tables import Table, number, spread
from torch import Tensor
from toys import PAD, linear_shapes, llama, prompts

from mingce.models.batching import joined_rows
from mingce.models.log_probs import response_log_probs

ROWS, PROMPT, LENGTH = 32, 16, 64
PEER = "a full log_softmax"


def naive(model: Any, asked: list[list[int]], tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """All logits, a log_softmax over them, the taken one of each, and the entropy."""
    joined = joined_rows(asked, tokens, mask, PAD)
    logits = model(input_ids=joined.input_ids, use_cache=False).logits[:, PROMPT - 1 : -1]
    every = logits.float().log_softmax(-1)
    return every.gather(-1, tokens[..., None])[..., 0], -(every.exp() * every).sum(-1)


def peak_bytes(model: Any, work: Work) -> int:
    """The most that a pass adds to weights and gradients."""
    model.zero_grad(set_to_none=False)
    with Live([*model.parameters(), *(parameter.grad for parameter in model.parameters())]) as live:
        work()
    return int(live.peak)


def measure(table: Table, vocabulary: int, rounds: int) -> None:
    """One row of the table."""
    model = llama("1 M", vocabulary)
    asked, tokens = prompts(ROWS, PROMPT, vocabulary), torch.tensor(prompts(ROWS, LENGTH, vocabulary))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    weights = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(0))

    def ours() -> tuple[Tensor, Tensor]:
        return response_log_probs(model, asked, tokens, mask, pad_id=PAD)

    def theirs() -> tuple[Tensor, Tensor]:
        return naive(model, asked, tokens, mask)

    def back(pair: tuple[Tensor, Tensor]) -> None:
        ((pair[0] * weights).mean() + 0.01 * pair[1].mean()).backward()

    works: dict[str, Work] = {"naive": lambda: back(theirs()), "mingce": lambda: back(ours())}
    taken = take_turns(works, rounds)
    peaks = {name: peak_bytes(model, work) for name, work in works.items()}
    with torch.no_grad():
        apart = max(float((a - b).abs().max()) for a, b in zip(theirs(), ours(), strict=True))
    won, share = ratio(taken["naive"], taken["mingce"]), peaks["mingce"] / peaks["naive"]
    seconds = [number(Spread.of(taken[side]).median) for side in works]
    megabytes = [number(peaks[side] / 1e6) for side in works]
    table.rows.append([f"{vocabulary:,}", spread(won), *seconds, f"1/{1 / share:.0f}", *megabytes, f"{apart:.0e}"])
    table.raw.append({"vocabulary": vocabulary, "seconds": taken, "peak_bytes": peaks})
    name, products = f"vocabulary {vocabulary:,}", linear_shapes(model, ROWS * LENGTH)
    fastest = sum(2.0 * m * k * n for m, k, n in products) / matmul_rate(products, times=1)
    most = Spread.of(taken["naive"]).median / fastest
    why = f"Its linear layers' products alone would be {number(most)}×."
    table.at_least(f"{name}: time", won.median, 1.5, group="Log-probs, entropy and backward, time", peer=PEER, why=why)
    group = "Log-probs, entropy and backward, share of peak memory"
    table.at_most(f"{name}: share of peak memory", share, 1 / 8, group=group, peer=PEER)


def run(quick: bool) -> Table:
    table = Table(
        "log_probs",
        f"Log-probs and entropies with backward, {ROWS} × {LENGTH} tokens, against {PEER}",
        ["vocabulary", "time", "naive CPU s", "mingce CPU s", "memory", "naive MB", "mingce MB", "largest difference"],
    )
    for vocabulary in (32_000,) if quick else (32_000, 49_152, 151_936):
        with table.case(f"vocabulary {vocabulary:,}"):
            measure(table, vocabulary, 3 if quick else 5)
    return table
