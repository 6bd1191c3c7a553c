"""Plain Python functions as tools, told to the policy by JSON schemas of their signatures.

    def search(query: str, top_k: int = 3) -> str:
        '''Looks something up.'''

Any task becomes a conversation with them (`WithTools`): a turn with calls is answered by what the functions returned,
a turn without one is the answer, which the task scores. A function that raises, or is called wrongly, answers with the
error; that is part of the conversation and not a failure of it. Coroutine functions are awaited.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Protocol, get_args, get_origin, get_type_hints

from mingce.base.errors import SettingError, UnknownNameError
from mingce.base.schema import type_schema
from mingce.base.user_files import find_callable, last_line, split_file_spec
from mingce.tasks.base import Example, Prompt, Score, Task
from mingce.tasks.environment import Action, Environment, Observation
from mingce.tasks.scoring import Scorer, scorer_of
from mingce.tasks.tool_calls import Message, ToolCall
from mingce.tasks.waiting import awaited

MALFORMED = "malformed_calls"
CALLS = "tool_calls"
FAILED_CALLS = "failed_calls"


class AnyTool(Protocol):
    """What the policy may call by a name: a function, a program (`python_tool`), a tool of an MCP server."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> dict[str, Any]: ...

    def call(self, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """What to tell the policy, and whether the call worked."""
        ...


@dataclass(frozen=True)
class Tool:
    """A function that the policy may call by its name."""

    function: Callable[..., Any]
    name: str

    @cached_property
    def schema(self) -> dict[str, Any]:
        """As chat templates take it: the function's name, its docstring, and the schema of its parameters."""
        parameters = inspect.signature(self.function).parameters.values()
        hints = get_type_hints(self.function, include_extras=True)
        properties = {one.name: _described(hints.get(one.name, Any)) for one in parameters}
        required = [one.name for one in parameters if one.default is inspect.Parameter.empty]
        function = {
            "name": self.name,
            "description": inspect.cleandoc(self.function.__doc__ or "").partition("\n\n")[0],
            "parameters": {"type": "object", "properties": properties, "required": required},
        }
        return {"type": "function", "function": function}

    def call(self, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """What it returned as text, and whether it did: a call that fails gives the error instead."""
        signature = inspect.signature(self.function)
        if "" in arguments:  # written between tags, which name no parameter
            arguments = {next(iter(signature.parameters), ""): arguments[""]}
        try:
            bound = signature.bind(**arguments)
        except TypeError as error:
            return f"Error: {self.name}: {error}", False
        try:
            result = awaited(self.function(*bound.args, **bound.kwargs))
            return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str), True
        except (Exception, SystemExit) as error:  # whatever the person's function raises is told to the policy
            return f"Error: {last_line(error)}", False


def _described(hint: Any) -> dict[str, Any]:
    """An annotation's schema; a text in `Annotated[int, "how many"]` describes the parameter."""
    said = [note for note in get_args(hint)[1:] if isinstance(note, str)] if get_origin(hint) is Annotated else []
    return type_schema(hint, nulls=False) | ({"description": said[0]} if said else {})


def load_tools(specs: Sequence[str], mcp: Sequence[str] = ()) -> list[AnyTool]:
    """The tools of settings such as `my_tools.py:search` or `python`, and those of MCP servers."""
    tools: list[AnyTool] = [_load_tool(spec) for spec in specs]
    if mcp:
        from mingce.tasks.mcp_tools import load_mcp

        tools += load_mcp(mcp)
    names = [tool.name for tool in tools]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingError(f"agent.tools has two functions of one name ({twice[0]}), with agent.mcp; rename one.")
    return tools


def _load_tool(spec: str) -> AnyTool:
    kind, _, how = spec.partition(":")
    if kind == "python":
        from mingce.tasks.python_tool import PythonTool

        return PythonTool(how)
    if kind == "search":
        from mingce.tasks.search.tool import SearchTool

        return SearchTool(how)
    path, name = split_file_spec(spec) or (None, "")
    if path is None or not name:
        raise SettingError(
            f"agent.tools names '{spec}'; name python, search:WHERE, or a function as path/to/file.py:function."
        )
    return Tool(find_callable(path, name, SettingError), name)


class ToolEnvironment:
    """Answers calls until a turn has none; that turn is the answer, which the task scores."""

    def __init__(self, tools: Sequence[AnyTool], gold: Callable[[Example], str]):
        self.tools, self._gold = {tool.name: tool for tool in tools}, gold

    def reset(self, example: Example, seed: int) -> Prompt:
        self.example = example
        return example.prompt

    def step(self, action: Action) -> Observation:
        if action.problem:
            return Observation([tool_message(self._error(action.problem))], parts={MALFORMED: 1.0})
        if not action.calls:
            return Observation(done=True)
        answers = [self._answer(call) for call in action.calls]
        told = [tool_message(text, call.name) for call, (text, _) in zip(action.calls, answers, strict=True)]
        parts = {CALLS: float(len(answers)), FAILED_CALLS: float(sum(not worked for _, worked in answers))}
        return Observation(told, parts=parts)

    def _answer(self, call: ToolCall) -> tuple[str, bool]:
        tool = self.tools.get(call.name)
        if tool is None:
            return f"Error: {UnknownNameError('tool', call.name, self.tools)}", False
        return tool.call(call.arguments)

    def _error(self, problem: str) -> str:
        return f"Error: {problem}"

    def gold(self) -> str:
        return self._gold(self.example)


def tool_message(text: str, name: str = "") -> Message:
    """What a tool says, as a message."""
    return {"role": "tool", "content": text} | ({"name": name} if name else {})


class WithTools:
    """A task whose questions may be answered with the help of tools."""

    def __init__(self, task: Task, tools: Sequence[AnyTool]):
        self.task, self.tools, self.name = task, list(tools), task.name

    @property
    def scorer(self) -> Scorer:
        """The task's own, which goes to scoring processes without the tools."""
        return scorer_of(self.task)

    def environment(self) -> Environment:
        return ToolEnvironment(self.tools, self.task.gold)

    def tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        return [tool.schema for tool in self.tools]

    def tool_format(self) -> str | None:
        return None

    def train_examples(self) -> Sequence[Example]:
        return self.task.train_examples()

    def held_out_examples(self) -> Sequence[Example]:
        return self.task.held_out_examples()

    def score(self, example: Example, response: str) -> Score:
        return self.task.score(example, response)

    def gold(self, example: Example) -> str:
        return self.task.gold(example)

    def correct(self, example: Example, response: str) -> bool:
        return self.task.correct(example, response)

    def close(self) -> None:
        """Ends what its tools have started."""
        for tool in self.tools:
            if callable(close := getattr(tool, "close", None)):
                close()
