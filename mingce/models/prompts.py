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
    return render_prompts(tokenizer, [prompt])[0]


def render_prompts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str | Sequence[Message]]) -> list[list[int]]:
    """The ids of several; texts are encoded all at once, which takes a fraction of the time."""
    texts = iter(_text_ids(tokenizer, [prompt for prompt in prompts if isinstance(prompt, str)]))
    rendered = [next(texts) if isinstance(prompt, str) else _chat_ids(tokenizer, prompt) for prompt in prompts]
    if not all(rendered):
        raise ModelError("a prompt has no tokens; give it at least one character.")
    return rendered


def default_stop_ids(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The end tokens that the tokenizer and the model's own generation settings name."""
    named = getattr(base_causal_lm(model).generation_config, "eos_token_id", None)
    ids = {tokenizer.eos_token_id, *([named] if isinstance(named, int) else named or ())}
    if odd := [i for i in ids if i is not None and not isinstance(i, int)]:
        raise ModelError(f"generation_config.json names {odd[0]!r} as an end token, which is no id; give a number.")
    return tuple(sorted(ids - {None}))


def _text_ids(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
    """With the begin token if the tokenizer adds one, never two of them, and with no end token behind."""
    plain = _encode(tokenizer, texts, special=False)
    if not tokenizer.num_special_tokens_to_add():
        return plain
    begin, end = tokenizer.bos_token_id, tokenizer.eos_token_id

    def joined(bare: list[int], ids: list[int]) -> list[int]:
        end_was_added = ids[-1:] == [end] and bare[-1:] != ids[-1:]
        return bare if bare and bare[0] == begin else ids[:-1] if end_was_added else ids

    return [joined(*both) for both in zip(plain, _encode(tokenizer, texts, special=True), strict=True)]


def _chat_ids(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
    if tokenizer.chat_template is None:
        raise ModelError("the prompt is a chat, but the tokenizer has no chat template; give the prompt as text.")
    with library_errors(
        "the tokenizer's chat template cannot render a prompt", "check the roles and contents of its messages"
    ):
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, tokenize=False
        )
    return _encode(tokenizer, [cast(str, text)], special=False)[0]  # the template has written the begin token itself


def _encode(tokenizer: PreTrainedTokenizerBase, texts: list[str], *, special: bool) -> list[list[int]]:
    if not texts:
        return []
    options: dict[str, Any] = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
    return cast(list[list[int]], tokenizer(texts, add_special_tokens=special, **options)["input_ids"])
