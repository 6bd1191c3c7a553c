"""Prompts as ids, exactly as the model gets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import nn
from transformers import PreTrainedTokenizerBase

from mingce.base.errors import ModelError
from mingce.models.library_errors import library_errors
from mingce.models.lora import base_causal_lm

Message = Mapping[str, Any]
"""One turn of a chat: role and content."""


def render_prompt(tokenizer: PreTrainedTokenizerBase, prompt: str | Sequence[Message]) -> list[int]:
    """The ids of a prompt: text as it is, chat messages through the tokenizer's template, ready for the answer."""
    ids = _text_ids(tokenizer, prompt) if isinstance(prompt, str) else _chat_ids(tokenizer, prompt)
    if not ids:
        raise ModelError("a prompt has no tokens; give it at least one character.")
    return ids


def default_stop_ids(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The end tokens that the tokenizer and the model's own generation settings name."""
    named = getattr(base_causal_lm(model).generation_config, "eos_token_id", None)
    ids = {tokenizer.eos_token_id, *([named] if isinstance(named, int) else named or ())}
    if odd := [i for i in ids if i is not None and not isinstance(i, int)]:
        raise ModelError(f"generation_config.json names {odd[0]!r} as an end token, which is no id; give a number.")
    return tuple(sorted(ids - {None}))


def _text_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """With the begin token if the tokenizer adds one, never two of them, and with no end token behind."""
    bare = _encode(tokenizer, text, special=False)
    if bare and bare[0] == tokenizer.bos_token_id:
        return bare
    ids = _encode(tokenizer, text, special=True)
    end_was_added = ids[-1:] == [tokenizer.eos_token_id] and bare[-1:] != ids[-1:]
    return ids[:-1] if end_was_added else ids


def _chat_ids(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
    if tokenizer.chat_template is None:
        raise ModelError("the prompt is a chat, but the tokenizer has no chat template; give the prompt as text.")
    with library_errors(
        "the tokenizer's chat template cannot render a prompt", "check the roles and contents of its messages"
    ):
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, tokenize=False
        )
    return _encode(tokenizer, cast(str, text), special=False)  # the template has written the begin token itself


def _encode(tokenizer: PreTrainedTokenizerBase, text: str, *, special: bool) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=special, verbose=False))
