"""A model that fits in a pocket for TRL's trainers: Llama with random weights over the letters, and its tokenizer."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

LETTERS = ["<pad>", "<bos>", "<eos>", *"abcdefghijklmnopqrstuvwxyz"]
EOS = 2


def tokenizer() -> Any:
    letters = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(LETTERS)}, unk_token="<pad>"))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", padding_side="left"
    )


def _shape() -> Any:
    return LlamaConfig(
        vocab_size=len(LETTERS), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=EOS,
    )  # fmt: skip


def tiny_llama(seed: int = 0, ends: float = 0.0) -> Any:
    """The language model; `ends` is added to the logit of the end of text."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(_shape())
    model.lm_head = torch.nn.Linear(model.config.hidden_size, len(LETTERS))
    with torch.no_grad():
        model.lm_head.weight *= 8  # random weights hardly prefer anything
        model.lm_head.bias[:2] = -20.0  # a trained model does not write pads
        model.lm_head.bias[EOS] += ends
    return model


def tiny_critic(seed: int = 1) -> Any:
    torch.manual_seed(seed)
    shape = _shape()
    shape.num_labels = 1
    return LlamaForSequenceClassification(shape)
