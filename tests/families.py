"""Tiny random models of the families mingce supports, and a tokenizer for them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

VOCABULARY, WINDOW, PAD, BOS, EOS = 61, 48, 0, 1, 2
_IDS: dict[str, Any] = {"pad_token_id": None, "bos_token_id": BOS, "eos_token_id": EOS}
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": WINDOW,
    **_IDS,
}

FAMILIES: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**_SHAPE, num_key_value_heads=2),
    "qwen2": Qwen2Config(**_SHAPE, num_key_value_heads=2),
    "qwen3": Qwen3Config(**_SHAPE, num_key_value_heads=2, head_dim=8),
    "mistral": MistralConfig(**_SHAPE, num_key_value_heads=2, sliding_window=None),
    "phi3": Phi3Config(**_SHAPE, num_key_value_heads=2, sliding_window=None),
    "smollm3": SmolLM3Config(**_SHAPE, num_key_value_heads=2, no_rope_layers=[1, 0]),
    "gpt2": GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=WINDOW, **_IDS),
    "gpt_neox": GPTNeoXConfig(**_SHAPE),
}

each_family = pytest.mark.parametrize("family", FAMILIES)


def build(config: PretrainedConfig, scale: float = 0.3) -> Any:
    """A random model whose weights are large enough that its distributions are far from uniform."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, scale)
    return model


def family_model(name: str) -> Any:
    """A random model of a family."""
    return build(copy.deepcopy(FAMILIES[name]))  # a test may change its model's settings


def ragged_prompts(count: int, longest: int = 9) -> list[list[int]]:
    """Prompts of 1 to `longest` ids, of every length in turn."""
    generator = torch.Generator().manual_seed(count)
    lengths = [1 + (5 * index) % longest for index in range(count)]
    return [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


def character_tokenizer(*, adds: str = "", **special: Any) -> PreTrainedTokenizerFast:
    """Letters as tokens; `adds` is what it puts around a text, as "<bos> $A"."""
    tokens = ["<pad>", "<bos>", "<eos>", *"abcdefghijklmnopqrstuvwxyz"]
    raw = Tokenizer(models.WordLevel({token: index for index, token in enumerate(tokens)}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if adds:
        ids = [("<bos>", BOS), ("<eos>", EOS)]
        raw.post_processor = processors.TemplateProcessing(single=adds, special_tokens=ids)
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<bos>", eos_token="<eos>", **special)
