"""Hidden states of whole rows: by the passes of our own where they are made for the model, else by transformers."""

from __future__ import annotations

from torch import Tensor, nn

from mingce.models import cpu


def hidden_states(model: nn.Module, input_ids: Tensor, wanted: Tensor) -> Tensor:
    """The last hidden states `[wanted, H]` at the marked places of `[B, W]`, row by row.

    Rows have no padding before or between their tokens. `model` is the part without the output layer.
    """
    if cpu.supports(model) and input_ids.shape[1] <= cpu.reach(model):
        return cpu.hidden_states(model, input_ids, wanted)
    states: Tensor = model(input_ids=input_ids, use_cache=False).last_hidden_state
    return states[wanted]
