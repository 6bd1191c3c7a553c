"""Llama-shaped models in float32 on the CPU, computed by compiled loops around torch's matrix products.

    supports(model), reach(model)       whether a model is one that is computed here, and for how long rows
    hidden_states(model, ids, wanted)   the last hidden states of whole rows, with gradients
    Decoder(model, positions)           rows that grow by a token at a time

Everything else goes through transformers (`mingce.models.forward`, `mingce.models.cache`).
"""

from __future__ import annotations

from mingce.models.cpu.decoder import Decoder
from mingce.models.cpu.families import reach, supports
from mingce.models.cpu.model import hidden_states

__all__ = ["Decoder", "hidden_states", "reach", "supports"]
