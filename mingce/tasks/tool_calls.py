"""Tool calls as models write them: each format reads calls out of a turn's text, and words what tools returned.

    hermes        <tool_call>{"name": …, "arguments": {…}}</tool_call>              Qwen 2.5 and 3, Hermes, SmolLM3
    llama3        {"name": …, "parameters": {…}}, maybe behind <|python_tag|>       Llama 3.1 to 3.3
    mistral       [TOOL_CALLS][{"name": …, "arguments": {…}}]                       Mistral
    function_xml  <tool_call><function=name><parameter=x>…</parameter></function></tool_call>    Qwen3-Coder, Qwen3.5
    glm           <tool_call>name<arg_key>x</arg_key><arg_value>…</arg_value></tool_call>    GLM 4.5
    pythonic      [name(x="…")]                             Llama 3.2 and 4, Gemma 3, ToolACE
    tags          <name>…</name>, answered by <result>…</result> in the same turn   Search-R1, ToRL

A call that cannot be read is a `problem`, which the policy is told in the place of a result. Its wording is the same in
every language, for it is part of what the policy learns from.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mingce.base.errors import UnknownNameError

Message = dict[str, Any]
"""One turn of a chat: role and content."""


@dataclass(frozen=True)
class ToolCall:
    """One call; `arguments` by name, or `""` → the text of a call by tags, which names none."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """The calls in a text, or why one of them cannot be read."""

    calls: tuple[ToolCall, ...] = ()
    problem: str = ""


class ToolFormat(Protocol):
    """How calls and results are written."""

    name: str

    def stops(self, tools: Sequence[str]) -> tuple[str, ...]:
        """Texts with which a turn ends at once, besides the end token; `tools` are the names of the tools."""
        ...

    def read(self, text: str, tools: Sequence[str]) -> Reading:
        """The calls in a turn's text."""
        ...

    def write(self, call: ToolCall) -> str:
        """A call as the policy would write it."""
        ...

    def told(self, messages: Sequence[Message]) -> str | Sequence[Message]:
        """What tools returned, as the policy gets to read it: messages for the chat template, or text."""
        ...


class CallsAtEnd:
    """By the chat template, and at the end of a turn."""

    def stops(self, tools: Sequence[str]) -> tuple[str, ...]:
        return ()

    def told(self, messages: Sequence[Message]) -> str | Sequence[Message]:
        return messages


def as_call(value: Any, arguments: Sequence[str]) -> ToolCall | str:
    """A call of an object with a name and arguments, under one of these keys; a text says what it lacks."""
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        return 'a tool call needs {"name": …, "arguments": {…}}'
    given: Any = next((value[key] for key in arguments if key in value), {})
    if isinstance(given, str):  # some models write the arguments' JSON as a text
        given = _json(given)
    if not isinstance(given, Mapping):
        return f"the arguments of {value['name']} are not an object"
    return ToolCall(value["name"], dict(given))


