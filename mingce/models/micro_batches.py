"""Which rows of a ledger go through a model together: the batcher that suits the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby

import torch
from torch import Tensor

from mingce.base.errors import SettingError
from mingce.ledger import Batcher, Ledger


def batcher(max_tokens: int, *, packed: bool, small: bool = False) -> Batcher:
    """By size within `max_tokens`; `packed` for a model that computes no padding, `small` as there."""
    if not packed:
        return partial(padded_batches, max_tokens=max_tokens)
    return partial(packed_batches, max_tokens=max_tokens, small=small)


def padded_batches(ledger: Ledger, max_tokens: int) -> list[Tensor]:
    """Row indices of parts within `max_tokens` = rows × longest (prompt + response), rows of like length together.

    Each has its longest rows first; a row that is longer than the budget gets a part of its own.
    """
    sizes = _sizes(ledger)
    order = sorted(range(len(ledger)), key=lambda i: -sizes[i])
    # the first row of a part sets its width
    return _parts(order, sizes, max_tokens, lambda row, longest: longest, lambda row, total: False)


def packed_batches(ledger: Ledger, max_tokens: int, small: bool = False) -> list[Tensor]:
    """The same where size is the sum of lengths, rows whose prompts begin alike together: those are computed once.

    A part that is half full ends before a prompt whose rows do not all go into it: it needs less memory then, and the
    prompt is computed once instead of in two parts. A `small` part ends before any prompt once a quarter is used: for
    models whose weights are frozen, which have no gradient of that size to add up after every part.
    """
    sizes, prompts = _sizes(ledger), ledger.rows.get("prompt_ids", [()] * len(ledger))
    order = sorted(range(len(ledger)), key=lambda i: prompts[i])
    whole: dict[int, int] = {}  # of a prompt's rows, by the first of them
    for _, rows in groupby(order, key=lambda i: prompts[i]):
        first, *others = rows
        whole[first] = sizes[first] + sum(sizes[i] for i in others)

    def begins(row: int, total: int) -> bool:
        full = 2 * total >= max_tokens and total + whole.get(row, 0) > max_tokens
        return row in whole and (full or (small and 4 * total >= max_tokens))

    return _parts(order, sizes, max_tokens, lambda row, longest: row, begins)


def _sizes(ledger: Ledger) -> list[int]:
    prompts = ledger.rows.get("prompt_ids", [()] * len(ledger))
    return [int(n) + len(prompt) for n, prompt in zip(ledger.lengths.tolist(), prompts, strict=True)]


def _parts(
    order: list[int],
    sizes: list[int],
    max_tokens: int,
    cost: Callable[[int, int], int],
    begins: Callable[[int, int], bool],
) -> list[Tensor]:
    """Rows in that order, a new part whenever the budget is used up; `cost` of a row's size and the part's first.

    `begins` says of a row, and what the part before it has used, whether it had better begin a new one.
    """
    if max_tokens < 1:
        raise SettingError(f"micro_batch_tokens must be at least 1, but is {max_tokens}.")
    parts: list[list[int]] = []
    total = first = 0
    for i in order:
        more = cost(sizes[i], first)
        if not parts or total + more > max_tokens or begins(i, total):
            parts.append([])
            total, more = 0, max(sizes[i], 1)
            first = more
        total += more
        parts[-1].append(i)
    return [torch.tensor(sorted(part, key=lambda i: -sizes[i])) for part in parts]
