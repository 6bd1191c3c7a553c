"""A task of the person's own: `task=path/to/file.py:name`, a function or class that makes a `Task`.

def crossword(words: int = 5) -> Task: …       # data.options.words=7
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mingce.base.errors import DataError
from mingce.base.user_files import find_callable, last_line, split_file_spec
from mingce.tasks.base import Task

_NEEDED = ("name", "train_examples", "held_out_examples", "score", "gold", "correct")


def own_task(spec: str, options: Mapping[str, Any] | None) -> Task:
    """What the function of that file returns, given the options by name."""
    path, name = split_file_spec(spec) or (None, "")
    if path is None or not name:
        raise DataError(f"task={spec} names no function; write path/to/file.py:function.")
    make = find_callable(path, name, DataError)
    try:
        task = make(**dict(options or {}))
    except Exception as error:  # whatever the person's code raises
        raise DataError(f"{spec} cannot make its task: {last_line(error)}; mend it, or its data.options.") from error
    if missing := [attribute for attribute in _NEEDED if not hasattr(task, attribute)]:
        raise DataError(f"{spec} returned {type(task).__name__}, which has no {missing[0]}; see mingce/tasks/base.py.")
    return task  # type: ignore[no-any-return]