def reading_of(found: Sequence[ToolCall | str]) -> Reading:
    for one in found:
        if isinstance(one, str):
            return Reading(problem=one)
        try:
            json.dumps([one.name, dict(one.arguments)], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return Reading(problem="the tool call holds half a character (a lone surrogate)")
    return Reading(tuple(one for one in found if isinstance(one, ToolCall)))


def _json(text: str) -> Any:
    """A JSON value, or the sentence that says why it is none, behind a marker."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        return _Broken(f"the tool call is not valid JSON ({error})")


class _Broken(str):
    """Why a text is no JSON."""


def _call_of_text(text: str, arguments: Sequence[str]) -> ToolCall | str:
    value = _json(text)
    return str(value) if isinstance(value, _Broken) else as_call(value, arguments)


class Hermes(CallsAtEnd):
    """JSON between `<tool_call>` and `</tool_call>`, as many as there are."""

    name = "hermes"
    opening, closing = "<tool_call>", "</tool_call>"

    def read(self, text: str, tools: Sequence[str]) -> Reading:
        _, *parts = text.split(self.opening)
        if any(self.closing not in part for part in parts):
            return Reading(problem=f"a tool call is not closed by {self.closing}")
        if not parts and self.closing in text:
            return Reading(problem=f"{self.closing} stands without {self.opening}")
        return reading_of([self._call(part.partition(self.closing)[0]) for part in parts])

    def _call(self, body: str) -> ToolCall | str:
        return _call_of_text(body.strip(), ("arguments", "parameters"))

    def write(self, call: ToolCall) -> str:
        body = json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
        return f"{self.opening}\n{body}\n{self.closing}"


class FunctionXML(Hermes):
    """`<function=name>` with `<parameter=x>` in it, inside `<tool_call>`."""

    name = "function_xml"
    _FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*)</function>\s*", re.DOTALL)
    _PARAMETER = re.compile(r"\s*<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)

    def _call(self, body: str) -> ToolCall | str:
        if (found := self._FUNCTION.fullmatch(body)) is None:
            return "a tool call needs <function=name>…</function>"
        name, inner = found.groups()
        if self._PARAMETER.sub("", inner).strip():
            return f"the parameters of {name} need <parameter=name>…</parameter>"
        return ToolCall(name, {key: _plain(value) for key, value in self._PARAMETER.findall(inner)})

    def write(self, call: ToolCall) -> str:
        lines = [f"<parameter={key}>\n{_shown(value)}\n</parameter>" for key, value in call.arguments.items()]
        return "\n".join([self.opening, f"<function={call.name}>", *lines, "</function>", self.closing])


class GLM(Hermes):
    """The name, then `<arg_key>` and `<arg_value>` of every argument, inside `<tool_call>`."""

    name = "glm"
    _ARGUMENT = re.compile(r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>\s*", re.DOTALL)

    def _call(self, body: str) -> ToolCall | str:
        name, mark, rest = body.partition("<arg_key>")
        inner = mark + rest
        if not re.fullmatch(r"\s*[\w.-]+\s*", name) or self._ARGUMENT.sub("", inner).strip():
            return "a tool call needs name<arg_key>…</arg_key><arg_value>…</arg_value>"
        return ToolCall(name.strip(), {key.strip(): _plain(value) for key, value in self._ARGUMENT.findall(inner)})

    def write(self, call: ToolCall) -> str:
        lines = [
            f"<arg_key>{key}</arg_key>\n<arg_value>{_shown(value)}</arg_value>" for key, value in call.arguments.items()
        ]
        return "\n".join([f"{self.opening}{call.name}", *lines, self.closing])


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain(text: str) -> Any:
    """A parameter's value: a number, a truth value, a list or an object where it is written as one, else the text."""
    value = _json(text)
    return text if isinstance(value, str) else value  # a broken one is a text, too


class Llama3(CallsAtEnd):
    """The whole turn is one object, or several divided by `;`; a turn of words is no call."""

    name = "llama3"
    tag = "<|python_tag|>"

    def read(self, text: str, tools: Sequence[str]) -> Reading:
        body = text.strip()
        tagged = body.startswith(self.tag)
        body = body.removeprefix(self.tag).strip()
        if not tagged and not (body.startswith("{") and '"name"' in body):
            return Reading()
        decoder, found, at = json.JSONDecoder(strict=False), [], 0
        while at < len(body):
            try:
                value, at = decoder.raw_decode(body, at)
            except (ValueError, RecursionError) as error:
                return Reading(problem=f"the tool call is not valid JSON ({error})")
            found.append(as_call(value, ("parameters", "arguments")))
            at += len(body[at:]) - len(body[at:].lstrip("; \n\t"))
        return reading_of(found) if found else Reading(problem='a tool call needs {"name": …, "parameters": {…}}')

    def write(self, call: ToolCall) -> str:
        return json.dumps({"name": call.name, "parameters": dict(call.arguments)}, ensure_ascii=False)


class Mistral(CallsAtEnd):
    """A list of objects behind `[TOOL_CALLS]`."""

    name = "mistral"
    tag = "[TOOL_CALLS]"

    def read(self, text: str, tools: Sequence[str]) -> Reading:
        _, tag, body = text.partition(self.tag)
        if not tag:
            return Reading()
        value = _json(body.strip())
        if isinstance(value, _Broken):
            return Reading(problem=str(value))
        values = value if isinstance(value, list) else [value]
        return reading_of([as_call(one, ("arguments", "parameters")) for one in values])

    def write(self, call: ToolCall) -> str:
        return self.tag + json.dumps([{"name": call.name, "arguments": dict(call.arguments)}], ensure_ascii=False)


class Pythonic(CallsAtEnd):
    """A list of calls in Python's syntax, with arguments by name whose values are written out."""

    name = "pythonic"
    _BEGINS = re.compile(r"\[\s*[A-Za-z_][\w.]*\s*\(")
    _MARKS = ("<|python_start|>", "<|python_tag|>", "```tool_code\n")

    def read(self, text: str, tools: Sequence[str]) -> Reading:
        body = text.strip()
        for mark in self._MARKS:
            body = body.removeprefix(mark)
        body = body.removesuffix("<|python_end|>").removesuffix("```").strip()
        if not self._BEGINS.match(body):
            return Reading()
        try:
            tree = ast.parse(body, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return Reading(problem=f"the tool call is not valid Python ({error.__class__.__name__})")
        calls = tree.elts if isinstance(tree, ast.List) else []
        return reading_of([_called(one) for one in calls] or ["a tool call needs [name(argument=value)]"])

    def write(self, call: ToolCall) -> str:
        return f"[{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})]"


def _called(node: ast.expr) -> ToolCall | str:
    """A call of names with plain values; nothing is executed."""
    if not isinstance(node, ast.Call) or node.args or any(one.arg is None for one in node.keywords):
        return "a tool call needs name(argument=value)"
    try:
        arguments = {str(one.arg): ast.literal_eval(one.value) for one in node.keywords}
        json.dumps(arguments)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        return f"the arguments of {ast.unparse(node.func)} are not plain values ({type(error).__name__})"
    return ToolCall(ast.unparse(node.func), arguments)


class Tags:
    """A tag of the tool's own name; the turn ends with the closing one, and the result follows in the same message."""

    name = "tags"

    def __init__(self, answer: str = "result"):
        self.answer = answer

    def stops(self, tools: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"</{tool}>" for tool in tools)

    def read(self, text: str, tools: Sequence[str]) -> Reading:
        names = "|".join(re.escape(tool) for tool in tools)
        marks = list(re.finditer(f"<(/?)({names})>", text)) if tools else []
        if not marks:
            return Reading()
        *_, last = marks
        before = marks[-2] if len(marks) > 1 else None
        if not last[1]:
            return Reading(problem=f"<{last[2]}> is not closed")
        if before is None or before[1] or before[2] != last[2]:
            return Reading(problem=f"</{last[2]}> stands without <{last[2]}>")
        return Reading((ToolCall(last[2], {"": text[before.end() : last.start()].strip()}),))

    def write(self, call: ToolCall) -> str:
        (text,) = call.arguments.values()
        return f"<{call.name}>{text}</{call.name}>"

    def told(self, messages: Sequence[Message]) -> str | Sequence[Message]:
        if any(message["role"] != "tool" for message in messages):
            return messages  # somebody else speaks
        return "".join(f"<{self.answer}>{message['content']}</{self.answer}>" for message in messages)


_ALL: tuple[ToolFormat, ...] = (Hermes(), FunctionXML(), GLM(), Llama3(), Mistral(), Pythonic(), Tags())
FORMATS = {one.name: one for one in _ALL}


def find_format(name: str) -> ToolFormat:
    """The format of that name; `tags:information` is tags whose results stand in `<information>`."""
    kind, _, answer = name.partition(":")
    if kind == Tags.name and answer:
        return Tags(answer)
    if name not in FORMATS:
        raise UnknownNameError("tool format", name, [*FORMATS, "tags:NAME"])
    return FORMATS[name]
