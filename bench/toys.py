"""The models and prompts that the tables are measured on: Llama-shaped, random weights, a vocabulary of characters."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

PAD, VOCABULARY = 0, 64
SHAPES: dict[str, dict[str, Any]] = {
    "1 M": {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512},
    "5 M": {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 768},
}


def llama(size: str, vocabulary: int = VOCABULARY, window: int = 4096) -> Any:
    """A model of about so many parameters; at initialisation it draws nearly uniformly."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, max_position_embeddings=window, tie_word_embeddings=False, pad_token_id=PAD,
        bos_token_id=1, eos_token_id=2, **SHAPES[size],
    )  # fmt: skip
    return cast(Any, AutoModelForCausalLM).from_config(config).eval()


def prompts(count: int, length: int, vocabulary: int = VOCABULARY) -> list[list[int]]:
    """Different prompts of one length."""
    generator = torch.Generator().manual_seed(length)
    return cast(list[list[int]], torch.randint(3, vocabulary, (count, length), generator=generator).tolist())


def linear_weights(model: Any) -> list[tuple[int, int]]:
    """(outputs, inputs) of every linear layer, the head included."""
    return [(m.out_features, m.in_features) for m in model.modules() if isinstance(m, nn.Linear)]


def linear_shapes(model: Any, tokens: int) -> list[tuple[int, int, int]]:
    """The products [m, k] × [k, n] of a forward and a backward pass over so many tokens, without attention's own."""
    shapes = []
    for out, into in linear_weights(model):
        shapes += [(tokens, into, out), (tokens, out, into), (out, tokens, into)]
    return shapes
