"""Which tokens of rows are in the same state, so that it is computed once.

Under causal attention a token's hidden state is made of the tokens up to it and of nothing else. Rows that begin alike
go through the same states there: the samples of one prompt, prompts with one system message, and samples that say the
same for a while. The saving is in everything but attention itself, which every row does for itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Prefixes(NamedTuple):
    """Rows' tokens one below the other, row by row, and the state each is in."""

    lengths: Tensor
    """`[B]`: how many tokens a row has."""
    states: Tensor
    """`[N]`: the number of a token's state; states are numbered as they first appear."""
    first: Tensor
    """`[N]`: whether no token before it is in this state."""


def shared_prefixes(ids: Tensor, lengths: Tensor) -> Prefixes:
    """The states of the first `lengths [B]` tokens of rows `[B, W]`: equal where all tokens up to there are equal."""
    rows, width = ids.shape
    present = np.arange(width) < lengths.numpy()[:, None]
    tokens = np.where(present, ids.numpy(), -1)
    order = np.lexsort(tokens.T[::-1])  # rows that begin alike become neighbours
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
    return Prefixes(lengths, torch.from_numpy((first.cumsum() - 1)[earliest[named]]), torch.from_numpy(first))
