"""How the tokens of rows stand in a pass that computes no padding: as states one below the other.

Under causal attention a token's hidden state is made of the tokens up to it and of nothing else. Rows that begin alike
go through the same states there: the samples of one prompt, prompts with one system message, and samples that say the
same for a while. Such a state is computed once. Attention alone is every row's own, done for rows of like length
together, padded to the longest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

Array = np.ndarray[Any, Any]


class Layout(NamedTuple):
    """B rows of N tokens, row by row, that are in S states."""

    lengths: Array
    """`[B]`: how many tokens a row has."""
    states: Array
    """`[N]`: the number of a token's state; states are numbered as they first appear."""
    first: Array
    """`[N]`: whether no token before it is in this state."""
    groups: list[slice]
    """Neighbouring rows that are attended together. Rows without tokens are in none."""
    widths: Array
    """`[B]`: the length of the first row of its group, which is the longest."""
    places: int
    """Σ widths: tokens and the padding that attention has."""

    @property
    def indices(self) -> tuple[Array, Array, Array, Array]:
        """What the compiled loops read of it."""
        return self.lengths, self.widths, self.states, self.first


def layout_of(ids: Tensor, lengths: Tensor) -> Layout:
    """Of the first `lengths [B]` tokens of rows `[B, W]`. Long rows should come first, for groups are of neighbours."""
    counts = lengths.numpy()
    states, first = _states(ids.numpy(), counts)
    groups, widths = [group for group in _groups(counts.tolist()) if counts[group.start]], np.zeros_like(counts)
    for group in groups:
        widths[group] = counts[group.start]
    return Layout(counts, states, first, groups, widths, int(widths.sum()))


def _states(ids: Array, lengths: Array) -> tuple[Array, Array]:
    """`states` and `first`: a state is shared by tokens up to which all tokens of their rows are equal."""
    rows, width = ids.shape
    present = np.arange(width) < lengths[:, None]
    tokens = np.where(present, ids, -1)
    lists = tokens.tolist()
    order = sorted(range(rows), key=lambda row: lists[row])  # rows that begin alike become neighbours
    differ = tokens[order[1:]] != tokens[order[:-1]]
    alike = np.where(differ.any(1), differ.argmax(1), width)
    places = np.arange(rows * width).reshape(rows, width)  # a state by the name of a place that is in it
    for row, neighbour, shared in zip(order[1:], order[:-1], alike, strict=True):
        places[row, :shared] = places[neighbour, :shared]
    named = places[present]
    token = np.arange(len(named))
    earliest = np.empty(rows * width, np.int64)
    earliest[named[::-1]] = token[::-1]  # of all that are written, the last stays
    first = earliest[named] == token
    return (first.cumsum() - 1)[earliest[named]], first


def _groups(lengths: Sequence[int]) -> list[slice]:
    """Neighbouring rows of which none is shorter than 0.7 of the first, nor longer than it."""
    firsts = [0]
    for row, length in enumerate(lengths):
        if not 0.7 * lengths[firsts[-1]] <= length <= lengths[firsts[-1]]:
            firsts.append(row)
    return [slice(begin, end) for begin, end in zip(firsts, [*firsts[1:], len(lengths)], strict=True)]
