"""Tool calls in formats without a name: JSON between marks learned from what a chat template makes of one.

<|tool_call|>[{"name": …, "arguments": {…}}]<|/tool_call|>    Granite, xLAM, InternLM 2, Phi-4-mini
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from mingce.tasks.tool_calls import CallsAtEnd, Reading, ToolCall, as_call, reading_of

_KEYS = ("arguments", "parameters")
_DECODER = json.JSONDecoder(strict=False)


class MarkedJson(CallsAtEnd):
    """An object or a list of objects between two marks; without marks it is the whole turn."""

    name = "json"

    def __init__(self, opening: str, closing: str, *, listed: bool, nested: bool):
        """`listed`: calls stand in a list; `nested`: each in an object of its own, under `function`."""
        self.opening, self.closing, self.listed, self.nested = opening, closing, listed, nested

    def read(self, text: str, tools: Sequence[str]) -> Reading:
        _, found, body = text.partition(self.opening) if self.opening else ("", text.lstrip()[:1] in ("[", "{"), text)
        body = body.lstrip()
        if not found or not (self.opening or '"name"' in body):
            return Reading()
        try:
            value, end = _DECODER.raw_decode(body)
        except (ValueError, RecursionError) as error:
            return Reading(problem=f"the tool call is not valid JSON ({error})")
        if not body[end:].lstrip().startswith(self.closing):
            return Reading(problem=f"the tool call is not closed by {self.closing}")
        return reading_of([as_call(_inner(one), _KEYS) for one in (value if isinstance(value, list) else [value])])

    def write(self, call: ToolCall) -> str:
        body: Any = {"name": call.name, "arguments": dict(call.arguments)}
        body = {"type": "function", "function": body} if self.nested else body
        return f"{self.opening}{json.dumps([body] if self.listed else body, ensure_ascii=False)}{self.closing}"


def _inner(value: Any) -> Any:
    return value["function"] if isinstance(value, dict) and isinstance(value.get("function"), dict) else value


def learned(text: str, tried: ToolCall) -> MarkedJson | None:
    """The format of a rendered turn in which the call tried stands as JSON; what is before and behind are the marks."""
    for begin, end, value in _values(text):
        listed = isinstance(value, list)
        first = value[0] if listed and len(value) == 1 else value
        inner = _inner(first)
        if as_call(inner, _KEYS) == tried:
            opening, closing = text[:begin].strip(), text[end:].strip()
            return MarkedJson(opening, closing, listed=listed, nested=inner is not first)
    return None


def _values(text: str) -> Iterator[tuple[int, int, Any]]:
    """The JSON lists and objects in a text, outer ones first, with where they begin and end."""
    for found in re.finditer(r"[\[{]", text):
        try:
            value, end = _DECODER.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            continue
        yield found.start(), end, value
