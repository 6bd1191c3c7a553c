"""Which format a model writes its tool calls in: the one that reads back what its chat template renders."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from mingce.base.errors import MingceError, SettingError
from mingce.models.prompts import render_text
from mingce.tasks.tool_calls import FORMATS, Tags, ToolCall, ToolFormat, find_format

_TRIED = ToolCall("zq_tool", {"zq_text": "zq value"})
_MARKED = {r"<tool_call>\s*<function=": "function_xml", r"<arg_key>": "glm", r"<tool_call>\s*\{\"name\"": "hermes"}
"""What instructions in a system message show, of templates that leave calls to the model's own words."""


def format_for(
    tokenizer: PreTrainedTokenizerBase, chosen: str | None, schemas: Sequence[Mapping[str, Any]]
) -> ToolFormat:
    """The format of that name; None: the one of the chat template."""
    if chosen is not None:
        return find_format(chosen)
    if not schemas:
        return FORMATS[Tags.name]  # no tool, so no call is ever read
    if tokenizer.chat_template is None:
        raise SettingError(
            "the tokenizer has no chat template that could tell of tools; set agent.tool_format=tags and tell the "
            "policy in the prompt how to call them."
        )
    found = rendered_format(tokenizer) or instructed_format(tokenizer)
    if found is None:
        raise SettingError(
            "the chat template renders no tools, so the policy would not know of them; set agent.tool_format, and say "
            "in the prompt which tools there are."
        )
    return found


def rendered_format(tokenizer: PreTrainedTokenizerBase) -> ToolFormat | None:
    """The format that reads a call out of what the template makes of it."""
    call = {"name": _TRIED.name, "arguments": dict(_TRIED.arguments)}
    for arguments in (call["arguments"], json.dumps(call["arguments"])):  # templates differ in what they take
        asked = {"type": "function", "id": "zq1234567", "function": {**call, "arguments": arguments}}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "zq"},
            {"role": "assistant", "content": "", "tool_calls": [asked]},
        ]
        try:
            before = render_text(tokenizer, messages[:1])
            whole = render_text(tokenizer, messages, opened=False)
        except MingceError:
            continue
        common = next((i for i, (a, b) in enumerate(zip(before, whole, strict=False)) if a != b), len(before))
        for written in FORMATS.values():
            if any(_reads(written, text) for text in _turns(tokenizer, whole[common:])):
                return written
    return None


def _turns(tokenizer: PreTrainedTokenizerBase, text: str) -> list[str]:
    """The rendered turn, without and with what stands after its end token."""
    ends = [text.rfind(end) for end in (tokenizer.eos_token, "<|eot_id|>", "<|eom_id|>") if end and end in text]
    return [text[: max(ends)], text] if ends else [text]


def _reads(written: ToolFormat, text: str) -> bool:
    """Whether the format finds the call in it, and nothing else."""
    begins = text.find("{") if written.name == "llama3" else 0
    return written.name != Tags.name and written.read(text[max(begins, 0) :], [_TRIED.name]).calls == (_TRIED,)


def instructed_format(tokenizer: PreTrainedTokenizerBase) -> ToolFormat | None:
    """The format that the template tells the model to use, where it does not render calls itself."""
    function = {"name": _TRIED.name, "description": "zq", "parameters": {"type": "object", "properties": {}}}
    try:
        told = render_text(
            tokenizer, [{"role": "user", "content": "zq"}], tools=[{"type": "function", "function": function}]
        )
    except MingceError:
        return None
    if _TRIED.name not in told:
        return None
    return next((FORMATS[name] for mark, name in _MARKED.items() if re.search(mark, told)), None)
