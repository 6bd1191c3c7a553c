"""Which rank works on which rows: shares of like size in tokens, the same on every rank without asking.

Sharded models gather their weights in every pass, all ranks together, so all must make the same number of passes: a
share with fewer micro-batches than the largest has idle passes, which compute nothing that counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mingce.ledger import Batcher, Ledger


class Place(NamedTuple):
    """Which of how many."""

    rank: int
    ranks: int


def balanced(sizes: Sequence[int], ranks: int) -> list[list[int]]:
    """The numbers 0 … len(sizes) − 1 in `ranks` shares whose sizes sum to about the same, each in order.

    Largest first, each to the smallest share so far: no share exceeds the mean by more than one item.
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    smallest = [(0, rank) for rank in range(ranks)]
    for item in sorted(range(len(sizes)), key=lambda item: -sizes[item]):
        size, rank = heapq.heappop(smallest)
        shares[rank].append(item)
        heapq.heappush(smallest, (size + sizes[item], rank))
    return [sorted(share) for share in shares]


def row_shares(ledger: Ledger, ranks: int) -> list[list[int]]:
    """The ledger's rows, balanced by the tokens of prompt and response."""
    sizes = [int(n) + len(ids) for n, ids in zip(ledger.lengths.tolist(), ledger.row("prompt_ids"), strict=True)]
    return balanced(sizes, ranks)


class Share(Ledger):
    """One rank's rows of a ledger. Every `by_micro_batch` makes as many passes as that of any other rank."""

    def __init__(self, whole: Ledger, place: Place):
        self._whole, self._shares = whole, row_shares(whole, place.ranks)
        self.whole_rows = torch.tensor(self._shares[place.rank], dtype=torch.long)
        mine = whole.select(self.whole_rows)
        self._columns, self.rows = mine.columns(), mine.rows

    def passes(self, batcher: Batcher) -> int:
        """Passes of every rank."""
        lengths = self._whole.only()
        return max(len(batcher(lengths.select(share))) for share in self._shares)

    def by_micro_batch(self, batcher: Batcher, compute: Callable[[Ledger], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """As for any ledger; idle passes follow, on one row that enters no loss."""
        columns = super().by_micro_batch(batcher, compute)
        for _ in range(self.passes(batcher) - len(batcher(self))):
            for name, values in compute(self._idle()).items():
                shape = (len(self), self.width)[: values.dim()]
                columns.setdefault(name, values.new_zeros(shape))  # a rank without rows has columns without rows
        return columns

    def _idle(self) -> Ledger:
        row = self._whole.select([int(self._whole.lengths.argmax())])
        return row.fill({"loss_mask": torch.zeros_like(row.mask)}).trim()
