"""Token rows as one forward pass wants them.

A row is a prompt (a list of ids) and a response (a row of `[B, T]`, right-padded). Two layouts:

    forward_inputs   [pad pad x0 x1 | y0 y1 pad]   prompts end at one column, so that decoding appends to all rows alike
    joined_rows      [x0 x1 y0 y1 pad pad pad]     no gap and no mask: under causal attention the padding behind a row
                                                   cannot be seen from it, so scoring pays for no prompt padding

Padding is marked by masks and lengths only; `pad_id` may be any id, that of a real token included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class ForwardInputs(NamedTuple):
    """Left-padded prompts followed by right-padded responses, all `[B, P + T]`."""

    input_ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor


class JoinedRows(NamedTuple):
    """Rows without gaps, `input_ids [B, W]`, and where to read them.

    `columns [B, T + 1]`: slot t is the column of the token before y_t, from which y_t is predicted and V(s_t) is read;
    the slot behind a row's last token is the column of that token, the state after it. Slots further back repeat
    columns that exist, and mean nothing.
    """

    input_ids: Tensor
    columns: Tensor


def forward_inputs(
    prompt_ids: Sequence[Sequence[int]], token_ids: Tensor, attention_mask: Tensor, pad_id: int
) -> ForwardInputs:
    """Rows of `[B, T]` behind their left-padded prompts, with the mask and the position of every token.

    Positions count the tokens that are there, tool output included: cumsum(mask) − 1, and 0 on padding before a row.
    """
    lengths = _checked_lengths(prompt_ids, token_ids, attention_mask)
    prompt_width = int(lengths.max()) if len(prompt_ids) else 0
    present = torch.arange(prompt_width, device=token_ids.device) >= prompt_width - lengths[:, None]
    prompts = torch.full((len(prompt_ids), prompt_width), pad_id, dtype=torch.long, device=token_ids.device)
    prompts[present] = _flat(prompt_ids, token_ids.device)
    mask = torch.cat([present, attention_mask.bool()], dim=1)
    ids = torch.cat([prompts, token_ids.masked_fill(~attention_mask.bool(), pad_id)], dim=1)
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)
    return ForwardInputs(ids, mask.long(), positions)


def joined_rows(
    prompt_ids: Sequence[Sequence[int]], token_ids: Tensor, attention_mask: Tensor, pad_id: int
) -> JoinedRows:
    """Every prompt directly followed by its response, padded behind; for passes that score what is already there."""
    mask, device = attention_mask.bool(), token_ids.device
    starts = _checked_lengths(prompt_ids, token_ids, attention_mask)[:, None]
    ends = starts + mask.sum(1, keepdim=True)
    width = int(ends.max()) if len(prompt_ids) else 0
    column = torch.arange(width, device=device)
    ids = torch.full((len(prompt_ids), width), pad_id, dtype=torch.long, device=device)
    ids[column < starts] = _flat(prompt_ids, device)
    ids[(column >= starts) & (column < ends)] = token_ids[mask]
    columns = starts - 1 + torch.arange(token_ids.shape[1] + 1, device=device)
    return JoinedRows(ids, columns.clamp(max=max(width - 1, 0)))


def places(input_ids: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """True at the given places of `[B, W]`; they come back row by row if they were given so."""
    marked = torch.zeros(input_ids.shape, dtype=torch.bool, device=input_ids.device)
    marked[rows, columns] = True
    return marked


def _checked_lengths(prompt_ids: Sequence[Sequence[int]], token_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Prompt lengths `[B]`, once the rows are seen to be what the layouts take them for."""
    assert len(prompt_ids) == token_ids.shape[0], f"{len(prompt_ids)} prompts for {token_ids.shape[0]} responses"
    assert token_ids.shape == attention_mask.shape, f"{token_ids.shape} tokens, mask {attention_mask.shape}"
    assert all(len(prompt) for prompt in prompt_ids), "a prompt needs at least one token"
    mask = attention_mask.bool()
    assert bool((mask[:, 1:] <= mask[:, :-1]).all()), "responses must be right-padded: no gap inside attention_mask"
    return torch.tensor([len(prompt) for prompt in prompt_ids], dtype=torch.long, device=token_ids.device)


def _flat(prompt_ids: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    return torch.tensor([token for prompt in prompt_ids for token in prompt], dtype=torch.long, device=device)
