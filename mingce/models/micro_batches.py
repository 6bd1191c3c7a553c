"""Which rows of a ledger go through a model together: the batcher that suits the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby

import torch
from torch import Tensor

from mingce.base.errors import SettingError
from mingce.ledger import Batcher, Ledger


def batcher(max_tokens: int, *, packed: bool) -> Batcher:
    """By size within `max_tokens`; `packed` for a model that computes no padding."""
    return partial(packed_batches if packed else padded_batches, max_tokens=max_tokens)


def padded_batches(ledger: Ledger, max_tokens: int) -> list[Tensor]:
    """Row indices of parts within `max_tokens` = rows × longest (prompt + response), rows of like length together.

    Each has its longest rows first; a row that is longer than the budget gets a part of its own.
    """
    sizes = _sizes(ledger)
    order = sorted(range(len(ledger)), key=lambda i: -sizes[i])
    return _parts(order, sizes, max_tokens, lambda row, longest: longest, sizes)  # a part's first row sets its width


def packed_batches(ledger: Ledger, max_tokens: int) -> list[Tensor]:
    """The same where size is the sum of lengths, rows whose prompts begin alike together: those are computed once.

    A part that is half full ends before a prompt whose rows do not all go into it: it needs less memory then, and the
    prompt is computed once instead of in two parts.
    """
    sizes, prompts = _sizes(ledger), ledger.rows.get("prompt_ids", [()] * len(ledger))
    order = sorted(range(len(ledger)), key=lambda i: prompts[i])
    needed = list(sizes)
    for _, rows in groupby(order, key=lambda i: prompts[i]):
        first, *others = rows
        needed[first] += sum(sizes[i] for i in others)
    return _parts(order, sizes, max_tokens, lambda row, longest: row, needed)


def _sizes(ledger: Ledger) -> list[int]:
    prompts = ledger.rows.get("prompt_ids", [()] * len(ledger))
    return [int(n) + len(prompt) for n, prompt in zip(ledger.lengths.tolist(), prompts, strict=True)]


def _parts(
    order: list[int], sizes: list[int], max_tokens: int, cost: Callable[[int, int], int], needed: list[int]
) -> list[Tensor]:
    """Rows in that order, a new part whenever the budget is used up; `cost` of a row's size and the part's first.

    It is used up, too, where half of it is and what a row `needed` with those that belong to it is more than the rest.
    """
    if max_tokens < 1:
        raise SettingError(f"micro_batch_tokens must be at least 1, but is {max_tokens}.")
    parts: list[list[int]] = []
    total = first = 0
    for i in order:
        more = cost(sizes[i], first)
        apart = needed[i] > sizes[i] and 2 * total >= max_tokens and total + needed[i] > max_tokens
        if not parts or apart or total + more > max_tokens:
            parts.append([])
            total, first = 0, max(sizes[i], 1)
            more = first
        total += more
        parts[-1].append(i)
    return [torch.tensor(sorted(part, key=lambda i: -sizes[i])) for part in parts]
