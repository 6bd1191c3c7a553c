"""Where a function of mingce stands in its files, read from the source: nothing is imported, torch least of all.

resolve("mingce.algorithms.advantage.gae")  →  CodeRef(…, "mingce/algorithms/advantage.py", 63)
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class CodeRef(NamedTuple):
    """A function or class by its dotted name; `file` starts at the package, `line` is that of its def."""

    name: str
    file: str
    line: int

    @property
    def short(self) -> str:
        """The name within its file: `gae`, `Critic.values`."""
        return self.name.removeprefix(self.file.removesuffix(".py").replace("/", ".")).lstrip(".")


@cache
def resolve(name: str) -> CodeRef:
    """The place of `mingce.module.function` or `mingce.module.Class.method`; a wrong name is a programmer's mistake."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        file = Path(*parts[:end]).with_suffix(".py")
        if (ROOT / file).is_file():
            line = _line(ROOT / file, parts[end:])
            assert line is not None, f"{file} has no {'.'.join(parts[end:])}"
            return CodeRef(name, file.as_posix(), line)
    raise AssertionError(f"no module of {name}")


def _line(file: Path, names: list[str]) -> int | None:
    body: list[ast.stmt] = _parsed(file).body
    found: _Definition | None = None
    for name in names:
        found = next((node for node in body if isinstance(node, _Definition) and node.name == name), None)
        if found is None:
            return None
        body = found.body
    return None if found is None else found.lineno


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))
