"""One PPO update of the policy, four epochs, against the matrix products in it and against transformers' own pass.

The limit of a side is torch.matmul at the update's own shapes: the linear layers' three products (forward, and two
backward) for the tokens that go through them there (`flops` for mingce, all for transformers), and attention's causal
half at the same rate. What is not a product counts as lost time.
"""

from __future__ import annotations

from typing import Any

import torch
from flops import forward_flops
from measuring import Spread, products, ratio, take_turns
from tables import Table, number, percent, spread
from torch import Tensor, nn
from toys import PAD, linear_shapes, llama, prompts

from mingce.algorithms.losses import BatchTotals, ppo_loss
from mingce.config import Config, LearnerConfig
from mingce.ledger import Ledger
from mingce.models.batching import joined_rows
from mingce.models.log_probs import response_log_probs
from mingce.models.micro_batches import batcher
from mingce.roles.learner import LocalLearner

PROMPT, EPOCHS = 8, 4
MICRO = Config().micro_batch_tokens
CASES = (("1 M", 64, 64), ("1 M", 256, 64), ("5 M", 64, 64), ("1 M", 64, 8))


def make_ledger(rows: int, length: int) -> Ledger:
    """Rollouts of one length with random advantages."""
    tokens = torch.tensor(prompts(rows, length))
    ledger = Ledger(tokens, torch.ones_like(tokens, dtype=torch.bool), rows={"prompt_ids": prompts(rows, PROMPT)})
    generator = torch.Generator().manual_seed(0)
    columns = ("old_log_probs", "scores", "rewards", "values", "advantages")
    return ledger.fill({name: torch.randn(tokens.shape, generator=generator) - 4 for name in columns})


def ours(model: nn.Module, ledger: Ledger, epochs: int = EPOCHS, micro: int = MICRO) -> None:
    """The learner as the actor calls it, one minibatch an epoch."""

    def loss(part: Ledger, totals: BatchTotals) -> tuple[Tensor, dict[str, Tensor]]:
        log_probs, _ = response_log_probs(
            model, part.row("prompt_ids"), part["token_ids"], part["attention_mask"], pad_id=PAD
        )
        return ppo_loss(part["old_log_probs"], log_probs, part["advantages"], part.loss_mask, **totals)

    LocalLearner(model, LearnerConfig(lr=1e-6, epochs=epochs), 1).learn(
        ledger, loss, step=1, seed=0, minibatch_rollouts=len(ledger), batcher=batcher(micro, packed=True)
    )


def plain(model: Any, ledger: Ledger) -> None:
    """The same by transformers' forward pass and a full log_softmax, the whole minibatch at once, as TRL does it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0)
    tokens, mask = ledger["token_ids"], ledger["attention_mask"]
    ids = joined_rows(ledger.row("prompt_ids"), tokens, mask, PAD).input_ids
    for _ in range(EPOCHS):
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits[:, PROMPT - 1 : -1]
        log_probs = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
        ratios = (log_probs - ledger["old_log_probs"]).exp()
        gain = torch.minimum(ratios * ledger["advantages"], ratios.clamp(0.8, 1.2) * ledger["advantages"])
        (-gain.mean()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def floating(model: Any, rows: int, width: int, forward: float | None = None) -> float:
    """FLOPs of one epoch's products over rows of `width` tokens, attention's causal half included.

    `forward`: those of the linear layers in a forward pass, if not all tokens go through all of them.
    """
    tokens, config = rows * (width - 1), model.config  # the last token is no input
    linear = sum(2.0 * m * k * n for m, k, n in linear_shapes(model, tokens)) if forward is None else 3 * forward
    return float(linear + 6.0 * config.num_hidden_layers * config.hidden_size * tokens * width)


def measure(table: Table, size: str, rows: int, length: int, rounds: int) -> None:
    """One row of the table."""
    model, ledger, width = llama(size).train(), make_ledger(rows, length), PROMPT + length
    works = {
        "products": products(linear_shapes(model, min(rows * (width - 1), MICRO))),
        "plain": lambda: plain(model, ledger),
        "mingce": lambda: ours(model, ledger),
    }
    taken = take_turns(works, rounds)
    work = {"plain": floating(model, rows, width)}
    work["mingce"] = floating(model, rows, width, forward_flops(model, ledger, MICRO))
    limit = {side: [EPOCHS * work[side] * seconds for seconds in taken["products"]] for side in work}
    share, other = (ratio(limit[side], taken[side]) for side in ("mingce", "plain"))
    won, rate = ratio(taken["plain"], taken["mingce"]), 1 / Spread.of(taken["products"]).median
    seconds = number(Spread.of(taken["mingce"]).median)
    name = f"{rows} × {length}"
    table.rows.append([size, name, percent(share), percent(other), spread(won), seconds, f"{rate / 1e9:.0f}"])
    table.raw.append({"model": size, "rows": rows, "length": length, "seconds": taken, "limit_seconds": limit})
    table.at_least(f"{size}, {name}: of the matmul limit", 100 * share.median, 70 if length >= 64 else None, " %",
                   group="One update of the policy, share of the matmul limit")  # fmt: skip
    group = "One update of the policy"
    table.at_least(f"{size}, {name}", won.median, None, group=group, peer="transformers' pass, full log_softmax")


def run(quick: bool) -> Table:
    table = Table(
        "update",
        f"One update of the policy, {EPOCHS} epochs, equal lengths, against the matmul limit",
        ["model", "rows × length", "of its limit", "transformers' pass, of its own", "ratio", "mingce CPU s",
         "limit GFLOP/s"],
    )  # fmt: skip
    for size, rows, length in CASES[:1] if quick else CASES:
        with table.case(f"{size}, {rows} × {length}"):
            measure(table, size, rows, length, 3 if quick else 5)
    return table
