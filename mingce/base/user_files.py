"""Python files of the person's own (a reward, an estimator, a loss), named as `path/to/file.py:name`; what stands in
one is run once in a process, and again when it has changed."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from mingce.base.errors import MingceError
from mingce.base.paths import resolved

LONGEST_REASON = 500
MOST_OFFERED = 4
"""Functions that are offered where none has the name."""
_ran: dict[Path, tuple[str, ModuleType]] = {}
"""By resolved path: the SHA-256 of the content that was run, and the module it made."""


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
    own = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    offered = near or [key for key in own if callable(getattr(module, key)) and not key.startswith("_")]
    places = " or ".join(f"'{path}:{key}'" for key in offered[:MOST_OFFERED])
    hint = f"did you mean {places}?" if places else f"write it, or name another as {path}:name."
    raise error(f"{path} has no function '{name}'; {hint}")


def run_file(path: Path, error: type[MingceError]) -> ModuleType:
    """The file as a module, run once in a process for each content it has; `error` says what is wrong with it."""
    path = resolved(path)
    try:
        source = path.read_bytes()
    except OSError as raised:
        raise error(f"{path} cannot be read ({raised.strerror}); check the path.") from raised
    digest = hashlib.sha256(source).hexdigest()
    if path not in _ran or _ran[path][0] != digest:
        _ran[path] = digest, _run(path, source, error)
    return _ran[path][1]


def _run(path: Path, source: bytes, error: type[MingceError]) -> ModuleType:
    name = re.sub(r"\W", "_", f"mingce_user_{path}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last, so that a neighbour of the file can be imported but shadows nothing
    try:
        code = compile(source, path, "exec", dont_inherit=True)  # not by the import system: its bytecode may be older
        exec(code, vars(module))
    except (Exception, SystemExit) as raised:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        if isinstance(raised, MingceError):
            raise error(f"{place(raised, path)}: {raised}") from raised
        raise error(f"{place(raised, path)}: {last_line(raised)}; fix the file.") from raised
    return module


def last_line(error: BaseException) -> str:
    """The error as the last line of a traceback says it, on one line."""
    said = error.msg if isinstance(error, SyntaxError) else " ".join(str(error)[:LONGEST_REASON].split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def own_line(error: BaseException) -> str:
    """The same, behind the deepest line of a file of the person's own where there is one."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if (file := Path(frame.filename)) in _ran:
            return f"{file.name}, line {frame.lineno}: {last_line(error)}"
    return last_line(error)


def place(error: BaseException, path: Path) -> str:
    """The file and line where it happened: a syntax error's own, else the deepest line within the file."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{error.filename}, line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)
