"""Several data files in given shares: which example stands at which place of the run, a function of the seed alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mingce.base.errors import DataError
from mingce.tasks.base import Example
from mingce.tasks.data import Sliced

Order = Callable[[int, int, int], Sequence[int]]
"""The numbers below a count in the order of an epoch, by (count, seed, epoch)."""


class Mixed(Sliced):
    """Examples of several files, of which file k has a share `weights[k]` of every stretch of the run.

    Whose turn it is goes by the file that is furthest behind its share, so that shares hold in every step as nearly as
    whole prompts can; each file goes through epochs of its own.
    """

    def __init__(self, examples: Sliced, weights: Sequence[float]) -> None:
        self._examples = examples
        self._files: list[list[int]] = [[] for _ in weights]
        for index in range(len(examples)):
            self._files[examples.file_of(index)].append(index)
        for number, (file, weight) in enumerate(zip(self._files, weights, strict=True), 1):
            if weight > 0 and not file:
                raise DataError(
                    f"file {number} of data.train has no prompt that fits; give it the weight 0, or mend it."
                )
        self._shares = [weight / sum(weights) for weight in weights]
        self._turns: list[tuple[int, int]] = []
        self._taken = [0] * len(weights)

    def __len__(self) -> int:
        return len(self._examples)

    def at(self, index: int) -> Example:
        return self._examples.at(index)

    def file_of(self, index: int) -> int:
        return self._examples.file_of(index)

    def place(self, position: int, seed: int, order: Order) -> int:
        """The index of the example at a position of the run, from 0 on."""
        file, number = self._turn(position)
        count = len(self._files[file])
        return self._files[file][order(count, seed + file, number // count)[number % count]]

    def _turn(self, position: int) -> tuple[int, int]:
        """Which file is at that position, and how many of its examples came before."""
        while len(self._turns) <= position:
            done = len(self._turns) + 1
            behind = [share * done - taken for share, taken in zip(self._shares, self._taken, strict=True)]
            file = max(range(len(behind)), key=lambda number: (self._shares[number] > 0, behind[number], -number))
            self._turns.append((file, self._taken[file]))
            self._taken[file] += 1
        return self._turns[position]
