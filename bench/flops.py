"""How much of a model's matrix products mingce's passes compute: what a share of the machine's limit is a share of.

A state that rows have in common is computed once, the first layer reads every kind of token once, and of the last layer
and the head only the states are computed that predict a response token.
"""

from __future__ import annotations

from typing import Any

import torch

from mingce.ledger import Ledger
from mingce.models.batching import joined_rows
from mingce.models.cpu.layout import layout_of
from mingce.models.micro_batches import packed_batches


def forward_flops(model: Any, ledger: Ledger, micro_batch_tokens: int) -> float:
    """Of the linear layers' products in one forward pass over a ledger, head included, attention's own not."""
    layers = model.model.layers
    attention, mlp = layers[0].self_attn, layers[0].mlp
    reads = sum(one.weight.numel() for one in (attention.q_proj, attention.k_proj, attention.v_proj))
    rest = sum(one.weight.numel() for one in (attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj))
    products = 0
    for indices in packed_batches(ledger, micro_batch_tokens):
        part = ledger.select(indices).trim()
        mask, prompts = part["attention_mask"], part.row("prompt_ids")
        ids = joined_rows(prompts, part["token_ids"], mask, 0).input_ids
        starts = torch.tensor([len(prompt) for prompt in prompts])
        lengths, column = starts + mask.sum(1) - 1, torch.arange(ids.shape[1])
        layout, present = layout_of(ids, lengths), column < lengths[:, None]
        states, kinds = int(layout.first.sum()), len(torch.unique(ids[present]))
        asked = len(torch.unique(torch.from_numpy(layout.states)[(column >= starts[:, None] - 1)[present]]))
        whole = states * (len(layers) - 1)
        products += reads * (kinds + whole) + rest * (whole + asked) + model.lm_head.weight.numel() * int(mask.sum())
    return 2.0 * products
