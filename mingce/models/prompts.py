"""Prompts as ids, exactly as the model gets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, cast

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from torch import nn
from transformers import PreTrainedTokenizerBase

from mingce.base.errors import ModelError, SettingError, UnknownNameError
from mingce.models.library_errors import library_errors
from mingce.models.lora import base_causal_lm

Message = Mapping[str, Any]
"""One turn of a chat: role and content."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
GIVEN = {"messages", "tools", "add_generation_prompt", "tokenize", "raise_exception", "strftime_now"}
"""What a template reads that no person gives."""


def render_prompt(
    tokenizer: PreTrainedTokenizerBase, prompt: str | Sequence[Message], template: Mapping[str, Any] = NOTHING
) -> list[int]:
    """The ids of a prompt: text as it is, chat messages through the tokenizer's template, ready for the answer.

    `template` are arguments of the template, such as enable_thinking.
    """
    return render_prompts(tokenizer, [prompt], template)[0]


def render_prompts(
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str | Sequence[Message]],
    template: Mapping[str, Any] = NOTHING,
) -> list[list[int]]:
    """The ids of several; texts are encoded all at once, which takes a fraction of the time."""
    texts = iter(_text_ids(tokenizer, [prompt for prompt in prompts if isinstance(prompt, str)]))
    rendered = [
        next(texts) if isinstance(prompt, str) else _chat_ids(tokenizer, prompt, template) for prompt in prompts
    ]
    if not all(rendered):
        raise ModelError("a prompt has no tokens; give it at least one character.")
    return rendered


def check_template_arguments(tokenizer: PreTrainedTokenizerBase, template: Mapping[str, Any]) -> None:
    """An argument that the chat template does not read is an error that offers the nearest one it reads."""
    if not template:
        return
    setting = "data.chat_template_kwargs"
    if tokenizer.chat_template is None:
        raise SettingError(f"{setting} is given, but the tokenizer has no chat template; leave it out.")
    read = _variables(str(tokenizer.chat_template))
    if read is None:
        return
    for name in template:
        if name not in read - GIVEN:
            raise UnknownNameError(f"argument of the chat template ({setting})", name, sorted(read - GIVEN))


class _Generation(Extension):
    """The tag of transformers around what the model wrote."""

    tags = {"generation"}  # noqa: RUF012, as jinja has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=16)
def _variables(template: str) -> frozenset[str] | None:
    """What a template reads; None where it cannot be told, and what is wrong with it shows when it is used."""
    try:
        tree = Environment(extensions=["jinja2.ext.loopcontrols", _Generation]).parse(template)
    except TemplateError:
        return None
    return frozenset(find_undeclared_variables(tree))


def _tools_argument(template: str) -> str:
    """Under which name the template reads the tools: SmolLM3's has one of its own."""
    read = _variables(template) or frozenset()
    return "xml_tools" if "xml_tools" in read and "tools" not in read else "tools"


def default_stop_ids(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The end tokens that the tokenizer and the model's own generation settings name."""
    named = getattr(base_causal_lm(model).generation_config, "eos_token_id", None)
    ids = {tokenizer.eos_token_id, *([named] if isinstance(named, int) else named or ())}
    if odd := [i for i in ids if i is not None and not isinstance(i, int)]:
        raise ModelError(f"generation_config.json names {odd[0]!r} as an end token, which is no id; give a number.")
    return tuple(sorted(ids - {None}))


def _text_ids(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
    """With the begin token if the tokenizer adds one, never two of them, and with no end token behind."""
    plain = encode(tokenizer, texts, special=False)
    if not tokenizer.num_special_tokens_to_add():
        return plain
    begin, end = tokenizer.bos_token_id, tokenizer.eos_token_id

    def joined(bare: list[int], ids: list[int]) -> list[int]:
        end_was_added = ids[-1:] == [end] and bare[-1:] != ids[-1:]
        return bare if bare and bare[0] == begin else ids[:-1] if end_was_added else ids

    return [joined(*both) for both in zip(plain, encode(tokenizer, texts, special=True), strict=True)]


def _chat_ids(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], template: Mapping[str, Any]
) -> list[int]:
    text = render_text(tokenizer, messages, template=template)
    return encode(tokenizer, [text], special=False)[0]  # the template has written the begin token itself


def render_text(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Message],
    *,
    opened: bool = True,
    tools: Sequence[Mapping[str, Any]] = (),
    template: Mapping[str, Any] = NOTHING,
) -> str:
    """A chat as the tokenizer's template writes it; `opened`: ready for an answer. `tools` are JSON schemas.

    `template` are further arguments of it.
    """
    if tokenizer.chat_template is None:
        raise ModelError(
            "the prompt is a chat, but the tokenizer has no chat template; give the prompt as text, which "
            "data.chat=false does where the data have a question."
        )
    with library_errors(
        "the tokenizer's chat template cannot render a prompt", "check the roles and contents of its messages"
    ):
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            add_generation_prompt=opened,
            tokenize=False,
            **{_tools_argument(str(tokenizer.chat_template)): [dict(tool) for tool in tools] or None, **template},
        )
    return cast(str, text)


def encode(tokenizer: PreTrainedTokenizerBase, texts: list[str], *, special: bool) -> list[list[int]]:
    """The ids of texts, with begin and end tokens if `special`."""
    if not texts:
        return []
    options: dict[str, Any] = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
    return cast(list[list[int]], tokenizer(texts, add_special_tokens=special, **options)["input_ids"])
