"""The embedded tool `python`: runs a program that the policy wrote, in a sandbox, and gives what it printed.

`agent.tools=[python]` needs bubblewrap; `python:namespaces` and `python:limits` hold less (mingce/tasks/sandbox.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mingce.tasks.sandbox import expect_sandbox, run_program

NAME = "python"
LONGEST_PROGRAM = 20_000


class PythonTool:
    """A tool whose one argument is a program."""

    name = NAME

    def __init__(self, kind: str = ""):
        self.kind = kind or "bubblewrap"
        expect_sandbox(self.kind)

    @property
    def schema(self) -> dict[str, Any]:
        """As chat templates take it."""
        code = {"type": "string", "description": "the program; what it prints is the result"}
        function = {
            "name": NAME,
            "description": "Runs a Python program and returns what it prints.",
            "parameters": {"type": "object", "properties": {"code": code}, "required": ["code"]},
        }
        return {"type": "function", "function": function}

    def call(self, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """What the program printed, and whether it ended well; how it ended otherwise stands behind what it printed."""
        code = arguments.get("code", arguments.get(""))
        if not isinstance(code, str) or len(arguments) != 1:
            return f"Error: {NAME} takes one text, code", False
        if len(code) > LONGEST_PROGRAM:
            return f"Error: the program is longer than {LONGEST_PROGRAM} characters", False
        outcome = run_program(code, self.kind)
        if outcome.stopped:
            return f"{outcome.text}\nError: stopped, {outcome.stopped}".lstrip(), False
        if outcome.code:
            return f"{outcome.text.rstrip()}\nError: exit code {outcome.code}".lstrip(), False
        return outcome.text.rstrip("\n"), True
