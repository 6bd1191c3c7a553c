"""Which format a model writes its tool calls in: the one that reads back what its chat template renders."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from mingce.base.errors import MingceError, SettingError
from mingce.models.prompts import encode, render_text
from mingce.models.turns import Dialogue
from mingce.tasks.learned_calls import learned
from mingce.tasks.tool_calls import FORMATS, Pythonic, Tags, ToolCall, ToolFormat, find_format

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
            "the chat template writes calls of tools in a way that mingce does not read; set agent.tool_format."
            if tells_of_tools(tokenizer)
            else "the chat template renders no tools, so the policy would not know of them; set agent.tool_format, and "
            "say in the prompt which tools there are."
        )
    if not told_by(tokenizer, found):
        raise SettingError(
            "the chat template leaves out what tools return, so the policy would never read it; mend the template, or "
            "set agent.tool_format=tags and tell the policy in the prompt how to call."
        )
    return found


def told_by(tokenizer: PreTrainedTokenizerBase, written: ToolFormat) -> bool:
    """Whether the template writes what a tool returned; one that refuses the try is left to say so when it is used."""
    dialogue = Dialogue(tokenizer, [{"role": "user", "content": "zq"}], [])
    dialogue.hear(encode(tokenizer, [written.write(_TRIED)], special=False)[0], ())
    dialogue.called = [{"name": _TRIED.name, "arguments": dict(_TRIED.arguments)}]
    try:
        dialogue.answer([{"role": "tool", "content": "zq result", "name": _TRIED.name}])
    except MingceError:
        return True
    return "zq result" in dialogue.text


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
        turns = _turns(tokenizer, whole[common:])
        for written in FORMATS.values():
            if any(_reads(written, text) for text in turns):
                return written
        if found := learned(turns[0].strip().removesuffix(_end(tokenizer)), _TRIED):
            return found
        if f"[{_TRIED.name}(" in turns[0]:  # some templates leave out the quotes that models write
            return FORMATS[Pythonic.name]
    return None


def _end(tokenizer: PreTrainedTokenizerBase) -> str:
    """What the template writes behind an answer in words."""
    asked = [{"role": "user", "content": "zq"}, {"role": "assistant", "content": "zqzq"}]
    return render_text(tokenizer, asked, opened=False).rpartition("zqzq")[2].strip()


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
    told = _instructions(tokenizer)
    if _TRIED.name not in told:
        return None
    return next((FORMATS[name] for mark, name in _MARKED.items() if re.search(mark, told)), None)


def tells_of_tools(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the template writes which tools there are."""
    return _TRIED.name in _instructions(tokenizer)


def _instructions(tokenizer: PreTrainedTokenizerBase) -> str:
    """A question as the template renders it beside a tool; empty where it does not."""
    function = {"name": _TRIED.name, "description": "zq", "parameters": {"type": "object", "properties": {}}}
    try:
        return render_text(
            tokenizer, [{"role": "user", "content": "zq"}], tools=[{"type": "function", "function": function}]
        )
    except MingceError:
        return ""
