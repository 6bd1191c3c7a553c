"""Python files of the person's own (a reward, an estimator, a loss), named as `path/to/file.py:name` and run once."""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from mingce.base.errors import MingceError

LONGEST_REASON = 500
_ran: dict[Path, ModuleType] = {}


def split_file_spec(spec: str) -> tuple[Path, str] | None:
    """The file and the name (maybe empty) of `path/to/file.py[:name]`; None for what is no such thing."""
    path, colon, name = (spec, "", "") if spec.endswith(".py") else spec.rpartition(":")
    if not path.endswith(".py") or (colon and not name.isidentifier()):
        return None
    return Path(path), name


def names_file(spec: str) -> bool:
    """Whether a setting names a file of Python."""
    return split_file_spec(spec) is not None


def find_callable(path: Path, name: str, error: type[MingceError]) -> Any:
    """What the file calls `name`, which can be called; `error` says what is wrong otherwise."""
    module = run_file(path, error)
    function = getattr(module, name, None)
    if callable(function):
        return function
    near = difflib.get_close_matches(name, [key for key in vars(module) if callable(getattr(module, key))], 1)
    hint = f"did you mean '{path}:{near[0]}'?" if near else f"write it, or name another as {path}:name."
    raise error(f"{path} has no function '{name}'; {hint}")


def run_file(path: Path, error: type[MingceError]) -> ModuleType:
    """The file as a module, run once in a process; `error` says what is wrong with it."""
    if path not in _ran:
        _ran[path] = _run(path, error)
    return _ran[path]


def _run(path: Path, error: type[MingceError]) -> ModuleType:
    name = re.sub(r"\W", "_", f"mingce_user_{path}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last, so that a neighbour of the file can be imported but shadows nothing
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as raised:
        del sys.modules[name]
        if isinstance(raised, MingceError):
            raise error(f"{place(raised, path)}: {raised}") from raised
        raise error(f"{place(raised, path)}: {last_line(raised)}; fix the file.") from raised
    return module


def last_line(error: BaseException) -> str:
    """The error as the last line of a traceback says it, on one line."""
    said = error.msg if isinstance(error, SyntaxError) else " ".join(str(error)[:LONGEST_REASON].split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def place(error: BaseException, path: Path) -> str:
    """The file and line where it happened: a syntax error's own, else the deepest line within the file."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{error.filename}, line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)
